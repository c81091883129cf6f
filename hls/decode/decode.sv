// Decode: one JPEG file to RGB pixels, bit-exact to OpenCV. See decode.hpp for what it takes and
// refuses.
//
//   words -> jpeg_parser -> tokens -> entropy_decoder     -> coefficients
//                                  -> progressive_decoder ->
//   coefficients -> transform -> samples -> render -> frame, beats
//
// A file of several scans, progressive or not, goes by progressive_decoder, which needs a workspace
// in memory.
//
// Interface   `start_i` with `jpeg_bytes_i`, stable until `busy_o` falls; words of the file, byte 0
//             in bits 7..0, of which it may leave some; byte_reader says how `word_end_i` ends a
//             file of unknown length. Out come one frame_t and its source beats, see
//             headrace_pkg.sv. `busy_o` falls when all of that has left and no more words are
//             wanted. `sized_o` rises when the frame header has been read, and stands until the
//             next start; nothing is decoded before `window_valid_i`. The beats are those of the
//             window, see render. What lies behind the last MCU row that they need is not looked
//             at; blocks beside it are not transformed, see block_window.
// Workspace   `workspace_bytes_i` from `workspace_i` on, which is 128-byte aligned, stable as
//             `jpeg_bytes_i` is; with 0 bytes files of several scans are refused.
//             `workspace_needed_o` says how many bytes the file needs, 0 for one of one scan, from
//             before its frame until the next start. It is read and written over AXI4, whose
//             readers and writers take data and answers as they come. Start only while
//             `workspace_idle_o`: after a reset reads may be under way.
// Throughput  one Huffman symbol a clock or two, SourcePixels a clock behind it; the row memories
//             let the one run ahead of the other by as many MCU rows as fit, so that an image takes
//             about the longer of the two.
// Latency     headers at one byte a clock, the first MCU row's symbols, then about 60 clocks to the
//             first pixels.
// Bad input   ends in one of the status codes 1 to 14, in a number of clocks bounded by the file's
//             and the image's size.
module decode
  import headrace_pkg::*;
  import config_pkg::Progressive;
  import progressive_pkg::BlockBits;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  logic           start_i,
  input  logic [31:0]    jpeg_bytes_i,
  input  logic [63:0]    workspace_i,
  input  logic [31:0]    workspace_bytes_i,
  output logic [31:0]    workspace_needed_o,
  output logic           workspace_idle_o,
  output logic           busy_o,
  output decode_events_t events_o,

  input  logic [127:0]   word_i,
  input  logic           word_end_i,
  input  logic [4:0]     word_bytes_i,
  input  logic           word_valid_i,
  output logic           word_ready_o,

  output logic [15:0]    width_o,
  output logic [15:0]    height_o,
  output logic           sized_o,
  input  window_t        window_i,
  input  logic           window_valid_i,

  output frame_t         frame_o,
  output logic           frame_valid_o,
  input  logic           frame_ready_i,

  output source_beat_t   beat_o,
  output logic           beat_valid_o,
  input  logic           beat_ready_i,

  output logic [63:0]    araddr_o,
  output logic [7:0]     arlen_o,
  output logic           arvalid_o,
  input  logic           arready_i,
  input  logic [127:0]   rdata_i,
  input  logic [1:0]     rresp_i,
  input  logic           rlast_i,
  input  logic           rvalid_i,
  output logic [63:0]    awaddr_o,
  output logic [7:0]     awlen_o,
  output logic           awvalid_o,
  input  logic           awready_i,
  output logic [127:0]   wdata_o,
  output logic [15:0]    wstrb_o,
  output logic           wlast_o,
  output logic           wvalid_o,
  input  logic           wready_i,
  input  logic [1:0]     bresp_i,
  input  logic           bvalid_i
);

  localparam int unsigned TokenDepth = 32;

  logic           parser_busy, entropy_busy, bands_busy, rendering_q, several, stop;
  logic           quant_we, quant_latch;
  logic [1:0]     quant_table, quant_component;
  logic [5:0]     quant_index;
  logic [15:0]    quant_value;
  huffman_write_t huffman;
  huffman_write_t parsed_huffman;
  logic           parsed_huffman_valid, parsed_huffman_ready;
  logic           huffman_valid, huffman_ready, entropy_huffman_ready, bands_huffman_ready;
  entropy_scan_t  scan;
  band_scan_t     band;
  logic [BlockBits-1:0] mcus;
  logic           scan_valid, scan_ready, entropy_scan_ready, bands_scan_ready, render_scan_ready;
  token_t         parsed_token, oldest_token, token;
  logic           parsed_valid, parsed_ready, oldest_valid, oldest_ready;
  logic           token_valid, token_ready, entropy_token_ready, bands_token_ready;
  coefficient_t   coefficient, entropy_coefficient, bands_coefficient;
  logic           coefficient_valid, coefficient_ready, entropy_coefficient_valid,
                  bands_coefficient_valid;
  samples_t       samples;
  logic           samples_valid, samples_ready;

  jpeg_parser u_parser (
    .clk_i, .rst_ni,
    .start_i, .jpeg_bytes_i, .workspace_bytes_i, .workspace_needed_o,
    .mcus_o           (mcus),
    .busy_o           (parser_busy),
    .header_o         (events_o.header),
    .sized_o,
    .stop_i           (stop),
    .word_i, .word_end_i, .word_bytes_i, .word_valid_i, .word_ready_o,
    .quant_we_o       (quant_we),
    .quant_latch_o    (quant_latch),
    .quant_table_o    (quant_table),
    .quant_component_o(quant_component),
    .quant_index_o    (quant_index),
    .quant_value_o    (quant_value),
    .huffman_o        (parsed_huffman),
    .huffman_valid_o  (parsed_huffman_valid),
    .huffman_ready_i  (parsed_huffman_ready),
    .huffman_drained_i(huffman_ready && !huffman_valid),
    .scan_o           (scan),
    .band_o           (band),
    .several_o        (several),
    .scan_valid_o     (scan_valid),
    .scan_ready_i     (scan_ready),
    .token_o          (parsed_token),
    .token_valid_o    (parsed_valid),
    .token_ready_i    (parsed_ready)
  );

  // ---- Whose the scan is ----
  // The first one goes to a decoder and to render, in one clock; to render only if there will be
  // pixels. If it shows that there are several, progressive_decoder has it and all that follow.
  // Tables are written before that is known. The parser shows a scan a clock before it is valid.
  logic to_bands_q, for_render_q;
  logic bands_q;  // this file is progressive_decoder's
  assign scan_ready = (to_bands_q ? bands_scan_ready : entropy_scan_ready) &&
                      (render_scan_ready || !for_render_q);

  always_ff @(posedge clk_i) begin
    if (!rst_ni || start_i) bands_q <= 1'b0;
    else if (scan_valid && scan_ready) bands_q <= to_bands_q;
    to_bands_q   <= bands_q || (several && scan.status == StatusOk);
    for_render_q <= !bands_q && scan.status == StatusOk;
  end

  assign huffman_ready     = entropy_huffman_ready && bands_huffman_ready;
  // Who has no scan takes no tokens.
  assign token_ready       = bands_token_ready || entropy_token_ready;
  assign coefficient       = bands_q ? bands_coefficient : entropy_coefficient;
  assign coefficient_valid = bands_q ? bands_coefficient_valid : entropy_coefficient_valid;

  stream_register #(
    .Width($bits(huffman_write_t))
  ) u_huffman (
    .clk_i, .rst_ni,
    .data_i (parsed_huffman),
    .valid_i(parsed_huffman_valid),
    .ready_o(parsed_huffman_ready),
    .data_o (huffman),
    .valid_o(huffman_valid),
    .ready_i(huffman_ready)
  );

  stream_fifo #(
    .Width($bits(token_t)),
    .Depth(TokenDepth)
  ) u_tokens (
    .clk_i, .rst_ni,
    .data_i (parsed_token),
    .valid_i(parsed_valid),
    .ready_o(parsed_ready),
    .data_o (oldest_token),
    .valid_o(oldest_valid),
    .ready_i(oldest_ready),
    .count_o()
  );

  stream_register #(
    .Width($bits(token_t))
  ) u_token (
    .clk_i, .rst_ni,
    .data_i (oldest_token),
    .valid_i(oldest_valid),
    .ready_o(oldest_ready),
    .data_o (token),
    .valid_o(token_valid),
    .ready_i(token_ready)
  );

  logic entropy_symbol, entropy_second, entropy_waits, entropy_is_held;
  logic bands_symbol, bands_wait, bands_are_held;
  always_ff @(posedge clk_i) begin
    events_o.symbol         <= entropy_symbol || bands_symbol;
    events_o.second         <= entropy_second;
    events_o.wait_data      <= entropy_waits || bands_wait;
    events_o.wait_transform <= entropy_is_held || bands_are_held;
  end

  entropy_decoder u_entropy (
    .clk_i, .rst_ni,
    .huffman_i          (huffman),
    .huffman_valid_i    (huffman_valid && huffman_ready),
    .huffman_ready_o    (entropy_huffman_ready),
    .scan_i             (scan),
    .scan_valid_i       (scan_valid && scan_ready && !to_bands_q),
    .scan_ready_o       (entropy_scan_ready),
    .window_i, .window_valid_i,
    .token_i            (token),
    .token_valid_i      (token_valid),
    .token_ready_o      (entropy_token_ready),
    .coefficient_o      (entropy_coefficient),
    .coefficient_valid_o(entropy_coefficient_valid),
    .coefficient_ready_i(coefficient_ready),
    .stop_o             (stop),
    .busy_o             (entropy_busy),
    .symbol_o           (entropy_symbol),
    .second_o           (entropy_second),
    .wait_data_o        (entropy_waits),
    .wait_transform_o   (entropy_is_held)
  );

  // ---- Files of several scans ----
  logic reads_idle;

  if (Progressive) begin : gen_bands
    logic arvalid, arready, rvalid;

    progressive_decoder u_bands (
      .clk_i, .rst_ni,
      .workspace_i,
      .huffman_i          (huffman),
      .huffman_valid_i    (huffman_valid && huffman_ready),
      .huffman_ready_o    (bands_huffman_ready),
      .mcus_i             (mcus),
      .scan_i             (band),
      .scan_valid_i       (scan_valid && scan_ready && to_bands_q),
      .scan_ready_o       (bands_scan_ready),
      .window_i, .window_valid_i,
      .token_i            (token),
      .token_valid_i      (token_valid),
      .token_ready_o      (bands_token_ready),
      .coefficient_o      (bands_coefficient),
      .coefficient_valid_o(bands_coefficient_valid),
      .coefficient_ready_i(coefficient_ready),
      .busy_o             (bands_busy),
      .symbol_o           (bands_symbol),
      .wait_data_o        (bands_wait),
      .wait_transform_o   (bands_are_held),
      .araddr_o, .arlen_o,
      .arsize_o           (),
      .arburst_o          (),
      .arvalid_o          (arvalid),
      .arready_i          (arready),
      .rdata_i, .rresp_i,
      .rvalid_i           (rvalid),
      .rready_o           (),
      .awaddr_o, .awlen_o,
      .awsize_o           (),
      .awburst_o          (),
      .awvalid_o, .awready_i,
      .wdata_o, .wstrb_o, .wlast_o, .wvalid_o, .wready_i,
      .bresp_i, .bvalid_i,
      .bready_o           ()
    );

    axi_read_rest u_reads (
      .clk_i, .rst_ni,
      .idle_o   (reads_idle),
      .arvalid_i(arvalid),
      .arready_o(arready),
      .rvalid_o (rvalid),
      .arvalid_o, .arready_i, .rvalid_i, .rlast_i
    );
  end else begin : gen_no_bands
    assign reads_idle              = 1'b1;
    assign bands_busy              = 1'b0;
    assign bands_huffman_ready     = 1'b1;
    assign bands_scan_ready        = 1'b0;
    assign bands_token_ready       = 1'b0;
    assign bands_coefficient       = '0;
    assign bands_coefficient_valid = 1'b0;
    assign bands_symbol            = 1'b0;
    assign bands_wait              = 1'b0;
    assign bands_are_held          = 1'b0;
    assign {araddr_o, arlen_o, arvalid_o} = '0;
    assign {awaddr_o, awlen_o, awvalid_o} = '0;
    assign {wdata_o, wstrb_o, wlast_o, wvalid_o} = '0;
  end

  assign workspace_idle_o = reads_idle && !bands_busy;

  // ---- Pixels ----
  logic next_block, block_wanted;

  block_window u_window (
    .clk_i, .rst_ni,
    .scan_i      (scan.scan),
    .scan_valid_i(scan_valid && scan_ready && for_render_q),
    .window_i, .window_valid_i,
    .next_i      (next_block),
    .wanted_o    (block_wanted)
  );

  transform u_transform (
    .clk_i, .rst_ni,
    .quant_we_i         (quant_we),
    .quant_latch_i      (quant_latch),
    .quant_table_i      (quant_table),
    .quant_component_i  (quant_component),
    .quant_index_i      (quant_index),
    .quant_value_i      (quant_value),
    .by_component_i     (bands_q),
    .coefficient_i      (coefficient),
    .coefficient_valid_i(coefficient_valid),
    .coefficient_ready_o(coefficient_ready),
    .wanted_i           (block_wanted),
    .next_o             (next_block),
    .samples_o          (samples),
    .samples_valid_o    (samples_valid),
    .samples_ready_i    (samples_ready)
  );

  render u_render (
    .clk_i, .rst_ni,
    .scan_i         (scan.scan),
    .scan_valid_i   (scan_valid && scan_ready && for_render_q),
    .scan_ready_o   (render_scan_ready),
    .window_i, .window_valid_i,
    .samples_i      (samples),
    .samples_valid_i(samples_valid),
    .samples_ready_o(samples_ready),
    .frame_o, .frame_valid_o, .frame_ready_i,
    .beat_o, .beat_valid_o, .beat_ready_i,
    .wait_rows_o    (events_o.wait_rows),
    .wait_output_o  (events_o.wait_output)
  );

  assign width_o  = scan.scan.width;
  assign height_o = scan.scan.height;

  // From the start until the frame with an error or the last beat has left.
  logic frame_failed, last_beat;
  assign frame_failed = frame_valid_o && frame_ready_i && frame_o.status != StatusOk;
  assign last_beat    = beat_valid_o && beat_ready_i && beat_o.last;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) rendering_q <= 1'b0;
    else if (start_i) rendering_q <= 1'b1;
    else if (frame_failed || last_beat) rendering_q <= 1'b0;
  end
`ifndef SYNTHESIS
  a_one_takes_tokens: assert property (@(posedge clk_i) disable iff (!rst_ni)
      !(bands_q ? entropy_token_ready : bands_token_ready));
  a_shown_a_clock_ahead: assert property (@(posedge clk_i) disable iff (!rst_ni || start_i)
      scan_valid |-> to_bands_q == (bands_q || (several && scan.status == StatusOk)) &&
                     for_render_q == (!bands_q && scan.status == StatusOk));
`endif

  assign busy_o = parser_busy || entropy_busy || bands_busy || rendering_q;

endmodule
