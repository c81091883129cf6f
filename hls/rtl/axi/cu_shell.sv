// Shell of a compute unit: all that stands between its units and the host and memory.
//
//   host  <-> axi_control: arguments, outputs, counters; start and done
//   gmem0  -> axi_read_share -> the unit's readers
//   gmem1 <-  axi_write_share <- the unit's writers, record_write
//
// Interface   the ports of the compute unit by their names (axi_ports.svh); the AXI channels of its
//             readers and writers, whose data and answers come as all of them see them. `phase_o`
//             is where a run is. `begins_o` for a clock: the run takes `arguments_o`, so that the
//             host can already write those of the next one. In CuCheck the unit answers with
//             `checked_i` and `refused_i`, in CuRun with `run_over_i`; then the record is written.
//             A unit that takes jobs from a ring also says that a run `queues_i`: it waits in
//             CuWait until one `takes_i` or the ring `ends_i`. While `job_i` it goes back there
//             behind a run, without waiting for the record. Other units tie these four to 0.
// Throughput  that of the modules inside. A run begins after ap_continue of the one before it.
// Bad input   if the record's address is not 16-byte aligned, no record is written.
`include "axi_ports.svh"

module cu_shell
  import cu_pkg::*;
  import headrace_pkg::*;
#(
  parameter int unsigned Readers = 2,
  parameter int unsigned Writers = 1,  // besides that of the record; the first writes the output
  parameter int unsigned ReadIdBits  = 1,
  parameter int unsigned WriteIdBits = 1,
  parameter int unsigned WriteBytes = 16,  // of a word of gmem1, 16 or 32
  parameter int unsigned Events = 1,
  parameter int unsigned ArgumentWords = 1,
  parameter logic [ArgumentWords-1:0][11:0] ArgumentOffset = 12'h010,
  parameter int unsigned OutputWords = 1,
  parameter logic [OutputWords-1:0][11:0] OutputOffset = 12'h018,
  parameter int unsigned CounterWords = 1
) (
  input  logic                      ap_clk,
  input  logic                      ap_rst_n,
  output logic                      interrupt,
  `AXI_CONTROL_PORTS(s_axi_control),
  `AXI_READ_PORTS(m_axi_gmem0, ReadIdBits, 16),
  `AXI_WRITE_PORTS(m_axi_gmem1, WriteIdBits, WriteBytes),

  output logic                      rst_no,          // the reset registered once for all

  // Registers.
  output logic [ArgumentWords-1:0][31:0] arguments_o,
  input  logic [OutputWords-1:0][31:0]   outputs_i,
  input  logic [CounterWords-1:0][31:0]  counters_i,
  input  logic [Events-1:0]         events_i,        // to be counted
  output cu_counts_t                counts_o,
  output logic [Events-1:0][31:0]   event_counts_o,

  // The run.
  output cu_phase_e                 phase_o,
  output logic [2:0]                clocks_o,        // in this phase before this one, up to 7
  output logic                      begins_o,
  input  logic                      checked_i,
  input  logic                      refused_i,       // with `checked_i`: nothing runs
  input  logic                      run_over_i,
  input  logic                      queues_i,        // with `checked_i`
  input  logic                      takes_i,
  input  logic                      ends_i,
  input  logic                      job_i,

  // The record.
  input  logic [63:0]               record_address_i,
  input  logic                      record_ordered_i,
  input  logic [255:0]              record_i,
  output logic                      record_start_o,
  output logic                      record_idle_o,
  output logic                      record_error_o,

  // The unit's readers of gmem0.
  input  logic [Readers-1:0][63:0]  araddr_i,
  input  logic [Readers-1:0][7:0]   arlen_i,
  input  logic [Readers-1:0]        arvalid_i,
  output logic [Readers-1:0]        arready_o,
  output logic [Readers-1:0]        rvalid_o,

  // The unit's writers of gmem1.
  input  logic [Writers-1:0][63:0]  awaddr_i,
  input  logic [Writers-1:0][7:0]   awlen_i,
  input  logic [Writers-1:0]        awvalid_i,
  output logic [Writers-1:0]        awready_o,
  input  logic [Writers-1:0][8*WriteBytes-1:0] wdata_i,
  input  logic [Writers-1:0][WriteBytes-1:0] wstrb_i,
  input  logic [Writers-1:0]        wlast_i,
  input  logic [Writers-1:0]        wvalid_i,
  output logic [Writers-1:0]        wready_o,
  output logic [Writers-1:0]        bvalid_o
);

  logic clk;
  // verilator lint_off PROCASSINIT
  logic rst_n = 1'b0;  // in reset from the configuration on
  // verilator lint_on PROCASSINIT

  assign clk    = ap_clk;
  assign rst_no = rst_n;
  always_ff @(posedge clk) rst_n <= ap_rst_n;

  // ---- Reads ----
  assign m_axi_gmem0_arsize  = 3'd4;  // whole words
  assign m_axi_gmem0_arburst = 2'b01;
  assign m_axi_gmem0_arcache = AxiCache;
  assign m_axi_gmem0_arprot  = AxiProt;
  assign m_axi_gmem0_rready  = 1'b1;  // readers ask for what they have room for

  if (Readers == 1) begin : gen_one_reader
    assign m_axi_gmem0_arid    = '0;
    assign m_axi_gmem0_araddr  = araddr_i[0];
    assign m_axi_gmem0_arlen   = arlen_i[0];
    assign m_axi_gmem0_arvalid = arvalid_i[0];
    assign arready_o[0]        = m_axi_gmem0_arready;
    assign rvalid_o[0]         = m_axi_gmem0_rvalid;
  end else begin : gen_readers
    axi_read_share #(.Readers(Readers)) u_reads (
      .clk_i    (clk),
      .rst_ni   (rst_n),
      .araddr_i, .arlen_i, .arvalid_i, .arready_o, .rvalid_o,
      .arid_o   (m_axi_gmem0_arid),
      .araddr_o (m_axi_gmem0_araddr),
      .arlen_o  (m_axi_gmem0_arlen),
      .arvalid_o(m_axi_gmem0_arvalid),
      .arready_i(m_axi_gmem0_arready),
      .rid_i    (m_axi_gmem0_rid),
      .rvalid_i (m_axi_gmem0_rvalid)
    );
  end

  // ---- Writes: the record's behind those of the first writer ----
  localparam int unsigned AllWriters   = Writers + 1;
  localparam int unsigned OutputWriter = 0;
  localparam int unsigned RecordWriter = 1;

  logic [AllWriters-1:0][63:0]  awaddr;
  logic [AllWriters-1:0][7:0]   awlen;
  logic [AllWriters-1:0]        awvalid, awready;
  logic [AllWriters-1:0][8*WriteBytes-1:0] wdata;
  logic [AllWriters-1:0][WriteBytes-1:0] wstrb;
  logic [AllWriters-1:0]        wlast, wvalid, wready, bvalid;

  for (genvar i = 0; i < Writers; i++) begin : gen_writer
    localparam int unsigned Place = i < RecordWriter ? i : i + 1;
    assign awaddr[Place]  = awaddr_i[i];
    assign awlen[Place]   = awlen_i[i];
    assign awvalid[Place] = awvalid_i[i];
    assign awready_o[i]   = awready[Place];
    assign wdata[Place]   = wdata_i[i];
    assign wstrb[Place]   = wstrb_i[i];
    assign wlast[Place]   = wlast_i[i];
    assign wvalid[Place]  = wvalid_i[i];
    assign wready_o[i]    = wready[Place];
    assign bvalid_o[i]    = bvalid[Place];
  end

  assign m_axi_gmem1_awsize  = 3'($clog2(WriteBytes));
  assign m_axi_gmem1_awburst = 2'b01;
  assign m_axi_gmem1_awcache = AxiCache;
  assign m_axi_gmem1_awprot  = AxiProt;
  assign m_axi_gmem1_bready  = 1'b1;

  axi_write_share #(.Writers(AllWriters), .Bytes(WriteBytes)) u_writes (
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

  // ---- The run ----
  cu_phase_e  phase_q, phase_d, previous_q;
  logic       start, next;
  logic       record_refused_q;
  logic [2:0] clocks_q;  // in this phase, if it is not its first

  assign phase_o        = phase_q;
  assign clocks_o       = phase_q != previous_q ? '0 : clocks_q;
  assign begins_o       = phase_q == CuIdle && start;
  assign record_start_o = phase_q == CuOutcome && record_idle_o && !record_refused_q;

  always_comb begin
    phase_d = phase_q;
    unique case (phase_q)
      CuIdle:    if (start) phase_d = CuCheck;
      CuCheck:   if (checked_i) phase_d = refused_i ? CuOutcome : queues_i ? CuWait : CuStart;
      CuStart:   phase_d = CuRun;
      CuRun:     if (run_over_i) phase_d = CuOutcome;
      CuOutcome: begin
        if (!job_i) phase_d = record_refused_q ? CuDone : CuRecord;
        else if (record_idle_o) phase_d = CuWait;
      end
      CuRecord:  if (record_idle_o) phase_d = CuDone;
      CuDone:    if (next) phase_d = CuIdle;
      CuWait:    if (takes_i) phase_d = CuCheck;
                 else if (ends_i) phase_d = CuOutcome;
      default:   phase_d = CuIdle;
    endcase
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      phase_q    <= CuIdle;
      previous_q <= CuIdle;
      clocks_q   <= '0;
    end else begin
      phase_q    <= phase_d;
      previous_q <= phase_q;
      clocks_q   <= clocks_o == '1 ? clocks_o : clocks_o + 1'b1;
    end
  end

  always_ff @(posedge clk) record_refused_q <= record_address_i[3:0] != '0;

  axi_control #(
    .ArgumentWords (ArgumentWords),
    .ArgumentOffset(ArgumentOffset),
    .OutputWords   (OutputWords),
    .OutputOffset  (OutputOffset),
    .CounterWords  (CounterWords)
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
    .ready_i    (begins_o),
    .done_i     (phase_q == CuDone),
    .continue_o (next),
    .idle_i     (phase_q == CuIdle),
    .arguments_o, .outputs_i, .counters_i
  );

  logic [63:0]  record_awaddr;
  logic [7:0]   record_awlen;
  logic [127:0] record_wdata;
  logic [15:0]  record_wstrb;
  logic         record_awvalid, record_awready, record_wlast, record_wvalid, record_wready;

  record_write u_record (
    .clk_i      (clk),
    .rst_ni     (rst_n),
    .start_i    (record_start_o),
    .address_i  (record_address_i),
    .ordered_i  (record_ordered_i),
    .record_i,
    .idle_o     (record_idle_o),
    .bus_error_o(record_error_o),
    .awaddr_o   (record_awaddr),
    .awlen_o    (record_awlen),
    .awsize_o   (),
    .awburst_o  (),
    .awvalid_o  (record_awvalid),
    .awready_i  (record_awready),
    .wdata_o    (record_wdata),
    .wstrb_o    (record_wstrb),
    .wlast_o    (record_wlast),
    .wvalid_o   (record_wvalid),
    .wready_i   (record_wready),
    .bresp_i    (m_axi_gmem1_bresp),
    .bvalid_i   (bvalid[RecordWriter]),
    .bready_o   ()
  );

  axi_write_upsize #(.Bytes(WriteBytes)) u_record_upsize (
    .clk_i    (clk),
    .rst_ni   (rst_n),
    .awaddr_i (record_awaddr),
    .awlen_i  (record_awlen),
    .awvalid_i(record_awvalid),
    .awready_o(record_awready),
    .wdata_i  (record_wdata),
    .wstrb_i  (record_wstrb),
    .wlast_i  (record_wlast),
    .wvalid_i (record_wvalid),
    .wready_o (record_wready),
    .awaddr_o (awaddr[RecordWriter]),
    .awlen_o  (awlen[RecordWriter]),
    .awvalid_o(awvalid[RecordWriter]),
    .awready_i(awready[RecordWriter]),
    .wdata_o  (wdata[RecordWriter]),
    .wstrb_o  (wstrb[RecordWriter]),
    .wlast_o  (wlast[RecordWriter]),
    .wvalid_o (wvalid[RecordWriter]),
    .wready_i (wready[RecordWriter])
  );

  cu_counters #(.Events(Events)) u_counters (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .clear_i     (begins_o),
    .running_i   (phase_q != CuIdle && phase_q != CuDone),
    .write_i     (wvalid[OutputWriter] && wready[OutputWriter]),
    .write_wait_i(wvalid[OutputWriter] && !wready[OutputWriter]),
    .events_i, .counts_o, .event_counts_o
  );

endmodule
