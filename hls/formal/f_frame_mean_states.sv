// The state machine of frame_mean leads to its rest from any state and any count of bits.
module f_frame_mean_states (
  input logic clk_i,
  input logic enable_i,
  input logic clear_i,
  input logic block_end_i,
  input logic read_i
);

  // As frame_mean has them.
  typedef enum logic [2:0] {StWait, StSum, StMultiply, StAdd, StDivide, StDone} state_e;

  // verilator lint_off PINMISSING
  frame_mean u (.clk_i, .rst_ni(1'b1), .enable_i, .clear_i, .block_end_i, .read_i);
  // verilator lint_on PINMISSING

  logic       read_moved;
  logic [7:0] rank;

  always_comb begin
    unique case (state_e'(u.state_q))
      StWait:     rank = 8'd0;
      StDone:     rank = 8'd1 + 8'(read_moved);
      StDivide:   rank = 8'd3 + 8'({6'd47 - u.bits_q});
      StAdd:      rank = 8'd67;
      StMultiply: rank = 8'd68 + 8'({6'd24 - u.bits_q});
      StSum:      rank = 8'd132;
      default:    rank = 8'd1;
    endcase
  end

  state_checker u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i(read_i),
    .moved_o(read_moved)
  );

endmodule
