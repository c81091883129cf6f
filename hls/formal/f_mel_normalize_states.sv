// The state machine of mel_normalize leads to its rest from any state, and the slots of
// norm_statistics go on from any phase. All that they read of the data path is cut.
module f_mel_normalize_states (
  input logic clk_i,
  input logic start_i
);

  typedef enum logic [1:0] {StIdle, StStatistics, StValues, StEmpty} state_e;  // as mel_normalize

  // verilator lint_off PINMISSING
  mel_normalize u (.clk_i, .rst_ni(1'b1), .start_i);
  // verilator lint_on PINMISSING

  logic       statistics_moved, value_moved, empty_moved, slot_moved;
  logic [7:0] rank;

  always_comb begin
    unique case (state_e'(u.state_q))
      StIdle:       rank = 8'd0;
      StEmpty:      rank = 8'd1 + 8'(empty_moved);
      StValues:     rank = 8'd3 + 8'(value_moved);
      StStatistics: rank = 8'd5 + 8'(statistics_moved);
    endcase
  end

  state_checker #(.Moves(3)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({u.last_statistics, u.last_value, u.empty}),
    .moved_o({statistics_moved, value_moved, empty_moved})
  );

  // A slot ends in phase 5; a start begins one.
  logic [2:0] phase_q;
  logic       past_q = 1'b0, start_q;
  always_ff @(posedge clk_i) begin
    past_q  <= 1'b1;
    start_q <= start_i;
    phase_q <= u.u_statistics.phase_q;
  end
  always_comb begin
    if (past_q) begin
      a_slots_go_on: assert (u.u_statistics.phase_q == (start_q || phase_q == 3'd5 ? 3'd0 :
                                                        phase_q + 3'd1));
      c_slot_from_nowhere: cover (phase_q == 3'd7 && !start_q);
    end
  end

endmodule
