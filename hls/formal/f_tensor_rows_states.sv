// The state machine of tensor_rows leads to its rest from any state and any counts: it offers a run
// for each row of each tile that is left, and no more.
//
// Method      the rank counts four clocks for each run that is left: at most 256 rows in a tile, as
//             many tiles as the words of a row that are left.
module f_tensor_rows_states
  import mel_normalize_pkg::*;
(
  input logic       clk_i,
  input logic [7:0] mels_i,
  input logic       half_i,
  input logic       by_frames_i,
  input logic       ready_i
);

  typedef enum logic [1:0] {StDone, StLower, StUpper, StOffer} state_e;  // as tensor_rows has them

  // verilator lint_off PINMISSING
  tensor_rows u (
    .clk_i, .rst_ni(1'b1), .start_i(1'b0), .mels_i, .half_i, .by_frames_i, .ready_i
  );
  // verilator lint_on PINMISSING

  logic        past_q = 1'b0, moved;
  logic [9:0]  settings, settings_q;
  logic [14:0] tiles;  // behind this one
  logic [7:0]  rows;   // behind this one in the tile
  logic [23:0] rank;
  assign settings = {mels_i, half_i, by_frames_i};
  assign rows     = u.mel_q - 8'd1;

  always_comb begin
    tiles = u.left_q == '0 ? '0 : half_i ? (u.left_q - 15'd1) >> $clog2(TileFrames / 8)
                                         : (u.left_q - 15'd1) >> $clog2(TileFrames / 4);
    unique case (state_e'(u.state_q))
      StDone:  rank = '0;
      StOffer: rank = 24'd1 + 24'(moved);
      StUpper: rank = 24'd3;
      StLower: rank = 24'd4;
    endcase
    if (rank != '0) rank = rank + {tiles[13:0], 10'd0} + {14'd0, rows, 2'd0};
  end

  state_checker #(.RankBits(24)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i(ready_i),
    .moved_o(moved)
  );

  always_ff @(posedge clk_i) begin
    past_q     <= 1'b1;
    settings_q <= settings;
  end
  always_comb begin
    m_settings_stay: assume (!past_q || settings == settings_q);
  end

endmodule
