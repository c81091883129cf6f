// Where the words of mel_normalize go: a run of words for each tile and band, as axi_write takes
// them.
//
// Interface   `start_i` for a clock, the settings stable until `done_o`, which stands until the
//             next start.
// Throughput  a command in three clocks.
module tensor_rows
  import mel_normalize_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  logic [63:0] address_i,  // 16-byte aligned
  input  logic [14:0] pitch_i,    // words of a row
  input  logic [7:0]  mels_i,     // rows
  input  logic        half_i,     // float16: a tile has 16 words of a row, else 32
  input  logic        by_frames_i,  // words come in the order of the tensor: one run of them all
  input  logic [21:0] all_words_i,
  output logic        done_o,

  output logic [63:0] address_o,
  output logic [21:0] words_o,
  output logic        valid_o,
  input  logic        ready_i
);

  typedef enum logic [1:0] {
    StDone,
    StLower,  // the address is added up in two parts
    StUpper,
    StOffer
  } state_e;

  state_e      state_q;
  logic [21:0] row_q;     // word of the tensor where the row begins
  logic [14:0] column_q;  // and where in it the tile begins
  logic [14:0] left_q;    // words of the row from there on
  logic [7:0]  mel_q;
  logic [5:0]  tile_words;
  logic        last_row, last_tile;
  logic [21:0] word;
  logic        carry_q;

  assign tile_words = half_i ? 6'(TileFrames / 8) : 6'(TileFrames / 4);
  assign last_row   = mel_q == 8'd1;
  assign last_tile  = left_q <= 15'(tile_words);
  assign word       = row_q + 22'(column_q);
  assign words_o    = by_frames_i ? all_words_i : 22'(last_tile ? left_q[5:0] : tile_words);
  assign valid_o    = state_q == StOffer;
  assign done_o     = state_q == StDone;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StDone;
    end else begin
      unique case (state_q)
        StDone:  if (start_i) state_q <= StLower;
        StLower: state_q <= StUpper;
        StUpper: state_q <= StOffer;
        default: begin
          if (ready_i) state_q <= by_frames_i || (last_row && last_tile) ? StDone : StLower;
        end
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StLower) {carry_q, address_o[31:4]} <= {1'b0, address_i[31:4]} + 29'(word);
    if (state_q == StUpper) address_o[63:32] <= address_i[63:32] + 32'(carry_q);
    address_o[3:0] <= '0;
    if (start_i) begin
      row_q    <= '0;
      column_q <= '0;
      left_q   <= pitch_i;
      mel_q    <= mels_i;
    end else if (valid_o && ready_i) begin
      row_q <= last_row ? '0 : row_q + 22'(pitch_i);
      mel_q <= last_row ? mels_i : mel_q - 1'b1;
      if (last_row) begin
        column_q <= column_q + 15'(tile_words);
        left_q   <= left_q - 15'(tile_words);
      end
    end
  end

endmodule
