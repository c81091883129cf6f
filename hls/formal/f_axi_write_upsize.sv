// The properties of axi_write_upsize: each byte of a burst leaves once, in the beat and the lane of
// its address, with its strobe, and no other byte has one. Addresses and words that wait stay, and
// nothing waits that memory would take.
//
// Method      `mark_i` is free. The first burst whose address memory takes while it is high is
//             followed: the bursts in front of it are counted down, and then its words and beats
//             are counted. Of its bytes the one of word `word_i` and lane `lane_i` is kept; both
//             are free and stay, so that it can be any. Lengths are free up to a page.
// Assumes     addresses and words that wait stay, and bursts lie on 16 bytes and within 4 KiB
//             (f_axi_write and f_record_write have the proofs). Only the followed burst must have
//             as many words as its address says.
module f_axi_write_upsize #(
  parameter int unsigned Ahead = 8
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         mark_i,
  input logic [7:0]   word_i,
  input logic [3:0]   lane_i,
  input logic [63:0]  awaddr_i,
  input logic [7:0]   awlen_i,
  input logic         awvalid_i,
  input logic         awready_i,
  input logic [127:0] wdata_i,
  input logic [15:0]  wstrb_i,
  input logic         wlast_i,
  input logic         wvalid_i,
  input logic         wready_i
);

  localparam int unsigned Bits = $clog2(Ahead) + 1;

  logic         awready_o, wready_o, awvalid_o, wlast_o, wvalid_o;
  logic [63:0]  awaddr_o;
  logic [7:0]   awlen_o;
  logic [255:0] wdata_o;
  logic [31:0]  wstrb_o;
  logic         past_q = 1'b0, up_q = 1'b0;

  axi_write_upsize #(.Bytes(32), .Ahead(Ahead)) u (.*);

  logic            asks, takes, gives, ends;  // an address, a word, a beat, a burst
  logic            aw_waits_q, w_waits_q, writer_aw_waits_q, writer_w_waits_q;
  logic [71:0]     address_q, writer_address_q;
  logic [288:0]    beat_shown_q;
  logic [144:0]    writer_word_q;
  logic [11:0]     constant_q;
  logic            reset_q = 1'b0;   // came within a burst
  logic [Bits-1:0] waiting_q, ahead_q;
  logic [8:0]      word_q;           // words of the oldest burst that were taken
  logic [7:0]      beat_q;           // and beats of it that left
  logic            follows_q, odd_q, oldest;
  logic [7:0]      length_q;
  logic [8:0]      kept_q;           // {strobe, byte}
  assign asks   = awvalid_o && awready_i;
  assign takes  = wvalid_i && wready_o;
  assign gives  = wvalid_o && wready_i;
  assign ends   = takes && wlast_i;
  assign oldest = follows_q && ahead_q == '0;

  logic [8:0] at;        // place of the next word, from the first beat's lower half on
  logic [8:0] kept_at;   // and of the word that is kept
  logic [8:0] incoming;
  logic       is_kept;
  assign at       = word_q + 9'(odd_q);
  assign kept_at  = 9'(word_i) + 9'(odd_q);
  assign incoming = {wstrb_i[lane_i], wdata_i[{lane_i, 3'b0}+:8]};
  assign is_kept  = word_q == 9'(word_i);

  always_ff @(posedge clk_i) begin
    past_q            <= 1'b1;
    up_q              <= rst_ni;
    constant_q        <= {word_i, lane_i};
    aw_waits_q        <= rst_ni && awvalid_o && !awready_i;
    w_waits_q         <= rst_ni && wvalid_o && !wready_i;
    writer_aw_waits_q <= rst_ni && awvalid_i && !awready_o;
    writer_w_waits_q  <= rst_ni && wvalid_i && !wready_o;
    address_q         <= {awaddr_o, awlen_o};
    writer_address_q  <= {awaddr_i, awlen_i};
    beat_shown_q      <= {wlast_o, wstrb_o, wdata_o};
    writer_word_q     <= {wlast_i, wstrb_i, wdata_i};
    if (past_q && !rst_ni && word_q != '0) reset_q <= 1'b1;
    if (!rst_ni) begin
      follows_q <= 1'b0;
      waiting_q <= '0;
      word_q    <= '0;
      beat_q    <= '0;
    end else begin
      waiting_q <= waiting_q + Bits'(asks) - Bits'(ends);
      if (takes) word_q <= wlast_i ? '0 : word_q + 1'b1;
      if (ends) beat_q <= '0;
      else if (gives) beat_q <= beat_q + 1'b1;
      if (oldest && takes && is_kept) kept_q <= incoming;
      if (!follows_q && mark_i && asks) begin
        follows_q <= 1'b1;
        odd_q     <= awaddr_i[4];
        length_q  <= awlen_i;
        ahead_q   <= waiting_q - Bits'(ends);
      end else if (follows_q && ends) begin
        ahead_q <= ahead_q - 1'b1;
        if (ahead_q == '0) follows_q <= 1'b0;
      end
    end
  end

  // ---- The beat that is shown: which of its halves have a word of the followed burst ----
  logic [1:0] in_burst;
  logic [8:0] kept;
  for (genvar h = 0; h < 2; h++) begin : gen_half
    logic [8:0] place;
    assign place     = {beat_q, 1'(h)};
    assign in_burst[h] = place >= 9'(odd_q) && place <= 9'(length_q) + 9'(odd_q);
  end
  assign kept = is_kept ? incoming : kept_q;

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    if (past_q) m_constants: assume ({word_i, lane_i} == constant_q);
    m_writer_holds: assume (!rst_ni || (
        (!writer_aw_waits_q || (awvalid_i && {awaddr_i, awlen_i} == writer_address_q)) &&
        (!writer_w_waits_q || (wvalid_i && {wlast_i, wstrb_i, wdata_i} == writer_word_q))));
    m_bursts_lie_in_a_page: assume (!awvalid_i ||
        (awaddr_i[3:0] == '0 && 9'(awaddr_i[11:4]) + 9'(awlen_i) < 9'd256));
    m_words_as_the_address_says: assume (!(oldest && wvalid_i) ||
                                         wlast_i == (word_q == 9'(length_q)));
    if (past_q) begin
      a_aw_stable: assert (!aw_waits_q || !rst_ni ||
                           (awvalid_o && {awaddr_o, awlen_o} == address_q));
      a_w_stable: assert (!w_waits_q || !rst_ni ||
                          (wvalid_o && {wlast_o, wstrb_o, wdata_o} == beat_shown_q));
      a_from_the_first_word: assert (awaddr_o == {awaddr_i[63:5], 5'b0});
      a_to_the_last_word: assert (!awvalid_o || 60'(awaddr_o[63:5]) + 60'(awlen_o) ==
                                  60'((61'(awaddr_i[63:4]) + 61'(awlen_i)) >> 1));
      a_within_4_kib: assert (!awvalid_o || 8'(awaddr_o[11:5]) + 8'(awlen_o) < 8'd128);
      a_address_passes: assert ((awvalid_i && awready_o) == asks);
      a_room_for_addresses: assert (!(up_q && awvalid_i) || awvalid_o ||
                                    32'(waiting_q) == Ahead);
      a_waiting_is_bounded: assert (32'(waiting_q) <= Ahead);
      a_words_after_address: assert (!(wvalid_o || takes) || waiting_q != '0);
      a_taken_as_memory_takes: assert (!(wvalid_i && waiting_q != '0 && wready_i) || takes);
      a_half_a_beat_is_taken: assert (!(oldest && wvalid_i && !at[0] && !wlast_i) || takes);
      a_beat_of_its_word: assert (!(oldest && takes) || beat_q == at[8:1]);
      a_beat_leaves_whole: assert (!(oldest && takes) ||
                                   gives == (at[0] || word_q == 9'(length_q)));
      a_byte_in_its_place: assert (!(oldest && wvalid_o && beat_q == kept_at[8:1] &&
                                     word_i <= length_q) ||
          {wstrb_o[{kept_at[0], lane_i}], wdata_o[{kept_at[0], lane_i, 3'b0}+:8]} == kept);
      a_no_other_byte: assert (!(oldest && wvalid_o) ||
          ((in_burst[0] || wstrb_o[15:0] == '0) && (in_burst[1] || wstrb_o[31:16] == '0)));
      a_last: assert (!(oldest && wvalid_o) ||
                      wlast_o == (9'(beat_q) == (9'(length_q) + 9'(odd_q)) >> 1));
      if (!up_q) a_silent_after_reset: assert (!wvalid_o && waiting_q == '0);
      h_queue: assert (32'(waiting_q) == 32'(u.gen_pairs.u_bursts.count_o) &&
          u.gen_pairs.u_bursts.valid_o == (waiting_q != '0) &&
          u.gen_pairs.u_bursts.ready_o == (32'(waiting_q) != Ahead) &&
          u.gen_pairs.u_bursts.tail_q ==
          u.gen_pairs.u_bursts.head_q + (Bits - 1)'(waiting_q));
      h_followed: assert (!follows_q || (ahead_q < waiting_q && odd_q ==
          u.gen_pairs.u_bursts.memory[u.gen_pairs.u_bursts.head_q + (Bits - 1)'(ahead_q)]));
      h_first: assert (waiting_q != '0 || (word_q == '0 && u.gen_pairs.first_q));
      h_first_word: assert (!oldest || u.gen_pairs.first_q == (word_q == '0));
      h_begins: assert (!u.gen_pairs.first_q || (beat_q == '0 && word_q == '0 &&
                                                 u.gen_pairs.lower_strobe_q == '0));
      h_half: assert (!oldest || word_q == '0 || u.gen_pairs.upper_q == at[0]);
      h_beat: assert (!oldest || (word_q <= 9'(length_q) && (word_q == '0 ? beat_q == '0 :
                                                             beat_q == at[8:1])));
      h_none_kept: assert (!(oldest && !at[0]) || u.gen_pairs.lower_strobe_q == '0);
      h_kept: assert (!(oldest && at[0] && word_q == 9'(word_i) + 9'd1) || kept_q ==
          {u.gen_pairs.lower_strobe_q[lane_i], u.gen_pairs.lower_q[{lane_i, 3'b0}+:8]});
      h_length: assert (!follows_q || 9'(length_q) + 9'(odd_q) <= 9'd256);
      c_many_words: cover (oldest && ends && length_q == 8'd12 && odd_q);
      c_one_upper_word: cover (oldest && gives && length_q == '0 && odd_q && kept[8]);
      c_waits_with_half: cover (w_waits_q && oldest && at[0] && gives && word_q != '0);
      c_several: cover (follows_q && ahead_q == 2 && ends);
      c_writes_after_reset: cover (reset_q && oldest && ends && length_q > 1);
    end
  end

endmodule
