// The properties of cu_shell's run: its phases follow each other as the unit answers; each run, and
// each job of one, has one record, which memory has before the run is done; and no phase that waits
// for the shell itself or for memory lasts longer than a bound.
//
// The starts that the host asks for are cut (f_axi_control). The writer of the unit is at rest, and
// a reset comes only while memory owes no answer: f_axi_write_share stands for both. A unit with a
// ring drives job_i as image_cu does: from the job's start to its record's.
`include "../rtl/axi/axi_ports.svh"

module f_cu_shell
  import cu_pkg::*;
#(
  parameter int unsigned Late = 3
) (
  input logic         ap_clk,
  input logic         ap_rst_n,
  input logic         m_axi_gmem1_awready,
  input logic         m_axi_gmem1_wready,
  input logic         m_axi_gmem1_bvalid,
  input logic [1:0]   m_axi_gmem1_bresp,
  input logic         checked_i,
  input logic         refused_i,
  input logic         run_over_i,
  input logic         queue_i,
  input logic         takes_i,
  input logic         ends_i,
  input logic [63:0]  record_address_i,
  input logic         record_ordered_i,
  input logic [255:0] record_i
);

  // The turn comes to the record, and then an address, a word or an answer waits. A record has two
  // of each.
  localparam int unsigned Bound = 3 + Late;
  localparam logic [0:0]  RecordWriter = 1'b1;

  logic        rst_no, begins_o, record_start_o, record_idle_o, record_error_o;
  cu_phase_e   phase_o;
  logic [2:0]  clocks_o;
  logic [0:0]  m_axi_gmem1_awid;
  logic        m_axi_gmem1_awvalid, m_axi_gmem1_wvalid, m_axi_gmem1_wlast;
  logic        job_q, queue_q;

  // verilator lint_off PINMISSING
  cu_shell #(.Readers(1)) u (
    .ap_clk, .ap_rst_n,
    .m_axi_gmem1_awid, .m_axi_gmem1_awvalid, .m_axi_gmem1_awready,
    .m_axi_gmem1_wlast, .m_axi_gmem1_wvalid, .m_axi_gmem1_wready,
    .m_axi_gmem1_bid(RecordWriter), .m_axi_gmem1_bresp, .m_axi_gmem1_bvalid,
    .rst_no, .phase_o, .clocks_o, .begins_o,
    .checked_i, .refused_i, .run_over_i,
    .queues_i(queue_q && !job_q), .takes_i, .ends_i, .job_i(job_q),
    .record_address_i, .record_ordered_i, .record_i,
    .record_start_o, .record_idle_o, .record_error_o,
    .awvalid_i(1'b0), .wvalid_i(1'b0)
  );
  // verilator lint_on PINMISSING

  logic       past_q = 1'b0, up_q = 1'b0, begun_q, refused_q;
  cu_phase_e  phase_q;
  logic       checked_q, over_q, queues_q, takes_q, ends_q, start_q, next_q, job_before_q, idle_q;
  logic       no_q;                  // the record's address is not aligned
  logic [2:0] records_q, jobs_q;     // of this run
  logic [5:0] still_q;               // clocks without a move in phases that the shell ends
  logic [3:0] asked_q, ended_q;      // bursts without answer: address taken, words complete
  logic       owes, moves, ends;
  logic [2:0] address_late, word_late, answer_late;

  assign ends  = phase_o inside {CuStart, CuOutcome, CuRecord};
  assign moves = (m_axi_gmem1_awvalid && m_axi_gmem1_awready) ||
                 (m_axi_gmem1_wvalid && m_axi_gmem1_wready) || m_axi_gmem1_bvalid;
  assign owes = asked_q != '0 && ended_q != '0;
  axi_memory_answers #(.Late(Late)) u_memory (
    .clk_i   (ap_clk),              .rst_ni   (rst_no),
    .asks_i  (m_axi_gmem1_awvalid), .takes_i  (m_axi_gmem1_awready),
    .writes_i(m_axi_gmem1_wvalid),  .stores_i (m_axi_gmem1_wready),
    .owes_i  (owes),                .answers_i(m_axi_gmem1_bvalid),
    .address_late_o(address_late), .word_late_o(word_late), .answer_late_o(answer_late)
  );

  always_ff @(posedge ap_clk) begin
    past_q       <= 1'b1;
    up_q         <= rst_no;
    phase_q      <= phase_o;
    checked_q    <= checked_i;
    refused_q    <= refused_i;
    over_q       <= run_over_i;
    queues_q     <= queue_q && !job_q;
    takes_q      <= takes_i;
    ends_q       <= ends_i;
    start_q      <= u.start;
    next_q       <= u.next;
    job_before_q <= job_q;
    idle_q       <= record_idle_o;
    no_q         <= record_address_i[3:0] != '0;
    still_q      <= !rst_no || moves || phase_o != phase_q ||
                    !ends ? '0 : still_q + 1'b1;
    if (!rst_no) begin
      job_q     <= 1'b0;
      queue_q   <= 1'b0;
      begun_q   <= 1'b0;
      records_q <= '0;
      jobs_q    <= '0;
      asked_q   <= '0;
      ended_q   <= '0;
    end else begin
      if (begins_o) queue_q <= queue_i;
      if (phase_o == CuWait && takes_i) job_q <= 1'b1;
      else if (record_start_o) job_q <= 1'b0;
      begun_q   <= begins_o || (begun_q && phase_o != CuDone);
      records_q <= begins_o ? '0 : records_q + 3'(record_start_o);
      jobs_q    <= begins_o ? '0 : jobs_q + 3'(phase_o == CuWait && takes_i);
      asked_q   <= asked_q + 4'(m_axi_gmem1_awvalid && m_axi_gmem1_awready) -
                   4'(m_axi_gmem1_bvalid);
      ended_q   <= ended_q + 4'(m_axi_gmem1_wvalid && m_axi_gmem1_wready && m_axi_gmem1_wlast) -
                   4'(m_axi_gmem1_bvalid);
    end
  end

  // Where a phase leads, by what the unit and the host answer in it.
  cu_phase_e next_phase;
  logic      no_before_q;
  always_ff @(posedge ap_clk) no_before_q <= no_q;
  always_comb begin
    unique case (phase_q)
      CuIdle:    next_phase = start_q ? CuCheck : CuIdle;
      CuCheck:   next_phase = !checked_q ? CuCheck : refused_q ? CuOutcome
                            : queues_q ? CuWait : CuStart;
      CuStart:   next_phase = CuRun;
      CuRun:     next_phase = over_q ? CuOutcome : CuRun;
      CuOutcome: next_phase = job_before_q ? (idle_q ? CuWait : CuOutcome)
                            : no_before_q ? CuDone : CuRecord;
      CuRecord:  next_phase = idle_q ? CuDone : CuRecord;
      CuWait:    next_phase = takes_q ? CuCheck : ends_q ? CuOutcome : CuWait;
      default:   next_phase = next_q ? CuIdle : CuDone;
    endcase
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_no);
    m_reset_owes_nothing: assume (rst_no || u.u_writes.unanswered_q == '0);
    m_answers_have_bursts: assume (!m_axi_gmem1_bvalid || owes);
    m_address_stays: assume (!rst_no || phase_o == CuIdle || phase_q == CuIdle ||
                             (record_address_i[3:0] != '0) == no_q);
    m_ring_is_aligned: assume (!job_q || record_address_i[3:0] == '0);
    m_ring_ends_recorded: assume (!ends_i || (record_idle_o && clocks_o != '0));
    if (past_q) begin
      a_phases_follow: assert (!up_q || phase_o == next_phase);
      a_begins_when_idle: assert (!begins_o || (phase_o == CuIdle && !begun_q));
      a_record_when_idle: assert (!record_start_o || record_idle_o);
      a_a_record_a_run: assert (!(rst_no && phase_o == CuDone && up_q) ||
                                records_q == jobs_q + 3'(!no_q));
      a_done_is_recorded: assert (!(rst_no && phase_o == CuDone) || record_idle_o);
      a_rests_without_a_record: assert (!(phase_o == CuIdle) || record_idle_o);
      a_moves_in_time: assert (32'(still_q) < Bound);
      a_idle_after_reset: assert (up_q || phase_o == CuIdle);
      h_refused: assert (u.record_refused_q == no_q && !(job_q && job_before_q && no_q));
      h_queue: assert ((!job_q || queue_q) && (phase_o != CuWait || queue_q));
      h_job: assert (!(phase_o inside {CuIdle, CuRecord, CuDone, CuWait}) || !job_q);
      h_runs: assert (!(phase_o inside {CuStart, CuRun}) || job_q == queue_q);
      h_first_check: assert (!(phase_o inside {CuCheck, CuStart, CuRun} && !job_q) ||
                             (jobs_q == '0 && record_idle_o));
      h_outcome: assert (!(phase_o == CuOutcome && !job_q) || record_idle_o);
      h_begun: assert (phase_o == CuIdle ? !begun_q : 1'b1);
      h_records: assert (!(phase_o inside {CuCheck, CuStart, CuRun, CuOutcome, CuWait}) ||
                         records_q + 3'(job_q) == jobs_q);
      h_record: assert (!(phase_o == CuRecord) || (records_q == jobs_q + 3'd1 && !no_q));
      h_open: assert (!rst_no || (2'(asked_q) == u.u_record.answers_q - u.u_record.addresses_q &&
                                  asked_q <= 4'd2));
      h_ended: assert (!rst_no || (2'(ended_q) == u.u_record.answers_q - u.u_record.words_q &&
                                   ended_q <= asked_q));
      h_share: assert (!rst_no || (u.u_writes.unanswered_q == 8'(asked_q) &&
                                   u.u_writes.waiting_q == 9'd1 << (asked_q - ended_q)));
      h_order: assert ((asked_q - ended_q < 4'd1 || u.u_writes.order_q[0]) &&
                       (asked_q - ended_q < 4'd2 || u.u_writes.order_q[1]));
      h_stale: assert (!u.u_writes.stale_q || asked_q == '0);
      h_counts: assert (u.u_record.answers_q <= 2'd2 &&
                        u.u_record.addresses_q <= u.u_record.answers_q &&
                        u.u_record.words_q <= u.u_record.answers_q);
      h_waits: assert (record_idle_o || !rst_no || !ends || still_q <= 6'd2 ||
          (m_axi_gmem1_awvalid && still_q <= 6'd3 + 6'(address_late)) ||
          (m_axi_gmem1_wvalid && still_q <= 6'd3 + 6'(word_late)) ||
          (owes && still_q <= 6'd3 + 6'(answer_late)));
      h_idle_phases_end: assert (!record_idle_o || !ends || still_q <= 6'd2);
      h_other_phases: assert (ends || still_q <= 6'd3);
      h_new_phase: assert (!(phase_o == CuStart || (phase_o == CuOutcome && !job_q)) ||
                           still_q == '0);
      h_turn: assert (u.u_writes.turn_q || u.u_record.addresses_q == '0 || !rst_no ||
                      (u.u_record.addresses_q == 2'd2 &&
                       (phase_o == CuWait || (phase_o == CuRecord && still_q <= 6'd1))));
      c_done: cover (phase_o == CuDone && records_q == 3'd1 && up_q);
      c_refused_address: cover (phase_o == CuDone && records_q == '0 && up_q && no_q);
      c_two_jobs: cover (phase_o == CuDone && jobs_q == 3'd2);
      c_waits_for_a_record: cover (phase_o == CuOutcome && job_q && !record_idle_o);
    end
  end

endmodule
