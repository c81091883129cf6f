// The state machine of entropy_decoder leads to its rest from any state. All that it reads of the
// data path is cut. Of the restart markers one is taken: each is a token of a file, which ends.
module f_entropy_states (
  input logic clk_i,
  input logic scan_valid_i,
  input logic window_valid_i,
  input logic token_valid_i
);

  // As entropy_decoder has them.
  typedef enum logic [3:0] {
    StIdle = 4'd0, StStart = 4'd1, StCount = 4'd2, StLoad = 4'd3, StRestart = 4'd4, StRest = 4'd5,
    StEnd = 4'd6, StDecode = 4'd8
  } state_e;

  // verilator lint_off PINMISSING
  entropy_decoder u (.clk_i, .rst_ni(1'b1), .scan_valid_i, .window_valid_i, .token_valid_i);
  // verilator lint_on PINMISSING

  state_e     state, state_q;
  logic       past_q = 1'b0;
  logic       seen_q;  // a restart marker was taken
  logic       window_moved, decode_moved, token_moved, file_moved, end_moved, decoded, ends;
  logic [7:0] rank, restart;
  assign state   = state_e'(u.state_q);
  assign decoded = !u.decoding ||
                   (u.s1_counts && (u.error || u.image_done || u.interval_done));
  assign ends    = u.end_beat && u.fifo_ready;
  assign restart = seen_q ? 8'd6 : 8'd11;  // the most of a state between two intervals

  always_comb begin
    unique case (state)
      StIdle:    rank = 8'd0;
      StEnd:     rank = 8'd1 + 8'(end_moved);
      StRest:    rank = 8'd3 + 8'(file_moved);
      StRestart: rank = restart - 8'd1 + 8'(token_moved);
      StDecode:  rank = restart + 8'd1 + 8'(decode_moved);
      StLoad:    rank = restart + 8'd3;
      StCount:   rank = restart + 8'd4;
      StStart:   rank = restart + 8'd5 + 8'(window_moved);
      default:   rank = 8'd1;
    endcase
  end

  state_checker #(.Moves(5)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({window_valid_i, decoded, token_valid_i, u.file_end, ends}),
    .moved_o({window_moved, decode_moved, token_moved, file_moved, end_moved})
  );

  always_ff @(posedge clk_i) begin
    past_q  <= 1'b1;
    state_q <= state;
    seen_q  <= state != StIdle && (seen_q || (state == StRestart && u.restart && token_valid_i));
  end

  always_comb begin
    m_one_restart: assume (!(state == StRestart && seen_q) || !u.restart);
    if (past_q) c_restarts: cover (state_q == StRestart && state == StLoad);
  end

endmodule
