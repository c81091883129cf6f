// Checks the write side of an AXI4 master: addresses, data and the number of open bursts.
//
// Method      `mark_i` is free. The first burst whose address comes while it is high is followed:
//             the bursts in front of it are counted down as their last words leave, and then its
//             words are counted. Any burst can be this one.
// Assumes     memory answers no burst whose address and data it does not have.
module axi_write_checker #(
  parameter int unsigned BurstWords     = 4,
  parameter int unsigned MaxOutstanding = 63,
  parameter int unsigned WordBytes      = 16
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         mark_i,
  input logic [63:0]  awaddr_i,
  input logic [7:0]   awlen_i,
  input logic         awvalid_i,
  input logic         awready_i,
  input logic [127:0] wdata_i,
  input logic         wlast_i,
  input logic         wvalid_i,
  input logic         wready_i,
  input logic         bvalid_i,
  input logic         bready_i
);

  localparam int unsigned WordBits = $clog2(WordBytes);
  localparam int unsigned Bits     = $clog2(MaxOutstanding + 1) + 1;

  logic            past_q, up_q, aw_waits_q, w_waits_q, wlast_q;
  logic            reset_q;       // came within a burst
  logic [63:0]     awaddr_q;
  logic [7:0]      awlen_q;
  logic [127:0]    wdata_q;
  logic            asks, ends, answers;
  logic [Bits-1:0] unwritten_q;   // bursts with an address, presented, that lack their last word
  logic [Bits-1:0] unanswered_q;  // bursts with an address, presented, that have no answer
  logic [Bits-1:0] unasked_q;     // bursts whose address memory has not taken, 0 or 1
  logic [7:0]      beat_q;
  logic            follows_q;
  logic [7:0]      length_q;
  logic [Bits-1:0] ahead_q;

  initial past_q  = 1'b0;
  initial up_q    = 1'b0;
  initial reset_q = 1'b0;

  assign asks    = awvalid_i && !aw_waits_q;
  assign ends    = wvalid_i && wready_i && wlast_i;
  assign answers = bvalid_i && bready_i;

  always_ff @(posedge clk_i) begin
    past_q     <= 1'b1;
    up_q       <= rst_ni;
    if (up_q && !rst_ni && beat_q != '0) reset_q <= 1'b1;
    aw_waits_q <= rst_ni && awvalid_i && !awready_i;
    w_waits_q  <= rst_ni && wvalid_i && !wready_i;
    awaddr_q   <= awaddr_i;
    awlen_q    <= awlen_i;
    wdata_q    <= wdata_i;
    wlast_q    <= wlast_i;
    if (!rst_ni) begin
      unwritten_q  <= '0;
      unanswered_q <= '0;
      beat_q       <= '0;
      follows_q    <= 1'b0;
    end else begin
      unwritten_q  <= unwritten_q + Bits'(asks) - Bits'(ends);
      unanswered_q <= unanswered_q + Bits'(asks) - Bits'(answers);
      if (wvalid_i && wready_i) beat_q <= wlast_i ? '0 : beat_q + 1'b1;
      if (!follows_q && mark_i && asks) begin
        follows_q <= 1'b1;
        length_q  <= awlen_i;
        ahead_q   <= unwritten_q - Bits'(ends);
        // Its own words may end in the clock in which its address comes.
        if (ends && unwritten_q == '0) follows_q <= 1'b0;
      end else if (follows_q && ends) begin
        ahead_q <= ahead_q - 1'b1;
        if (ahead_q == '0) follows_q <= 1'b0;
      end
    end
  end

  always_comb begin
    if (rst_ni) begin
      m_answers_have_bursts: assume (!bvalid_i || (unanswered_q > unwritten_q &&
                                                   unanswered_q > Bits'(aw_waits_q)));
    end
    if (past_q) begin
      a_aw_stable: assert (!aw_waits_q ||
                           (awvalid_i && awaddr_i == awaddr_q && awlen_i == awlen_q));
      a_w_stable: assert (!w_waits_q ||
                          (wvalid_i && wdata_i == wdata_q && wlast_i == wlast_q));
      a_within_4_kib: assert (!awvalid_i || 13'(awaddr_i[11:WordBits]) + 13'(awlen_i) <
                                            13'(4096 / WordBytes));
      a_length: assert (!awvalid_i || awlen_i < BurstWords);
      a_aligned: assert (!awvalid_i || awaddr_i[WordBits-1:0] == '0);
      a_outstanding: assert (32'(unanswered_q) + 32'(asks) <= MaxOutstanding);
      a_words_after_address: assert (!wvalid_i || unwritten_q != '0 || asks);
      a_last: assert (!(follows_q && ahead_q == '0 && wvalid_i) ||
                      wlast_i == (beat_q == length_q));
      a_beats: assert (!wvalid_i || beat_q < BurstWords);
      c_ends_at_4_kib: cover (awvalid_i && awlen_i > 0 &&
                              13'(awaddr_i[11:WordBits]) + 13'(awlen_i) ==
                              13'(4096 / WordBytes - 1));
      c_data_before_address: cover (aw_waits_q && ends && unwritten_q == 1);
      c_followed_ends: cover (follows_q && ahead_q == '0 && ends && length_q > 0);
      c_several_open: cover (answers && unanswered_q == 3);
      c_reset_within_a_burst: cover (reset_q && answers);
    end
    if (past_q && !up_q) begin
      a_silent_after_reset: assert (!awvalid_i && !wvalid_i);
    end
  end

endmodule
