// The properties of axi_read_upsize: a reader gets each word of its burst once, in order, from its
// place in the beats that come, and no other word. Addresses that wait stay, a beat is taken in two
// clocks, and behind a reset no address is shown before what memory owes has come.
//
// Method      reader `id_i` is followed, and of its bursts the first whose address memory takes
//             while the free `mark_i` is high: the bursts in front of it are counted down, and then
//             its words and beats are counted. Of each word the byte of lane `lane_i` is looked at.
//             `id_i` and `lane_i` are free and stay, so that they can be any. `owed_q`: bursts of
//             this reader that memory took and did not complete, until it `forgets_i` in a reset.
// Assumes     addresses and beats that wait stay, and bursts lie on 16 bytes and within 4 KiB
//             (f_axi_read and f_axi_read_share have the proofs). Only the followed reader's words
//             must have been asked for, and only the followed burst must have as many beats as its
//             address says: beats of others come at any time.
//
// Four bursts a reader stand for more, and QuietClocks is 4, so that bursts are forgotten in a
// short trace.
module f_axi_read_upsize #(
  parameter int unsigned Ids = 3
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         mark_i,
  input logic         forgets_i,
  input logic [1:0]   id_i,
  input logic [3:0]   lane_i,
  input logic [1:0]   arid_i,
  input logic [63:0]  araddr_i,
  input logic [7:0]   arlen_i,
  input logic         arvalid_i,
  input logic         arready_i,
  input logic [1:0]   rid_i,
  input logic [255:0] rdata_i,
  input logic         rlast_i,
  input logic         rvalid_i
);

  localparam int unsigned MaxBursts = 4, QuietClocks = 4;

  logic         arready_o, rlast_o, rvalid_o, arvalid_o, rready_o;
  logic [127:0] rdata_o;
  logic [63:0]  araddr_o;
  logic [7:0]   arlen_o;
  logic         past_q = 1'b0, up_q = 1'b0;

  axi_read_upsize #(.Ids(Ids), .Bytes(32), .MaxBursts(MaxBursts), .QuietClocks(QuietClocks)) u (.*);

  logic         asks, comes, ends;   // of the followed reader: an address, a beat, a burst's last
  logic         ar_waits_q, reader_waits_q, r_waits_q;
  logic [73:0]  address_q, reader_address_q;
  logic [258:0] beat_shown_q;
  logic [5:0]   constant_q;
  logic         reset_q = 1'b0;      // came with bursts under way
  logic         forgot_q;            // memory was reset in the last clock
  logic         turn_q;              // another reader's beat came within the followed burst
  logic [2:0]   owed_q = '0, old_q = '0, ahead_q;  // old: owed since before a reset
  logic [2:0]   quiet_q;             // clocks without a reset and a beat
  logic [8:0]   word_q = '0;         // words of the oldest burst that were given
  logic [7:0]   beat_q = '0;         // and beats that were taken
  logic         follows_q = 1'b0, odd_q, oldest, shown;
  logic [7:0]   length_q;
  assign asks   = arvalid_o && arready_i && arid_i == id_i;
  assign comes  = rvalid_i && rid_i == id_i;
  assign ends   = comes && rready_o && rlast_i;
  assign oldest = follows_q && ahead_q == '0;
  assign shown  = oldest && comes;

  logic [8:0] at, last_at;           // places of words, from the first beat's lower half on
  logic [7:0] last_beat;
  assign at        = word_q + 9'(odd_q);
  assign last_at   = 9'(length_q) + 9'(odd_q);
  assign last_beat = last_at[8:1];

  always_ff @(posedge clk_i) begin
    past_q           <= 1'b1;
    up_q             <= rst_ni;
    constant_q       <= {id_i, lane_i};
    ar_waits_q       <= rst_ni && arvalid_o && !arready_i;
    reader_waits_q   <= rst_ni && arvalid_i && !arready_o;
    address_q        <= {arid_i, araddr_o, arlen_o};
    reader_address_q <= {arid_i, araddr_i, arlen_i};
    r_waits_q        <= rvalid_i && !rready_o;
    beat_shown_q     <= {rid_i, rlast_i, rdata_i};
    forgot_q         <= !rst_ni && forgets_i;
    quiet_q          <= !rst_ni || rvalid_i ? '0 : quiet_q == '1 ? quiet_q : quiet_q + 1'b1;
    turn_q           <= oldest && word_q != '0 && (turn_q || (rvalid_i && !comes));
    if (past_q && !rst_ni && owed_q != '0) reset_q <= 1'b1;
    if (!rst_ni && forgets_i) begin
      owed_q    <= '0;
      old_q     <= '0;
      follows_q <= 1'b0;
      word_q    <= '0;
      beat_q    <= '0;
    end else begin
      owed_q <= owed_q + 3'(asks) - 3'(ends);
      old_q  <= (rst_ni ? old_q : owed_q) - 3'(ends && (rst_ni ? old_q : owed_q) != '0);
      if (comes) word_q <= ends ? '0 : word_q + 1'b1;
      if (comes && rready_o) beat_q <= rlast_i ? '0 : beat_q + 1'b1;
      if (!follows_q && mark_i && asks) begin
        follows_q <= 1'b1;
        odd_q     <= araddr_i[4];
        length_q  <= arlen_i;
        ahead_q   <= owed_q - 3'(ends);
      end else if (follows_q && ends) begin
        ahead_q <= ahead_q - 1'b1;
        if (ahead_q == '0) follows_q <= 1'b0;
      end
    end
  end

  // ---- The followed reader's bursts within ----
  logic [Ids-1:0][2:0] counts;
  logic [Ids-1:0][1:0] followed, firsts;
  logic [Ids-1:0]      queues;
  logic [2:0]          count;
  for (genvar i = 0; i < Ids; i++) begin : gen_id
    assign counts[i]   = u.gen_pairs.gen_id[i].count_q;
    assign firsts[i]   = {u.gen_pairs.gen_id[i].some_q, u.gen_pairs.gen_id[i].first_q};
    assign followed[i] = ahead_q == '0 ? u.gen_pairs.gen_id[i].oldest_q :
        u.gen_pairs.gen_id[i].bursts[u.gen_pairs.gen_id[i].head_q + 2'(ahead_q - 3'd1)];
    assign queues[i]   = 32'(counts[i]) <= MaxBursts &&
        u.gen_pairs.gen_id[i].some_q == (counts[i] != '0) &&
        u.gen_pairs.gen_id[i].others_q == (counts[i] > 3'd1) &&
        u.gen_pairs.gen_id[i].full_q == (32'(counts[i]) == MaxBursts) &&
        2'(u.gen_pairs.gen_id[i].tail_q - u.gen_pairs.gen_id[i].head_q) ==
        (counts[i] == '0 ? 2'd0 : 2'(counts[i] - 3'd1));
  end
  assign count = counts[id_i];

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    if (past_q) m_constants: assume ({id_i, lane_i} == constant_q);
    m_ids_are_readers: assume (32'(id_i) < Ids && 32'(arid_i) < Ids && 32'(rid_i) < Ids);
    m_reader_holds: assume (!rst_ni || !reader_waits_q ||
                            (arvalid_i && {arid_i, araddr_i, arlen_i} == reader_address_q));
    m_bursts_lie_in_a_page: assume (!arvalid_i ||
        (araddr_i[3:0] == '0 && 9'(araddr_i[11:4]) + 9'(arlen_i) < 9'd256));
    m_memory_holds: assume (!r_waits_q || forgot_q ||
                            (rvalid_i && {rid_i, rlast_i, rdata_i} == beat_shown_q));
    m_words_were_asked_for: assume (!comes || owed_q != '0);
    m_beats_as_the_address_says: assume (!shown || rlast_i == (beat_q == last_beat));
    m_no_pause_of_quiet_clocks: assume (!u.gen_pairs.forget || owed_q == '0);
    if (past_q) begin
      a_ar_stable: assert (!ar_waits_q || !rst_ni ||
                           (arvalid_o && {arid_i, araddr_o, arlen_o} == address_q));
      a_from_the_first_word: assert (araddr_o == {araddr_i[63:5], 5'b0});
      a_to_the_last_word: assert (!arvalid_o || 60'(araddr_o[63:5]) + 60'(arlen_o) ==
                                  60'((61'(araddr_i[63:4]) + 61'(arlen_i)) >> 1));
      a_within_4_kib: assert (!arvalid_o || 8'(araddr_o[11:5]) + 8'(arlen_o) < 8'd128);
      a_address_passes: assert (!rst_ni || (arvalid_i && arready_o) == (arvalid_o && arready_i));
      a_silent_in_reset: assert (rst_ni || !arvalid_o);
      a_none_while_old: assert (!arvalid_o || old_q == '0);
      a_bursts_are_bounded: assert (32'(owed_q) <= MaxBursts);
      a_room_for_addresses: assert (!(rst_ni && arvalid_i && arid_i == id_i) || arvalid_o ||
                                    u.gen_pairs.stale_q || 32'(owed_q) == MaxBursts);
      a_forgets_in_time: assert (!u.gen_pairs.stale_q || 32'(quiet_q) <= QuietClocks);
      a_account: assert (u.gen_pairs.stale_q || count == owed_q);
      a_beat_of_its_word: assert (!shown || beat_q == at[8:1]);
      a_word_from_its_place: assert (!shown || rdata_o[{lane_i, 3'b0}+:8] ==
                                               rdata_i[{at[0], lane_i, 3'b0}+:8]);
      a_last: assert (!shown || rlast_o == (word_q == 9'(length_q)));
      a_beat_leaves_when_given: assert (!shown || rready_o == (at[0] || at == last_at));
      a_beat_in_two_clocks: assert (!(r_waits_q && rvalid_i) || rready_o);
      a_unasked_beat_gives_both: assert (!(rvalid_i && counts[rid_i] == '0) ||
                                         rready_o == r_waits_q);
      h_account: assert (owed_q <= count);
      h_queues: assert (queues == '1);
      h_half: assert (u.gen_pairs.half_q == r_waits_q);
      h_stale: assert (up_q || u.gen_pairs.stale_q);
      h_forgot: assert (!forgot_q || (!up_q && owed_q == '0));
      h_forgotten: assert (32'(quiet_q) != QuietClocks || !u.gen_pairs.stale_q || counts == '0);
      h_quiet: assert (32'(quiet_q) > QuietClocks - 1 || u.gen_pairs.quiet_q == 2'(quiet_q));
      h_old: assert (old_q <= owed_q && (old_q == '0 || u.gen_pairs.stale_q));
      h_followed: assert (!follows_q || (ahead_q < owed_q &&
          followed[id_i] == {odd_q, !last_at[0]} && last_at <= 9'd256));
      h_none_given: assert (owed_q != '0 || (word_q == '0 && beat_q == '0));
      h_first: assert (firsts[id_i][1] || firsts[id_i][0]);
      h_first_beat: assert (!oldest || firsts[id_i][0] == (beat_q == '0));
      h_word: assert (!oldest || (word_q <= 9'(length_q) && (
          r_waits_q && beat_shown_q[258:257] == id_i ? at == {beat_q, 1'b1} :
          (word_q == '0 && beat_q == '0) || at == {beat_q, 1'b0})));
      c_first_is_upper: cover (shown && rlast_o && odd_q && length_q == 8'd3);
      c_last_is_lower: cover (shown && rlast_o && !odd_q && length_q == 8'd2);
      c_ids_in_turn: cover (shown && rlast_o && length_q == 8'd4 && turn_q);
      c_full: cover (32'(owed_q) == MaxBursts && follows_q && ahead_q == 3'd3);
      c_forgets: cover (u.gen_pairs.forget && count != '0);
      c_reads_after_reset: cover (reset_q && asks && old_q == '0);
    end
  end

endmodule
