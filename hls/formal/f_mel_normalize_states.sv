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

  // A slot has six clocks, of which `step` is the last. From any phase and `step`, one comes within
  // eight clocks, and from then on each slot is whole.
  logic [3:0] to_step, to_step_q;
  logic [2:0] phase;
  logic       step, whole, whole_q, past_q = 1'b0, begins_q;
  assign phase   = u.u_statistics.phase_q;
  assign step    = u.u_statistics.step_q;
  assign to_step = step ? 4'd0 : phase < 3'd5 ? 4'd5 - 4'(phase) : 4'd13 - 4'(phase);
  assign whole   = phase <= 3'd5 && step == (phase == 3'd5);
  always_ff @(posedge clk_i) begin
    past_q    <= 1'b1;
    begins_q  <= start_i || step;
    to_step_q <= to_step;
    whole_q   <= whole || start_i;
  end
  always_comb begin
    if (past_q) begin
      a_slots_go_on: assert (begins_q ? to_step <= 4'd5 : to_step == to_step_q - 4'd1);
      a_slots_are_whole: assert (!whole_q || whole);
      c_slot_from_nowhere: cover (to_step_q == 4'd8 && !begins_q);
    end
  end

endmodule
