// Audio CU B: log-mel bands with their sums, as audio_mel_cu leaves them in memory, to a model's
// input tensor.
//
//   gmem0 -> axi_read -> mel_normalize -> axi_write -+-> gmem1
//                                     record_write -+
//
// Reference   audio_norm_cu.hpp; registers: kernel.xml, axi_control.sv and the counters of
//             audio_norm_cu_pkg.sv.
// Interface   AXI4-Lite control with ap_ctrl_chain; two AXI4 masters of 128 bits, one reads and one
//             writes, of which only the channels in use exist. All addresses are 16-byte aligned. A
//             run takes its arguments when it starts, so that the host can already write those of
//             the next; it begins after ap_continue.
// Throughput  four values a clock.
// Latency     six clocks a band for the statistics, then the reading of a tile of 128 frames, then
//             that of its writing.
// Bad input   ends in a status code, see docs/reference/registers.md. Arguments out of range or an
//             unaligned address: StatusBadArgument, nothing runs; the record is written unless its
//             own address is at fault. Too little room: nothing is read or written. An error
//             response of memory: StatusBusError; the run still ends by itself, on zeros for what
//             was not read.
`include "../rtl/axi/axi_ports.svh"

module audio_norm_cu
  import headrace_pkg::*;
  import cu_pkg::*;
  import audio_norm_cu_pkg::*;
(
  input  logic         ap_clk,
  input  logic         ap_rst_n,
  output logic         interrupt,

  `AXI_CONTROL_PORTS(s_axi_control),
  `AXI_READ_PORTS(m_axi_gmem0, 1, 16),
  `AXI_WRITE_PORTS(m_axi_gmem1, 1, 16)
);

  // ---- The shell: registers, the record, reads on one master and writes on the other ----
  logic [63:0]  araddr;
  logic [7:0]   arlen;
  logic         arvalid, arready, rvalid;
  logic [63:0]  awaddr;
  logic [7:0]   awlen;
  logic         awvalid, awready;
  logic [127:0] wdata;
  logic [15:0]  wstrb;
  logic         wlast, wvalid, wready, bvalid;

  logic         clk, rst_n;
  cu_phase_e    phase;
  logic [2:0]   phase_clocks;
  logic         begins, checked, refused;
  arguments_t   registers, arguments_q;
  counters_t    counters;
  cu_counts_t   counts;
  status_e      status_q;
  logic         run_over, record_error, bus_error;
  logic         read_idle, read_waits;  // the unit that reads mel
  logic [255:32] record_q;              // what stands behind the status

  assign clk = ap_clk;

  cu_shell #(
    .Readers       (1),
    .ArgumentWords (ArgumentWords),
    .ArgumentOffset(ArgumentOffset),
    .OutputWords   (1),
    .OutputOffset  (StatusOffset),
    .CounterWords  ($bits(counters_t) / 32)
  ) u_shell (
    .ap_clk, .ap_rst_n, .interrupt,
    `AXI_CONTROL_CONNECT(s_axi_control),
    `AXI_READ_CONNECT(m_axi_gmem0),
    `AXI_WRITE_CONNECT(m_axi_gmem1),
    .rst_no          (rst_n),
    .arguments_o     (registers),
    .outputs_i       (32'(status_q)),
    .counters_i      (counters),
    .events_i        (read_waits),
    .counts_o        (counts),
    .event_counts_o  (counters.wait_read),
    .phase_o         (phase),
    .clocks_o        (phase_clocks),
    .begins_o        (begins),
    .checked_i       (checked),
    .refused_i       (refused),
    .run_over_i      (run_over),
    .queues_i        (1'b0),
    .takes_i         (1'b0),
    .ends_i          (1'b0),
    .job_i           (1'b0),
    .record_address_i(arguments_q.result),
    .record_ordered_i(1'b0),
    .record_i        ({record_q, 32'(status_q)}),
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

  // ---- Arguments and sizes, step by step ----
  localparam logic [2:0] CheckClocks = 3'd4;

  logic         refused_q, fits_q, half, by_frames;
  logic [15:0]  row_values, rows;    // of the tensor
  logic [14:0]  pitch_q;             // words of a row
  logic [21:0]  words_q, values_q;   // of the tensor and of the values in `mel`
  logic [31:0]  statistics_upper_q;  // word address of the statistics
  logic [27:0]  statistics_lower_q;
  logic         carry_q;
  logic         counted_refused_q, rule_refused_q;

  assign half       = arguments_q.format[0];
  assign by_frames  = arguments_q.format[1];
  assign row_values = by_frames ? 16'(arguments_q.mels[7:0]) : arguments_q.frames[15:0];
  assign rows       = by_frames ? arguments_q.frames[15:0] : 16'(arguments_q.mels[7:0]);

  always_ff @(posedge clk) begin
    if (begins) arguments_q <= registers;
    counted_refused_q <= arguments_q.counted == '0 || arguments_q.counted > arguments_q.frames;
    rule_refused_q <= arguments_q.least[31:23] != {9{arguments_q.least[23]}} ||
                      (arguments_q.scale != '0 &&
                       (!arguments_q.scale[23] || arguments_q.scale[31:24] == '0 ||
                        arguments_q.scale[31:24] > 8'd47));
    refused_q <= counted_refused_q || rule_refused_q || arguments_q.frames[15:0] == '0 ||
                 arguments_q.frames[31:16] != '0 ||
                 arguments_q.mels == '0 ||
                 arguments_q.mels > 32'd128 || arguments_q.mels[1:0] != '0 ||
                 arguments_q.format > 32'd3 || arguments_q.mel[3:0] != '0 ||
                 arguments_q.tensor[3:0] != '0 || arguments_q.result[3:0] != '0;
    pitch_q   <= half ? 15'((17'(row_values) + 17'd7) >> 3) : 15'((17'(row_values) + 17'd3) >> 2);
    values_q  <= arguments_q.frames[15:0] * arguments_q.mels[7:2];
    words_q   <= 22'(pitch_q * rows);
    fits_q    <= {6'b0, words_q} <= arguments_q.tensor_capacity[31:4];
    {carry_q, statistics_lower_q} <= {1'b0, arguments_q.mel[31:4]} + 29'(values_q);
    statistics_upper_q            <= arguments_q.mel[63:32] + 32'(carry_q);
  end

  assign checked = phase_clocks >= CheckClocks && read_idle;
  assign refused = refused_q || !fits_q;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      status_q <= StatusOk;
    end else if (phase == CuCheck) begin
      status_q <= refused_q ? StatusBadArgument : fits_q ? StatusOk : StatusBufferTooSmall;
    end else if ((phase == CuRun && run_over && bus_error) ||
                 (phase == CuRecord && record_error)) begin
      status_q <= StatusBusError;
    end
  end

  always_ff @(posedge clk) begin
    record_q <= refused_q ? '0
                          : {64'b0, 32'b0, 6'b0, words_q, 4'b0, 13'b0, pitch_q, 4'b0,
                             arguments_q.mels, arguments_q.frames};
  end

  // ---- The mel bands: first the statistics, then the values ----
  logic         unit_start, unit_start_q, read_error, read_error_q, read_values_q, values_start_q;
  logic [127:0] mel_word, word;
  logic         mel_valid, mel_ready, word_valid, word_ready;

  assign unit_start = phase == CuStart;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      unit_start_q   <= 1'b0;
      values_start_q <= 1'b0;
      read_values_q  <= 1'b0;
      read_error_q   <= 1'b0;
    end else begin
      unit_start_q   <= unit_start;
      values_start_q <= phase == CuRun && !unit_start_q && !read_values_q && !values_start_q &&
                        read_idle;
      read_values_q  <= !unit_start && (read_values_q || values_start_q);
      read_error_q   <= !unit_start && (read_error_q || read_error);
    end
  end

  axi_read u_mel (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .start_i     (unit_start || values_start_q),
    .address_i   (values_start_q ? arguments_q.mel
                                 : {statistics_upper_q, statistics_lower_q, 4'b0}),
    .words_i     (values_start_q ? 29'(values_q) : 29'(arguments_q.mels[7:0])),
    .stop_i      (1'b0),
    .idle_o      (read_idle),
    .error_o     (read_error),
    .word_o      (mel_word),
    .word_valid_o(mel_valid),
    .word_ready_i(mel_ready),
    .araddr_o    (araddr),
    .arlen_o     (arlen),
    .arsize_o    (),
    .arburst_o   (),
    .arvalid_o   (arvalid),
    .arready_i   (arready),
    .rdata_i     (m_axi_gmem0_rdata),
    .rresp_i     (m_axi_gmem0_rresp),
    .rlast_i     (m_axi_gmem0_rlast),
    .rvalid_i    (rvalid),
    .rready_o    ()
  );

  // ---- The unit ----
  logic unit_idle, unit_statistics;

  mel_normalize u_normalize (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .start_i     (unit_start),
    .frames_i    (arguments_q.frames[15:0]),
    .counted_i   (arguments_q.counted[15:0]),
    .mels_i      (arguments_q.mels[7:0]),
    .half_i      (half),
    .by_frames_i (by_frames),
    .std_floor_i (arguments_q.std_floor),
    .least_i     (arguments_q.least[23:0]),
    .rescale_i   (arguments_q.scale != '0),
    .mean_i      ({arguments_q.mean[31], arguments_q.mean}),
    .scale_i     ({arguments_q.scale[23:0], arguments_q.scale[29:24]}),
    .idle_o      (unit_idle),
    .statistics_o(unit_statistics),
    .word_i      (mel_word),
    .word_valid_i(mel_valid),
    .word_ready_o(mel_ready),
    .word_o      (word),
    .word_valid_o(word_valid),
    .word_ready_i(word_ready)
  );

  // ---- The tensor ----
  logic        rows_done, write_idle, write_error, run_valid, run_ready;
  logic [63:0] run_address;
  logic [21:0] run_words;

  tensor_rows u_rows (
    .clk_i    (clk),
    .rst_ni   (rst_n),
    .start_i  (unit_start),
    .address_i(arguments_q.tensor),
    .pitch_i  (pitch_q),
    .mels_i   (arguments_q.mels[7:0]),
    .half_i   (half),
    .by_frames_i(by_frames),
    .all_words_i(words_q),
    .done_o   (rows_done),
    .address_o(run_address),
    .words_o  (run_words),
    .valid_o  (run_valid),
    .ready_i  (run_ready)
  );

  axi_write u_tensor (
    .clk_i          (clk),
    .rst_ni         (rst_n),
    .clear_i        (unit_start),
    .idle_o         (write_idle),
    .bus_error_o    (write_error),
    .address_i      (run_address),
    .words_i        (29'(run_words)),
    .command_valid_i(run_valid),
    .command_ready_o(run_ready),
    .word_i         (word),
    .word_valid_i   (word_valid),
    .word_ready_o   (word_ready),
    .awaddr_o       (awaddr),
    .awlen_o        (awlen),
    .awsize_o       (),
    .awburst_o      (),
    .awvalid_o      (awvalid),
    .awready_i      (awready),
    .wdata_o        (wdata),
    .wstrb_o        (wstrb),
    .wlast_o        (wlast),
    .wvalid_o       (wvalid),
    .wready_i       (wready),
    .bresp_i        (m_axi_gmem1_bresp),
    .bvalid_i       (bvalid),
    .bready_o       ()
  );

  assign run_over  = !unit_start_q && unit_idle && rows_done && write_idle;
  assign bus_error = read_error_q || write_error;

  // ---- Counters ----
  assign read_waits = mel_ready && !mel_valid;

  always_ff @(posedge clk) begin
    if (!rst_n || begins) counters.statistics <= '0;
    else if (unit_statistics) counters.statistics <= counts.cycles;
  end

endmodule
