// The state machine of symbol_pairs leads to its rest from any state, window and code: a table has
// 256 windows, each of which takes at most three clocks. It waits for nothing. What memory has of a
// code is free.
module f_symbol_pairs_states
  import headrace_pkg::*;
(
  input logic           clk_i,
  input huffman_write_t write_i,
  input logic           write_valid_i,
  input logic           spreading_i
);

  typedef enum logic [2:0] {StIdle, StFetch, StCode, StStep, StRest} state_e;  // as symbol_pairs

  // verilator lint_off PINMISSING
  symbol_pairs u (.clk_i, .rst_ni(1'b1), .write_i, .write_valid_i, .spreading_i);
  // verilator lint_on PINMISSING

  logic       past_q = 1'b0;
  logic [9:0] rank, rank_q, windows;
  assign windows = 10'd3 * 10'({8'd255 - u.window_q});  // behind this one

  always_comb begin
    unique case (state_e'(u.state_q))
      StIdle:         rank = '0;
      StStep, StRest: rank = windows + 10'd1;
      StCode:         rank = windows + 10'd2;
      StFetch:        rank = windows + 10'd3;
      default:        rank = 10'd1;
    endcase
  end

  always_ff @(posedge clk_i) begin
    past_q <= 1'b1;
    rank_q <= rank;
  end
  always_comb begin
    if (past_q) begin
      a_nearer_to_rest: assert (rank_q == '0 || rank < rank_q);
      c_from_the_first_window: cover (rank == 10'd765);
      c_rests: cover (rank_q != '0 && rank == '0);
    end
  end

endmodule
