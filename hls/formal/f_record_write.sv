// The properties of record_write: two bursts of one word each, to the addresses and with the halves
// of the record that it was started with, each once; in order where it is asked for; and an end
// within a bound, if memory answers within one.
//
// Memory answers a burst whose address and word it has. A reset of the unit is one of memory, too:
// f_axi_write_share stands for those that are not.
module f_record_write #(
  parameter int unsigned Late = 3  // clocks in which memory answers
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         start_i,
  input logic [63:0]  address_i,
  input logic [255:0] record_i,
  input logic         ordered_i,
  input logic         awready_i,
  input logic         wready_i,
  input logic [1:0]   bresp_i,
  input logic         bvalid_i
);

  // Each of the two bursts waits for an address, a word and an answer; in order one after the
  // other.
  localparam int unsigned Bound = 4 * Late + 1;

  logic         idle_o, bus_error_o, awvalid_o, wlast_o, wvalid_o, bready_o;
  logic [63:0]  awaddr_o;
  logic [7:0]   awlen_o;
  logic [2:0]   awsize_o;
  logic [1:0]   awburst_o;
  logic [127:0] wdata_o;
  logic [15:0]  wstrb_o;
  logic         past_q = 1'b0, up_q = 1'b0;

  record_write u (.*);

  logic         take, store, answer, owes, aw_waits_q, w_waits_q, errs_q, ordered_q;
  logic [1:0]   taken_q, stored_q, answered_q;  // of the record, and 2 when it is complete
  logic [63:0]  first_q, awaddr_q;
  logic [255:0] record_q;
  logic [127:0] wdata_q;
  logic [5:0]   busy_q;                         // clocks since the start
  logic [2:0]   address_late, word_late, answer_late;
  assign take   = awvalid_o && awready_i;
  assign store  = wvalid_o && wready_i;
  assign answer = bvalid_i && bready_o;
  assign owes   = answered_q < taken_q && answered_q < stored_q;

  axi_memory_answers #(.Late(Late)) u_memory (
    .clk_i, .rst_ni,
    .asks_i  (awvalid_o), .takes_i  (awready_i),
    .writes_i(wvalid_o),  .stores_i (wready_i),
    .owes_i  (owes),      .answers_i(bvalid_i),
    .address_late_o(address_late), .word_late_o(word_late), .answer_late_o(answer_late)
  );

  always_ff @(posedge clk_i) begin
    past_q     <= 1'b1;
    up_q       <= rst_ni;
    aw_waits_q <= rst_ni && awvalid_o && !awready_i;
    w_waits_q  <= rst_ni && wvalid_o && !wready_i;
    awaddr_q   <= awaddr_o;
    wdata_q    <= wdata_o;
    busy_q     <= !rst_ni || idle_o ? '0 : busy_q + 1'b1;
    if (start_i) begin
      first_q   <= address_i;
      record_q  <= record_i;
      ordered_q <= ordered_i;
    end
    if (start_i || !rst_ni) errs_q <= 1'b0;
    else if (answer && bresp_i[1]) errs_q <= 1'b1;
    if (!rst_ni) begin
      taken_q    <= 2'd2;
      stored_q   <= 2'd2;
      answered_q <= 2'd2;
    end else if (start_i) begin
      taken_q    <= '0;
      stored_q   <= '0;
      answered_q <= '0;
    end else begin
      taken_q    <= taken_q + 2'(take);
      stored_q   <= stored_q + 2'(store);
      answered_q <= answered_q + 2'(answer);
    end
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_starts_when_idle: assume (!start_i || (idle_o && rst_ni));
    m_starts_are_aligned: assume (!start_i || address_i[3:0] == '0);
    m_answers_have_bursts: assume (!bvalid_i || owes);
    if (past_q) begin
      a_aw_stable: assert (!aw_waits_q || !rst_ni || (awvalid_o && awaddr_o == awaddr_q));
      a_w_stable: assert (!w_waits_q || !rst_ni || (wvalid_o && wdata_o == wdata_q));
      a_two_addresses: assert (!(awvalid_o && rst_ni) || taken_q < 2'd2);
      a_two_words: assert (!(wvalid_o && rst_ni) || stored_q < 2'd2);
      a_addresses_follow: assert (!awvalid_o || awaddr_o == first_q + 64'({taken_q, 4'b0}));
      a_words_follow: assert (!wvalid_o ||
                              wdata_o == (stored_q[0] ? record_q[255:128] : record_q[127:0]));
      a_in_order: assert (!(ordered_q && answered_q == '0) ||
                          (!(awvalid_o && taken_q == 2'd1) && !(wvalid_o && stored_q == 2'd1)));
      a_idle_is_complete: assert (!idle_o || (taken_q == 2'd2 && stored_q == 2'd2 &&
                                              answered_q == 2'd2));
      a_error_is_told: assert (bus_error_o == errs_q);
      a_ends_in_time: assert (32'(busy_q) < Bound);
      a_silent_after_reset: assert (up_q || (!awvalid_o && !wvalid_o && idle_o));
      h_addresses: assert (u.addresses_q == 2'd2 - taken_q && taken_q <= 2'd2);
      h_words: assert (u.words_q == 2'd2 - stored_q && stored_q <= 2'd2);
      h_answers: assert (u.answers_q == 2'd2 - answered_q && answered_q <= taken_q &&
                         answered_q <= stored_q);
      h_started: assert (idle_o || (u.ordered_q == ordered_q && u.record_q == record_q));
      h_address: assert (taken_q == 2'd2 || {u.address_q, 4'b0} == first_q + 64'({taken_q, 4'b0}));
      // How long it may have taken to get where it is.
      h_first_in_time: assert (idle_o || ((taken_q != '0 || busy_q <= 6'(address_late)) &&
                                          (stored_q != '0 || busy_q <= 6'(word_late))));
      h_second_in_time: assert (idle_o ||
          ((!(awvalid_o && taken_q == 2'd1) ||
            32'(busy_q) <= (answered_q == '0 ? Late : 2 * Late) + 32'(address_late)) &&
           (!(wvalid_o && stored_q == 2'd1) ||
            32'(busy_q) <= (answered_q == '0 ? Late : 2 * Late) + 32'(word_late))));
      h_answer_in_time: assert (idle_o || !owes ||
          32'(busy_q) <= (answered_q == '0 ? Late : 3 * Late) + 32'(answer_late));
      c_ends_in_order: cover (ordered_q && answer && answered_q == 2'd1);
      c_word_first: cover (stored_q == 2'd2 && taken_q == '0);
      c_ends_late: cover (busy_q == 6'(Bound - 1));
      c_error: cover (bus_error_o && idle_o);
    end
  end

endmodule
