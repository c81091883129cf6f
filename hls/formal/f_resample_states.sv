// The state machine of resample leads to its rest from any state. All that it reads of the data
// path is cut.
module f_resample_states (
  input logic clk_i,
  input logic load_valid_i,
  input logic sound_valid_i,
  input logic sound_ready_i
);

  typedef enum logic [2:0] {Idle, Load, Count, Answer, Steps} state_e;  // as resample has them

  // verilator lint_off PINMISSING
  resample u (.clk_i, .rst_ni(1'b1), .load_valid_i, .sound_valid_i, .sound_ready_i);
  // verilator lint_on PINMISSING

  logic       count_moved, answer_moved, end_moved;
  logic [7:0] rank;

  always_comb begin
    unique case (state_e'(u.state_q))
      Idle:    rank = 8'd0;
      Load:    rank = 8'd1;
      Steps:   rank = 8'd1 + 8'(end_moved);
      Answer:  rank = 8'd3 + 8'(answer_moved);
      Count:   rank = 8'd5 + 8'(count_moved);
      default: rank = 8'd1;
    endcase
  end

  state_checker #(.Moves(3)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({u.count_done, sound_ready_i, u.ended}),
    .moved_o({count_moved, answer_moved, end_moved})
  );

endmodule
