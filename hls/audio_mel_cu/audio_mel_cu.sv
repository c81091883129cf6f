// Audio CU A: a WAV file in device memory to log-mel bands with their sums in device memory, in one
// pass.
//
//   gmem0 -+-> axi_read -> wav -> rate_check -> resample -> mel -> sound_store -+-> gmem1
//          +-> axi_read ---------------------------^---------^   record_write -+
//
// Reference   audio_mel_cu.hpp; registers: kernel.xml and audio_mel_cu_pkg.sv.
// Interface   AXI4-Lite control with ap_ctrl_chain; two AXI4 masters of 128 bits, one reads and one
//             writes, of which only the channels in use exist. All addresses are 16-byte aligned. A
//             run takes its arguments when it starts, so that the host can already write those of
//             the next; it begins after ap_continue.
// Throughput  that of its units: a sample of the file a clock, half of one at 8 and 11.025 kHz.
// Latency     the tables are loaded beside the file's header: 384 clocks, and those of the taps,
//             which are loaded only if the last ones were of another rate.
// Bad input   ends in a status code, see docs/reference/registers.md. An unknown stage or rate,
//             a setting out of range, or an unaligned address: StatusBadArgument, nothing runs; the
//             record is written unless its own address is at fault. An error response of memory:
//             StatusBusError; the run still ends by itself, on zeros for what was not read, and the
//             taps are loaded again for the next run.
`include "../rtl/axi/axi_ports.svh"

module audio_mel_cu
  import headrace_pkg::*;
  import audio_pkg::*;
  import cu_pkg::*;
  import audio_mel_cu_pkg::*;
(
  input  logic         ap_clk,
  input  logic         ap_rst_n,
  output logic         interrupt,

  `AXI_CONTROL_PORTS(s_axi_control),
  `AXI_READ_PORTS(m_axi_gmem0, 1, 16),
  `AXI_WRITE_PORTS(m_axi_gmem1, 1, 16)
);

  localparam logic [31:0] MaxPreemphasis = 32'h00FF_FFFF;
  localparam logic [31:0] MaxSamples     = 32'd10_485_599;

  // ---- The shell: registers, the record, reads on one master and writes on the other ----
  localparam int unsigned Readers = 2;
  localparam int unsigned WavReader = 0;
  localparam int unsigned TablesReader = 1;

  logic [Readers-1:0][63:0] araddr;
  logic [Readers-1:0][7:0]  arlen;
  logic [Readers-1:0]       arvalid, arready, rvalid;
  logic [63:0]              awaddr;
  logic [7:0]               awlen;
  logic                     awvalid, awready;
  logic [127:0]             wdata;
  logic [15:0]              wstrb;
  logic                     wlast, wvalid, wready, bvalid;

  logic         clk, rst_n;
  cu_phase_e    phase;
  logic         begins;
  arguments_t   registers, arguments_q;
  outputs_t     outputs_q;
  counters_t    counters;
  cu_counts_t   counts;
  logic         checked_q, refused_q, plan_refused_q;
  logic         run_over, record_error;
  logic         wav_idle, tables_idle;  // the units that read them
  logic         bus_error, tables_error;
  logic         unit_start;
  logic [31:0]  bytes_q, mels_q;
  logic [255:0] record;
  logic         pcm_waits;

  assign clk = ap_clk;

  cu_shell #(
    .Readers       (Readers),
    .Events        (2),
    .ArgumentWords (ArgumentWords),
    .ArgumentOffset(ArgumentOffset),
    .OutputWords   (OutputWords),
    .OutputOffset  (OutputOffset),
    .CounterWords  ($bits(counters_t) / 32)
  ) u_shell (
    .ap_clk, .ap_rst_n, .interrupt,
    `AXI_CONTROL_CONNECT(s_axi_control),
    `AXI_READ_CONNECT(m_axi_gmem0),
    `AXI_WRITE_CONNECT(m_axi_gmem1),
    .rst_no          (rst_n),
    .arguments_o     (registers),
    .outputs_i       (outputs_q),
    .counters_i      (counters),
    .events_i        ({!tables_idle, pcm_waits}),
    .counts_o        (counts),
    .event_counts_o  ({counters.tables, counters.wait_pcm}),
    .phase_o         (phase),
    .clocks_o        (),
    .begins_o        (begins),
    .checked_i       (checked_q),
    .refused_i       (refused_q || plan_refused_q),
    .run_over_i      (run_over),
    .queues_i        (1'b0),
    .takes_i         (1'b0),
    .ends_i          (1'b0),
    .job_i           (1'b0),
    .record_address_i(arguments_q.result),
    .record_ordered_i(1'b0),
    .record_i        (record),
    .record_start_o  (),
    .record_idle_o   (),
    .record_error_o  (record_error),
    .araddr_i        (araddr),
    .arlen_i         (arlen),
    .arvalid_i       (arvalid),
    .arready_o       (arready),
    .rvalid_o        (rvalid),
    .awaddr_i        (awaddr),
    .awlen_i         (awlen),
    .awvalid_i       (awvalid),
    .awready_o       (awready),
    .wdata_i         (wdata),
    .wstrb_i         (wstrb),
    .wlast_i         (wlast),
    .wvalid_i        (wvalid),
    .wready_o        (wready),
    .bvalid_o        (bvalid)
  );

  assign counters.cycles       = counts.cycles;
  assign counters.first_output = counts.first_output;
  assign counters.last_output  = counts.last_output;
  assign counters.wait_write   = counts.wait_write;

  assign unit_start = phase == CuStart;

  // After a reset readers may not be idle. A clock later what is worked out of the arguments
  // stands.
  always_ff @(posedge clk) begin
    if (!rst_n) checked_q <= 1'b0;
    else checked_q <= phase == CuCheck && wav_idle && tables_idle && !checked_q;
  end

  always_ff @(posedge clk) if (begins) arguments_q <= registers;

  // ---- Arguments, and which taps are loaded ----
  // The tables' address counts only where they are read.
  logic        bands_q;                      // the last stage is mel
  logic        bands, rate_known, loads;
  logic [2:0]  rate, rate_q;                 // whose taps lie in `tables`
  logic        loads_q;                      // they are loaded in this run
  logic        loaded_valid_q;
  logic [2:0]  loaded_q;                     // the rate of those that resample has
  logic        loads_now_q;
  logic [2:0]  taps_rate_q;
  logic [28:0] table_words_q;

  assign bands = arguments_q.stage[0];

  always_comb begin
    rate       = '0;
    rate_known = 1'b0;
    for (int unsigned i = 0; i < 8; i++) begin
      if (arguments_q.taps_rate == 32'(RateHz[i])) begin
        rate       |= 3'(i);
        rate_known |= 1'b1;
      end
    end
    loads = rate_known && rate != Rate16000 && !(loaded_valid_q && loaded_q == rate);
  end

  always_ff @(posedge clk) begin
    bands_q          <= bands;
    rate_q           <= rate;
    loads_q          <= loads;
    refused_q        <= arguments_q.stage[31:1] != '0 || !rate_known ||
                        arguments_q.wav[3:0] != '0 ||
                        arguments_q.mel[3:0] != '0 || arguments_q.result[3:0] != '0 ||
                        ((bands || loads) && arguments_q.tables[3:0] != '0) ||
                        (bands && (arguments_q.mels[31:8] != '0 || arguments_q.mels[7:0] == '0 ||
                                   arguments_q.mels[7:0] > 8'd128 || arguments_q.mels[1:0] != '0 ||
                                   arguments_q.preemphasis > MaxPreemphasis ||
                                   arguments_q.left_out[31:1] != '0));
    plan_refused_q   <= bands && (arguments_q.plan[31:16] != '0 || arguments_q.plan[7:6] != '0 ||
                                  arguments_q.plan[2:1] == 2'd3 ||
                                  (arguments_q.plan[5:4] != '0 &&
                                   arguments_q.plan[2:1] != 2'd2) ||
                                  arguments_q.min_samples > arguments_q.max_samples ||
                                  arguments_q.max_samples > MaxSamples);
    // The program lies in front of the taps, and passes by with them where it is not wanted.
    table_words_q    <= !bands_q && !loads_q ? '0
                      : 29'(ProgramWords) + (loads_q ? 29'(TapsWords[rate_q]) : '0);
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      loaded_valid_q <= 1'b0;
    end else if (unit_start && loads_q) begin
      loaded_valid_q <= 1'b0;
    end else if (phase == CuRun && run_over && loads_now_q) begin
      loaded_valid_q <= !tables_error;
    end
  end

  // loads_q looks at what is loaded, so this run keeps what it was told at its start.
  always_ff @(posedge clk) begin
    if (unit_start) begin
      loads_now_q <= loads_q;
      taps_rate_q <= rate_q;
      if (loads_q) loaded_q <= rate_q;
    end
  end

  // ---- The file ----
  logic         wav_stop, wav_error, wav_done;
  logic [127:0] wav_word;
  logic         wav_valid, wav_ready;
  logic [28:0]  wav_words;

  assign wav_words = {1'b0, arguments_q.wav_bytes[31:4]} + 29'(arguments_q.wav_bytes[3:0] != '0);

  // Short bursts, between long ones of the tables, for which all waits at first: a word lasts for
  // four samples or more.
  axi_read #(.BurstWords(16), .Depth(128)) u_wav_read (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .start_i     (unit_start),
    .address_i   (arguments_q.wav),
    .words_i     (wav_words),
    .stop_i      (wav_stop),
    .idle_o      (wav_idle),
    .error_o     (wav_error),
    .word_o      (wav_word),
    .word_valid_o(wav_valid),
    .word_ready_i(wav_ready),
    .araddr_o    (araddr[WavReader]),
    .arlen_o     (arlen[WavReader]),
    .arsize_o    (),
    .arburst_o   (),
    .arvalid_o   (arvalid[WavReader]),
    .arready_i   (arready[WavReader]),
    .rdata_i     (m_axi_gmem0_rdata),
    .rresp_i     (m_axi_gmem0_rresp),
    .rlast_i     (m_axi_gmem0_rlast),
    .rvalid_i    (rvalid[WavReader]),
    .rready_o    ()
  );

  sound_t read_sound, checked_sound;
  logic   read_sound_valid, read_sound_ready, checked_sound_valid, checked_sound_ready, check_idle;
  pcm_t   read_pcm, checked_pcm;
  logic   read_pcm_valid, read_pcm_ready, checked_pcm_valid, checked_pcm_ready;

  wav u_wav (
    .clk_i        (clk),
    .rst_ni       (rst_n),
    .start_i      (unit_start),
    .bytes_i      (arguments_q.wav_bytes),
    .done_o       (wav_done),
    .word_i       (wav_word),
    .word_valid_i (wav_valid),
    .word_ready_o (wav_ready),
    .sound_o      (read_sound),
    .sound_valid_o(read_sound_valid),
    .sound_ready_i(read_sound_ready),
    .pcm_o        (read_pcm),
    .pcm_valid_o  (read_pcm_valid),
    .pcm_ready_i  (read_pcm_ready)
  );

  rate_check u_rate_check (
    .clk_i        (clk),
    .rst_ni       (rst_n),
    .taps_rate_i  (taps_rate_q),
    .idle_o       (check_idle),
    .sound_i      (read_sound),
    .sound_valid_i(read_sound_valid),
    .sound_ready_o(read_sound_ready),
    .pcm_i        (read_pcm),
    .pcm_valid_i  (read_pcm_valid),
    .pcm_ready_o  (read_pcm_ready),
    .sound_o      (checked_sound),
    .sound_valid_o(checked_sound_valid),
    .sound_ready_i(checked_sound_ready),
    .pcm_o        (checked_pcm),
    .pcm_valid_o  (checked_pcm_valid),
    .pcm_ready_i  (checked_pcm_ready)
  );

  // ---- Tables: the program, then the taps ----
  logic [127:0] table_word;
  logic         table_valid, table_ready;
  logic [8:0]   program_left_q;  // words of it still to come
  logic         is_program, program_ready, taps_ready;
  logic         load_valid_q, load_ready;

  axi_read #(.BurstWords(128)) u_tables (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .start_i     (unit_start),
    .address_i   (arguments_q.tables),
    .words_i     (table_words_q),
    .stop_i      (1'b0),
    .idle_o      (tables_idle),
    .error_o     (tables_error),
    .word_o      (table_word),
    .word_valid_o(table_valid),
    .word_ready_i(table_ready),
    .araddr_o    (araddr[TablesReader]),
    .arlen_o     (arlen[TablesReader]),
    .arsize_o    (),
    .arburst_o   (),
    .arvalid_o   (arvalid[TablesReader]),
    .arready_i   (arready[TablesReader]),
    .rdata_i     (m_axi_gmem0_rdata),
    .rresp_i     (m_axi_gmem0_rresp),
    .rlast_i     (m_axi_gmem0_rlast),
    .rvalid_i    (rvalid[TablesReader]),
    .rready_o    ()
  );

  assign is_program  = program_left_q != '0;
  assign table_ready = is_program ? !bands_q || program_ready : taps_ready;

  always_ff @(posedge clk) begin
    if (unit_start) program_left_q <= 9'(ProgramWords);
    else if (table_valid && table_ready && is_program) program_left_q <= program_left_q - 1'b1;
  end

  // Before the sound, for which wav needs the file's headers.
  always_ff @(posedge clk) begin
    if (!rst_n) load_valid_q <= 1'b0;
    else if (unit_start) load_valid_q <= loads_q;
    else if (load_ready) load_valid_q <= 1'b0;
  end

  // ---- Resample ----
  sound_t  resampled_sound;
  logic    resampled_sound_valid, resampled_sound_ready;
  sample_t resampled;
  logic    resampled_valid, resampled_ready;

  resample u_resample (
    .clk_i        (clk),
    .rst_ni       (rst_n),
    .load_rate_i  (taps_rate_q),
    .load_valid_i (load_valid_q),
    .load_ready_o (load_ready),
    .table_i      (table_word),
    .table_valid_i(table_valid && !is_program),
    .table_ready_o(taps_ready),
    .sound_i      (checked_sound),
    .sound_valid_i(checked_sound_valid),
    .sound_ready_o(checked_sound_ready),
    .pcm_i        (checked_pcm),
    .pcm_valid_i  (checked_pcm_valid),
    .pcm_ready_o  (checked_pcm_ready),
    .sound_o      (resampled_sound),
    .sound_valid_o(resampled_sound_valid),
    .sound_ready_i(resampled_sound_ready),
    .sample_o     (resampled),
    .sample_valid_o(resampled_valid),
    .sample_ready_i(resampled_ready)
  );

  // ---- Mel, or past it ----
  sound_t             mel_sound, stored_sound;
  logic               mel_sound_valid, mel_sound_ready, stored_sound_valid, stored_sound_ready;
  logic               mel_idle;
  log_mel_t           log_mel;
  logic               log_mel_valid, mel_sample_ready, stored_valid, stored_ready;
  logic signed [23:0] stored;

  mel u_mel (
    .clk_i          (clk),
    .rst_ni         (rst_n),
    .n_mels_i       (arguments_q.mels[7:0]),
    .preemphasis_i  (arguments_q.preemphasis[23:0]),
    .log_floor_i    (arguments_q.log_floor),
    .plan_i         (arguments_q.plan[15:0]),
    .min_samples_i  (arguments_q.min_samples),
    .max_samples_i  (arguments_q.max_samples),
    .idle_o         (mel_idle),
    .program_i      (table_word),
    .program_valid_i(table_valid && is_program && bands_q),
    .program_ready_o(program_ready),
    .sound_i        (resampled_sound),
    .sound_valid_i  (resampled_sound_valid && bands_q),
    .sound_ready_o  (mel_sound_ready),
    .sample_i       (resampled),
    .sample_valid_i (resampled_valid && bands_q),
    .sample_ready_o (mel_sample_ready),
    .frames_o       (mel_sound),
    .frames_valid_o (mel_sound_valid),
    .frames_ready_i (stored_sound_ready && bands_q),
    .value_o        (log_mel),
    .value_valid_o  (log_mel_valid),
    .value_ready_i  (stored_ready && bands_q)
  );

  assign stored_sound          = bands_q ? mel_sound : resampled_sound;
  assign stored_sound_valid    = bands_q ? mel_sound_valid : resampled_sound_valid;
  assign stored                = bands_q ? log_mel : resampled;
  assign stored_valid          = bands_q ? log_mel_valid : resampled_valid;
  assign resampled_sound_ready = bands_q ? mel_sound_ready : stored_sound_ready;
  assign resampled_ready       = bands_q ? mel_sample_ready : stored_ready;

  // ---- Store ----
  logic        store_idle, store_error;
  status_e     store_status;
  logic [31:0] count, bytes;
  log_mel_t    greatest;
  logic [31:0] greatest_q;

  sound_store u_store (
    .clk_i        (clk),
    .rst_ni       (rst_n),
    .start_i      (unit_start),
    .address_i    (arguments_q.mel),
    .capacity_i   (arguments_q.mel_capacity),
    .bands_i      (bands_q),
    .mels_i       (arguments_q.mels[7:0]),
    .left_out_i   (arguments_q.left_out[0]),
    .idle_o       (store_idle),
    .status_o     (store_status),
    .count_o      (count),
    .bytes_o      (bytes),
    .greatest_o   (greatest),
    .bus_error_o  (store_error),
    .sound_i      (stored_sound),
    .sound_valid_i(stored_sound_valid),
    .sound_ready_o(stored_sound_ready),
    .value_i      (stored),
    .value_valid_i(stored_valid),
    .value_ready_o(stored_ready),
    .awaddr_o     (awaddr),
    .awlen_o      (awlen),
    .awsize_o     (),
    .awburst_o    (),
    .awvalid_o    (awvalid),
    .awready_i    (awready),
    .wdata_o      (wdata),
    .wstrb_o      (wstrb),
    .wlast_o      (wlast),
    .wvalid_o     (wvalid),
    .wready_i     (wready),
    .bresp_i      (m_axi_gmem1_bresp),
    .bvalid_i     (bvalid),
    .bready_o     ()
  );

  // ---- The end of a run ----
  // Every stream has seen its end, so nothing of this run is left when the next one begins.
  assign wav_stop  = phase == CuRun && wav_done;
  assign run_over  = wav_done && check_idle && mel_idle && store_idle && wav_idle && tables_idle;
  assign bus_error = wav_error || store_error || tables_error;

  logic [31:0] source_count_q;
  logic [15:0] source_rate_q;

  always_ff @(posedge clk) begin
    if (read_sound_valid && read_sound_ready) begin
      source_count_q <= read_sound.status == StatusOk ? read_sound.count : '0;
      source_rate_q  <= read_sound.status == StatusOk ? RateHz[read_sound.rate] : '0;
    end
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      outputs_q  <= '0;
      bytes_q    <= '0;
      mels_q     <= '0;
      greatest_q <= '0;
    end else if (phase == CuRun && run_over) begin
      outputs_q.status       <= 32'(bus_error ? StatusBusError : store_status);
      outputs_q.count        <= count;
      outputs_q.source_count <= source_count_q;
      outputs_q.source_rate  <= 32'(source_rate_q);
      bytes_q                <= bytes;
      mels_q                 <= bands_q ? arguments_q.mels : '0;
      greatest_q             <= {{8{greatest[23]}}, greatest};
    end else if (phase == CuCheck && checked_q && (refused_q || plan_refused_q)) begin
      outputs_q        <= '0;
      outputs_q.status <= 32'(StatusBadArgument);
      bytes_q          <= '0;
      mels_q           <= '0;
      greatest_q       <= '0;
    end else if (phase == CuRecord && record_error) begin
      outputs_q.status <= 32'(StatusBusError);
    end
  end

  assign record    = {greatest_q, 32'b0, bytes_q, outputs_q.source_count, outputs_q.source_rate,
                      mels_q, outputs_q.count, outputs_q.status};
  assign pcm_waits = checked_pcm_valid && !checked_pcm_ready;

`ifndef SYNTHESIS
  a_units_are_done_at_a_start: assert property (@(posedge clk) disable iff (!rst_n)
    unit_start |-> run_over);
  a_arguments_stay: assert property (@(posedge clk) disable iff (!rst_n)
    phase inside {CuStart, CuRun} |=> $stable(arguments_q) && $stable(bands_q));
  a_nothing_moves_outside_a_run: assert property (@(posedge clk) disable iff (!rst_n)
    phase != CuRun |-> arvalid == '0 && !awvalid && !wvalid);
  a_program_in_front: assert property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun |-> program_left_q <= 9'(ProgramWords));
  a_taps_only_where_loaded: assert property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && table_valid && !is_program |-> loads_now_q);
  a_streams_have_ended: assert property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && run_over |-> !table_valid && !read_sound_valid && !read_pcm_valid &&
                                   !checked_sound_valid && !checked_pcm_valid &&
                                   !resampled_sound_valid && !resampled_valid && !mel_sound_valid &&
                                   !log_mel_valid);
  a_mel_rests_where_passed_by: assert property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && !bands_q |-> !mel_sound_valid && !log_mel_valid);
  a_output_fits: assert property (@(posedge clk) disable iff (!rst_n)
    phase == CuRecord && outputs_q.status == 32'(StatusOk) |-> bytes_q <= arguments_q.mel_capacity);
  a_refused_without_a_run: assert property (@(posedge clk) disable iff (!rst_n)
    unit_start |-> !refused_q && !plan_refused_q);

  c_taps_kept: cover property (@(posedge clk) disable iff (!rst_n)
    unit_start && !loads_q && rate_q != Rate16000);
  c_taps_loaded_half: cover property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && run_over && loads_now_q && tables_error);
  c_program_passes_by: cover property (@(posedge clk) disable iff (!rst_n)
    table_valid && table_ready && is_program && !bands_q);
  c_file_goes_on: cover property (@(posedge clk) disable iff (!rst_n) wav_stop && !wav_idle);
  c_file_error: cover property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && run_over && wav_error);
  c_output_error: cover property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && run_over && store_error);
  c_record_error: cover property (@(posedge clk) disable iff (!rst_n)
    phase == CuRecord && record_error);
`endif

endmodule
