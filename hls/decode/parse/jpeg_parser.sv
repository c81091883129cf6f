// The file's bytes to headers, tables and entropy-coded data.
//
//   words -> byte_reader -> marker_machine
//                        -> frame_header, quant_definition, huffman_definition,
//                           application_segment, scan_header -> scan_check, progression
//                        -> entropy_data -> tokens
//
// Reference   T.81 annex B; the C++ (jpeg_parser.cpp) check by check, in its order.
// Interface   `start_i` with `jpeg_bytes_i`; then ceil(jpeg_bytes / 16) words, byte 0 in bits 7..0,
//             of which it takes as many as it needs, and up to three more: `busy_o` falls when it
//             wants none. Table writes while the headers are read, then a scan (with the status if
//             they are bad), then tokens. A file with all components in one sequential scan ends
//             with TokenFileEnd. One of several scans, `several_o` from its first scan on, repeats
//             tables, scan and tokens up to TokenScanEnd until a scan with `file_end` or a status.
//             Both kinds of scan header stand side by side. Quantisation tables are written in the
//             file's order, which is zigzag; where there are several scans, a component keeps the
//             one that it has at its first: `quant_latch_o`, a value a clock.
// Throughput  headers one byte a clock, 16 where a segment is skipped; entropy-coded data two bytes
//             a clock, one next to 0xFF. Of several scans each takes one clock more for each
//             coefficient of its band, the first one of a component 64.
// Bad input   ends in a status, see marker_machine.
module jpeg_parser
  import headrace_pkg::*;
  import parse_pkg::*;
  import config_pkg::Progressive;
  import progressive_pkg::BlockBits;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  logic           start_i,
  input  logic [31:0]    jpeg_bytes_i,
  input  logic [31:0]    workspace_bytes_i,   // for coefficients; 0: several scans are not taken
  output logic [31:0]    workspace_needed_o,  // until the next start; 0 if none
  output logic [BlockBits-1:0] mcus_o,        // of a file of several scans, from its first scan on
  output logic           busy_o,
  output logic           header_o,  // reading the headers
  output logic           sized_o,   // the size in `scan_o` is that of the frame header
  input  logic           stop_i,    // no more of the file is wanted: only the tokens' end follows

  input  logic [127:0]   word_i,
  input  logic           word_end_i,          // see byte_reader
  input  logic [4:0]     word_bytes_i,
  input  logic           word_valid_i,
  output logic           word_ready_o,

  output logic           quant_we_o,
  output logic           quant_latch_o,       // the table's value becomes the component's
  output logic [1:0]     quant_table_o,
  output logic [1:0]     quant_component_o,
  output logic [5:0]     quant_index_o,
  output logic [15:0]    quant_value_o,

  output huffman_write_t huffman_o,
  output logic           huffman_valid_o,
  input  logic           huffman_ready_i,
  input  logic           huffman_drained_i,   // all of them are in the tables

  output entropy_scan_t  scan_o,
  output band_scan_t     band_o,
  output logic           several_o,
  output logic           scan_valid_o,
  input  logic           scan_ready_i,

  output token_t         token_o,
  output logic           token_valid_o,
  input  logic           token_ready_i
);

  logic workspace_q;  // there is one
  always_ff @(posedge clk_i) workspace_q <= Progressive && workspace_bytes_i != '0;

  // ---- Bytes ----
  logic [7:0] byte0, byte1;
  logic       byte0_ones, byte1_ones, byte0_rst, byte0_zero;
  logic       have_byte, single, ended;
  logic [4:0] left;
  logic       take, take_rest, data_take, data_take_two;

  byte_reader u_bytes (
    .clk_i, .rst_ni,
    .start_i, .jpeg_bytes_i,
    .busy_i     (busy_o),
    .word_i, .word_end_i, .word_bytes_i, .word_valid_i, .word_ready_o,
    .byte0_o    (byte0),
    .byte1_o    (byte1),
    .byte0_ones_o(byte0_ones),
    .byte1_ones_o(byte1_ones),
    .byte0_rst_o(byte0_rst),
    .byte0_zero_o(byte0_zero),
    .have_byte_o(have_byte),
    .single_o   (single),
    .left_o     (left),
    .ended_o    (ended),
    .take_i     (take || data_take),
    .take_two_i (data_take_two),
    .take_rest_i(take_rest)
  );

  // ---- Markers ----
  turn_t       turn, over;
  logic        segment_begins, empty, failed;
  logic [15:0] length;
  logic [7:0]  marker;
  request_t    frame_request, quant_request, huffman_request, application_request, scan_request;
  logic        frame_unfit, quant_bad, huffman_bad;
  logic        progressive, scanned;
  logic [15:0] restart_interval;
  logic        check, scan_bad, scan_missing;
  logic        progression_start, progression_done, sound, too_small, needed_known, file_end;
  status_e     status;
  logic        data_over, data_valid;
  logic [7:0]  data_marker;
  token_t      data;

  scan_t           frame;
  logic [2:0][7:0] id;
  logic [2:0][1:0] quant;
  logic [2:0]      quant_wide;
  logic [3:0]      quant_defined;
  logic [7:0]      huffman_defined;
  logic            jfif, adobe, rgb;
  logic [7:0]      adobe_transform;
  scan_header_t    header;
  logic            several;

  // One by one, as the OR of all requests would be a long path.
  assign over = '{frame:       frame_request.over,
                  quant:       quant_request.over,
                  huffman:     turn.huffman && huffman_request.over,
                  standard:    turn.standard && huffman_request.over,
                  application: application_request.over,
                  scan:        scan_request.over,
                  data:        1'b0};

  marker_machine u_markers (
    .clk_i, .rst_ni,
    .start_i, .stop_i,
    .workspace_i        (workspace_q),
    .busy_o, .header_o,
    .byte_i             (byte0),
    .have_byte_i        (have_byte),
    .ended_i            (ended),
    .left_i             (left),
    .take_o             (take),
    .take_rest_o        (take_rest),
    .turn_o             (turn),
    .begin_o            (segment_begins),
    .length_o           (length),
    .empty_o            (empty),
    .marker_o           (marker),
    .failed_o           (failed),
    .request_i          (frame_request | quant_request | huffman_request | application_request |
                         scan_request),
    .over_i             (over),
    .frame_unfit_i      (frame_unfit),
    .tables_bad_i       (quant_bad || huffman_bad),
    .progressive_o      (progressive),
    .scanned_o          (scanned),
    .restart_interval_o (restart_interval),
    .several_i          (several_o),
    .check_o            (check),
    .scan_bad_i         (scan_bad),
    .scan_missing_i     (scan_missing),
    .standard_i         (header.standard != '0),
    .progression_o      (progression_start),
    .progression_done_i (progression_done),
    .progression_sound_i(sound),
    .too_small_i        (too_small),
    .needed_known_o     (needed_known),
    .status_o           (status),
    .file_end_o         (file_end),
    .huffman_drained_i, .scan_valid_o, .scan_ready_i,
    .data_over_i        (data_over),
    .data_marker_i      (data_marker),
    .data_i             (data),
    .data_valid_i       (data_valid),
    .token_o, .token_valid_o, .token_ready_i
  );

  // ---- Segments ----
  frame_header u_frame (
    .clk_i, .rst_ni, .start_i,
    .begin_i     (segment_begins),
    .turn_i      (turn.frame),
    .failed_i    (failed),
    .length_i    (length),
    .byte_i      (byte0),
    .have_byte_i (have_byte),
    .request_o   (frame_request),
    .unfit_o     (frame_unfit),
    .frame_o     (frame),
    .sized_o,
    .id_o        (id),
    .quant_o     (quant),
    .quant_wide_o(quant_wide)
  );

  logic [1:0] defined_table, sent_component;
  logic [5:0] defined_index, sent_index;

  quant_definition u_quant (
    .clk_i, .rst_ni, .start_i,
    .begin_i    (segment_begins),
    .turn_i     (turn.quant),
    .length_i   (length),
    .empty_i    (empty),
    .byte_i     (byte0),
    .have_byte_i(have_byte),
    .request_o  (quant_request),
    .bad_o      (quant_bad),
    .we_o       (quant_we_o),
    .table_o    (defined_table),
    .index_o    (defined_index),
    .value_o    (quant_value_o),
    .defined_o  (quant_defined)
  );

  assign quant_table_o     = quant_latch_o ? quant[sent_component] : defined_table;
  assign quant_component_o = sent_component;
  assign quant_index_o     = quant_latch_o ? sent_index : defined_index;

  huffman_definition u_huffman (
    .clk_i, .rst_ni, .start_i,
    .turn_i           (turn.huffman),
    .standard_i       (turn.standard),
    .standard_needed_i(header.standard),
    .length_i         (length),
    .empty_i          (empty),
    .byte_i           (byte0),
    .have_byte_i      (have_byte),
    .request_o        (huffman_request),
    .bad_o            (huffman_bad),
    .huffman_o, .huffman_valid_o, .huffman_ready_i,
    .defined_o        (huffman_defined)
  );

  application_segment u_application (
    .clk_i, .rst_ni, .start_i,
    .begin_i          (segment_begins),
    .turn_i           (turn.application),
    .app14_i          (marker == App14),
    .empty_i          (empty),
    .byte_i           (byte0),
    .have_byte_i      (have_byte),
    .request_o        (application_request),
    .jfif_o           (jfif),
    .adobe_o          (adobe),
    .adobe_transform_o(adobe_transform)
  );

  // ---- Scans ----
  scan_header u_scan (
    .clk_i, .rst_ni, .start_i,
    .begin_i          (segment_begins),
    .turn_i           (turn.scan),
    .length_i         (length),
    .byte_i           (byte0),
    .have_byte_i      (have_byte),
    .request_o        (scan_request),
    .workspace_i      (workspace_q),
    .progressive_i    (progressive),
    .scanned_i        (scanned),
    .color_i          (frame.color),
    .id_i             (id),
    .quant_i          (quant),
    .quant_wide_i     (quant_wide),
    .quant_defined_i  (quant_defined),
    .huffman_defined_i(huffman_defined),
    .header_o         (header),
    .several_o        (several)
  );

  scan_check u_check (
    .clk_i, .start_i,
    .check_i          (check),
    .header_i         (header),
    .progressive_i    (progressive),
    .scanned_i        (scanned),
    .color_i          (frame.color),
    .id_i             (id),
    .jfif_i           (jfif),
    .adobe_i          (adobe),
    .adobe_transform_i(adobe_transform),
    .bad_o            (scan_bad),
    .missing_o        (scan_missing),
    .rgb_o            (rgb)
  );

  logic [31:0] workspace_needed;

  if (Progressive) begin : gen_scans
    progression u_progression (
      .clk_i, .rst_ni,
      .clear_i     (start_i || failed),
      .start_i     (progression_start),
      .file_end_i  (file_end),
      .color_i     (frame.color),
      .members_i   (header.members),
      .band_first_i(header.first),
      .band_last_i (header.last),
      .high_i      (header.high),
      .low_i       (header.low),
      .done_o      (progression_done),
      .sound_o     (sound),
      .first_o     (quant_latch_o),
      .component_o (sent_component),
      .index_o     (sent_index)
    );

    // The first scan is that of a component, of which all coefficients are noted: time enough for
    // the size.
    workspace_size u_workspace (
      .clk_i,
      .start_i    (check && !scanned),
      .scan_i     (scan_o.scan),
      .workspace_bytes_i,
      .mcus_o,
      .needed_o   (workspace_needed),
      .too_small_o(too_small)
    );
    assign several_o = several;
  end else begin : gen_scan
    assign progression_done = 1'b1;
    assign sound            = 1'b1;
    assign quant_latch_o    = 1'b0;
    assign sent_component   = '0;
    assign sent_index       = '0;
    assign workspace_needed = '0;
    assign too_small        = 1'b0;
    assign mcus_o           = '0;
    assign several_o        = 1'b0;
  end

  assign workspace_needed_o = needed_known ? workspace_needed : '0;

  always_comb begin
    scan_o          = '{status: status, scan: frame, restart_interval: restart_interval,
                        dc: header.dc, ac: header.ac, quant: quant};
    scan_o.scan.rgb = rgb;
    band_o          = '{status: status, file_end: file_end, scan: scan_o.scan,
                        restart_interval: restart_interval, progressive: progressive,
                        members: header.members, first: header.first, last: header.last,
                        high: header.high, low: header.low, dc: header.dc, ac: header.ac};
  end

  // ---- Entropy-coded data ----
  entropy_data u_data (
    .clk_i,
    .turn_i       (turn.data),
    .byte0_i      (byte0),
    .byte1_i      (byte1),
    .byte0_ones_i (byte0_ones),
    .byte1_ones_i (byte1_ones),
    .byte0_rst_i  (byte0_rst),
    .byte0_zero_i (byte0_zero),
    .have_byte_i  (have_byte),
    .single_i     (single),
    .ended_i      (ended),
    .take_o       (data_take),
    .take_two_o   (data_take_two),
    .token_o      (data),
    .token_valid_o(data_valid),
    .token_ready_i,
    .over_o       (data_over),
    .marker_o     (data_marker)
  );

endmodule
