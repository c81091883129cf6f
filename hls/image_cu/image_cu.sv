// Image CU: a JPEG file in device memory to an image or a model's input tensor in device memory, in
// one pass.
//
//   gmem0 -+-> axi_read -> decode -+-> resize -> crop -+-> normalize -> store ----------+-> gmem1
//          |                       +-> scaler ---------+-> patches ----+-> tensor_write -+
//          |            image_read -^                  +-> image_keep -+   record_write -+
//          +-> axi_read -> program_load: scaler
//          +-> axi_read -> table_load: normalize, patches
//          +-> job_ring (axi_read): arguments
//   decode: coefficients of files of several scans <-> gmem1
//   gmem1 -> image_read: an image that an earlier pass of a program kept
//
// Reference   image_cu.hpp; registers: kernel.xml and image_cu_pkg.sv.
// Interface   AXI4-Lite control with ap_ctrl_chain; two AXI4 masters, of which only the channels in
//             use exist: 128 bits for what is read, WriteBytes for what is written and the
//             workspace. All addresses are 16-byte aligned, the workspace's, if there is one, to
//             128. A run takes its arguments when it starts, so that the host can already write
//             those of the next; it begins after ap_continue. A run is one request or, with a ring,
//             as many as the host puts there.
// Throughput  that of decode. Resize takes its beats as they are; the scaler, and in stage 0 crop's
//             place, two pixels a clock, as all that is behind them.
// Latency     decode's and a burst of the store unit; the tables are loaded beside decode's header.
// Bad input   ends in a status code, see docs/reference/registers.md. An unknown stage or format or
//             an unaligned address: StatusBadArgument, nothing runs; the record is written unless
//             its own address is at fault. An error response of memory: StatusBusError; the run
//             still ends by itself, on zeros for what was not read.
`include "../rtl/axi/axi_ports.svh"

module image_cu
  import headrace_pkg::*;
  import cu_pkg::*;
  import image_cu_pkg::*;
  import config_pkg::Programs;
  import config_pkg::Queue;
  import config_pkg::WriteBytes;
(
  input  logic         ap_clk,
  input  logic         ap_rst_n,
  output logic         interrupt,

  `AXI_CONTROL_PORTS(s_axi_control),
  `AXI_READ_PORTS(m_axi_gmem0, 2, 16),
  `AXI_READ_PORTS(m_axi_gmem1, 2, WriteBytes),
  `AXI_WRITE_PORTS(m_axi_gmem1, 2, WriteBytes)
);

  localparam logic [28:0] TableWords = 29'd192;

  // ---- The shell: registers, the record, reads on one master and writes on the other ----
  localparam int unsigned Readers = 4;
  localparam int unsigned JpegReader = 0;
  localparam int unsigned TablesReader = 1;
  localparam int unsigned RingReader = 2;
  localparam int unsigned ProgramReader = 3;
  localparam int unsigned Writers = 2;
  localparam int unsigned TensorWriter = 0;
  localparam int unsigned WorkspaceWriter = 1;

  logic [Readers-1:0][63:0]  araddr;
  logic [Readers-1:0][7:0]   arlen;
  logic [Readers-1:0]        arvalid, arready, rvalid;
  logic [Writers-1:0][63:0]  awaddr;
  logic [Writers-1:0][7:0]   awlen;
  logic [Writers-1:0]        awvalid, awready;
  logic [Writers-1:0][8*WriteBytes-1:0] wdata;
  logic [Writers-1:0][WriteBytes-1:0] wstrb;
  logic [Writers-1:0]        wlast, wvalid, wready, bvalid;

  logic           clk, rst_n;
  cu_phase_e      phase;
  logic [2:0]     phase_clocks;
  logic           begins, checked, refused;
  arguments_t     registers, arguments_q;
  outputs_t       outputs_q;
  counters_t      counters;
  cu_counts_t     counts;
  logic           run_over, record_start, record_idle, record_error;
  logic [63:0]    record_address;
  logic [255:0]   record;
  logic           bus_error;
  logic [63:0]    bytes_q;
  decode_events_t events;
  logic [$bits(decode_events_t)-1:0][31:0] event_counts;

  // A run may take its jobs from a ring.
  logic        queue_q;         // this run takes its jobs from the ring
  logic        ring_q;          // and the ring's own arguments are sound
  logic        job_q;           // what runs is a job
  logic        recorded_q;      // a job's record was begun
  logic        failed_q;        // one could not be written
  logic        ring_refused_q;
  logic        settled;         // what is computed from arguments is there
  logic        takes, ends;
  job_t        job;
  logic        job_bad, job_bad_q, job_valid, ring_over, ring_stopped, ring_error, ring_idle;
  logic [31:0] next_number, number_q, jobs_q;
  logic        listened_q;      // the ring has been listened to

  assign clk = ap_clk;

  // The workspace alone is read from gmem1: coefficients by decode, and images between passes by
  // the two readers of image_read.
  localparam int unsigned WorkspaceReaders = 3;
  localparam int unsigned CoefficientReader = 2;

  logic [WorkspaceReaders-1:0][63:0] workspace_araddr;
  logic [WorkspaceReaders-1:0][7:0]  workspace_arlen;
  logic [WorkspaceReaders-1:0]       workspace_arvalid, workspace_arready, workspace_rvalid;
  logic [63:0]  shared_araddr;
  logic [7:0]   shared_arlen;
  logic         shared_arvalid, shared_arready;
  logic [127:0] workspace_rdata;
  logic         workspace_rlast, workspace_word_valid;

  axi_read_share #(.Readers(WorkspaceReaders)) u_workspace_read (
    .clk_i    (clk),
    .rst_ni   (rst_n),
    .araddr_i (workspace_araddr),
    .arlen_i  (workspace_arlen),
    .arvalid_i(workspace_arvalid),
    .arready_o(workspace_arready),
    .rvalid_o (workspace_rvalid),
    .arid_o   (m_axi_gmem1_arid),
    .araddr_o (shared_araddr),
    .arlen_o  (shared_arlen),
    .arvalid_o(shared_arvalid),
    .arready_i(shared_arready),
    .rid_i    (m_axi_gmem1_rid),
    .rvalid_i (workspace_word_valid)
  );

  axi_read_upsize #(.Ids(WorkspaceReaders), .Bytes(WriteBytes)) u_workspace_upsize (
    .clk_i    (clk),
    .rst_ni   (rst_n),
    .arid_i   (m_axi_gmem1_arid),
    .araddr_i (shared_araddr),
    .arlen_i  (shared_arlen),
    .arvalid_i(shared_arvalid),
    .arready_o(shared_arready),
    .rdata_o  (workspace_rdata),
    .rlast_o  (workspace_rlast),
    .rvalid_o (workspace_word_valid),
    .araddr_o (m_axi_gmem1_araddr),
    .arlen_o  (m_axi_gmem1_arlen),
    .arvalid_o(m_axi_gmem1_arvalid),
    .arready_i(m_axi_gmem1_arready),
    .rid_i    (m_axi_gmem1_rid),
    .rdata_i  (m_axi_gmem1_rdata),
    .rlast_i  (m_axi_gmem1_rlast),
    .rvalid_i (m_axi_gmem1_rvalid),
    .rready_o (m_axi_gmem1_rready)
  );

  assign m_axi_gmem1_arsize  = 3'($clog2(WriteBytes));
  assign m_axi_gmem1_arburst = 2'b01;
  assign m_axi_gmem1_arcache = AxiCache;
  assign m_axi_gmem1_arprot  = AxiProt;

  cu_shell #(
    .Readers       (Readers),
    .Writers       (Writers),
    .ReadIdBits    (2),
    .WriteIdBits   (2),
    .WriteBytes    (WriteBytes),
    .Events        ($bits(decode_events_t)),
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
    .events_i        (events),
    .counts_o        (counts),
    .event_counts_o  (event_counts),
    .phase_o         (phase),
    .clocks_o        (phase_clocks),
    .begins_o        (begins),
    .checked_i       (checked),
    .refused_i       (refused),
    .run_over_i      (run_over),
    .queues_i        (queue_q && !job_q),
    .takes_i         (takes),
    .ends_i          (ends),
    .job_i           (job_q),
    .record_address_i(record_address),
    .record_ordered_i(listened_q),
    .record_i        (record),
    .record_start_o  (record_start),
    .record_idle_o   (record_idle),
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
  // In the order of decode_events_t.
  logic [31:0] first_symbols, second_symbols, symbols_q;
  assign {counters.header, first_symbols, second_symbols, counters.wait_data,
          counters.wait_transform, counters.wait_rows, counters.wait_output} = event_counts;
  assign counters.symbols = symbols_q;
  always_ff @(posedge ap_clk) symbols_q <= first_symbols + second_symbols;

  // The units that read them, and write the last.
  logic jpeg_idle, tables_idle, program_idle, workspace_idle, image_idle;

  // ---- Jobs from the ring ----
  assign settled = phase_clocks >= 3'd3;
  assign takes   = phase == CuWait && job_valid && !failed_q;
  assign ends    = phase == CuWait && (ring_over || failed_q) && record_idle && settled;

  if (Queue) begin : gen_ring
    job_ring u_ring (
      .clk_i      (clk),
      .rst_ni     (rst_n),
      .run_i      (ring_q),
      .arguments_i(arguments_q),
      .waiting_i  (phase == CuWait),
      .idle_o     (ring_idle),
      .job_o      (job),
      .bad_o      (job_bad),
      .number_o   (next_number),
      .valid_o    (job_valid),
      .ready_i    (takes),
      .over_o     (ring_over),
      .stopped_o  (ring_stopped),
      .error_o    (ring_error),
      .araddr_o   (araddr[RingReader]),
      .arlen_o    (arlen[RingReader]),
      .arvalid_o  (arvalid[RingReader]),
      .arready_i  (arready[RingReader]),
      .rdata_i    (m_axi_gmem0_rdata),
      .rresp_i    (m_axi_gmem0_rresp),
      .rlast_i    (m_axi_gmem0_rlast),
      .rvalid_i   (rvalid[RingReader])
    );
  end else begin : gen_no_ring
    assign job                 = '0;
    assign job_bad             = 1'b0;
    assign next_number         = '0;
    assign job_valid           = 1'b0;
    assign ring_over           = 1'b1;
    assign ring_stopped        = 1'b0;
    assign ring_error          = 1'b0;
    assign ring_idle           = 1'b1;
    assign araddr[RingReader]  = '0;
    assign arlen[RingReader]   = '0;
    assign arvalid[RingReader] = 1'b0;
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      queue_q  <= 1'b0;
      ring_q   <= 1'b0;
      job_q    <= 1'b0;
      recorded_q <= 1'b0;
      failed_q <= 1'b0;
    end else begin
      if (begins) queue_q <= registers.ring_entries != '0;
      if (phase == CuCheck && checked && !refused && queue_q && !job_q) ring_q <= 1'b1;
      else if (ends) ring_q <= 1'b0;
      if (takes) job_q <= 1'b1;
      else if (record_start) job_q <= 1'b0;
      recorded_q <= ring_q && (recorded_q || (record_start && job_q));
      failed_q   <= !begins && (failed_q || (recorded_q && record_error));
    end
  end

  always_ff @(posedge clk) begin
    ring_refused_q <= !Queue ||
                      arguments_q.ring_entries > MaxRingEntries || arguments_q.ring[5:0] != '0 ||
                      (arguments_q.ring_entries[16:0] &
                       (arguments_q.ring_entries[16:0] - 1'b1)) != '0 ||
                      arguments_q.result[3:0] != '0;
    if (takes) begin
      number_q  <= next_number;
      job_bad_q <= job_bad;
    end
    if (begins) jobs_q <= '0;
    else if (record_start && job_q) jobs_q <= jobs_q + 1'b1;
  end

  // Where a record goes: those of jobs as their descriptors lie in the ring, that of the run behind
  // them. The address is added in two parts, a clock each.
  logic [16:0] entry_q;
  logic [27:0] entry_lower_q;  // word address
  logic [31:0] entry_upper_q;
  logic        entry_carry_q;

  always_ff @(posedge clk) begin
    entry_q <= job_q ? number_q[16:0] & (arguments_q.ring_entries[16:0] - 1'b1)
                                            : arguments_q.ring_entries[16:0];
    {entry_carry_q, entry_lower_q} <= {1'b0, arguments_q.result[31:4]} + {11'b0, entry_q, 1'b0};
    entry_upper_q                  <= arguments_q.result[63:32] + 32'(entry_carry_q);
    listened_q                     <= !begins && (listened_q || phase == CuWait);
  end

  // The tables' address counts only where they are read, the workspace's only where there is one.
  logic planar_q, resizes_q, crops_q, program_q;
  assign refused = queue_q && !job_q ? ring_refused_q :
                   (job_q && job_bad_q) || arguments_q.stage > (Programs ? 32'd4 : 32'd3) ||
                   arguments_q.format[31:2] != '0 || arguments_q.format[1:0] == 2'd3 ||
                   arguments_q.jpeg[3:0] != '0 ||
                   arguments_q.tensor[3:0] != '0 || arguments_q.result[3:0] != '0 ||
                   (arguments_q.stage >= 32'd3 && arguments_q.tables[3:0] != '0) ||
                   (arguments_q.stage == 32'd4 && arguments_q.program_at[3:0] != '0) ||
                   (arguments_q.workspace_bytes != '0 && arguments_q.workspace[6:0] != '0);

  // After a reset units may not be idle. Between runs they are, so a clock later is early enough.
  logic units_idle_q;
  always_ff @(posedge clk) begin
    units_idle_q <= jpeg_idle && tables_idle && program_idle && workspace_idle && image_idle;
  end
  assign checked = units_idle_q && ring_idle && (settled || !queue_q);

  logic [1:0] shift_q;  // log2 of a sample's bytes

  always_ff @(posedge clk) begin
    if (begins) arguments_q <= registers;
    else if (takes) begin
      arguments_q.jpeg            <= job.jpeg;
      arguments_q.jpeg_bytes      <= job.jpeg_bytes;
      arguments_q.tensor          <= job.tensor;
      arguments_q.tensor_capacity <= job.tensor_capacity;
      arguments_q.stage           <= job.stage;
      arguments_q.format          <= job.format;
      arguments_q.resize_short    <= job.resize_short;
      arguments_q.crop_width      <= job.crop_width;
      arguments_q.crop_height     <= job.crop_height;
      arguments_q.crop_x          <= job.crop_x;
      arguments_q.crop_y          <= job.crop_y;
      arguments_q.program_at      <= job.program_at;
      arguments_q.program_bytes   <= job.program_bytes;
    end
    program_q <= Programs && arguments_q.stage[2];
    planar_q  <= arguments_q.stage[2:0] >= 3'd3;
    resizes_q <= !arguments_q.stage[2] && arguments_q.stage[1:0] >= 2'd1;
    crops_q   <= !arguments_q.stage[2] && arguments_q.stage[1:0] >= 2'd2;
    shift_q   <= arguments_q.stage[2:0] >= 3'd3 ? 2'd2 - arguments_q.format[1:0] : 2'd0;
  end

  // ---- The passes of a program ----
  // A run has one pass, or as many as its program. Their units start with each; decode, the tables
  // and the program's reader with the first.
  logic        unit_start, next_pass, pass_start, later_q;
  pass_route_t route;

  assign unit_start = phase == CuStart;
  assign pass_start = unit_start || next_pass;

  always_ff @(posedge clk) begin
    if (unit_start) later_q <= 1'b0;
    else if (next_pass) later_q <= 1'b1;
  end

  // Where a pass writes and reads. Addresses are added in two parts, a clock each; program_load
  // leaves the time.
  logic [63:0] sink_q, image_q, sink_address;
  logic [31:0] capacity_q, capacity;
  logic        sink_carry_q, image_carry_q;
  logic        kept;

  assign kept = route.sink == SinkWorkspace;

  always_ff @(posedge clk) begin
    {sink_carry_q, sink_q[31:0]} <=
        {1'b0, kept ? arguments_q.workspace[31:0] : arguments_q.tensor[31:0]} + 33'(route.place);
    sink_q[63:32] <= (kept ? arguments_q.workspace[63:32] : arguments_q.tensor[63:32]) +
                     32'(sink_carry_q);
    {image_carry_q, image_q[31:0]} <= {1'b0, arguments_q.workspace[31:0]} + 33'(route.source);
    image_q[63:32]                 <= arguments_q.workspace[63:32] + 32'(image_carry_q);
    capacity_q                     <= arguments_q.tensor_capacity - route.place;
  end
  assign sink_address = program_q ? sink_q : arguments_q.tensor;
  assign capacity     = program_q ? capacity_q : arguments_q.tensor_capacity;

  // ---- The file ----
  logic         jpeg_stop, jpeg_error;
  logic [127:0] jpeg_word;
  logic         jpeg_valid, jpeg_ready;
  logic [28:0]  jpeg_words;

  assign jpeg_words = {1'b0, arguments_q.jpeg_bytes[31:4]} + 29'(arguments_q.jpeg_bytes[3:0] != '0);

  axi_read u_jpeg (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .start_i     (unit_start),
    .address_i   (arguments_q.jpeg),
    .words_i     (jpeg_words),
    .stop_i      (jpeg_stop),
    .idle_o      (jpeg_idle),
    .error_o     (jpeg_error),
    .word_o      (jpeg_word),
    .word_valid_o(jpeg_valid),
    .word_ready_i(jpeg_ready),
    .araddr_o    (araddr[JpegReader]),
    .arlen_o     (arlen[JpegReader]),
    .arsize_o    (),
    .arburst_o   (),
    .arvalid_o   (arvalid[JpegReader]),
    .arready_i   (arready[JpegReader]),
    .rdata_i     (m_axi_gmem0_rdata),
    .rresp_i     (m_axi_gmem0_rresp),
    .rlast_i     (m_axi_gmem0_rlast),
    .rvalid_i    (rvalid[JpegReader]),
    .rready_o    ()
  );

  // What writers of 16-byte words send.
  typedef struct packed {
    logic [63:0]  awaddr;
    logic [7:0]   awlen;
    logic         awvalid;
    logic [127:0] wdata;
    logic [15:0]  wstrb;
    logic         wlast;
    logic         wvalid;
  } write_t;

  // ---- Decode ----
  // Between units lie short FIFOs: source, scaled and window. A unit beyond `stage` is passed by.
  write_t         by_decode;
  logic           by_decode_awready, by_decode_wready;
  logic           decode_busy;
  logic [31:0]    workspace_needed;
  frame_t         decoded_frame, resized_frame, cropped_frame;
  logic           decoded_frame_valid, decoded_frame_ready, resized_frame_valid,
                  resized_frame_ready;
  logic           cropped_frame_valid, cropped_frame_ready;
  source_beat_t   decoded;
  beat_t          resized, cropped;
  logic [15:0]    source_width, source_height;
  logic           sized, window_known;
  window_t        source_window;
  crop_t          crop_place;
  logic           decoded_valid, decoded_ready, resized_valid, resized_ready, cropped_valid,
                  cropped_ready;

  decode u_decode (
    .clk_i         (clk),
    .rst_ni        (rst_n),
    .start_i       (unit_start),
    .jpeg_bytes_i  (arguments_q.jpeg_bytes),
    .busy_o        (decode_busy),
    .events_o      (events),
    .word_i        (jpeg_word),
    .word_end_i    (1'b0),
    .word_bytes_i  ('0),
    .word_valid_i  (jpeg_valid),
    .word_ready_o  (jpeg_ready),
    .width_o       (source_width),
    .height_o      (source_height),
    .sized_o       (sized),
    // Only a crop leaves pixels unused.
    .window_i      (resizes_q ? source_window : WholeFrame),
    .window_valid_i(window_known || !resizes_q),
    .frame_o       (decoded_frame),
    .frame_valid_o (decoded_frame_valid),
    .frame_ready_i (decoded_frame_ready),
    .beat_o        (decoded),
    .beat_valid_o  (decoded_valid),
    .beat_ready_i  (decoded_ready),
    .workspace_i       (arguments_q.workspace),
    .workspace_bytes_i (arguments_q.workspace_bytes),
    .workspace_needed_o(workspace_needed),
    .workspace_idle_o  (workspace_idle),
    .araddr_o      (workspace_araddr[CoefficientReader]),
    .arlen_o       (workspace_arlen[CoefficientReader]),
    .arvalid_o     (workspace_arvalid[CoefficientReader]),
    .arready_i     (workspace_arready[CoefficientReader]),
    .rdata_i       (workspace_rdata),
    .rresp_i       (m_axi_gmem1_rresp),
    .rlast_i       (workspace_rlast),
    .rvalid_i      (workspace_rvalid[CoefficientReader]),
    .awaddr_o      (by_decode.awaddr),
    .awlen_o       (by_decode.awlen),
    .awvalid_o     (by_decode.awvalid),
    .awready_i     (by_decode_awready),
    .wdata_o       (by_decode.wdata),
    .wstrb_o       (by_decode.wstrb),
    .wlast_o       (by_decode.wlast),
    .wvalid_o      (by_decode.wvalid),
    .wready_i      (by_decode_wready),
    .bresp_i       (m_axi_gmem1_bresp),
    .bvalid_i      (bvalid[WorkspaceWriter])
  );

  axi_write_upsize #(.Bytes(WriteBytes)) u_coefficient_upsize (
    .clk_i    (clk),
    .rst_ni   (rst_n),
    .awaddr_i (by_decode.awaddr),
    .awlen_i  (by_decode.awlen),
    .awvalid_i(by_decode.awvalid),
    .awready_o(by_decode_awready),
    .wdata_i  (by_decode.wdata),
    .wstrb_i  (by_decode.wstrb),
    .wlast_i  (by_decode.wlast),
    .wvalid_i (by_decode.wvalid),
    .wready_o (by_decode_wready),
    .awaddr_o (awaddr[WorkspaceWriter]),
    .awlen_o  (awlen[WorkspaceWriter]),
    .awvalid_o(awvalid[WorkspaceWriter]),
    .awready_i(awready[WorkspaceWriter]),
    .wdata_o  (wdata[WorkspaceWriter]),
    .wstrb_o  (wstrb[WorkspaceWriter]),
    .wlast_o  (wlast[WorkspaceWriter]),
    .wvalid_o (wvalid[WorkspaceWriter]),
    .wready_i (wready[WorkspaceWriter])
  );

  // ---- An image of an earlier pass ----
  frame_t image_frame;
  beat_t  image;
  logic   image_frame_valid, image_valid, image_error, program_refused, sink_start;
  logic   source_frame_free, source_free;

  if (Programs) begin : gen_image
    image_read u_image (
      .clk_i        (clk),
      .rst_ni       (rst_n),
      // Before a run, later_q is that of the run before.
      .start_i      (sink_start && program_q && later_q),
      .refuse_i     (program_refused),
      .address_i    (image_q),
      .pitch_i      (route.source_pitch),
      .width_i      (route.source_width),
      .height_i     (route.source_height),
      .idle_o       (image_idle),
      .error_o      (image_error),
      .frame_o      (image_frame),
      .frame_valid_o(image_frame_valid),
      .frame_ready_i(source_frame_free),
      .beat_o       (image),
      .beat_valid_o (image_valid),
      .beat_ready_i (source_free),
      .araddr_o     (workspace_araddr[CoefficientReader-1:0]),
      .arlen_o      (workspace_arlen[CoefficientReader-1:0]),
      .arvalid_o    (workspace_arvalid[CoefficientReader-1:0]),
      .arready_i    (workspace_arready[CoefficientReader-1:0]),
      .rdata_i      (workspace_rdata),
      .rresp_i      (m_axi_gmem1_rresp),
      .rlast_i      (workspace_rlast),
      .rvalid_i     (workspace_rvalid[CoefficientReader-1:0])
    );
  end else begin : gen_no_image
    assign image_idle                               = 1'b1;
    assign image_error                              = 1'b0;
    assign image_frame                              = '0;
    assign image_frame_valid                        = 1'b0;
    assign image                                    = '0;
    assign image_valid                              = 1'b0;
    assign workspace_araddr[CoefficientReader-1:0]  = '0;
    assign workspace_arlen[CoefficientReader-1:0]   = '0;
    assign workspace_arvalid[CoefficientReader-1:0] = '0;
  end

  frame_t       source_frame;
  source_beat_t source, wide_image;
  logic         source_frame_valid, source_frame_ready, source_valid, source_ready, source_ended;

  // Half of a beat, also within a row: only the scaler takes it, behind beat_split.
  always_comb begin
    wide_image            = '0;
    wide_image.pixel[1:0] = image.pixel;
    wide_image.keep[1:0]  = image.keep;
    wide_image.last       = image.last;
    wide_image.status     = image.status;
  end

  assign decoded_frame_ready = source_frame_free && !later_q;
  assign decoded_ready       = source_free && !later_q;

  frame_fifo #(.Beat(source_beat_t)) u_source (
    .clk_i        (clk),
    .rst_ni       (rst_n),
    .clear_i      (pass_start),
    .ended_o      (source_ended),
    .frame_i      (later_q ? image_frame : decoded_frame),
    .frame_valid_i(later_q ? image_frame_valid : decoded_frame_valid),
    .frame_ready_o(source_frame_free),
    .beat_i       (later_q ? wide_image : decoded),
    .beat_valid_i (later_q ? image_valid : decoded_valid),
    .beat_ready_o (source_free),
    .frame_o      (source_frame),
    .frame_valid_o(source_frame_valid),
    .frame_ready_i(source_frame_ready),
    .beat_o       (source),
    .beat_valid_o (source_valid),
    .beat_ready_i (source_ready)
  );

  // For units that take two pixels a clock.
  beat_t halved;
  logic  halved_valid, halved_ready, split_ready;

  beat_split u_halved (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .beat_i      (source),
    .beat_valid_i(source_valid && !resizes_q),
    .beat_ready_o(split_ready),
    .beat_o      (halved),
    .beat_valid_o(halved_valid),
    .beat_ready_i(halved_ready)
  );

  // ---- A program: scaler in place of resize and crop ----
  logic                   program_error, program_stop;
  logic [127:0]           list;
  logic                   list_valid, list_ready;
  logic                   loaded, loaded_q, to_patches, to_workspace;
  scaler_pkg::setup_t     setup;
  patches_pkg::layout_t   layout;
  frame_t                 placed_frame;
  beat_t                  placed;
  logic                   placed_frame_valid, placed_frame_ready, placed_valid, placed_ready;
  logic                   scaler_frame_ready, scaler_ready, scaler_idle;

  if (Programs) begin : gen_program
    logic [127:0] program_word;
    logic         program_valid, program_ready;

    axi_read #(.Depth(256)) u_program (
      .clk_i       (clk),
      .rst_ni      (rst_n),
      .start_i     (unit_start && program_q),
      .address_i   (arguments_q.program_at),
      .words_i     ({1'b0, arguments_q.program_bytes[31:4]}),
      .stop_i      (program_stop),
      .idle_o      (program_idle),
      .error_o     (program_error),
      .word_o      (program_word),
      .word_valid_o(program_valid),
      .word_ready_i(program_ready),
      .araddr_o    (araddr[ProgramReader]),
      .arlen_o     (arlen[ProgramReader]),
      .arsize_o    (),
      .arburst_o   (),
      .arvalid_o   (arvalid[ProgramReader]),
      .arready_i   (arready[ProgramReader]),
      .rdata_i     (m_axi_gmem0_rdata),
      .rresp_i     (m_axi_gmem0_rresp),
      .rlast_i     (m_axi_gmem0_rlast),
      .rvalid_i    (rvalid[ProgramReader]),
      .rready_o    ()
    );

    program_load u_program_load (
      .clk_i            (clk),
      .rst_ni           (rst_n),
      .start_i          (unit_start),
      .next_i           (next_pass),
      .bytes_i          (arguments_q.program_bytes),
      .tensor_capacity_i(arguments_q.tensor_capacity),
      .workspace_bytes_i(arguments_q.workspace_bytes),
      .loaded_o         (loaded),
      .refused_o        (program_refused),
      .setup_o          (setup),
      .layout_o         (layout),
      .route_o          (route),
      .word_i           (program_word),
      .word_valid_i     (program_valid),
      .word_ready_o     (program_ready),
      .list_o           (list),
      .list_valid_o     (list_valid),
      .list_ready_i     (list_ready)
    );
  end else begin : gen_no_program
    assign program_idle           = 1'b1;
    assign program_error          = 1'b0;
    assign araddr[ProgramReader]  = '0;
    assign arlen[ProgramReader]   = '0;
    assign arvalid[ProgramReader] = 1'b0;
    assign loaded                 = 1'b0;
    assign program_refused        = 1'b0;
    assign setup                  = '0;
    assign layout                 = '0;
    assign route                  = '0;
    assign list                   = '0;
    assign list_valid             = 1'b0;
  end

  // The unit at the end starts when it is known which one it is.
  always_ff @(posedge clk) loaded_q <= loaded && !pass_start;
  assign to_patches   = program_q && route.sink == SinkPatches;
  assign to_workspace = program_q && kept;
  assign sink_start   = program_q ? phase == CuRun && loaded && !loaded_q : unit_start;

  if (Programs) begin : gen_scaler
    scaler u_scaler (
      .clk_i        (clk),
      .rst_ni       (rst_n),
      .setup_i      (setup),
      .idle_o       (scaler_idle),
      .word_i       (list),
      .word_valid_i (list_valid),
      .word_ready_o (list_ready),
      .frame_i      (source_frame),
      .frame_valid_i(source_frame_valid && program_q && loaded_q),
      .frame_ready_o(scaler_frame_ready),
      .beat_i       (halved),
      .beat_valid_i (halved_valid && program_q),
      .beat_ready_o (scaler_ready),
      .frame_o      (placed_frame),
      .frame_valid_o(placed_frame_valid),
      .frame_ready_i(placed_frame_ready),
      .beat_o       (placed),
      .beat_valid_o (placed_valid),
      .beat_ready_i (placed_ready)
    );
  end else begin : gen_no_scaler
    assign scaler_idle        = 1'b1;
    assign list_ready         = 1'b0;
    assign scaler_frame_ready = 1'b0;
    assign scaler_ready       = 1'b0;
    assign placed_frame       = '0;
    assign placed_frame_valid = 1'b0;
    assign placed             = '0;
    assign placed_valid       = 1'b0;
  end

  // ---- Resize ----
  logic resize_frame_ready, resize_ready, to_crop_frame_ready, to_crop_ready;

  resize u_resize (
    .clk_i         (clk),
    .rst_ni        (rst_n),
    // What does not fit 16 bits is beyond the unit's limit; 0 is what it refuses for being so.
    .resize_short_i(arguments_q.resize_short[31:16] != '0 ? '0 : arguments_q.resize_short[15:0]),
    .crops_i       (crops_q),
    .crop_width_i  (arguments_q.crop_width),
    .crop_height_i (arguments_q.crop_height),
    .crop_x_i      (arguments_q.crop_x),
    .crop_y_i      (arguments_q.crop_y),
    .width_i       (source_width),
    .height_i      (source_height),
    .sized_i       (sized && resizes_q),
    .window_o      (source_window),
    .window_valid_o(window_known),
    .crop_o        (crop_place),
    .frame_i       (source_frame),
    .frame_valid_i (source_frame_valid && resizes_q),
    .frame_ready_o (resize_frame_ready),
    .beat_i        (source),
    .beat_valid_i  (source_valid && resizes_q),
    .beat_ready_o  (resize_ready),
    .frame_o       (resized_frame),
    .frame_valid_o (resized_frame_valid),
    .frame_ready_i (resized_frame_ready),
    .beat_o        (resized),
    .beat_valid_o  (resized_valid),
    .beat_ready_i  (resized_ready)
  );

  assign source_frame_ready  = program_q ? scaler_frame_ready && loaded_q
                             : resizes_q ? resize_frame_ready : to_crop_frame_ready;
  assign source_ready        = resizes_q ? resize_ready : split_ready;
  assign halved_ready        = program_q ? scaler_ready : to_crop_ready;
  assign resized_frame_ready = to_crop_frame_ready && resizes_q;
  assign resized_ready       = to_crop_ready && resizes_q;

  frame_t scaled_frame;
  beat_t  scaled;
  logic   scaled_frame_valid, scaled_frame_ready, scaled_valid, scaled_ready, scaled_ended;

  frame_fifo u_scaled (
    .clk_i        (clk),
    .rst_ni       (rst_n),
    .clear_i      (pass_start),
    .ended_o      (scaled_ended),
    .frame_i      (resizes_q ? resized_frame : source_frame),
    .frame_valid_i(resizes_q ? resized_frame_valid : source_frame_valid && !program_q),
    .frame_ready_o(to_crop_frame_ready),
    .beat_i       (resizes_q ? resized : halved),
    .beat_valid_i (resizes_q ? resized_valid : halved_valid && !program_q),
    .beat_ready_o (to_crop_ready),
    .frame_o      (scaled_frame),
    .frame_valid_o(scaled_frame_valid),
    .frame_ready_i(scaled_frame_ready),
    .beat_o       (scaled),
    .beat_valid_o (scaled_valid),
    .beat_ready_i (scaled_ready)
  );

  // ---- Crop ----
  logic crop_frame_ready, crop_ready, to_store_frame_ready, to_store_ready;

  crop u_crop (
    .clk_i        (clk),
    .rst_ni       (rst_n),
    .crop_i       (crop_place),
    .cut_i        (1'b1),  // resize gives no more
    .frame_i      (scaled_frame),
    .frame_valid_i(scaled_frame_valid && crops_q),
    .frame_ready_o(crop_frame_ready),
    .beat_i       (scaled),
    .beat_valid_i (scaled_valid && crops_q),
    .beat_ready_o (crop_ready),
    .frame_o      (cropped_frame),
    .frame_valid_o(cropped_frame_valid),
    .frame_ready_i(cropped_frame_ready),
    .beat_o       (cropped),
    .beat_valid_o (cropped_valid),
    .beat_ready_i (cropped_ready)
  );

  assign scaled_frame_ready  = crops_q ? crop_frame_ready : to_store_frame_ready;
  assign scaled_ready        = crops_q ? crop_ready : to_store_ready;
  assign cropped_frame_ready = to_store_frame_ready && crops_q;
  assign cropped_ready       = to_store_ready && crops_q;
  assign placed_frame_ready  = to_store_frame_ready && program_q;
  assign placed_ready        = to_store_ready && program_q;

  frame_t window_frame;
  beat_t  window;
  logic   window_frame_valid, window_frame_ready, window_valid, window_ready, window_ended;

  frame_fifo u_window (
    .clk_i        (clk),
    .rst_ni       (rst_n),
    .clear_i      (pass_start),
    .ended_o      (window_ended),
    .frame_i      (program_q ? placed_frame : crops_q ? cropped_frame : scaled_frame),
    .frame_valid_i(program_q ? placed_frame_valid
                             : crops_q ? cropped_frame_valid : scaled_frame_valid),
    .frame_ready_o(to_store_frame_ready),
    .beat_i       (program_q ? placed : crops_q ? cropped : scaled),
    .beat_valid_i (program_q ? placed_valid : crops_q ? cropped_valid : scaled_valid),
    .beat_ready_o (to_store_ready),
    .frame_o      (window_frame),
    .frame_valid_o(window_frame_valid),
    .frame_ready_i(window_frame_ready),
    .beat_o       (window),
    .beat_valid_o (window_valid),
    .beat_ready_i (window_ready)
  );

  // ---- Normalize and its tables ----
  logic         tables_stop, tables_error, tables_done;
  logic [127:0] tables_word;
  logic         tables_valid, tables_ready;
  logic         table_we;
  logic [1:0]   table_channel;
  logic [7:0]   table_index;
  logic [31:0]  table_value;

  axi_read #(.BurstWords(16), .Depth(32)) u_tables (
    .clk_i       (clk),
    .rst_ni      (rst_n),
    .start_i     (unit_start && planar_q),
    .address_i   (arguments_q.tables),
    .words_i     (TableWords),
    .stop_i      (tables_stop),
    .idle_o      (tables_idle),
    .error_o     (tables_error),
    .word_o      (tables_word),
    .word_valid_o(tables_valid),
    .word_ready_i(tables_ready),
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

  table_load u_table_load (
    .clk_i          (clk),
    .rst_ni         (rst_n),
    .start_i        (unit_start),
    .done_o         (tables_done),
    .word_i         (tables_word),
    .word_valid_i   (tables_valid),
    .word_ready_o   (tables_ready),
    .table_we_o     (table_we),
    .table_channel_o(table_channel),
    .table_index_o  (table_index),
    .table_value_o  (table_value)
  );

  sample_beat_t normalized, packed_pixels, sample;
  logic         normalize_ready, normalized_valid, sample_valid, sample_ready, patches_ready;
  logic         keep_ready, to_store;

  assign to_store = !to_patches && !to_workspace;

  normalize u_normalize (
    .clk_i          (clk),
    .rst_ni         (rst_n),
    .table_we_i     (table_we),
    .table_channel_i(table_channel),
    .table_index_i  (table_index),
    .table_value_i  (table_value),
    .beat_i         (window),
    .beat_valid_i   (window_valid && planar_q && tables_done && to_store),
    .beat_ready_o   (normalize_ready),
    .sample_o       (normalized),
    .sample_valid_o (normalized_valid),
    .sample_ready_i (sample_ready && planar_q)
  );

  // Pixels that are not normalized come to the packers from registers, too.
  beat_t pixels;
  logic  pixels_valid, pixels_ready;

  stream_register #(
    .Width($bits(beat_t))
  ) u_pixels (
    .clk_i  (clk),
    .rst_ni (rst_n),
    .data_i (window),
    .valid_i(window_valid && !planar_q),
    .ready_o(pixels_ready),
    .data_o (pixels),
    .valid_o(pixels_valid),
    .ready_i(sample_ready && !planar_q)
  );

  always_comb begin
    for (int unsigned lane = 0; lane < 2; lane++) begin
      packed_pixels.value[lane][0] = 32'(pixels.pixel[lane].r);
      packed_pixels.value[lane][1] = 32'(pixels.pixel[lane].g);
      packed_pixels.value[lane][2] = 32'(pixels.pixel[lane].b);
    end
    packed_pixels.keep   = pixels.keep;
    packed_pixels.last   = pixels.last;
    packed_pixels.status = pixels.status;
    sample               = planar_q ? normalized : packed_pixels;
    sample_valid         = planar_q ? normalized_valid : pixels_valid;
    window_ready         = to_patches ? patches_ready && tables_done
                         : to_workspace ? keep_ready
                         : planar_q ? normalize_ready && tables_done : pixels_ready;
  end

  // ---- Patches ----
  logic         patches_idle, patches_frame_ready, words_idle, words_error;
  status_e      patches_status;
  logic [15:0]  patches_width, patches_height;
  logic [63:0]  patches_bytes;
  logic [127:0] patches_word;
  logic         patches_word_valid, patches_word_ready;

  if (Programs) begin : gen_patches
    patches u_patches (
      .clk_i          (clk),
      .rst_ni         (rst_n),
      .start_i        (sink_start && to_patches),
      .layout_i       (layout),
      .shift_i        (shift_q),
      .capacity_i     (capacity),
      .idle_o         (patches_idle),
      .status_o       (patches_status),
      .width_o        (patches_width),
      .height_o       (patches_height),
      .bytes_o        (patches_bytes),
      .table_we_i     (table_we),
      .table_channel_i(table_channel),
      .table_index_i  (table_index),
      .table_value_i  (table_value),
      .frame_i        (window_frame),
      .frame_valid_i  (window_frame_valid && to_patches),
      .frame_ready_o  (patches_frame_ready),
      .beat_i         (window),
      .beat_valid_i   (window_valid && to_patches && tables_done),
      .beat_ready_o   (patches_ready),
      .word_o         (patches_word),
      .word_valid_o   (patches_word_valid),
      .word_ready_i   (patches_word_ready)
    );
  end else begin : gen_no_patches
    assign patches_idle        = 1'b1;
    assign patches_status      = StatusOk;
    assign patches_width       = '0;
    assign patches_height      = '0;
    assign patches_bytes       = '0;
    assign patches_frame_ready = 1'b0;
    assign patches_ready       = 1'b0;
    assign patches_word        = '0;
    assign patches_word_valid  = 1'b0;
  end

  // ---- An image for later passes ----
  logic         keep_idle, keep_frame_ready;
  status_e      keep_status;
  logic [15:0]  keep_width, keep_height;
  logic [127:0] keep_word;
  logic         keep_word_valid, word_ready, by_words;

  if (Programs) begin : gen_keep
    image_keep u_keep (
      .clk_i        (clk),
      .rst_ni       (rst_n),
      .start_i      (sink_start && to_workspace),
      .idle_o       (keep_idle),
      .status_o     (keep_status),
      .width_o      (keep_width),
      .height_o     (keep_height),
      .frame_i      (window_frame),
      .frame_valid_i(window_frame_valid && to_workspace),
      .frame_ready_o(keep_frame_ready),
      .beat_i       (window),
      .beat_valid_i (window_valid && to_workspace),
      .beat_ready_o (keep_ready),
      .word_o       (keep_word),
      .word_valid_o (keep_word_valid),
      .word_ready_i (word_ready && to_workspace)
    );
  end else begin : gen_no_keep
    assign keep_idle        = 1'b1;
    assign keep_status      = StatusOk;
    assign keep_width       = '0;
    assign keep_height      = '0;
    assign keep_frame_ready = 1'b0;
    assign keep_ready       = 1'b0;
    assign keep_word        = '0;
    assign keep_word_valid  = 1'b0;
  end

  assign by_words           = to_patches || to_workspace;
  assign patches_word_ready = word_ready && to_patches;

  // Of the two units that write results one is at rest.
  typedef struct packed {
    logic [63:0]             awaddr;
    logic [7:0]              awlen;
    logic                    awvalid;
    logic [8*WriteBytes-1:0] wdata;
    logic [WriteBytes-1:0]   wstrb;
    logic                    wlast;
    logic                    wvalid;
  } wide_write_t;
  wide_write_t by_tensor_write, by_store, tensor_write;

  if (Programs) begin : gen_words
    write_t words;
    logic   words_awready, words_wready;

    tensor_write u_words (
      .clk_i       (clk),
      .rst_ni      (rst_n),
      .start_i     (sink_start && by_words),
      .address_i   (sink_address),
      .end_i       (to_workspace ? keep_idle : patches_idle),
      .idle_o      (words_idle),
      .bus_error_o (words_error),
      .word_i      (to_workspace ? keep_word : patches_word),
      .word_valid_i(to_workspace ? keep_word_valid : patches_word_valid),
      .word_ready_o(word_ready),
      .awaddr_o    (words.awaddr),
      .awlen_o     (words.awlen),
      .awvalid_o   (words.awvalid),
      .awready_i   (words_awready),
      .wdata_o     (words.wdata),
      .wstrb_o     (words.wstrb),
      .wlast_o     (words.wlast),
      .wvalid_o    (words.wvalid),
      .wready_i    (words_wready),
      .bresp_i     (m_axi_gmem1_bresp),
      .bvalid_i    (bvalid[TensorWriter] && by_words)
    );

    axi_write_upsize #(.Bytes(WriteBytes)) u_words_upsize (
      .clk_i    (clk),
      .rst_ni   (rst_n),
      .awaddr_i (words.awaddr),
      .awlen_i  (words.awlen),
      .awvalid_i(words.awvalid),
      .awready_o(words_awready),
      .wdata_i  (words.wdata),
      .wstrb_i  (words.wstrb),
      .wlast_i  (words.wlast),
      .wvalid_i (words.wvalid),
      .wready_o (words_wready),
      .awaddr_o (by_tensor_write.awaddr),
      .awlen_o  (by_tensor_write.awlen),
      .awvalid_o(by_tensor_write.awvalid),
      .awready_i(awready[TensorWriter] && by_words),
      .wdata_o  (by_tensor_write.wdata),
      .wstrb_o  (by_tensor_write.wstrb),
      .wlast_o  (by_tensor_write.wlast),
      .wvalid_o (by_tensor_write.wvalid),
      .wready_i (wready[TensorWriter] && by_words)
    );
  end else begin : gen_no_words
    assign words_idle      = 1'b1;
    assign words_error     = 1'b0;
    assign word_ready      = 1'b0;
    assign by_tensor_write = '0;
  end

  assign tensor_write = by_words ? by_tensor_write : by_store;
  assign {awaddr[TensorWriter], awlen[TensorWriter], awvalid[TensorWriter], wdata[TensorWriter],
          wstrb[TensorWriter], wlast[TensorWriter], wvalid[TensorWriter]} = tensor_write;

  // ---- Store ----
  logic        store_idle, store_error, store_frame_ready;
  status_e     store_status;
  logic [15:0] out_width, out_height;
  logic [63:0] bytes;

  store #(.Bytes(WriteBytes)) u_store (
    .clk_i         (clk),
    .rst_ni        (rst_n),
    .start_i       (sink_start && to_store),
    .address_i     (sink_address),
    .capacity_i    (capacity),
    .planar_i      (planar_q),
    .shift_i       (shift_q),
    .idle_o        (store_idle),
    .status_o      (store_status),
    .width_o       (out_width),
    .height_o      (out_height),
    .bytes_o       (bytes),
    .bus_error_o   (store_error),
    .frame_i       (window_frame),
    .frame_valid_i (window_frame_valid && to_store),
    .frame_ready_o (store_frame_ready),
    .sample_i      (sample),
    .sample_valid_i(sample_valid),
    .sample_ready_o(sample_ready),
    .awaddr_o      (by_store.awaddr),
    .awlen_o       (by_store.awlen),
    .awsize_o      (),
    .awburst_o     (),
    .awvalid_o     (by_store.awvalid),
    .awready_i     (awready[TensorWriter] && to_store),
    .wdata_o       (by_store.wdata),
    .wstrb_o       (by_store.wstrb),
    .wlast_o       (by_store.wlast),
    .wvalid_o      (by_store.wvalid),
    .wready_i      (wready[TensorWriter] && to_store),
    .bresp_i       (m_axi_gmem1_bresp),
    .bvalid_i      (bvalid[TensorWriter] && to_store),
    .bready_o      ()
  );

  assign window_frame_ready = to_patches ? patches_frame_ready
                            : to_workspace ? keep_frame_ready : store_frame_ready;

  // ---- The end of a run ----
  // Every stream has seen its end, so nothing of this run is left when the next one begins. A
  // reader whose words are no longer wanted is stopped: the file may go on behind the image, and an
  // error leaves tables unused.
  // The next pass begins when the words of this one are written and answered. What follows from the
  // end of a pass comes from registers, because the end is a long condition.
  status_e     out_status;
  logic [15:0] end_width, end_height;
  logic [63:0] end_bytes, end_bytes_q;
  logic        ends_idle, started_q;  // the units at the end; they have started
  logic        ends_idle_q, pass_over_q, goes_on_q;

  always_ff @(posedge clk) begin
    if (!rst_n || phase == CuCheck || next_pass) started_q <= 1'b0;
    else if (sink_start) started_q <= 1'b1;
  end
  assign ends_idle = started_q && store_idle && patches_idle && keep_idle && words_idle;

  always_ff @(posedge clk) begin
    ends_idle_q <= ends_idle && !pass_start;
    pass_over_q <= !pass_start && source_ended && (program_q ? window_ended : scaled_ended) &&
                   !decode_busy && ends_idle && jpeg_idle && tables_idle &&
                   workspace_idle && image_idle && (scaler_idle || !program_q);
    goes_on_q   <= program_q && route.more && out_status == StatusOk && !bus_error;
    end_bytes_q <= end_bytes;
  end
  assign next_pass    = phase == CuRun && pass_over_q && goes_on_q;
  assign run_over     = pass_over_q && !goes_on_q && program_idle;
  assign jpeg_stop    = phase == CuRun && source_ended && !decode_busy;
  assign tables_stop  = phase == CuRun && ends_idle_q && !goes_on_q;
  assign program_stop = phase == CuRun && (program_refused || (pass_over_q && !goes_on_q));
  assign bus_error    = jpeg_error || (by_words ? words_error : store_error) ||
                        (planar_q && tables_error) || (program_q && program_error) ||
                        (later_q && image_error);

  always_comb begin
    out_status = store_status;
    end_width  = out_width;
    end_height = out_height;
    end_bytes  = bytes == '0 || !program_q ? bytes : bytes + 64'(route.place);
    if (to_patches) begin
      out_status = patches_status;
      end_width  = patches_width;
      end_height = patches_height;
      end_bytes  = patches_bytes == '0 ? '0 : patches_bytes + 64'(route.place);
    end else if (to_workspace) begin
      out_status = keep_status;
      end_width  = keep_width;
      end_height = keep_height;
      end_bytes  = '0;
    end
  end

  logic [15:0] src_width_q, src_height_q;

  always_ff @(posedge clk) begin
    if (decoded_frame_valid && decoded_frame_ready) begin
      src_width_q  <= decoded_frame.width;
      src_height_q <= decoded_frame.height;
    end
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      outputs_q <= '0;
      bytes_q   <= '0;
    end else if (phase == CuRun && run_over) begin
      outputs_q.status     <= 32'(bus_error ? StatusBusError : out_status);
      outputs_q.out_width  <= 32'(end_width);
      outputs_q.out_height <= 32'(end_height);
      outputs_q.src_width  <= 32'(src_width_q);
      outputs_q.src_height <= 32'(src_height_q);
      // Without a frame it is the workspace that is too small.
      bytes_q              <= out_status == StatusBufferTooSmall && end_width == '0
                            ? 64'(workspace_needed) : end_bytes_q;
    // Of a run from the ring: status, jobs, the next one's number, whether one said stop.
    end else if (ends) begin
      outputs_q.status     <= 32'(ring_error || failed_q ? StatusBusError : StatusOk);
      outputs_q.out_width  <= jobs_q;
      outputs_q.out_height <= next_number;
      outputs_q.src_width  <= 32'(ring_stopped);
      outputs_q.src_height <= '0;
      bytes_q              <= '0;
    end else if (phase == CuCheck && checked && refused) begin
      outputs_q        <= '0;
      outputs_q.status <= 32'(StatusBadArgument);
      bytes_q          <= '0;
    end else if (phase == CuRecord && record_error) begin
      outputs_q.status <= 32'(StatusBusError);
    end
  end

  assign record_address = listened_q ? {entry_upper_q, entry_lower_q, 4'b0} : arguments_q.result;
  assign record         = {job_q ? number_q : 32'b0, bytes_q, outputs_q.src_height,
                           outputs_q.src_width, outputs_q.out_height, outputs_q.out_width,
                           outputs_q.status};

`ifndef SYNTHESIS
  logic units_idle;
  assign units_idle = jpeg_idle && tables_idle && program_idle && workspace_idle && image_idle &&
                      store_idle && patches_idle && keep_idle && words_idle;

  a_units_are_idle_at_a_start: assert property (@(posedge clk) disable iff (!rst_n)
    unit_start |-> units_idle && !decode_busy);
  a_arguments_stay: assert property (@(posedge clk) disable iff (!rst_n)
    phase inside {CuStart, CuRun, CuOutcome} |=> $stable(arguments_q));
  a_a_pass_begins_on_written_words: assert property (@(posedge clk) disable iff (!rst_n)
    next_pass |-> program_q && route.more && words_idle && store_idle &&
                  awvalid[TensorWriter] == 1'b0);
  a_run_leaves_no_word: assert property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && run_over |-> units_idle && !decode_busy && !source_valid && !scaled_valid &&
                                   !window_valid);
  a_nothing_moves_outside_a_run: assert property (@(posedge clk) disable iff (!rst_n)
    phase != CuRun |-> !arvalid[JpegReader] && !arvalid[TablesReader] && !arvalid[ProgramReader] &&
                       workspace_arvalid == '0 && awvalid == '0 && wvalid == '0);
  a_ring_only_in_its_runs: assert property (@(posedge clk) disable iff (!rst_n)
    job_q || takes || arvalid[RingReader] |-> queue_q);
  a_one_unit_writes: assert property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun |-> store_idle || words_idle);
  a_output_fits: assert property (@(posedge clk) disable iff (!rst_n)
    record_start && outputs_q.status == 32'(StatusOk) && (job_q || !queue_q) |->
    bytes_q <= 64'(arguments_q.tensor_capacity));
  a_record_has_a_status: assert property (@(posedge clk) disable iff (!rst_n)
    record_start |-> outputs_q.status <= 32'(StatusBusError));

  c_file_goes_on: cover property (@(posedge clk) disable iff (!rst_n) jpeg_stop && !jpeg_idle);
  c_file_error: cover property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && run_over && jpeg_error);
  c_tables_error: cover property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && run_over && planar_q && tables_error);
  c_output_error: cover property (@(posedge clk) disable iff (!rst_n)
    phase == CuRun && run_over && !by_words && store_error);
  c_record_error: cover property (@(posedge clk) disable iff (!rst_n)
    phase == CuRecord && record_error);
  if (Programs) begin : gen_program_covers
    c_second_pass: cover property (@(posedge clk) disable iff (!rst_n) next_pass);
    c_program_refused: cover property (@(posedge clk) disable iff (!rst_n)
      phase == CuRun && program_q && program_refused);
    c_program_error: cover property (@(posedge clk) disable iff (!rst_n)
      phase == CuRun && run_over && program_q && program_error);
    c_pass_error: cover property (@(posedge clk) disable iff (!rst_n)
      phase == CuRun && run_over && later_q && image_error);
    c_words_error: cover property (@(posedge clk) disable iff (!rst_n)
      phase == CuRun && run_over && by_words && words_error);
  end
  if (Queue) begin : gen_queue_covers
    c_ring_error: cover property (@(posedge clk) disable iff (!rst_n) ends && ring_error);
    c_job_record_error: cover property (@(posedge clk) disable iff (!rst_n) ends && failed_q);
    c_job_refused: cover property (@(posedge clk) disable iff (!rst_n)
      phase == CuCheck && checked && refused && job_q);
    c_job_follows: cover property (@(posedge clk) disable iff (!rst_n) takes && jobs_q != '0);
  end
`endif

endmodule
