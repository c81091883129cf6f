// Image stream: JPEG files from an AXI4-Stream to pixels on another one, for boards whose FPGA has
// no memory beside it.
//
//   s_axis_jpeg -> stream_words -> decode -> resize -> crop -> m_axis_pixels
//
// Reference   decode, resize and crop, each as its unit says; `stage` is the last one that runs.
//             The registers are those of image_stream_pkg.
// Interface   AXI4-Lite registers as axi_control has them: ap_start once for each file, with its
//             arguments; ap_done stands until ap_continue, with status and sizes.
//             s_axis_jpeg: a file, its first byte in bits 7..0; `tlast` ends it, see stream_words.
//             m_axis_pixels: two pixels a beat, red of the left one in bits 7..0, then green and
//             blue; `tkeep` has three ones for each pixel. A row starts with a new beat. `tlast`
//             ends the image, or each row with bit 0 of `options`. Bit 0 of `tuser` marks the first
//             beat of an image, bit 1 with `tlast` an image that ends with an error.
//             A file gives exactly one `tlast` of an image, also if it has no pixels.
// Throughput  that of decode: what is behind it takes two pixels a clock. Both streams may pause.
// Latency     decode's.
// Limits      MaxWidth; files of several scans are refused, because their workspace is memory.
// Bad input   ends in a status code, see docs/reference/registers.md, and in a beat without bytes,
//             with `tlast` and bit 1 of `tuser`. An unknown stage or option: StatusBadArgument. The
//             rest of the file is taken up to its `tlast`, so that the next file is right. A file
//             that never ends holds its run; a reset ends it, of this unit and of what sends files.
`include "../rtl/axi/axi_ports.svh"

module image_stream
  import headrace_pkg::*;
  import cu_pkg::cu_counts_t;
  import image_stream_pkg::*;
#(
  parameter int unsigned InputBits = 32,  // of s_axis_jpeg: 32, 64 or 128
  // Pixels of a beat.
  localparam int unsigned Lanes = 2
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,
  output logic                   interrupt_o,

  `AXI_CONTROL_PORTS(s_axi_control),

  input  logic [InputBits-1:0]   s_axis_jpeg_tdata,
  input  logic [InputBits/8-1:0] s_axis_jpeg_tkeep,
  input  logic                   s_axis_jpeg_tlast,
  input  logic                   s_axis_jpeg_tvalid,
  output logic                   s_axis_jpeg_tready,

  output logic [24*Lanes-1:0]    m_axis_pixels_tdata,
  output logic [3*Lanes-1:0]     m_axis_pixels_tkeep,
  output logic [1:0]             m_axis_pixels_tuser,
  output logic                   m_axis_pixels_tlast,
  output logic                   m_axis_pixels_tvalid,
  input  logic                   m_axis_pixels_tready
);

  typedef enum logic [2:0] {
    StIdle,
    StCheck,  // are the arguments sound?
    StStart,  // every unit begins
    StRun,    // up to the last pixels
    StTell,   // there are none: a beat says so
    StRest,   // until all units have seen the end
    StDrain,  // what is left of the file
    StDone    // until ap_continue
  } state_e;

  state_e     state_d, state_q;
  arguments_t registers, arguments_q;
  outputs_t   outputs_q;
  counters_t  counters;
  cu_counts_t counts;
  logic [$bits(decode_events_t)-1:0][31:0] event_counts;
  decode_events_t events;
  logic       start, begins, next, refused, unit_start, units_over;

  // ---- Registers ----
  axi_control #(
    .ArgumentWords (ArgumentWords),
    .ArgumentOffset(ArgumentOffset),
    .OutputWords   (OutputWords),
    .OutputOffset  (OutputOffset),
    .CounterWords  ($bits(counters_t) / 32)
  ) u_control (
    .clk_i, .rst_ni,
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
    .interrupt_o,
    .start_o    (start),
    .ready_i    (begins),
    .done_i     (state_q == StDone),
    .continue_o (next),
    .idle_i     (state_q == StIdle),
    .arguments_o(registers),
    .outputs_i  (outputs_q),
    .counters_i (counters)
  );

  cu_counters #(.Events($bits(decode_events_t))) u_counters (
    .clk_i, .rst_ni,
    .clear_i       (begins),
    .running_i     (state_q != StIdle && state_q != StDone),
    .write_i       (m_axis_pixels_tvalid && m_axis_pixels_tready),
    .write_wait_i  (m_axis_pixels_tvalid && !m_axis_pixels_tready),
    .events_i      (events),
    .counts_o      (counts),
    .event_counts_o(event_counts)
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
  always_ff @(posedge clk_i) symbols_q <= first_symbols + second_symbols;

  logic resizes_q, crops_q, rows_q;

  always_ff @(posedge clk_i) begin
    if (begins) begin
      arguments_q <= registers;
      resizes_q   <= registers.stage[1:0] != '0;
      crops_q     <= registers.stage[1];
      rows_q      <= registers.options[0];
    end
  end
  assign refused = arguments_q.stage > 32'd2 || arguments_q.options[31:1] != '0;

  // ---- The file ----
  logic [127:0] word;
  logic [4:0]   word_bytes;
  logic         word_end, word_valid, word_ready, decode_ready, decode_takes, file_over_q;

  stream_words #(.InputBits(InputBits)) u_words (
    .clk_i, .rst_ni,
    .tdata_i (s_axis_jpeg_tdata),
    .tkeep_i (s_axis_jpeg_tkeep),
    .tlast_i (s_axis_jpeg_tlast),
    .tvalid_i(s_axis_jpeg_tvalid),
    .tready_o(s_axis_jpeg_tready),
    .word_o  (word),
    .end_o   (word_end),
    .bytes_o (word_bytes),
    .valid_o (word_valid),
    .ready_i (word_ready)
  );

  // Words of the next file wait for its start.
  assign decode_takes = (state_q == StRun || state_q == StTell || state_q == StRest) &&
                        !file_over_q;
  assign word_ready   = decode_takes ? decode_ready : state_q == StDrain && !file_over_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || begins) file_over_q <= 1'b0;
    else if (word_valid && word_ready && word_end) file_over_q <= 1'b1;
  end

  // ---- Decode ----
  logic        decode_busy, sized, window_known;
  logic [15:0] source_width, source_height;
  window_t     source_window;
  crop_t       crop_place;
  frame_t      decoded_frame, source_frame, resized_frame, scaled_frame, cropped_frame;
  source_beat_t decoded, source;
  beat_t       halved, resized, scaled, cropped;
  logic        decoded_frame_valid, decoded_frame_ready, decoded_valid, decoded_ready;
  logic        source_frame_valid, source_frame_ready, source_valid, source_ready, source_ended;
  logic        halved_valid, split_ready, to_scaled_frame_ready, to_scaled_ready;
  logic        resized_frame_valid, resized_frame_ready, resized_valid, resized_ready;
  logic        scaled_frame_valid, scaled_frame_ready, scaled_valid, scaled_ready, scaled_ended;
  logic        cropped_frame_valid, cropped_frame_ready, cropped_valid, cropped_ready;

  decode u_decode (
    .clk_i, .rst_ni,
    .start_i           (unit_start),
    .jpeg_bytes_i      ('1),
    .busy_o            (decode_busy),
    .events_o          (events),
    .word_i            (word),
    .word_end_i        (word_end),
    .word_bytes_i      (word_bytes),
    .word_valid_i      (word_valid && decode_takes),
    .word_ready_o      (decode_ready),
    .width_o           (source_width),
    .height_o          (source_height),
    .sized_o           (sized),
    .window_i          (resizes_q ? source_window : WholeFrame),
    .window_valid_i    (window_known || !resizes_q),
    .frame_o           (decoded_frame),
    .frame_valid_o     (decoded_frame_valid),
    .frame_ready_i     (decoded_frame_ready),
    .beat_o            (decoded),
    .beat_valid_o      (decoded_valid),
    .beat_ready_i      (decoded_ready),
    // There is no workspace.
    .workspace_i       ('0),
    .workspace_bytes_i ('0),
    .workspace_needed_o(),
    .workspace_idle_o  (),
    .araddr_o          (),
    .arlen_o           (),
    .arvalid_o         (),
    .arready_i         (1'b0),
    .rdata_i           ('0),
    .rresp_i           ('0),
    .rlast_i           (1'b0),
    .rvalid_i          (1'b0),
    .awaddr_o          (),
    .awlen_o           (),
    .awvalid_o         (),
    .awready_i         (1'b0),
    .wdata_o           (),
    .wstrb_o           (),
    .wlast_o           (),
    .wvalid_o          (),
    .wready_i          (1'b0),
    .bresp_i           ('0),
    .bvalid_i          (1'b0)
  );

  frame_fifo #(.Beat(source_beat_t)) u_source (
    .clk_i, .rst_ni,
    .clear_i      (unit_start),
    .ended_o      (source_ended),
    .frame_i      (decoded_frame),
    .frame_valid_i(decoded_frame_valid),
    .frame_ready_o(decoded_frame_ready),
    .beat_i       (decoded),
    .beat_valid_i (decoded_valid),
    .beat_ready_o (decoded_ready),
    .frame_o      (source_frame),
    .frame_valid_o(source_frame_valid),
    .frame_ready_i(source_frame_ready),
    .beat_o       (source),
    .beat_valid_o (source_valid),
    .beat_ready_i (source_ready)
  );

  // For the units that take two pixels a clock.
  beat_split u_halved (
    .clk_i, .rst_ni,
    .beat_i       (source),
    .beat_valid_i (source_valid && !resizes_q),
    .beat_ready_o (split_ready),
    .beat_o       (halved),
    .beat_valid_o (halved_valid),
    .beat_ready_i (to_scaled_ready)
  );

  // ---- Resize ----
  logic resize_frame_ready, resize_ready;

  resize u_resize (
    .clk_i, .rst_ni,
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

  assign source_frame_ready  = resizes_q ? resize_frame_ready : to_scaled_frame_ready;
  assign source_ready        = resizes_q ? resize_ready : split_ready;
  assign resized_frame_ready = to_scaled_frame_ready && resizes_q;
  assign resized_ready       = to_scaled_ready && resizes_q;

  frame_fifo u_scaled (
    .clk_i, .rst_ni,
    .clear_i      (unit_start),
    .ended_o      (scaled_ended),
    .frame_i      (resizes_q ? resized_frame : source_frame),
    .frame_valid_i(resizes_q ? resized_frame_valid : source_frame_valid),
    .frame_ready_o(to_scaled_frame_ready),
    .beat_i       (resizes_q ? resized : halved),
    .beat_valid_i (resizes_q ? resized_valid : halved_valid),
    .beat_ready_o (to_scaled_ready),
    .frame_o      (scaled_frame),
    .frame_valid_o(scaled_frame_valid),
    .frame_ready_i(scaled_frame_ready),
    .beat_o       (scaled),
    .beat_valid_o (scaled_valid),
    .beat_ready_i (scaled_ready)
  );

  // ---- Crop ----
  logic crop_frame_ready, crop_ready;

  crop u_crop (
    .clk_i, .rst_ni,
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

  // ---- Pixels ----
  frame_t frame;
  beat_t  beat;
  logic   frame_valid, frame_ready, beat_valid, beat_ready, beat_taken;
  logic   framed_q, first_q, row_end, room, told;
  logic [15:0] columns_q;  // of the row, that are still to come

  assign frame               = crops_q ? cropped_frame : scaled_frame;
  assign frame_valid         = crops_q ? cropped_frame_valid : scaled_frame_valid;
  assign beat                = crops_q ? cropped : scaled;
  assign beat_valid          = (crops_q ? cropped_valid : scaled_valid) && framed_q;
  assign scaled_frame_ready  = crops_q ? crop_frame_ready : frame_ready;
  assign scaled_ready        = crops_q ? crop_ready : beat_ready;
  assign cropped_frame_ready = frame_ready && crops_q;
  assign cropped_ready       = beat_ready && crops_q;

  assign frame_ready = state_q == StRun && !framed_q;
  assign beat_ready  = framed_q && room;
  assign beat_taken  = beat_valid && beat_ready;
  assign told        = state_q == StTell && room;
  assign row_end     = columns_q <= 16'(Lanes);

  always_ff @(posedge clk_i) begin
    if (!rst_ni || unit_start || (beat_taken && beat.last)) framed_q <= 1'b0;
    else if (frame_valid && frame_ready) framed_q <= frame.status == StatusOk;
    if (unit_start) first_q <= 1'b1;
    else if (beat_taken) first_q <= 1'b0;
    if (!framed_q) columns_q <= frame.width;
    else if (beat_taken) begin
      columns_q <= row_end ? outputs_q.out_width[15:0] : columns_q - 16'(Lanes);
    end
  end

  logic [Lanes-1:0][2:0][7:0] bytes;  // [lane][0 red]
  logic [Lanes-1:0][2:0]      kept;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    assign bytes[lane] = {beat.pixel[lane].b, beat.pixel[lane].g, beat.pixel[lane].r};
    assign kept[lane]  = {3{beat.keep[lane] && state_q != StTell}};
  end

  stream_register #(
    .Width(27 * Lanes + 3)
  ) u_pixels (
    .clk_i, .rst_ni,
    .data_i (state_q == StTell
             ? {bytes, kept, 2'b10, 1'b1}
             : {bytes, kept, beat.last && beat.status != StatusOk, first_q,
                beat.last || (rows_q && row_end)}),
    .valid_i(beat_valid || state_q == StTell),
    .ready_o(room),
    .data_o ({m_axis_pixels_tdata, m_axis_pixels_tkeep, m_axis_pixels_tuser,
              m_axis_pixels_tlast}),
    .valid_o(m_axis_pixels_tvalid),
    .ready_i(m_axis_pixels_tready)
  );

  // ---- The run ----
  assign begins     = state_q == StIdle && start;
  assign unit_start = state_q == StStart;
  assign units_over = source_ended && scaled_ended && !decode_busy;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StIdle:  if (start) state_d = StCheck;
      StCheck: state_d = refused ? StTell : StStart;
      StStart: state_d = StRun;
      StRun: begin
        if (frame_valid && frame_ready && frame.status != StatusOk) state_d = StTell;
        else if (beat_taken && beat.last) state_d = StRest;
      end
      StTell:  if (told) state_d = refused ? StDrain : StRest;
      StRest:  if (units_over) state_d = StDrain;
      StDrain: if (file_over_q && !m_axis_pixels_tvalid) state_d = StDone;
      StDone:  if (next) state_d = StIdle;
      default: state_d = StIdle;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) state_q <= StIdle;
    else state_q <= state_d;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || begins) begin
      outputs_q <= '0;
    end else begin
      if (state_q == StCheck && refused) outputs_q.status <= 32'(StatusBadArgument);
      if (decoded_frame_valid && decoded_frame_ready) begin
        outputs_q.src_width  <= 32'(decoded_frame.width);
        outputs_q.src_height <= 32'(decoded_frame.height);
      end
      if (frame_valid && frame_ready) begin
        outputs_q.status     <= 32'(frame.status);
        outputs_q.out_width  <= 32'(frame.width);
        outputs_q.out_height <= 32'(frame.height);
      end
      if (beat_taken && beat.last) outputs_q.status <= 32'(beat.status);
    end
  end

`ifndef SYNTHESIS
  a_pixels_wait: assert property (@(posedge clk_i) disable iff (!rst_ni)
      m_axis_pixels_tvalid && !m_axis_pixels_tready |=>
      m_axis_pixels_tvalid && $stable(m_axis_pixels_tdata) && $stable(m_axis_pixels_tkeep) &&
      $stable(m_axis_pixels_tuser) && $stable(m_axis_pixels_tlast));
`endif

endmodule
