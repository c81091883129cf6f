// Checks a queue between two ready/valid streams: it loses, doubles, changes and reorders no word,
// takes words while it has room, and shows the next one in time.
//
// Method      `mark_i` is free. The first word that enters while it is high is followed: the words
//             in front of it are counted down as they leave, and when they have left, it is the
//             next. Any word can be this one, so what holds for it holds for all.
// Interface   `inside_i` is the number of words within, as the queue itself knows it. `rst_ni` is
//             low whenever the queue is emptied.
module stream_checker #(
  parameter int unsigned Width   = 4,
  parameter int unsigned Depth   = 4,     // words that fit in
  parameter int unsigned Room    = Depth, // with fewer than these it takes a word
  parameter int unsigned Latency = 0,     // clocks in which it may hold words and show none
  parameter int unsigned Fills   = Depth  // words within that the cover reaches
) (
  input logic                     clk_i,
  input logic                     rst_ni,
  input logic                     mark_i,
  input logic [Width-1:0]         in_i,
  input logic                     in_valid_i,
  input logic                     in_ready_i,
  input logic [Width-1:0]         out_i,
  input logic                     out_valid_i,
  input logic                     out_ready_i,
  input logic [$clog2(Depth+1):0] inside_i
);

  localparam int unsigned Bits = $clog2(Depth + 1) + 1;

  logic             past_q;    // the first clock is over, which has a reset
  logic             follows_q, held_q;
  logic             reset_q;   // one came with words within
  logic [Width-1:0] word_q, held_word_q;
  logic [Bits-1:0]  ahead_q, count_q;
  logic [1:0]       waits_q;   // clocks in which words were within and none shown
  logic             push, pop, hides;

  initial past_q  = 1'b0;
  initial reset_q = 1'b0;

  assign push  = in_valid_i && in_ready_i;
  assign pop   = out_valid_i && out_ready_i;
  assign hides = count_q != '0 && !out_valid_i;

  always_ff @(posedge clk_i) begin
    past_q      <= 1'b1;
    held_q      <= rst_ni && out_valid_i && !out_ready_i;
    held_word_q <= out_i;
    if (past_q && !rst_ni && count_q != '0) reset_q <= 1'b1;
    if (!rst_ni) begin
      follows_q <= 1'b0;
      count_q   <= '0;
      waits_q   <= '0;
    end else begin
      count_q <= count_q + Bits'(push) - Bits'(pop);
      waits_q <= hides ? waits_q + 1'b1 : '0;
      if (!follows_q && mark_i && push) begin
        follows_q <= 1'b1;
        word_q    <= in_i;
        ahead_q   <= count_q - Bits'(pop);
      end else if (follows_q && pop) begin
        ahead_q <= ahead_q - 1'b1;
        if (ahead_q == '0) follows_q <= 1'b0;
      end
    end
  end

  always_comb begin
    if (past_q) begin
      a_count: assert (count_q == Bits'(inside_i) && count_q <= Bits'(Depth));
      a_followed_is_within: assert (!follows_q || ahead_q < count_q);
      a_order: assert (!(follows_q && ahead_q == '0 && out_valid_i) || out_i == word_q);
      a_none_from_nothing: assert (!out_valid_i || count_q != '0);
      a_shown_in_time: assert (32'(waits_q) + 32'(hides) <= Latency);
      a_ready_while_room: assert (in_ready_i || 32'(count_q) >= Room);
      a_stable: assert (!held_q || (out_valid_i && out_i == held_word_q));
      c_fills: cover (count_q == Bits'(Fills));
      c_followed_leaves: cover (follows_q && ahead_q == '0 && pop && count_q > 1);
      c_reset_with_words: cover (reset_q && push);
    end
  end

endmodule
