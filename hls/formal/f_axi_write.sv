// The properties of axi_write with short bursts: AXI4's rules (axi_write_checker).
//
// Commands, words, stalls and answers are free. The lines h_ tell the prover how the unit's state
// hangs together. A reset of the unit is one of memory, too: axi_write_share stands for those that
// are not.
//
// Bursts of 4 words stand for longer ones, and a queue of 8 words for longer queues: BurstWords and
// Depth only bound counters, and the borders of bursts lie at multiples of BurstWords in each case.
// The words themselves are cut: their values are free where they leave the queue (f_stream_fifo has
// the proof that they are those that entered).
module f_axi_write #(
  parameter int unsigned BurstWords = 4,
  parameter int unsigned Depth      = 8,
  parameter int unsigned OutstandingBits = 6
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         mark_i,
  input logic [63:0]  address_i,
  input logic [28:0]  words_i,
  input logic         command_valid_i,
  input logic [127:0] word_i,
  input logic         word_valid_i,
  input logic         awready_i,
  input logic         wready_i,
  input logic [1:0]   bresp_i,
  input logic         bvalid_i
);

  logic         idle_o, bus_error_o, command_ready_o, word_ready_o;
  logic         awvalid_o, wlast_o, wvalid_o, bready_o;
  logic [63:0]  awaddr_o;
  logic [7:0]   awlen_o;
  logic [2:0]   awsize_o;
  logic [1:0]   awburst_o;
  logic [127:0] wdata_o;
  logic [15:0]  wstrb_o;
  logic         past_q = 1'b0;

  axi_write #(.BurstWords(BurstWords), .Depth(Depth), .OutstandingBits(OutstandingBits)) u (
    .*, .clear_i(1'b0)
  );
  axi_write_checker #(
    .BurstWords(BurstWords), .MaxOutstanding(2 ** OutstandingBits - 1)
  ) u_check (
    .clk_i, .rst_ni, .mark_i,
    .awaddr_i (awaddr_o), .awlen_i (awlen_o), .awvalid_i(awvalid_o), .awready_i,
    .wdata_i  (wdata_o),  .wlast_i (wlast_o), .wvalid_i (wvalid_o),  .wready_i,
    .bvalid_i, .bready_i (bready_o)
  );

  always_ff @(posedge clk_i) past_q <= 1'b1;

  // The words of the bursts whose data has not left, in order.
  logic [3:0][7:0] jobs;
  logic [7:0]      jobs_words;
  logic            jobs_are_bursts;
  always_comb begin
    jobs_words      = '0;
    jobs_are_bursts = 1'b1;
    for (int unsigned k = 0; k < 4; k++) begin
      jobs[k] = u.u_jobs.count_o > k ? 8'(u.u_jobs.memory[2'(u.u_jobs.head_q + k)]) : 8'd0;
      jobs_words += jobs[k];
      if (u.u_jobs.count_o > k && (jobs[k] == '0 || jobs[k] > BurstWords)) jobs_are_bursts = 1'b0;
    end
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_commands_are_aligned: assume (!command_valid_i || address_i[3:0] == '0);
    m_commands_have_words: assume (!command_valid_i || words_i != '0);
    if (past_q) begin
      h_jobs: assert (u.u_jobs.count_o <= 4 &&
                      u.u_jobs.valid_o == (u.u_jobs.count_o != '0) &&
                      u.u_jobs.ready_o == (u.u_jobs.count_o != 3'd4) &&
                      u.u_jobs.tail_q == 2'(u.u_jobs.head_q + 2'(u.u_jobs.count_o)));
      h_enough: assert (!u.sized_q || u.enough_q == (u.waiting_q >= u.size_q));
      h_fifo: assert (u.gen_small.u_fifo.count_o <= Depth &&
                      u.gen_small.u_fifo.valid_o == (u.gen_small.u_fifo.count_o != '0) &&
                      u.gen_small.u_fifo.ready_o == (u.gen_small.u_fifo.count_o != Depth));
      h_job_words: assert (jobs_are_bursts);
      h_beat: assert (u.u_jobs.count_o == '0 ? u.beat_q == '0 : 8'(u.beat_q) < jobs[0]);
      h_words: assert (8'(u.gen_small.u_fifo.count_o) + 8'(u.beat_q) ==
                       8'(u.waiting_q) + jobs_words);
      h_size: assert (!u.sized_q || (u.size_q != '0 && u.size_q <= u.border &&
                                     29'(u.size_q) <= u.left_q));
      h_some: assert (u.some_q == (u.left_q != '0));
      h_open: assert (32'(u_check.unanswered_q) + 32'(u_check.asks) == 32'(u.outstanding_q));
      h_unwritten: assert (8'(u_check.unwritten_q) + 8'(u_check.asks) ==
                           8'(u.u_jobs.count_o) + 8'(wvalid_o && wlast_o));
      h_beats: assert (!wvalid_o ? u_check.beat_q == 8'(u.beat_q) :
                       wlast_o   ? u.beat_q == '0 && u_check.beat_q < BurstWords :
                                   u_check.beat_q + 8'd1 == 8'(u.beat_q));
      h_last_asked: assert (!u_check.asks || (u.u_jobs.count_o != '0 &&
                            jobs[2'(u.u_jobs.count_o - 1'b1)] == awlen_o + 8'd1));
      h_followed: assert (!u_check.follows_q || (u_check.ahead_q < u_check.unwritten_q &&
          (wvalid_o && wlast_o && u_check.ahead_q == '0 ? u_check.beat_q == u_check.length_q :
           jobs[2'(u_check.ahead_q - 7'(wvalid_o && wlast_o))] == u_check.length_q + 8'd1)));
      a_data_is_there: assert (!u.u_jobs.valid_o || u.gen_small.u_fifo.valid_o);
    end
  end

endmodule
