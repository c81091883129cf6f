// The liveness of axi_read: while it is not idle, an address or a word moves within Bound clocks,
// if memory and the reader of the words let none wait for Late clocks. A run of n words so ends
// within Bound * (3 n + 2) clocks, whether it goes on, is stopped, or was under way when a reset
// came.
//
// Sizes as in f_axi_read, where the properties of each word are. Runs have fewer than 16 words: the
// count only falls.
module f_axi_read_live #(
  parameter int unsigned BurstWords = 4,
  parameter int unsigned Depth      = 8,
  parameter int unsigned Late       = 3
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         start_i,
  input logic [63:0]  address_i,
  input logic [3:0]   few_i,
  input logic         stop_i,
  input logic         word_ready_i,
  input logic         arready_i,
  input logic [127:0] rdata_i,
  input logic [1:0]   rresp_i,
  input logic         rlast_i,
  input logic         rvalid_i,
  input logic         forgets_i
);

  localparam int unsigned Quiet = 4;
  // A burst is sized and issued, and then its address or a word waits.
  localparam int unsigned Bound = 3 + Late;

  logic [28:0]  words_i;
  logic         idle_o, error_o, word_valid_o, arvalid_o, rready_o;
  logic [127:0] word_o;
  logic [63:0]  araddr_o;
  logic [7:0]   arlen_o;
  logic [2:0]   arsize_o;
  logic [1:0]   arburst_o;
  logic [3:0]   owed_q = '0;  // words of bursts that memory took, which it did not send
  logic         past_q = 1'b0, stopped_q, moves;
  logic [2:0]   given_late_q, address_late, word_late, answer_late;
  logic [5:0]   still_q;      // clocks without a move
  logic [3:0]   held, flying, shown;
  assign held   = 4'(u.gen_small.u_fifo.count_o);
  assign flying = 4'(u.flying_q);
  assign shown  = arvalid_o ? arlen_o[3:0] + 4'd1 : 4'd0;

  assign words_i = 29'(few_i);
  axi_read #(.BurstWords(BurstWords), .Depth(Depth), .QuietClocks(Quiet)) u (.*);

  axi_memory_answers #(.Late(Late)) u_memory (
    .clk_i, .rst_ni,
    .asks_i  (arvalid_o),    .takes_i  (arready_i),
    .writes_i(1'b0),         .stores_i (1'b1),
    .owes_i  (owed_q != '0), .answers_i(rvalid_i),
    .address_late_o(address_late), .word_late_o(word_late), .answer_late_o(answer_late)
  );

  // A stop takes what is shown away.
  assign moves = rvalid_i || (word_valid_o && word_ready_i) || (arvalid_o && arready_i) ||
                 (stop_i && !stopped_q);
  always_ff @(posedge clk_i) begin
    past_q       <= 1'b1;
    stopped_q    <= rst_ni && stop_i && !idle_o;
    given_late_q <= rst_ni && word_valid_o && !word_ready_i ? given_late_q + 1'b1 : '0;
    still_q      <= !rst_ni || idle_o || moves ? '0 : still_q + 1'b1;
    if (!rst_ni && forgets_i) owed_q <= '0;
    else owed_q <= owed_q + (arvalid_o && arready_i && past_q ? 4'(arlen_o) + 4'd1 : 4'd0) -
                   4'(rvalid_i);
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_starts_when_idle: assume (!start_i || (idle_o && !stop_i && rst_ni));
    m_starts_are_aligned: assume (!start_i || address_i[3:0] == '0);
    m_stop_stays_until_idle: assume (!stopped_q || stop_i);
    m_words_were_asked_for: assume (!rvalid_i || owed_q != '0);
    m_no_pause_of_quiet_clocks: assume (!u.forget || owed_q == '0);
    m_reader_in_time: assume (!rst_ni || !word_valid_o || word_ready_i ||
                              32'(given_late_q) + 32'd1 < Late);
    if (past_q) begin
      a_moves_in_time: assert (32'(still_q) < Bound);
      h_reader_late: assert (32'(given_late_q) < Late);
      // Something waits for as long as nothing moves, but for the clocks before it is there.
      h_waits: assert (idle_o || (stop_i && !stopped_q) ||
          still_q <= 6'(u.sized_q && u.room_q) + 6'd1 ||
          (word_valid_o && still_q <= 6'd3 + 6'(given_late_q)) ||
          (owed_q != '0 && still_q <= 6'd3 + 6'(answer_late)) ||
          (arvalid_o && still_q <= 6'd3 + 6'(address_late)) ||
          (u.stale_q && still_q <= 6'd1 + 6'(u.quiet_q)));
      h_fifo: assert (32'(held) <= Depth &&
                      u.gen_small.u_fifo.valid_o == (held != '0) &&
                      u.gen_small.u_fifo.ready_o == (32'(held) != Depth));
      h_account: assert (u.stale_q ? owed_q <= flying : flying == owed_q);
      h_stale: assert (!u.stale_q || (!u.owes_q && !u.asks_q && !u.sized_q && !arvalid_o));
      h_asks: assert (u.asks_q == (u.left_q != '0) && (!u.sized_q || u.asks_q) &&
                      (!u.asks_q || u.owes_q));
      h_size: assert (!u.sized_q || (u.size_q != '0 && u.size_q <= u.border &&
                                     29'(u.size_q) <= u.left_q));
      h_free: assert (!(u.owes_q && !error_o) || 32'(u.free_q) + 32'(u.popped_q) + 32'(shown) +
                                                 32'(flying) + 32'(held) == Depth);
      h_free_in_error: assert (!u.sized_q || 32'(u.free_q) + 32'(shown) + 32'(flying) <= Depth);
      h_owed: assert (!(u.owes_q && !error_o) ||
                      u.owed_q == u.left_q + 29'(shown) + 29'(flying) + 29'(held));
      h_flies: assert (u.flies_q == (flying != '0));
      h_flying: assert (32'(shown) + 32'(flying) <= Depth);
      h_room: assert (!(u.sized_q && u.room_q && !arvalid_o) || 32'(u.free_q) >= BurstWords);
      h_popped: assert (!(u.popped_q && u.owes_q) || still_q == '0);
      h_sized: assert (!u.asks_q || u.sized_q || arvalid_o || still_q == '0);
      h_owes: assert (!u.owes_q || u.owed_q != '0);
      h_length: assert (!arvalid_o || arlen_o < BurstWords);
      h_never_wraps: assert (32'(u.flying_q) <= Depth && 32'(owed_q) <= Depth);
      h_few: assert (u.left_q < 29'd16);
      c_moves_late: cover (still_q == 6'(Late) && moves && !u.stale_q);
      c_ends: cover (u.owed_q == 29'd1 && word_valid_o && word_ready_i);
      c_stops: cover (stopped_q && idle_o);
      c_forgets: cover (u.forget && u.flying_q != '0);
    end
  end

endmodule
