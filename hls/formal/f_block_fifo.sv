// The property of block_fifo: it is a queue of Depth + 4 words (stream_checker), which shows a word
// four clocks after it came. `clear_i` may come at any time.
//
// The proof is made for Depth 4, where the cover fills the queue, and for each depth that the units
// have.
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

  localparam int unsigned Bits      = $clog2(Depth);
  localparam int unsigned CountBits = $clog2(Depth + 5) + 1;

  logic [Width-1:0] data_o;
  logic             valid_o, ready_o;
  logic [Bits:0]    count_o;
  logic             past_q = 1'b0;
  logic [3:0]       behind;  // words behind the memory

  block_fifo #(.Width(Width), .Depth(Depth)) u (.*);
  assign behind = 4'(u.u_queue.count_o) + 4'(u.output_valid_q) + 4'(u.read_valid_q);
  stream_checker #(.Width(Width), .Depth(Depth + 4), .Room(Depth), .Latency(3),
                   .Fills(Depth > 4 ? 8 : Depth + 4)) u_check (
    .clk_i, .rst_ni(rst_ni && !clear_i), .mark_i,
    .in_i (data_i), .in_valid_i (valid_i), .in_ready_i (ready_o),
    .out_i(data_o), .out_valid_i(valid_o), .out_ready_i(ready_i),
    .inside_i(CountBits'(count_o) + CountBits'(behind))
  );

  // Where the followed word lies.
  logic [Bits-1:0] place;
  logic [1:0]      queue_place;
  logic            in_queue, in_output, in_read, in_memory;
  assign place       = Bits'(u.head_q) + Bits'(u_check.ahead_q) - Bits'(behind);
  assign queue_place = u.u_queue.head_q + 2'(u_check.ahead_q);
  assign in_queue    = u_check.ahead_q < CountBits'(u.u_queue.count_o);
  assign in_output   = u.output_valid_q && u_check.ahead_q == CountBits'(u.u_queue.count_o);
  assign in_read     = u.read_valid_q && u_check.ahead_q == CountBits'(behind - 4'd1);
  assign in_memory   = u_check.ahead_q >= CountBits'(behind);

  always_ff @(posedge clk_i) past_q <= 1'b1;
  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    if (past_q) begin
      a_count_of_memory: assert (32'(count_o) <= Depth);
      h_pointers: assert (u.tail_q == u.head_q + Bits'(count_o));
      h_flags: assert (u.some_q == (count_o != '0) && ready_o == (32'(count_o) != Depth));
      h_claims: assert (4'(u.claims_q) == behind && behind <= 4'd4 &&
                        u.claimable_q == (behind != 4'd4));
      h_queue: assert (u.u_queue.tail_q == u.u_queue.head_q + 2'(u.u_queue.count_o) &&
                       u.u_queue.valid_o == (u.u_queue.count_o != '0) &&
                       u.u_queue.ready_o == (u.u_queue.count_o != 3'd4));
      h_in_queue: assert (!(u_check.follows_q && in_queue) ||
                          u.u_queue.memory[queue_place] == u_check.word_q);
      h_in_output: assert (!(u_check.follows_q && in_output) || u.output_q == u_check.word_q);
      h_in_read: assert (!(u_check.follows_q && in_read) || u.read_q == u_check.word_q);
      h_in_memory: assert (!(u_check.follows_q && in_memory) || u.memory[place] == u_check.word_q);
      h_comes: assert (u_check.waits_q == '0 || valid_o || u.output_valid_q ||
                       (u_check.waits_q == 2'd1 && u.read_valid_q));
      h_comes_next: assert (u_check.waits_q != 2'd3 || valid_o);
    end
  end

endmodule
