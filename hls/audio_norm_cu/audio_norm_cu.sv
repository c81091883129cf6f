// Audio CU B: log-mel bands with their sums, as audio_mel_cu leaves them in memory, to a model's input tensor.
//
//   gmem0 -> axi_read -> mel_normalize -> axi_write -+-> gmem1
//                                     record_write -+
//
// Reference   audio_norm_cu.hpp; registers: kernel.xml, axi_control.sv and the counters of audio_norm_cu_pkg.sv.
// Interface   AXI4-Lite control with ap_ctrl_chain; two AXI4 masters of 128 bits, one reads and one writes, of which only
//             the channels in use exist. All addresses are 16-byte aligned. A run takes its arguments when it starts, so that the host can
//             already write those of the next; it begins after ap_continue.
// Throughput  four values a clock.
// Latency     six clocks a band for the statistics, then the reading of a tile of 128 frames, then that of its writing.
// Bad input   ends in a status code, see hls/README.md. Arguments out of range or an unaligned address: StatusBadArgument,
//             nothing runs; the record is written unless its own address is at fault. Too little room: nothing is read
//             or written. An error response of memory: StatusBusError; the run still ends by itself, on zeros for what
//             was not read.
`include "../rtl/axi/axi_ports.svh"

module audio_norm_cu
  import headrace_pkg::*;
  import audio_norm_cu_pkg::*;
(
  input  logic         ap_clk,
  input  logic         ap_rst_n,
  output logic         interrupt,

  `AXI_CONTROL_PORTS(s_axi_control),
  `AXI_READ_PORTS(m_axi_gmem0, 1),
  `AXI_WRITE_PORTS(m_axi_gmem1, 1)
);

  typedef enum logic [2:0] {
    StIdle,
    StCheck,   // are the arguments sound? does the output fit?
    StStart,   // every unit begins
    StRun,     // until all are done
    StOutcome, // the outputs are known
    StRecord,  // the record is on its way
    StDone     // until ap_continue
  } state_e;

  logic clk;
  // verilator lint_off PROCASSINIT
  logic rst_n = 1'b0;  // the reset registered once for all; in reset from the configuration on
  // verilator lint_on PROCASSINIT

  assign clk = ap_clk;
  always_ff @(posedge clk) rst_n <= ap_rst_n;

  // ---- The masters: reads on one, writes on the other ----
  localparam int unsigned Writers = 2;
  localparam int unsigned TensorWriter = 0;
  localparam int unsigned RecordWriter = 1;

  logic [Writers-1:0][63:0]  awaddr;
  logic [Writers-1:0][7:0]   awlen;
  logic [Writers-1:0]        awvalid, awready;
  logic [Writers-1:0][127:0] wdata;
  logic [Writers-1:0][15:0]  wstrb;
  logic [Writers-1:0]        wlast, wvalid, wready, bvalid;

  assign m_axi_gmem0_arid    = 1'b0;  // one reader only
  assign m_axi_gmem0_arcache = AxiCache;
  assign m_axi_gmem0_arprot  = AxiProt;
  assign m_axi_gmem1_awsize  = 3'd4;
  assign m_axi_gmem1_awburst = 2'b01;
  assign m_axi_gmem1_awcache = AxiCache;
  assign m_axi_gmem1_awprot  = AxiProt;
  assign m_axi_gmem1_bready  = 1'b1;

  axi_write_share #(.Writers(Writers)) u_writes (
    .clk_i    (clk),
    .rst_ni   (rst_n),
    .awaddr_i (awaddr),
    .awlen_i  (awlen),
    .awvalid_i(awvalid),
    .awready_o(awready),
    .wdata_i  (wdata),
    .wstrb_i  (wstrb),
    .wlast_i  (wlast),
    .wvalid_i (wvalid),
    .wready_o (wready),
    .bvalid_o (bvalid),
    .awid_o   (m_axi_gmem1_awid),
    .awaddr_o (m_axi_gmem1_awaddr),
    .awlen_o  (m_axi_gmem1_awlen),
    .awvalid_o(m_axi_gmem1_awvalid),
    .awready_i(m_axi_gmem1_awready),
    .wdata_o  (m_axi_gmem1_wdata),
    .wstrb_o  (m_axi_gmem1_wstrb),
    .wlast_o  (m_axi_gmem1_wlast),
    .wvalid_o (m_axi_gmem1_wvalid),
    .wready_i (m_axi_gmem1_wready),
    .bid_i    (m_axi_gmem1_bid),
    .bvalid_i (m_axi_gmem1_bvalid)
  );

  // ---- Control ----
  state_e     state_q, state_d;
  logic [2:0] step_q;       // clocks in StCheck
  logic       start, next, begins;
  arguments_t registers, arguments_q;
  counters_t  counters_q;
  status_e    status_q;
  logic       run_over, record_idle, record_error, bus_error;
  logic       read_idle;  // the unit that reads mel

  axi_control #(
    .ArgumentWords (ArgumentWords),
    .ArgumentOffset(ArgumentOffset),
    .OutputWords   (1),
    .OutputOffset  (StatusOffset),
    .CounterWords  ($bits(counters_t) / 32)
  ) u_control (
    .clk_i      (clk),
    .rst_ni     (rst_n),
    .awaddr_i   (s_axi_control_awaddr),
    .awvalid_i  (s_axi_control_awvalid),
    .awready_o  (s_axi_control_awready),
    .wdata_i    (s_axi_control_wdata),
    .wstrb_i    (s_axi_control_wstrb),
    .wvalid_i   (s_axi_control_wvalid),
    .wready_o   (s_axi_control_wready),
    .bresp_o    (s_axi_control_bresp),
    .bvalid_o   (s_axi_control_bvalid),
    .bready_i   (s_axi_control_bready),
    .araddr_i   (s_axi_control_araddr),
    .arvalid_i  (s_axi_control_arvalid),
    .arready_o  (s_axi_control_arready),
    .rdata_o    (s_axi_control_rdata),
    .rresp_o    (s_axi_control_rresp),
    .rvalid_o   (s_axi_control_rvalid),
    .rready_i   (s_axi_control_rready),
    .interrupt_o(interrupt),
    .start_o    (start),
    .ready_i    (begins),
    .done_i     (state_q == StDone),
    .continue_o (next),
    .idle_i     (state_q == StIdle),
    .arguments_o(registers),
    .outputs_i  (32'(status_q)),
    .counters_i (counters_q)
  );

  assign begins = state_q == StIdle && start;

  // ---- Arguments and sizes, step by step ----
  localparam logic [2:0] CheckSteps = 3'd4;

  logic         refused_q, record_refused_q, fits_q, half;
  logic [14:0]  pitch_q;             // words of a row
  logic [21:0]  words_q, values_q;   // of the tensor and of the values in `mel`
  logic [31:0]  statistics_upper_q;  // word address of the statistics
  logic [27:0]  statistics_lower_q;
  logic         carry_q;
  logic         counted_refused_q;
  logic [255:32] record_q;           // what stands behind the status

  assign half = arguments_q.format[0];

  always_ff @(posedge clk) begin
    if (begins) arguments_q <= registers;
    record_refused_q <= arguments_q.result[3:0] != '0;
    counted_refused_q <= arguments_q.counted == '0 || arguments_q.counted > arguments_q.frames;
    refused_q <= counted_refused_q || arguments_q.frames[15:0] == '0 || arguments_q.frames[31:16] != '0 ||
                 arguments_q.mels == '0 ||
                 arguments_q.mels > 32'd128 || arguments_q.mels[1:0] != '0 || arguments_q.format > 32'd1 ||
                 arguments_q.mel[3:0] != '0 || arguments_q.tensor[3:0] != '0 || arguments_q.result[3:0] != '0;
    pitch_q   <= half ? 15'((17'(arguments_q.frames[15:0]) + 17'd7) >> 3)
                      : 15'((17'(arguments_q.frames[15:0]) + 17'd3) >> 2);
    values_q  <= arguments_q.frames[15:0] * arguments_q.mels[7:2];
    words_q   <= pitch_q * arguments_q.mels[7:0];
    fits_q    <= {6'b0, words_q} <= arguments_q.tensor_capacity[31:4];
    {carry_q, statistics_lower_q} <= {1'b0, arguments_q.mel[31:4]} + 29'(values_q);
    statistics_upper_q            <= arguments_q.mel[63:32] + 32'(carry_q);
  end

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StIdle:    if (start) state_d = StCheck;
      StCheck:   if (step_q == CheckSteps && read_idle) state_d = refused_q || !fits_q ? StOutcome : StStart;
      StStart:   state_d = StRun;
      StRun:     if (run_over) state_d = StOutcome;
      StOutcome: state_d = record_refused_q ? StDone : StRecord;
      StRecord:  if (record_idle) state_d = StDone;
      StDone:    if (next) state_d = StIdle;
      default:   state_d = StIdle;
    endcase
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      state_q <= StIdle;
      step_q  <= '0;
    end else begin
      state_q <= state_d;
      step_q  <= state_q != StCheck ? '0 : step_q == CheckSteps ? step_q : step_q + 1'b1;
    end
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      status_q <= StatusOk;
    end else if (state_q == StCheck) begin
      status_q <= refused_q ? StatusBadArgument : fits_q ? StatusOk : StatusBufferTooSmall;
    end else if ((state_q == StRun && run_over && bus_error) || (state_q == StRecord && record_error)) begin
      status_q <= StatusBusError;
    end
  end

  always_ff @(posedge clk) begin
    record_q <= refused_q ? '0
                          : {64'b0, 32'b0, 6'b0, words_q, 4'b0, 13'b0, pitch_q, 4'b0, arguments_q.mels,
                             arguments_q.frames};
  end

  // ---- The mel bands: first the statistics, then the values ----
  logic         unit_start, unit_start_q, read_error, read_error_q, read_values_q, values_start_q;
  logic [127:0] mel_word, word;
  logic         mel_valid, mel_ready, word_valid, word_ready;

  assign unit_start = state_q == StStart;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      unit_start_q   <= 1'b0;
      values_start_q <= 1'b0;
      read_values_q  <= 1'b0;
      read_error_q   <= 1'b0;
    end else begin
      unit_start_q   <= unit_start;
      values_start_q <= state_q == StRun && !unit_start_q && !read_values_q && !values_start_q && read_idle;
      read_values_q  <= !unit_start && (read_values_q || values_start_q);
      read_error_q   <= !unit_start && (read_error_q || read_error);
    end
  end

  axi_read u_mel (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .start_i     (unit_start || values_start_q),
    .address_i   (values_start_q ? arguments_q.mel : {statistics_upper_q, statistics_lower_q, 4'b0}),
    .words_i     (values_start_q ? 29'(values_q) : 29'(arguments_q.mels[7:0])),
    .stop_i      (1'b0),
    .idle_o      (read_idle),
    .error_o     (read_error),
    .word_o      (mel_word),
    .word_valid_o(mel_valid),
    .word_ready_i(mel_ready),
    .araddr_o    (m_axi_gmem0_araddr),
    .arlen_o     (m_axi_gmem0_arlen),
    .arsize_o    (m_axi_gmem0_arsize),
    .arburst_o   (m_axi_gmem0_arburst),
    .arvalid_o   (m_axi_gmem0_arvalid),
    .arready_i   (m_axi_gmem0_arready),
    .rdata_i     (m_axi_gmem0_rdata),
    .rresp_i     (m_axi_gmem0_rresp),
    .rlast_i     (m_axi_gmem0_rlast),
    .rvalid_i    (m_axi_gmem0_rvalid),
    .rready_o    (m_axi_gmem0_rready)
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
    .std_floor_i (arguments_q.std_floor),
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
  logic [5:0]  run_words;

  tensor_rows u_rows (
    .clk_i    (clk),
    .rst_ni   (rst_n),
    .start_i  (unit_start),
    .address_i(arguments_q.tensor),
    .pitch_i  (pitch_q),
    .mels_i   (arguments_q.mels[7:0]),
    .half_i   (half),
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
    .awaddr_o       (awaddr[TensorWriter]),
    .awlen_o        (awlen[TensorWriter]),
    .awsize_o       (),
    .awburst_o      (),
    .awvalid_o      (awvalid[TensorWriter]),
    .awready_i      (awready[TensorWriter]),
    .wdata_o        (wdata[TensorWriter]),
    .wstrb_o        (wstrb[TensorWriter]),
    .wlast_o        (wlast[TensorWriter]),
    .wvalid_o       (wvalid[TensorWriter]),
    .wready_i       (wready[TensorWriter]),
    .bresp_i        (m_axi_gmem1_bresp),
    .bvalid_i       (bvalid[TensorWriter]),
    .bready_o       ()
  );

  assign run_over  = !unit_start_q && unit_idle && rows_done && write_idle;
  assign bus_error = read_error_q || write_error;

  // ---- The record ----
  record_write u_record (
    .clk_i      (clk),
    .rst_ni     (rst_n),
    .start_i    (state_q == StOutcome && !record_refused_q),
    .address_i  (arguments_q.result),
    .record_i   ({record_q, 32'(status_q)}),
    .ordered_i  (1'b0),
    .idle_o     (record_idle),
    .bus_error_o(record_error),
    .awaddr_o   (awaddr[RecordWriter]),
    .awlen_o    (awlen[RecordWriter]),
    .awsize_o   (),
    .awburst_o  (),
    .awvalid_o  (awvalid[RecordWriter]),
    .awready_i  (awready[RecordWriter]),
    .wdata_o    (wdata[RecordWriter]),
    .wstrb_o    (wstrb[RecordWriter]),
    .wlast_o    (wlast[RecordWriter]),
    .wvalid_o   (wvalid[RecordWriter]),
    .wready_i   (wready[RecordWriter]),
    .bresp_i    (m_axi_gmem1_bresp),
    .bvalid_i   (bvalid[RecordWriter]),
    .bready_o   ()
  );

  // ---- Counters ----
  logic written_q;

  always_ff @(posedge clk) begin
    if (!rst_n || begins) begin
      counters_q <= '0;
      written_q  <= 1'b0;
    end else if (state_q != StIdle && state_q != StDone) begin
      counters_q.cycles <= counters_q.cycles + 1'b1;
      if (unit_statistics) counters_q.statistics <= counters_q.cycles;
      if (mel_ready && !mel_valid) counters_q.wait_read <= counters_q.wait_read + 1'b1;
      if (wvalid[TensorWriter] && !wready[TensorWriter]) counters_q.wait_write <= counters_q.wait_write + 1'b1;
      if (wvalid[TensorWriter] && wready[TensorWriter]) begin
        counters_q.last_output <= counters_q.cycles;
        written_q              <= 1'b1;
        if (!written_q) counters_q.first_output <= counters_q.cycles;
      end
    end
  end

endmodule
