// The liveness of axi_write: while it is not idle, an address, a word or an answer moves within
// Bound clocks, if memory and the source of the words let none wait for Late clocks. A command of n
// words so ends within Bound * (4 n + 1) clocks: each word moves twice, and so does each burst.
//
// Sizes as in f_axi_write, where the properties of each burst are. Commands have fewer than 16
// words: the count only falls.
module f_axi_write_live #(
  parameter int unsigned BurstWords      = 4,
  parameter int unsigned Depth           = 8,
  parameter int unsigned OutstandingBits = 2,
  parameter int unsigned Late            = 3
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic [63:0]  address_i,
  input logic [3:0]   few_i,
  input logic         command_valid_i,
  input logic [127:0] word_i,
  input logic         word_valid_i,
  input logic         awready_i,
  input logic         wready_i,
  input logic [1:0]   bresp_i,
  input logic         bvalid_i
);

  localparam int unsigned Bound = 3 + Late;

  logic [28:0]  words_i;
  logic         idle_o, bus_error_o, command_ready_o, word_ready_o;
  logic         awvalid_o, wlast_o, wvalid_o, bready_o;
  logic [63:0]  awaddr_o;
  logic [7:0]   awlen_o;
  logic [2:0]   awsize_o;
  logic [1:0]   awburst_o;
  logic [127:0] wdata_o;
  logic [15:0]  wstrb_o;
  logic         past_q = 1'b0, moves, lacks, owes;
  logic [3:0]   asked_q, ended_q;  // bursts without answer: address taken, words complete
  logic [2:0]   source_late_q, address_late, word_late, answer_late;
  logic [5:0]   still_q;           // clocks without a move

  assign words_i = 29'(few_i);
  axi_write #(.BurstWords(BurstWords), .Depth(Depth), .OutstandingBits(OutstandingBits)) u (
    .*, .clear_i(1'b0)
  );

  axi_memory_answers #(.Late(Late)) u_memory (
    .clk_i, .rst_ni,
    .asks_i  (awvalid_o), .takes_i  (awready_i),
    .writes_i(wvalid_o),  .stores_i (wready_i),
    .owes_i  (owes),      .answers_i(bvalid_i),
    .address_late_o(address_late), .word_late_o(word_late), .answer_late_o(answer_late)
  );

  // Words of the command that its source has not given.
  assign lacks = u.left_q > 29'(u.waiting_q);
  assign owes  = asked_q != '0 && ended_q != '0;
  assign moves = bvalid_i || (word_valid_i && word_ready_o) || (awvalid_o && awready_i) ||
                 (wvalid_o && wready_i);
  always_ff @(posedge clk_i) begin
    past_q        <= 1'b1;
    source_late_q <= rst_ni && lacks && word_ready_o && !word_valid_i ? source_late_q + 1'b1 : '0;
    still_q       <= !rst_ni || idle_o || moves ? '0 : still_q + 1'b1;
    if (!rst_ni) begin
      asked_q <= '0;
      ended_q <= '0;
    end else begin
      asked_q <= asked_q + 4'(awvalid_o && awready_i) - 4'(bvalid_i);
      ended_q <= ended_q + 4'(wvalid_o && wready_i && wlast_o) - 4'(bvalid_i);
    end
  end

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
    m_commands_have_words: assume (!command_valid_i || few_i != '0);
    m_answers_have_bursts: assume (!bvalid_i || owes);
    m_source_in_time: assume (!rst_ni || !lacks || !word_ready_o || word_valid_i ||
                              32'(source_late_q) + 32'd1 < Late);
    if (past_q) begin
      a_moves_in_time: assert (32'(still_q) < Bound);
      h_source_late: assert (32'(source_late_q) < Late);
      // Something waits for as long as nothing moves, but for the clocks before it is there.
      h_waits: assert (idle_o || still_q <= 6'(u.sized_q) + 6'd1 ||
          (wvalid_o && still_q <= 6'd3 + 6'(word_late)) ||
          (awvalid_o && still_q <= 6'd3 + 6'(address_late)) ||
          (owes && still_q <= 6'd3 + 6'(answer_late)) ||
          (lacks && word_ready_o && still_q <= 6'd3 + 6'(source_late_q)));
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
      h_asked: assert (32'(asked_q) + 32'(awvalid_o) == 32'(u.outstanding_q));
      h_ended: assert (32'(ended_q) + 32'(u.u_jobs.count_o) + 32'(wvalid_o && wlast_o) ==
                       32'(u.outstanding_q));
      h_few: assert (u.left_q < 29'd16);
      c_moves_late: cover (still_q == 6'(Late) && moves);
      c_ends: cover (u.outstanding_q == 1 && bvalid_i && u.left_q == '0);
      c_waits_for_words: cover (lacks && u.waiting_q == 2 && u.outstanding_q == 1);
    end
  end

endmodule
