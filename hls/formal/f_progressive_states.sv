// The state machine of progressive_decoder leads to its rest from any state. All that it reads of
// the data path is cut.
module f_progressive_states (
  input logic clk_i,
  input logic scan_valid_i,
  input logic window_valid_i,
  input logic coefficient_ready_i
);

  // As progressive_decoder has them.
  typedef enum logic [3:0] {
    StIdle, StSettle, StPass, StStart, StDecode, StDrain, StSend, StEnd
  } state_e;

  // verilator lint_off PINMISSING
  progressive_decoder u (
    .clk_i, .rst_ni(1'b1), .scan_valid_i, .window_valid_i, .coefficient_ready_i
  );
  // verilator lint_on PINMISSING

  logic       window_moved, decode_moved, drain_moved, send_moved, end_moved, drained, settles;
  logic [7:0] rank;
  assign drained = u.read_idle && u.write_idle && !u.written_valid;
  assign settles = !u.sending_q || window_valid_i;

  always_comb begin
    unique case (state_e'(u.state_q))
      StIdle:   rank = 8'd0;
      StEnd:    rank = 8'd1 + 8'(end_moved);
      StDrain:  rank = 8'd3 + 8'(drain_moved);
      StSend:   rank = 8'd5 + 8'(send_moved);
      StDecode: rank = 8'd5 + 8'(decode_moved);
      StStart:  rank = 8'd7;
      StPass:   rank = 8'd8;
      StSettle: rank = 8'd9 + {5'd0, u.settle_left_q, 1'b0} + 8'(window_moved);
      default:  rank = 8'd1;
    endcase
  end

  state_checker #(.Moves(5)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({settles, u.decoded, drained, u.sent, coefficient_ready_i}),
    .moved_o({window_moved, decode_moved, drain_moved, send_moved, end_moved})
  );

endmodule
