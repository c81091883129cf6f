// The property of block_fifo: it is a queue of Depth + 1 words (stream_checker), which shows a word
// two clocks after it came. `clear_i` may come at any time.
//
// Depth 4 stands for all: head and tail only count, and nothing but their difference and the
// equality of addresses is used.
module f_block_fifo #(
  parameter int unsigned Width = 2,
  parameter int unsigned Depth = 4
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             clear_i,
  input logic             mark_i,
  input logic [Width-1:0] data_i,
  input logic             valid_i,
  input logic             ready_i
);

  localparam int unsigned Bits = $clog2(Depth);

  logic [Width-1:0] data_o;
  logic             valid_o, ready_o;
  logic [Bits:0]    count_o;
  logic             past_q = 1'b0;

  block_fifo #(.Width(Width), .Depth(Depth)) u (.*);
  stream_checker #(.Width(Width), .Depth(Depth + 1), .Room(Depth), .Latency(1)) u_check (
    .clk_i, .rst_ni(rst_ni && !clear_i), .mark_i,
    .in_i (data_i), .in_valid_i (valid_i), .in_ready_i (ready_o),
    .out_i(data_o), .out_valid_i(valid_o), .out_ready_i(ready_i),
    .inside_i(($clog2(Depth + 2) + 1)'(count_o) + ($clog2(Depth + 2) + 1)'(valid_o))
  );

  // Where the followed word lies: in the read register, or in the memory.
  logic            shown;
  logic [Bits-1:0] place;
  assign shown = valid_o && u_check.ahead_q == '0;
  assign place = Bits'(u.head_q) + Bits'(u_check.ahead_q) - Bits'(valid_o);

  always_ff @(posedge clk_i) past_q <= 1'b1;
  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    if (past_q) begin
      a_count_of_memory: assert (32'(count_o) <= Depth);
      h_followed: assert (!u_check.follows_q || shown || u.memory[place] == u_check.word_q);
    end
  end

endmodule
