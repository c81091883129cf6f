// The property of stream_fifo: it is a queue (stream_checker), which shows a word in the clock
// after it came.
//
// The proof is made for each depth and each number of slices that the units have. The cover fills a
// queue of up to 8 words.
module f_stream_fifo #(
  parameter int unsigned Width  = 2,
  parameter int unsigned Depth  = 4,
  parameter int unsigned Slices = 1
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             mark_i,
  input logic [Width-1:0] data_i,
  input logic             valid_i,
  input logic             ready_i
);

  localparam int unsigned Bits = $clog2(Depth);
  localparam int unsigned Part = Width / Slices;

  logic [Width-1:0] data_o;
  logic             valid_o, ready_o;
  logic [Bits:0]    count_o;
  logic             past_q = 1'b0;

  stream_fifo #(.Width(Width), .Depth(Depth), .Slices(Slices)) u (.*);
  stream_checker #(.Width(Width), .Depth(Depth), .Fills(Depth > 8 ? 8 : Depth)) u_check (
    .clk_i, .rst_ni, .mark_i,
    .in_i (data_i), .in_valid_i (valid_i), .in_ready_i (ready_o),
    .out_i(data_o), .out_valid_i(valid_o), .out_ready_i(ready_i),
    .inside_i(($clog2(Depth + 1) + 1)'(count_o))
  );

  // The followed word as the slices hold it, and whether their pointers are those of the first.
  logic [Width-1:0]  followed;
  logic [Slices-1:0] slices_agree;
  assign followed[Part-1:0] = u.memory[u.head_q + Bits'(u_check.ahead_q)];
  assign slices_agree[0]    = 1'b1;
  for (genvar i = 1; i < Slices; i++) begin : gen_slice
    assign followed[Part*i+:Part] =
        u.gen_slice[i].part_memory[u.gen_slice[i].part_head_q + Bits'(u_check.ahead_q)];
    assign slices_agree[i] = u.gen_slice[i].part_head_q == u.head_q &&
                             u.gen_slice[i].part_tail_q == u.tail_q;
  end

  always_ff @(posedge clk_i) past_q <= 1'b1;
  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    if (past_q) begin
      a_full_takes_none: assert (!ready_o || 32'(count_o) < Depth);
      h_pointers: assert (u.tail_q == u.head_q + Bits'(count_o) && slices_agree == '1);
      h_followed: assert (!u_check.follows_q || followed == u_check.word_q);
    end
  end

endmodule
