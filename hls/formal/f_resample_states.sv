// The state machine of resample leads to its rest from any state, also where it waits for a count
// that never began. All that it reads of the data path is cut, but for how far the count is.
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

  localparam int unsigned Places = 36;  // of the bit that moves through resample_count

  logic       answer_moved, end_moved;
  logic [7:0] rank, counting;  // clocks until the count is done

  always_comb begin
    counting = 8'd1;
    for (int i = Places - 1; i >= 0; i--) begin
      if (u.u_count.busy_q[i]) counting = 8'(Places + 1 - i);
    end
    if (u.count_done) counting = 8'd0;
  end

  always_comb begin
    unique case (state_e'(u.state_q))
      Idle:    rank = 8'd0;
      Load:    rank = 8'd1;
      Steps:   rank = 8'd1 + 8'(end_moved);
      Answer:  rank = 8'd3 + 8'(answer_moved);
      Count:   rank = 8'd5 + counting;
      default: rank = 8'd1;
    endcase
  end

  state_checker #(.Moves(2)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({sound_ready_i, u.ended}),
    .moved_o({answer_moved, end_moved})
  );

endmodule
