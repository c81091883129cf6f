// The properties of axi_read: AXI4's rules (axi_read_checker); each word of a run is asked for
// once, from addresses that follow each other, and given once; and it knows what memory still owes.
//
// Starts, stops, stalls, resets and answers are free. A run that is stopped or in error asks for
// less. With `Lawful` = 0 memory may also send words that nobody asked for, at any time: the
// properties but those of the account hold nevertheless, and the count of words under way never
// wraps.
//
// Bursts of 4 words and a queue of 8 stand for longer ones: BurstWords and Depth only bound
// counters, and the borders of bursts lie at multiples of BurstWords in each case. QuietClocks is
// 4, so that what was under way is forgotten in a short trace. The words themselves are cut: their
// values are free where they leave the queue (f_stream_fifo has the proof that they are those that
// entered).
module f_axi_read #(
  parameter bit          Lawful     = 1'b1,
  parameter int unsigned BurstWords = 4,
  parameter int unsigned Depth      = 8
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         start_i,
  input logic [63:0]  address_i,
  input logic [28:0]  words_i,
  input logic         stop_i,
  input logic         word_ready_i,
  input logic         arready_i,
  input logic [127:0] rdata_i,
  input logic [1:0]   rresp_i,
  input logic         rlast_i,
  input logic         rvalid_i,
  input logic         forgets_i
);

  logic         idle_o, error_o, word_valid_o, arvalid_o, rready_o;
  logic [127:0] word_o;
  logic [63:0]  araddr_o;
  logic [7:0]   arlen_o;
  logic [2:0]   arsize_o;
  logic [1:0]   arburst_o;
  logic [7:0]   owed;     // by memory
  logic         asks;
  logic         past_q = 1'b0;

  axi_read #(.BurstWords(BurstWords), .Depth(Depth), .QuietClocks(4)) u (.*);
  axi_read_checker #(.BurstWords(BurstWords), .Lawful(Lawful)) u_check (
    .clk_i, .rst_ni, .forgets_i,
    .araddr_i(araddr_o), .arlen_i(arlen_o), .arvalid_i(arvalid_o), .arready_i,
    .rvalid_i, .owed_o(owed), .asks_o(asks)
  );

  // The run: how many words it has, how many bursts have asked for, and how many were given.
  logic        live_q;    // it was neither stopped nor reset
  logic        stopped_q; // and not yet idle
  logic [28:0] total_q, asked_q, given_q;
  logic [63:0] first_q;
  always_ff @(posedge clk_i) begin
    past_q    <= 1'b1;
    live_q    <= rst_ni && (start_i || (live_q && !stop_i));
    stopped_q <= rst_ni && stop_i && !idle_o;
    if (start_i) begin
      total_q <= words_i;
      asked_q <= '0;
      given_q <= '0;
      first_q <= address_i;
    end else begin
      if (asks) asked_q <= asked_q + 29'(arlen_o) + 1'b1;
      if (word_valid_o && word_ready_i) given_q <= given_q + 1'b1;
    end
  end

  logic [28:0] asked;     // with the burst whose address is shown now
  logic [7:0]  shown, held, flying;
  assign asked  = asked_q + (asks ? 29'(arlen_o) + 1'b1 : '0);
  assign shown  = arvalid_o ? arlen_o + 8'd1 : 8'd0;
  assign held = 8'(u.gen_small.u_fifo.count_o);
  assign flying = 8'(u.flying_q);

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_starts_when_idle: assume (!start_i || (idle_o && !stop_i && rst_ni));
    m_starts_are_aligned: assume (!start_i || address_i[3:0] == '0);
    m_stop_stays_until_idle: assume (!stopped_q || stop_i);
    if (Lawful) m_no_pause_of_quiet_clocks: assume (!u.forget || owed == '0);
    if (past_q) begin
      a_addresses_follow: assert (!(live_q && asks) || araddr_o == first_q + 64'({asked_q, 4'b0}));
      a_all_asked: assert (!(live_q && !u.asks_q && !error_o) || asked == total_q);
      a_all_given: assert (!(live_q && idle_o) || given_q == total_q);
      a_never_wraps: assert (32'(u.flying_q) <= Depth);
      a_queue_has_room: assert (!(u.gen_small.u_fifo.valid_i) || 32'(held) < Depth);
      if (Lawful) begin
        a_idle_owes_nothing: assert (!idle_o || owed == '0);
        a_account: assert (u.stale_q || flying == owed);
        h_account: assert (owed <= flying && owed <= Depth);
      end
      h_fifo: assert (32'(held) <= Depth &&
                      u.gen_small.u_fifo.valid_o == (held != '0) &&
                      u.gen_small.u_fifo.ready_o == (32'(held) != Depth));
      h_stale: assert (!u.stale_q || (!live_q && !u.asks_q && !u.sized_q && !arvalid_o));
      h_asks: assert ((!live_q || error_o || u.asks_q == (u.left_q != '0)) &&
                      (!u.asks_q || u.left_q != '0) && (!u.sized_q || u.asks_q));
      h_size: assert (!u.sized_q || (u.size_q != '0 && u.size_q <= u.border &&
                                     29'(u.size_q) <= u.left_q));
      h_live: assert (live_q || (!u.asks_q && !u.sized_q && !u.owes_q));
      h_left: assert (!(live_q && !error_o) || (asked + u.left_q == total_q &&
                                               u.left_q <= total_q && asked_q <= asked));
      h_owed: assert (!live_q || (given_q + (u.owes_q ? u.owed_q : '0) == total_q &&
                                  u.owed_q <= total_q && (!u.owes_q || u.owed_q != '0)));
      h_given: assert (!(live_q && !error_o) || given_q <= asked);
      h_all: assert (!(live_q && !error_o) ||
                     29'(flying) + 29'(shown) + 29'(held) == asked - given_q);
      h_free: assert (!(live_q && !error_o) || 32'(u.free_q) + 32'(u.popped_q) + 32'(shown) +
                                               32'(flying) + 32'(held) == Depth);
      h_free_in_error: assert (!u.sized_q || 32'(u.free_q) + 32'(shown) + 32'(flying) <= Depth);
      h_flying: assert (32'(shown) + 32'(flying) <= Depth);
      h_room: assert (!(u.sized_q && u.room_q && !arvalid_o) || 32'(u.free_q) >= BurstWords);
      h_flies: assert (u.flies_q == (u.flying_q != '0));
      h_carry: assert (!(u.carry_q && u.sized_q));
      h_next: assert (!live_q || (error_o && !u.sized_q) || (first_q[3:0] == '0 &&
                      {u.upper_q + 32'(u.carry_q), u.next_q} == first_q[63:4] + 60'(asked)));
      c_two_bursts_given: cover (live_q && idle_o && given_q == 6 && !error_o);
      c_error_is_given: cover (live_q && idle_o && given_q == 3 && error_o);
      c_stopped: cover (stopped_q && owed > 1);
      c_carry: cover (u.carry_q);
      c_forgets: cover (u.forget && flying != '0);
    end
  end

endmodule
