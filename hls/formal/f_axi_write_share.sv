// The properties of axi_write_share: an address and a word that wait stay, the words of a burst
// follow in the order of the addresses, and answers of bursts from before a reset reach no writer.
//
// Method      `mark_i` is free. The first address that memory takes while it is high is followed:
//             the bursts in front of it are counted down, and then the words are those of its
//             writer. `owed_q` is what memory owes: an answer for each burst, until it `forgets_i`
//             in a reset.
//
// Two writers stand for more, and QuietClocks is 4, so that bursts are forgotten in a short trace.
module f_axi_write_share #(
  parameter int unsigned Writers = 2,
  parameter bit          Lawful  = 1'b1  // else answers come at any time
) (
  input logic                      clk_i,
  input logic                      rst_ni,
  input logic                      mark_i,
  input logic                      forgets_i,
  input logic [Writers-1:0][63:0]  awaddr_i,
  input logic [Writers-1:0][7:0]   awlen_i,
  input logic [Writers-1:0]        awvalid_i,
  input logic [Writers-1:0][127:0] wdata_i,
  input logic [Writers-1:0][15:0]  wstrb_i,
  input logic [Writers-1:0]        wlast_i,
  input logic [Writers-1:0]        wvalid_i,
  input logic                      awready_i,
  input logic                      wready_i,
  input logic [0:0]                bid_i,
  input logic                      bvalid_i
);

  localparam int unsigned Ahead = 8;

  logic [Writers-1:0] awready_o, wready_o, bvalid_o;
  logic [0:0]         awid_o;
  logic [63:0]        awaddr_o;
  logic [7:0]         awlen_o;
  logic               awvalid_o, wlast_o, wvalid_o;
  logic [127:0]       wdata_o;
  logic [15:0]        wstrb_o;
  logic               past_q = 1'b0, up_q = 1'b0;

  axi_write_share #(.Writers(Writers), .QuietClocks(4)) u (.*);

  logic               take, done, aw_waits_q, w_waits_q;
  logic [72:0]        address_q;
  logic [144:0]       word_q;
  logic [Writers-1:0] writer_aw_waits_q, writer_w_waits_q;
  logic [Writers-1:0][71:0]  writer_address, writer_address_q;
  logic [Writers-1:0][144:0] writer_word, writer_word_q;
  logic               follows_q, follows_id_q;
  logic [3:0]         ahead_q, waiting_q;  // bursts whose words are not complete
  logic [7:0]         owed_q = '0;
  logic               reset_q = 1'b0;      // came with bursts under way
  assign take = awvalid_o && awready_i;
  assign done = wvalid_o && wready_i && wlast_o;
  for (genvar i = 0; i < Writers; i++) begin : gen_writer
    assign writer_address[i] = {awaddr_i[i], awlen_i[i]};
    assign writer_word[i]    = {wdata_i[i], wstrb_i[i], wlast_i[i]};
  end

  always_ff @(posedge clk_i) begin
    past_q            <= 1'b1;
    up_q              <= rst_ni;
    aw_waits_q        <= rst_ni && awvalid_o && !awready_i;
    w_waits_q         <= rst_ni && wvalid_o && !wready_i;
    address_q         <= {awid_o, awaddr_o, awlen_o};
    word_q            <= {wdata_o, wstrb_o, wlast_o};
    writer_aw_waits_q <= rst_ni ? awvalid_i & ~awready_o : '0;
    writer_w_waits_q  <= rst_ni ? wvalid_i & ~wready_o : '0;
    writer_address_q  <= writer_address;
    writer_word_q     <= writer_word;
    if (past_q && !rst_ni && owed_q != '0) reset_q <= 1'b1;
    if (!rst_ni && forgets_i) owed_q <= '0;
    else owed_q <= owed_q + 8'(take) - 8'(bvalid_i && owed_q != '0);
    if (!rst_ni) begin
      follows_q <= 1'b0;
      waiting_q <= '0;
    end else begin
      waiting_q <= waiting_q + 4'(take) - 4'(done);
      if (!follows_q && mark_i && take) begin
        follows_q    <= 1'b1;
        follows_id_q <= awid_o;
        ahead_q      <= waiting_q - 4'(done);
      end else if (follows_q && done) begin
        ahead_q <= ahead_q - 1'b1;
        if (ahead_q == '0) follows_q <= 1'b0;
      end
    end
  end

  logic writers_hold;
  always_comb begin
    writers_hold = 1'b1;
    for (int unsigned i = 0; i < Writers; i++) begin
      if (writer_aw_waits_q[i] && !(awvalid_i[i] && writer_address[i] == writer_address_q[i]))
        writers_hold = 1'b0;
      if (writer_w_waits_q[i] && !(wvalid_i[i] && writer_word[i] == writer_word_q[i]))
        writers_hold = 1'b0;
    end
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_writers_hold: assume (!rst_ni || writers_hold);
    m_writers_are_bounded: assume (!take || u.unanswered_q != '1);
    if (Lawful) begin
      m_answers_have_bursts: assume (!bvalid_i || owed_q != '0);
      m_no_pause_of_quiet_clocks: assume (!u.forget || owed_q == '0);
    end
    if (past_q) begin
      a_aw_stable: assert (!aw_waits_q || !rst_ni ||
                           (awvalid_o && {awid_o, awaddr_o, awlen_o} == address_q));
      a_w_stable: assert (!w_waits_q || !rst_ni ||
                          (wvalid_o && {wdata_o, wstrb_o, wlast_o} == word_q));
      a_words_in_order: assert (!(follows_q && ahead_q == '0 && wvalid_o) ||
                                (wdata_o == wdata_i[follows_id_q] &&
                                 wready_o[~follows_id_q] == 1'b0));
      a_words_after_address: assert (!wvalid_o || waiting_q != '0);
      a_waiting_is_bounded: assert (32'(waiting_q) <= Ahead);
      a_answer_has_a_burst: assert (bvalid_o == '0 || u.unanswered_q != '0);
      a_none_while_stale: assert (!u.stale_q || (bvalid_o == '0 && !awvalid_o));
      if (Lawful) begin
        a_account: assert (u.stale_q || u.unanswered_q == owed_q);
        h_account: assert (owed_q <= u.unanswered_q);
      end
      h_waiting: assert (u.waiting_q == 9'(1) << waiting_q);
      h_followed: assert (!follows_q || (ahead_q < waiting_q &&
                                         u.order_q[3'(ahead_q)] == follows_id_q));
      h_stale: assert (up_q || u.stale_q);
      c_many_wait: cover (waiting_q == 4);
      c_both_in_turn: cover (follows_q && ahead_q == '0 && done && waiting_q == 2 &&
                             u.order_q[1] != u.order_q[0]);
      c_forgets: cover (u.forget && u.unanswered_q != '0);
      c_works_after_reset: cover (reset_q && |bvalid_o);
    end
  end

endmodule
