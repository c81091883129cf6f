// The file's bytes to headers, tables and entropy-coded data.
//
// Reference   T.81 annex B; the C++ (jpeg_parser.cpp) check by check, in its order.
// Interface   `start_i` with `jpeg_bytes_i`; then ceil(jpeg_bytes / 16) words, byte 0 in bits 7..0, of which it takes as
//             many as it needs, and up to two more: `busy_o` falls when it wants none. Table writes while the headers are
//             read, then a scan (with the status if they are bad), then tokens. A file with all components in one sequential
//             scan ends with TokenFileEnd. One of several scans, `several_o` from its first scan on, repeats tables, scan
//             and tokens up to TokenScanEnd until a scan with `file_end` or a status. Both kinds of scan header stand side by
//             side. Quantisation tables are written in the file's order, which is zigzag; where there are several scans, a
//             component keeps the one that it has at its first: `quant_latch_o`, a value a clock.
// Throughput  headers one byte a clock, 16 where a segment is skipped (Exif and the like may be longer than the image);
//             entropy-coded data two bytes a clock, one next to 0xFF. Of several scans each takes one clock more for each
//             coefficient of its band, the first one of a component 64.
// Bad input   ends in a status. The end of the file is looked for before each byte; every state leaves on it.
module jpeg_parser
  import headrace_pkg::*;
  import progressive_pkg::BlockBits;
(
  input  logic           clk_i,
  input  logic           rst_ni,

  input  logic           start_i,
  input  logic [31:0]    jpeg_bytes_i,
  input  logic [31:0]    workspace_bytes_i,   // that there are for coefficients; 0: files of several scans are not taken
  output logic [31:0]    workspace_needed_o,  // until the next start; 0 if none
  output logic [BlockBits-1:0] mcus_o,        // of a file of several scans, from its first scan on
  output logic           busy_o,
  output logic           header_o,  // reading the headers
  output logic           sized_o,   // the size in `scan_o` is that of the frame header, until the next start
  input  logic           stop_i,    // no more of the file is wanted: what follows are the tokens' end and nothing else

  input  logic [127:0]   word_i,
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
  input  logic           huffman_drained_i,  // all of them are in the tables

  output entropy_scan_t  scan_o,
  output band_scan_t     band_o,
  output logic           several_o,
  output logic           scan_valid_o,
  input  logic           scan_ready_i,

  output token_t         token_o,
  output logic           token_valid_o,
  input  logic           token_ready_i
);

  // Markers (second bytes).
  localparam logic [7:0] Tem = 8'h01, Sof0 = 8'hC0, Sof1 = 8'hC1, Sof2 = 8'hC2, Sof3 = 8'hC3, Dht = 8'hC4, Jpg = 8'hC8,
                         Sof9 = 8'hC9, Dac = 8'hCC, Sof15 = 8'hCF, Rst0 = 8'hD0, Rst7 = 8'hD7, Soi = 8'hD8,
                         Eoi = 8'hD9, Sos = 8'hDA, Dqt = 8'hDB, Dnl = 8'hDC, Dri = 8'hDD, Dhp = 8'hDE,
                         App0 = 8'hE0, App14 = 8'hEE, App15 = 8'hEF, Com = 8'hFE;

  // The upper bit says that a byte is taken as soon as there is one, whatever it is: the shortest way from a state to the
  // words.
  typedef enum logic [5:0] {
    StIdle = 6'd0,
    StSegment,
    StSkip,
    StFrameCheck,
    StQuantSelect,
    StHuffmanSelect, StHuffmanCount, StHuffmanCheck, StHuffmanLength, StHuffmanSymbol,  // DHT,
    StStandard,                                  // in its place: picks a table of the standard
    StApplication, StApplicationEnd,             // APP0, APP14
    StScanCheck, StFileEnd,
    StProgression, StScanStatus,                 // of several scans: whether this one goes on from those before
    StHeaders,                                   // tells what the headers say
    StData,                                      // entropy-coded data
    StDataStatus, StFileStatus,                  // tokens at its end and at the file's

    StSoi0 = 6'd32, StSoi1, StSoi2,              // 0xFF, SOI, 0xFF
    StMarker0, StMarker,                         // to 0xFF; fill bytes and the marker
    StLength0, StLength1,
    StFrame, StFrameComponent,                   // SOF
    StQuantHigh, StQuantLow,                     // DQT
    StRestart0, StRestart1,                      // DRI
    StScanCount, StScanId, StScanTables, StScanFirst, StScanLast, StScanBits  // SOS
  } state_e;
  state_e state_d, state_q;

  // ---- Words ----
  // No path goes through here to where the words come from.
  logic [127:0] word;
  logic         word_valid, load, room;

  assign word_ready_o = room && state_q != StIdle;

  stream_register #(
    .Width(128)
  ) u_word (
    .clk_i,
    .rst_ni (rst_ni && !start_i),
    .data_i (word_i),
    .valid_i(word_valid_i && state_q != StIdle),
    .ready_o(room),
    .data_o (word),
    .valid_o(word_valid),
    .ready_i(load)
  );

  // ---- Bytes ----
  // The rest of the current word, next byte in bits 7..0.
  logic [127:0] word_q;
  logic [4:0]   left_q;        // bytes of it: in have_byte whether there are any, in single_q whether there is one
  logic         single_q;
  logic [28:0]  words_q;       // words after it
  logic [4:0]   final_bytes_q; // bytes in the last word
  logic         last_word_q;   // words_q == 1
  logic         no_words_q;    // words_q == 0
  logic [7:0]   byte0, byte1;
  logic         have_byte, ended;
  logic         wants;                         // a byte: without one the file is too short
  logic         take, take_two, take_rest;     // bytes taken in this clock, if there are any: one, two, all that are left
  logic         one, two, rest;                // are taken
  logic         used_up;

  assign byte0     = word_q[7:0];
  assign byte1     = word_q[15:8];
  assign ended     = !have_byte && no_words_q;
  assign one       = take && have_byte;
  assign two       = take_two && have_byte;
  assign rest      = take_rest && have_byte;
  assign used_up   = !have_byte || rest || (two && left_q == 5'd2) || (one && single_q);
  assign load      = word_valid && used_up;

  always_ff @(posedge clk_i) begin
    if (load) word_q <= word;
    else if (two) word_q <= {word_q[127:112], word_q[127:16]};  // above the last byte stands anything
    else if (one) word_q <= {word_q[127:120], word_q[127:8]};

    if (start_i) begin
      left_q        <= '0;
      have_byte     <= 1'b0;
      single_q      <= 1'b0;
      words_q       <= {1'b0, jpeg_bytes_i[31:4]} + 29'(|jpeg_bytes_i[3:0]);
      final_bytes_q <= jpeg_bytes_i[3:0] == '0 ? 5'd16 : {1'b0, jpeg_bytes_i[3:0]};
      last_word_q   <= jpeg_bytes_i <= 32'd16;
      no_words_q    <= jpeg_bytes_i == '0;
    end else if (load) begin
      left_q      <= last_word_q ? final_bytes_q : 5'd16;
      have_byte   <= 1'b1;
      single_q    <= last_word_q && final_bytes_q == 5'd1;
      words_q     <= words_q - 1'b1;
      last_word_q <= words_q == 29'd2;
      no_words_q  <= last_word_q;
    end else if (rest) begin
      left_q    <= '0;
      have_byte <= 1'b0;
      single_q  <= 1'b0;
    end else if (two) begin
      left_q    <= left_q - 5'd2;
      have_byte <= left_q != 5'd2;
      single_q  <= left_q == 5'd3;
    end else if (one) begin
      left_q    <= left_q - 5'd1;
      have_byte <= !single_q;
      single_q  <= left_q == 5'd2;
    end
  end

  // ---- What the headers say ----
  entropy_scan_t scan_d, scan_q;
  logic        progressive_d, progressive_q;
  logic        several_d, several_q;     // the frame is progressive, or the first scan lacks a component
  logic        workspace_q;              // there is one
  logic [7:0]  scans_d, scans_q;         // so far
  logic [7:0]  marker_d, marker_q;
  logic        parameterless_q, other_segment_q, frame_marker_q;  // what it is
  status_e     frame_type_q;
  logic [7:0]  high_d, high_q;           // the first byte of a pair
  logic [15:0] length_q;                 // bytes of the segment that are left; may wrap below 0 in DQT
  logic        negative_d, negative_q;   // it has
  logic        skipping_q, far_q;        // in StSkip for a clock; length_q was 32 or more then
  logic        length_begins;            // it is {high_q, byte0}
  logic [8:0]  length_less;              // than that, or than it was
  logic [15:0] next_length;
  logic        frame_seen_d, frame_seen_q;
  logic [2:0][7:0] id_d, id_q;
  logic [2:0]  quant_wide_d, quant_wide_q;  // the component's table number is above 3
  logic [3:0]  quant_defined_d, quant_defined_q;
  logic [7:0]  huffman_defined_d, huffman_defined_q;  // DC 0 to 3, AC 0 to 3
  logic        jfif_d, jfif_q, adobe_d, adobe_q;
  logic [7:0]  adobe_transform_d, adobe_transform_q;
  logic        scanned_d, scanned_q;     // after the first scan
  logic        trailer;                  // after the only one
  logic        sized_d, sized_q;         // workspace_needed_o is known

  // Of a scan.
  logic [2:0]  members_d, members_q;     // a bit for each component
  logic [5:0]  first_d, first_q;         // band of coefficients, in zigzag order
  logic [5:0]  last_d, last_q;
  logic [3:0]  high_bit_d, high_bit_q;   // successive approximation
  logic [3:0]  low_bit_d, low_bit_q;
  logic        beyond_d, beyond_q;       // the band is wider than a block
  logic        file_end_d, file_end_q;   // it is none: EOI

  // Scratch of the segment being read.
  logic [5:0]  step_d, step_q;           // byte or entry within it
  logic [1:0]  component_d, component_q;
  logic        wide_d, wide_q, ac_d, ac_q;
  logic [1:0]  number_d, number_q;       // of the table
  logic        match_d, match_q;         // an APPn: the name so far is the one looked for
  logic        no_quant_d, no_quant_q;   // SOS: a table is not defined,
  logic [1:0]  missing_d, missing_q;     // nor the standard's can be taken: DC, AC
  logic        wide_quant_d, wide_quant_q;  // a table's number is above 3,
  logic [1:0]  wide_table_d, wide_table_q;  // DC, AC
  logic [3:0]  standard_d, standard_q;   // tables of the standard that the scan uses: DC 0, 1, AC 0, 1
  logic        from_rom_d, from_rom_q;   // a table comes from the ROM
  logic [16:0] code_d, code_q;           // next free code of the length before
  logic        coded_d, coded_q;         // it had codes
  logic        framed_d, framed_q;       // all factors of three components are known
  logic        checked_q, too_many_q;    // the counts are known; symbols, for the standard or the segment
  logic [8:0]  symbols_d, symbols_q;     // symbols counted; then those still to come
  logic [7:0]  index_d, index_q;         // of the next symbol
  logic [4:0]  code_length_d, code_length_q;
  logic [7:0]  count_left_d, count_left_q;
  logic        escaped_d, escaped_q;     // entropy-coded data: the byte before was 0xFF
  logic        filled_d, filled_q;       // and so was the one before that
  status_e     status_d, status_q;

  // The Huffman tables 0 (luma) and 1 (chroma) where the file has none, as in Motion JPEG: T.81 tables K.3 to K.6. From
  // 0 on the symbols of the AC table, from 0xB0 the counts of its codes of 1 to 16 bits, from 0xC0 those of the DC
  // table, whose symbols are 0, 1, 2 and on. Read into a register: a byte takes two clocks.
  localparam logic [7:0] StandardTables[2][208] = '{
    '{
      8'h01, 8'h02, 8'h03, 8'h00, 8'h04, 8'h11, 8'h05, 8'h12, 8'h21, 8'h31, 8'h41, 8'h06, 8'h13, 8'h51, 8'h61, 8'h07,
      8'h22, 8'h71, 8'h14, 8'h32, 8'h81, 8'h91, 8'hA1, 8'h08, 8'h23, 8'h42, 8'hB1, 8'hC1, 8'h15, 8'h52, 8'hD1, 8'hF0,
      8'h24, 8'h33, 8'h62, 8'h72, 8'h82, 8'h09, 8'h0A, 8'h16, 8'h17, 8'h18, 8'h19, 8'h1A, 8'h25, 8'h26, 8'h27, 8'h28,
      8'h29, 8'h2A, 8'h34, 8'h35, 8'h36, 8'h37, 8'h38, 8'h39, 8'h3A, 8'h43, 8'h44, 8'h45, 8'h46, 8'h47, 8'h48, 8'h49,
      8'h4A, 8'h53, 8'h54, 8'h55, 8'h56, 8'h57, 8'h58, 8'h59, 8'h5A, 8'h63, 8'h64, 8'h65, 8'h66, 8'h67, 8'h68, 8'h69,
      8'h6A, 8'h73, 8'h74, 8'h75, 8'h76, 8'h77, 8'h78, 8'h79, 8'h7A, 8'h83, 8'h84, 8'h85, 8'h86, 8'h87, 8'h88, 8'h89,
      8'h8A, 8'h92, 8'h93, 8'h94, 8'h95, 8'h96, 8'h97, 8'h98, 8'h99, 8'h9A, 8'hA2, 8'hA3, 8'hA4, 8'hA5, 8'hA6, 8'hA7,
      8'hA8, 8'hA9, 8'hAA, 8'hB2, 8'hB3, 8'hB4, 8'hB5, 8'hB6, 8'hB7, 8'hB8, 8'hB9, 8'hBA, 8'hC2, 8'hC3, 8'hC4, 8'hC5,
      8'hC6, 8'hC7, 8'hC8, 8'hC9, 8'hCA, 8'hD2, 8'hD3, 8'hD4, 8'hD5, 8'hD6, 8'hD7, 8'hD8, 8'hD9, 8'hDA, 8'hE1, 8'hE2,
      8'hE3, 8'hE4, 8'hE5, 8'hE6, 8'hE7, 8'hE8, 8'hE9, 8'hEA, 8'hF1, 8'hF2, 8'hF3, 8'hF4, 8'hF5, 8'hF6, 8'hF7, 8'hF8,
      8'hF9, 8'hFA, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00,
      8'h00, 8'h02, 8'h01, 8'h03, 8'h03, 8'h02, 8'h04, 8'h03, 8'h05, 8'h05, 8'h04, 8'h04, 8'h00, 8'h00, 8'h01, 8'h7D,
      8'h00, 8'h01, 8'h05, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00
    },
    '{
      8'h00, 8'h01, 8'h02, 8'h03, 8'h11, 8'h04, 8'h05, 8'h21, 8'h31, 8'h06, 8'h12, 8'h41, 8'h51, 8'h07, 8'h61, 8'h71,
      8'h13, 8'h22, 8'h32, 8'h81, 8'h08, 8'h14, 8'h42, 8'h91, 8'hA1, 8'hB1, 8'hC1, 8'h09, 8'h23, 8'h33, 8'h52, 8'hF0,
      8'h15, 8'h62, 8'h72, 8'hD1, 8'h0A, 8'h16, 8'h24, 8'h34, 8'hE1, 8'h25, 8'hF1, 8'h17, 8'h18, 8'h19, 8'h1A, 8'h26,
      8'h27, 8'h28, 8'h29, 8'h2A, 8'h35, 8'h36, 8'h37, 8'h38, 8'h39, 8'h3A, 8'h43, 8'h44, 8'h45, 8'h46, 8'h47, 8'h48,
      8'h49, 8'h4A, 8'h53, 8'h54, 8'h55, 8'h56, 8'h57, 8'h58, 8'h59, 8'h5A, 8'h63, 8'h64, 8'h65, 8'h66, 8'h67, 8'h68,
      8'h69, 8'h6A, 8'h73, 8'h74, 8'h75, 8'h76, 8'h77, 8'h78, 8'h79, 8'h7A, 8'h82, 8'h83, 8'h84, 8'h85, 8'h86, 8'h87,
      8'h88, 8'h89, 8'h8A, 8'h92, 8'h93, 8'h94, 8'h95, 8'h96, 8'h97, 8'h98, 8'h99, 8'h9A, 8'hA2, 8'hA3, 8'hA4, 8'hA5,
      8'hA6, 8'hA7, 8'hA8, 8'hA9, 8'hAA, 8'hB2, 8'hB3, 8'hB4, 8'hB5, 8'hB6, 8'hB7, 8'hB8, 8'hB9, 8'hBA, 8'hC2, 8'hC3,
      8'hC4, 8'hC5, 8'hC6, 8'hC7, 8'hC8, 8'hC9, 8'hCA, 8'hD2, 8'hD3, 8'hD4, 8'hD5, 8'hD6, 8'hD7, 8'hD8, 8'hD9, 8'hDA,
      8'hE2, 8'hE3, 8'hE4, 8'hE5, 8'hE6, 8'hE7, 8'hE8, 8'hE9, 8'hEA, 8'hF2, 8'hF3, 8'hF4, 8'hF5, 8'hF6, 8'hF7, 8'hF8,
      8'hF9, 8'hFA, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00,
      8'h00, 8'h02, 8'h01, 8'h02, 8'h04, 8'h04, 8'h03, 8'h04, 8'h07, 8'h05, 8'h04, 8'h04, 8'h00, 8'h01, 8'h02, 8'h77,
      8'h00, 8'h03, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01, 8'h01, 8'h00, 8'h00, 8'h00, 8'h00, 8'h00
    }
  };
  logic [8:0] rom_at_d, rom_at_q;
  logic [7:0] rom_q;
  logic       rom_valid_q;  // rom_q is the next byte
  always_ff @(posedge clk_i) rom_q <= StandardTables[rom_at_q[8]][rom_at_q[7:0]];

  // What the states of DHT read.
  logic [7:0] table_byte;
  logic       have_table_byte;
  assign table_byte = from_rom_q ? rom_q : byte0;
  assign have_table_byte = from_rom_q ? rom_valid_q : have_byte;

  // How many codes each length has, for the symbols that follow.
  logic        count_we;
  (* ram_style = "distributed" *) logic [7:0] counts[16];
  always_ff @(posedge clk_i) if (count_we) counts[step_q[3:0]] <= table_byte;

  // A comparison without a carry chain, which takes longer to enter than these few bits take.
  function automatic logic at_least(logic [4:0] value, logic [4:0] limit);
    logic reached;
    reached = 1'b1;
    for (int unsigned i = 0; i < 5; i++) reached = value[i] == limit[i] ? reached : value[i];
    return reached;
  endfunction

  function automatic logic parameterless(logic [7:0] marker);
    return marker == Tem || (marker >= Rst0 && marker <= Rst7);
  endfunction

  function automatic logic other_segment(logic [7:0] marker);
    return (marker >= App0 && marker <= App15) || marker inside {Com, Dht, Dqt, Dri, Dnl};
  endfunction

  function automatic logic frame_marker(logic [7:0] marker);
    return marker >= Sof0 && marker <= Sof15 && marker != Dht && marker != Jpg;
  endfunction

  function automatic status_e frame_type_status(logic [7:0] marker, logic workspace);
    if (marker <= Sof1 || (marker == Sof2 && workspace)) return StatusOk;
    if (marker == Sof3) return StatusLossless;
    if (marker >= Sof9) return StatusArithmetic;
    return StatusProgressive;
  endfunction

  // The letters of "JFIF", 0 and of "Adobe".
  function automatic logic [7:0] letter(logic adobe, logic [2:0] place);
    unique case ({adobe, place})
      {1'b0, 3'd0}: return "J";
      {1'b0, 3'd1}: return "F";
      {1'b0, 3'd2}: return "I";
      {1'b0, 3'd3}: return "F";
      {1'b1, 3'd0}: return "A";
      {1'b1, 3'd1}: return "d";
      {1'b1, 3'd2}: return "o";
      {1'b1, 3'd3}: return "b";
      {1'b1, 3'd4}: return "e";
      default:      return 8'd0;
    endcase
  endfunction

  // Whether the sampling factors of three components go together: luma has the greatest; an MCU has at most ten blocks (T.81
  // B.2.3), so that eight of luma leave one each, and four, four and four are too many; two MCU rows fit the row memories,
  // which are made for two rows of blocks of luma and one of chroma as wide as it.
  logic       factors_fit, over_half, over_quarter;
  logic [1:0] four_blocks;
  assign over_half    = scan_q.scan.width > 16'(MaxWidth / 2);
  assign over_quarter = scan_q.scan.width > 16'(MaxWidth / 4);
  always_comb begin
    for (int unsigned c = 0; c < 2; c++) four_blocks[c] = scan_q.scan.chroma_h[c] + scan_q.scan.chroma_v[c] == 2'd2;
    factors_fit = four_blocks != 2'b11 && !(scan_q.scan.v_shift[1] && over_half);
    for (int unsigned c = 0; c < 2; c++) begin
      if (scan_q.scan.chroma_h[c] > scan_q.scan.h_shift) factors_fit = 1'b0;
      if (scan_q.scan.chroma_v[c] > scan_q.scan.v_shift) factors_fit = 1'b0;
      if (scan_q.scan.h_shift + scan_q.scan.v_shift == 2'd3 && {scan_q.scan.chroma_h[c], scan_q.scan.chroma_v[c]} != '0) begin
        factors_fit = 1'b0;
      end
      if (scan_q.scan.chroma_h[c] == scan_q.scan.h_shift &&
          ((scan_q.scan.chroma_v[c][0] && over_half) || (scan_q.scan.chroma_v[c][1] && over_quarter))) begin
        factors_fit = 1'b0;
      end
    end
  end

  logic [15:0] first_code;  // of this length
  logic [16:0] next_code;   // behind its codes
  logic [9:0]  next_symbols;
  logic        code_overflow;
  assign first_code    = {code_q[14:0], 1'b0};
  assign next_code     = {1'b0, first_code} + 17'(table_byte);
  assign next_symbols  = 10'(symbols_q) + 10'(table_byte);
  // The code of all ones is never assigned, so the next free code still has as many bits. Seen a clock later.
  assign code_overflow = coded_q && (code_q >> step_q[4:0]) != '0;

  assign next_length = (length_begins ? {high_q, byte0} : length_q) - 16'(length_less);

  // The headers end with `failure`. It acts a clock later, to keep paths short; what is done in between is lost.
  logic        fail, fail_q, tells_q;
  status_e     failure, failure_q;
  logic        next_segment;
  logic        next_byte;  // of a Huffman table, is taken

  // ---- Scans ----
  // T.81 B.2.3: the components of a scan stand in the order of the frame header.
  logic [2:0] same_id;   // components that the scan's next one can be
  always_comb begin
    for (int unsigned c = 0; c < 3; c++) begin
      same_id[c] = byte0 == id_q[c] && component_q <= 2'(c) && (c == 0 || scan_q.scan.color);
    end
  end

  // Whether the band and the bits are those of some scan; if they go on from what was sent before is another matter.
  logic band_exists, alone, needs_dc, needs_ac;
  assign alone    = members_q == 3'b001 || members_q == 3'b010 || members_q == 3'b100;
  assign needs_dc = first_q == '0 && high_bit_q == '0;
  assign needs_ac = last_q != '0;
  always_comb begin
    if (!progressive_q) begin
      band_exists = first_q == '0 && last_q == '1 && {high_bit_q, low_bit_q} == '0;
    end else begin
      band_exists = (first_q == '0 ? last_q == '0 : last_q >= first_q && alone) && low_bit_q <= 4'd13 &&
                    (high_bit_q == '0 || 5'(high_bit_q) == 5'(low_bit_q) + 5'd1);
    end
  end

  logic progression_start, progression_done, sound, too_small;
  logic [31:0] workspace_needed;
  logic [1:0] sent_component;
  logic [5:0] sent_index;

  assign progression_start = (state_q == StScanCheck && several_q) || state_q == StFileEnd;

  progression u_progression (
    .clk_i, .rst_ni,
    .clear_i     (start_i || fail_q),
    .start_i     (progression_start),
    .file_end_i  (file_end_q),
    .color_i     (scan_q.scan.color),
    .members_i   (members_q),
    .band_first_i(first_q),
    .band_last_i (last_q),
    .high_i      (high_bit_q),
    .low_i       (low_bit_q),
    .done_o      (progression_done),
    .sound_o     (sound),
    .first_o     (quant_latch_o),
    .component_o (sent_component),
    .index_o     (sent_index)
  );

  // The first scan is that of a component, of which all coefficients are noted: time enough for the size.
  workspace_size u_workspace (
    .clk_i,
    .start_i    (state_q == StScanCheck && !scanned_q),
    .scan_i     (scan_q.scan),
    .workspace_bytes_i,
    .mcus_o,
    .needed_o   (workspace_needed),
    .too_small_o(too_small)
  );

  assign trailer            = scanned_q && !several_q;
  assign several_o          = several_q;
  assign workspace_needed_o = sized_q ? workspace_needed : '0;

  always_comb begin
    state_d           = state_q;
    scan_d            = scan_q;
    marker_d          = marker_q;
    high_d            = high_q;
    negative_d        = negative_q;
    frame_seen_d      = frame_seen_q;
    id_d              = id_q;
    quant_wide_d      = quant_wide_q;
    quant_defined_d   = quant_defined_q;
    huffman_defined_d = huffman_defined_q;
    jfif_d            = jfif_q;
    adobe_d           = adobe_q;
    adobe_transform_d = adobe_transform_q;
    scanned_d         = scanned_q;
    step_d            = step_q;
    component_d       = component_q;
    wide_d            = wide_q;
    ac_d              = ac_q;
    number_d          = number_q;
    match_d           = match_q;
    no_quant_d        = no_quant_q;
    missing_d         = missing_q;
    wide_quant_d      = wide_quant_q;
    wide_table_d      = wide_table_q;
    progressive_d     = progressive_q;
    several_d         = several_q;
    scans_d           = scans_q;
    sized_d           = sized_q;
    members_d         = members_q;
    first_d           = first_q;
    last_d            = last_q;
    high_bit_d        = high_bit_q;
    low_bit_d         = low_bit_q;
    beyond_d          = beyond_q;
    file_end_d        = file_end_q;
    standard_d        = standard_q;
    from_rom_d        = from_rom_q;
    code_d            = code_q;
    coded_d           = 1'b0;
    framed_d          = 1'b0;
    rom_at_d          = rom_at_q;
    symbols_d         = symbols_q;
    index_d           = index_q;
    code_length_d     = code_length_q;
    count_left_d      = count_left_q;
    escaped_d         = escaped_q;
    filled_d          = filled_q;
    status_d          = status_q;

    wants         = state_q[5];
    take          = state_q[5];
    take_two      = 1'b0;
    take_rest     = 1'b0;
    length_begins = 1'b0;
    length_less   = '0;
    fail          = 1'b0;
    failure       = StatusCorruptHeader;
    next_segment  = 1'b0;
    next_byte     = 1'b0;
    count_we      = 1'b0;
    quant_we_o    = 1'b0;
    quant_value_o = {8'd0, byte0};

    huffman_valid_o  = 1'b0;
    huffman_o        = '0;
    huffman_o.ac     = ac_q;
    huffman_o.number = number_q;
    huffman_o.limit  = 16'(next_code << (4'd15 - step_q[3:0]));
    huffman_o.offset = 8'(symbols_q) - first_code[7:0];
    huffman_o.length = step_q[4:0] + 5'd1;

    token_valid_o = 1'b0;
    token_o       = '{kind: TokenData, two: 1'b0, data: {byte0, byte1}};

    unique case (state_q)
      StIdle: ;

      StSoi0: if (have_byte) begin
        state_d = StSoi1;
        fail    = byte0 != 8'hFF;
        failure = StatusNotJpeg;
      end
      StSoi1: if (have_byte) begin
        state_d = StSoi2;
        fail    = byte0 != Soi;
        failure = StatusNotJpeg;
      end
      // OpenCV knows a JPEG file by FF D8 FF; from there on it skips what libjpeg skips.
      StSoi2: if (have_byte) begin
        state_d = StMarker;
        fail    = byte0 != 8'hFF;
      end

      // As libjpeg, which warns: whatever is no marker is skipped, FF 00 too.
      StMarker0: if (have_byte) begin
        if (byte0 == 8'hFF) state_d = StMarker;
      end
      StMarker: if (have_byte) begin
        marker_d = byte0;
        if (byte0 == '0) state_d = StMarker0;
        else if (byte0 != 8'hFF) state_d = StSegment;
      end

      // A frame type is judged before its segment, which may be missing.
      StSegment: begin
        state_d = StLength0;
        if (parameterless_q) begin
          state_d = StMarker0;
        end else if (marker_q == Eoi && scanned_q && several_q) begin
          file_end_d = 1'b1;
          state_d    = StFileEnd;
        end else if (trailer) begin  // segments say nothing about the image
          if (marker_q == Eoi) begin
            status_d = StatusOk;
            state_d  = StFileStatus;
          end else if (marker_q == Sos) begin
            fail    = 1'b1;
            failure = StatusMultipleScans;
          end else if (!other_segment_q) begin
            fail = 1'b1;
          end
        end else if (marker_q == Dac) begin
          fail    = 1'b1;
          failure = StatusArithmetic;
        end else if (marker_q == Dhp) begin
          fail    = 1'b1;
          failure = StatusProgressive;
        end else if (frame_marker_q) begin
          fail    = frame_type_q != StatusOk;
          failure = frame_type_q;
        end else if (marker_q != Sos && !other_segment_q) begin
          fail = 1'b1;
        end
      end

      StLength0: if (have_byte) begin
        high_d  = byte0;
        state_d = StLength1;
      end
      StLength1: if (have_byte) begin
        length_begins = 1'b1;
        negative_d    = 1'b0;
        length_less   = 9'd2;
        step_d     = '0;
        component_d = '0;
        no_quant_d   = 1'b0;
        missing_d    = '0;
        wide_quant_d = 1'b0;
        wide_table_d = '0;
        members_d    = '0;
        standard_d   = '0;
        match_d      = 1'b1;
        if ({high_q, byte0} < 16'd2) fail = 1'b1;
        else if (trailer) state_d = StSkip;
        else if (frame_marker_q) begin
          if (frame_seen_q) fail = 1'b1;
          frame_seen_d  = 1'b1;
          progressive_d = marker_q == Sof2;
          state_d       = StFrame;
        end else begin
          unique case (marker_q)
            Dqt:         state_d = StQuantSelect;
            Dht:         state_d = StHuffmanSelect;
            Dri:         state_d = StRestart0;
            App0, App14: state_d = StApplication;
            Sos: begin
              if (!frame_seen_q) fail = 1'b1;
              state_d = StScanCount;
            end
            default:     state_d = StSkip;
          endcase
        end
      end

      // Begins when it is known whether it is far; far_q is what it was before the bytes of a clock.
      StSkip: if (!skipping_q) begin
      end else if (!far_q && length_q[4:0] == '0) begin
        next_segment = 1'b1;
      end else begin
        wants       = 1'b1;
        take_rest   = far_q || at_least(length_q[4:0], left_q);
        take        = !take_rest && length_q[4:0] == 5'd1;
        take_two    = !take_rest && !take;
        length_less = take_rest ? 9'(left_q) : take ? 9'd1 : 9'd2;
      end

      // ---- SOF: precision, height, width, components; then three bytes a component ----
      StFrame: if (have_byte) begin
        high_d = byte0;
        step_d = step_q + 1'b1;
        unique case (step_q[2:0])
          3'd0:    match_d = byte0 == 8'd8;  // precision
          3'd1:    scan_d.scan.height[15:8] = byte0;
          3'd2:    scan_d.scan.height[7:0]  = byte0;
          3'd3:    scan_d.scan.width[15:8]  = byte0;
          3'd4:    scan_d.scan.width[7:0]   = byte0;
          default: state_d = StFrameCheck;  // high_q: components
        endcase
      end
      StFrameCheck: begin
        state_d           = StFrameComponent;
        step_d            = '0;
        scan_d.scan.color = high_q == 8'd3;
        if (!match_q) begin
          fail    = 1'b1;
          failure = StatusPrecision;
        end else if (high_q != 8'd1 && high_q != 8'd3) begin
          fail    = 1'b1;
          failure = StatusComponents;
        end else if (length_q != (high_q == 8'd3 ? 16'd15 : 16'd9) || scan_q.scan.width == '0) begin
          fail = 1'b1;
        end else if (scan_q.scan.height == '0 || scan_q.scan.height > 16'(MaxJpegHeight) ||
                     scan_q.scan.width > 16'(MaxWidth)) begin
          fail    = 1'b1;
          failure = StatusTooLarge;
        end
      end
      StFrameComponent: if (have_byte) begin
        step_d = step_q + 1'b1;
        unique case (step_q[1:0])
          2'd0: id_d[component_q] = byte0;
          2'd1: if (!scan_q.scan.color) begin
            // A scan of one component has one block per MCU, whatever its factors.
            match_d = byte0[7:4] inside {[4'd1:4'd4]} && byte0[3:0] inside {[4'd1:4'd4]};
          end else begin
            // 1, 2, 4 -> 0, 1, 2
            if (component_q == '0) begin
              scan_d.scan.h_shift = byte0[6:5];
              scan_d.scan.v_shift = byte0[2:1];
            end else begin
              scan_d.scan.chroma_h[component_q[1]] = byte0[6:5];
              scan_d.scan.chroma_v[component_q[1]] = byte0[2:1];
            end
            match_d = match_q && byte0 inside {8'h11, 8'h12, 8'h14, 8'h21, 8'h22, 8'h24, 8'h41, 8'h42};
          end
          default: begin
            scan_d.quant[component_q]    = byte0[1:0];
            quant_wide_d[component_q]    = byte0[7:2] != '0;
            step_d                       = '0;
            component_d                  = component_q + 1'b1;
            if (!scan_q.scan.color || component_q == 2'd2) begin
              framed_d     = scan_q.scan.color;
              next_segment = match_q;
              fail         = !match_q;
              failure      = StatusSampling;
            end
          end
        endcase
      end

      // ---- DQT ----
      StQuantSelect: if (negative_q || length_q == '0) begin
        next_segment = !negative_q;
        fail         = negative_q;
      end else begin
        wants    = 1'b1;
        take     = 1'b1;
        step_d   = '0;
        wide_d   = byte0[4];
        number_d = byte0[1:0];
        if (have_byte) begin
          length_less = byte0[4] ? 9'd129 : 9'd65;
          negative_d  = length_q < (byte0[4] ? 16'd129 : 16'd65);
          state_d     = byte0[4] ? StQuantHigh : StQuantLow;
          if (byte0[7:5] != '0 || byte0[3:2] != '0) fail = 1'b1;
        end
      end
      StQuantHigh: if (have_byte) begin
        high_d  = byte0;
        state_d = StQuantLow;
      end
      StQuantLow: if (have_byte) begin
        quant_we_o    = 1'b1;
        quant_value_o = {wide_q ? high_q : 8'd0, byte0};
        step_d        = step_q + 1'b1;
        if (wide_q) state_d = StQuantHigh;
        if (step_q[5:0] == 6'd63) begin
          quant_defined_d[number_q] = 1'b1;
          state_d                   = StQuantSelect;
        end
      end

      // ---- DHT ----
      StHuffmanSelect: if (length_q == '0) begin
        next_segment = 1'b1;
      end else begin
        wants     = 1'b1;
        take      = 1'b1;
        step_d    = '0;
        code_d    = '0;
        symbols_d = '0;
        ac_d      = byte0[4];
        number_d  = byte0[1:0];
        if (have_byte) begin
          length_less = 9'd17;
          state_d     = StHuffmanCount;
          if (length_q < 16'd17 || byte0[7:5] != '0 || byte0[3:2] != '0) fail = 1'b1;
        end
      end
      StHuffmanCount: begin
        wants = !from_rom_q;
        take  = !from_rom_q && huffman_ready_i;
        if (have_table_byte && huffman_ready_i) begin
          next_byte       = 1'b1;
          count_we        = 1'b1;
          huffman_valid_o = 1'b1;  // a limit
          code_d          = next_code;
          coded_d         = table_byte != '0;
          step_d          = step_q + 1'b1;
          if (step_q[3:0] == 4'd15) state_d = StHuffmanCheck;
          // Beyond 256 it stays there, so that nine bits are enough.
          symbols_d = next_symbols > 10'd256 ? 9'd257 : next_symbols[8:0];
        end
      end
      StHuffmanCheck: begin
        index_d       = '0;
        code_length_d = '0;
        length_less   = symbols_q;
        rom_at_d[7:0] = '0;
        state_d       = StHuffmanLength;
      end
      StHuffmanLength: begin  // the next one that has codes
        code_length_d = code_length_q + 1'b1;
        count_left_d  = counts[code_length_q[3:0]];
        if (symbols_q == '0) begin
          huffman_defined_d[{ac_q, number_q}] = 1'b1;
          state_d = from_rom_q ? StStandard : StHuffmanSelect;
        end else if (count_left_d != '0) begin
          state_d = StHuffmanSymbol;
        end
      end
      StHuffmanSymbol: begin
        wants            = !from_rom_q;
        take             = !from_rom_q && huffman_ready_i;
        huffman_o.symbol = 1'b1;
        huffman_o.length = code_length_q;
        huffman_o.first  = index_q == '0;
        huffman_o.index  = index_q;
        huffman_o.value  = from_rom_q && !ac_q ? index_q : table_byte;
        huffman_valid_o  = have_table_byte;
        if (have_table_byte && huffman_ready_i) begin
          next_byte    = 1'b1;
          index_d      = index_q + 1'b1;
          symbols_d    = symbols_q - 1'b1;
          count_left_d = count_left_q - 1'b1;
          if (count_left_q == 8'd1) state_d = StHuffmanLength;
        end
        if (have_byte && !from_rom_q && !ac_q && byte0 > 8'd15) fail = 1'b1;  // libjpeg refuses the table
      end

      // The lowest of those that are used and not defined; then back to what follows the SOS segment.
      StStandard: begin
        from_rom_d = standard_q != '0;
        step_d     = '0;
        code_d     = '0;
        symbols_d  = '0;
        ac_d       = standard_q[1:0] == '0;
        number_d   = {1'b0, ac_d ? !standard_q[2] : !standard_q[0]};
        rom_at_d   = {number_d[0], ac_d ? 8'hB0 : 8'hC0};
        standard_d = standard_q & (standard_q - 1'b1);
        state_d    = standard_q == '0 ? StHeaders : StHuffmanCount;
      end

      // ---- DRI ----
      StRestart0: if (have_byte) begin
        high_d  = byte0;
        state_d = StRestart1;
      end
      StRestart1: if (have_byte) begin
        scan_d.restart_interval = {high_q, byte0};
        next_segment = length_q == 16'd2;
        fail         = length_q != 16'd2;
      end

      // ---- APP0 and APP14: their first 14 bytes decide the colour space ----
      StApplication: if (length_q == '0 || step_q[3:0] == 4'd14) begin
        state_d = StApplicationEnd;
      end else begin
        wants = 1'b1;
        take  = 1'b1;
        if (have_byte) begin
          length_less = 9'd1;
          step_d      = step_q + 1'b1;
          if (step_q[3:0] < 4'd5 && byte0 != letter(marker_q == App14, step_q[2:0])) match_d = 1'b0;
          if (step_q[3:0] == 4'd11) high_d = byte0;             // Adobe's transform
        end
      end
      StApplicationEnd: begin
        state_d = StSkip;
        if (marker_q == App0 && step_q[3:0] == 4'd14 && match_q) jfif_d = 1'b1;  // of any version
        if (marker_q == App14 && step_q[3:0] >= 4'd12 && match_q) begin
          adobe_d           = 1'b1;
          adobe_transform_d = high_q;
        end
      end

      // ---- SOS ----
      StScanCount: if (have_byte) begin
        step_d  = byte0[5:0];
        scans_d = scans_q + 1'b1;
        state_d = StScanId;
        if (!scanned_q) several_d = progressive_q || byte0 < (scan_q.scan.color ? 8'd3 : 8'd1);
        if (!(byte0 inside {[8'd1:8'd4]}) || length_q != 16'd4 + {7'd0, byte0, 1'b0}) begin
          fail = 1'b1;
        end else if ((!workspace_q && byte0 < (scan_q.scan.color ? 8'd3 : 8'd1)) || scans_q == 8'(MaxScans)) begin
          fail    = 1'b1;
          failure = StatusMultipleScans;
        end else if (byte0 > (scan_q.scan.color ? 8'd3 : 8'd1)) begin
          fail = 1'b1;
        end
      end
      StScanId: if (have_byte) begin
        match_d     = same_id != '0;
        component_d = same_id[0] ? 2'd0 : same_id[1] ? 2'd1 : 2'd2;
        state_d     = StScanTables;
      end
      StScanTables: if (have_byte) begin
        step_d      = step_q - 1'b1;
        component_d = component_q + 1'b1;
        members_d[component_q] = 1'b1;
        scan_d.dc[component_q] = byte0[5:4];
        scan_d.ac[component_q] = byte0[1:0];
        // libjpeg-turbo knows the standard's for sequential frames only.
        if (!huffman_defined_q[{1'b0, byte0[5:4]}]) begin
          if (byte0[5] || progressive_q) missing_d[0] = 1'b1;
          else standard_d[{1'b0, byte0[4]}] = 1'b1;
        end
        if (!huffman_defined_q[{1'b1, byte0[1:0]}]) begin
          if (byte0[1] || progressive_q) missing_d[1] = 1'b1;
          else standard_d[{1'b1, byte0[0]}] = 1'b1;
        end
        if (byte0[7:6] != '0) wide_table_d[0] = 1'b1;
        if (byte0[3:2] != '0) wide_table_d[1] = 1'b1;
        if (quant_wide_q[component_q]) wide_quant_d = 1'b1;
        if (!quant_defined_q[scan_q.quant[component_q]]) no_quant_d = 1'b1;
        state_d = step_q == 6'd1 ? StScanFirst : StScanId;
        if (!match_q) fail = 1'b1;
      end
      StScanFirst: if (have_byte) begin
        first_d  = byte0[5:0];
        beyond_d = byte0[7:6] != '0;
        state_d  = StScanLast;
      end
      StScanLast: if (have_byte) begin
        last_d   = byte0[5:0];
        beyond_d = beyond_q || byte0[7:6] != '0;
        state_d  = StScanBits;
      end
      StScanBits: if (have_byte) begin
        {high_bit_d, low_bit_d} = byte0;
        state_d = StScanCheck;
      end
      StScanCheck: begin
        status_d = no_quant_q || (needs_dc && missing_q[0]) || (needs_ac && missing_q[1]) ? StatusMissingTable : StatusOk;
        state_d  = several_q ? StProgression : standard_q == '0 || status_d != StatusOk ? StHeaders : StStandard;
        if (beyond_q || !band_exists || wide_quant_q || (needs_dc && wide_table_q[0]) || (needs_ac && wide_table_q[1])) begin
          fail = 1'b1;
        end
        if (scanned_q) begin
          // the colours are known
        end else if (!scan_q.scan.color || jfif_q) begin
          scan_d.scan.rgb = 1'b0;
        end else if (adobe_q) begin
          scan_d.scan.rgb = adobe_transform_q == '0;
          if (adobe_transform_q > 8'd1) fail = 1'b1;
        end else begin
          scan_d.scan.rgb = id_q[0] == "R" && id_q[1] == "G" && id_q[2] == "B";
        end
      end

      // ---- Several scans ----
      StFileEnd: begin
        status_d = StatusOk;
        state_d  = StProgression;
      end
      StProgression: if (progression_done) state_d = StScanStatus;
      StScanStatus: begin
        state_d = standard_q == '0 || file_end_q || status_q != StatusOk ? StHeaders : StStandard;
        if (!sound) begin
          fail    = 1'b1;
          failure = file_end_q ? StatusTruncated : StatusCorruptHeader;
        end else if (status_q == StatusOk && !scanned_q) begin
          sized_d = 1'b1;
          if (too_small) begin
            fail    = 1'b1;
            failure = StatusBufferTooSmall;
          end
        end
      end

      StHeaders: begin
        if (scan_valid_o && scan_ready_i) begin
          scanned_d = 1'b1;
          escaped_d = 1'b0;
          state_d   = status_q == StatusOk && !file_end_q ? StData : StIdle;
        end
      end

      // A byte is taken when there is room for a token, whether it becomes one or not.
      StData: begin
        take_two = token_ready_i && !escaped_q && !single_q && byte0 != 8'hFF && byte1 != 8'hFF;
        take     = token_ready_i && !take_two;
        if (ended) begin
          status_d = StatusTruncated;
          high_d   = '0;  // no marker
          state_d  = StDataStatus;
        end else if (have_byte && !escaped_q && byte0 != 8'hFF) begin
          token_valid_o = 1'b1;
          token_o.two   = !single_q && byte1 != 8'hFF;
        end else if (have_byte && token_ready_i && !escaped_q) begin
          escaped_d = 1'b1;
          filled_d  = 1'b0;
        end else if (have_byte && token_ready_i && byte0 == 8'hFF) begin
          filled_d = 1'b1;
        end else if (have_byte && byte0 == '0 && !filled_q) begin
          token_valid_o      = 1'b1;
          token_o.data[15:8] = 8'hFF;
          if (token_ready_i) escaped_d = 1'b0;
        end else if (have_byte && byte0 >= Rst0 && byte0 <= Rst7) begin
          token_valid_o = 1'b1;
          token_o.kind  = TokenRestart;
          token_o.data  = {13'd0, byte0[2:0]};
          if (token_ready_i) escaped_d = 1'b0;
        end else if (have_byte && token_ready_i) begin  // a marker, or a 0 behind fill bytes, which is none
          high_d   = byte0;
          marker_d = byte0;
          status_d = byte0 == Eoi ? StatusTruncated : StatusCorruptHuffman;
          state_d  = StDataStatus;
        end
      end
      StDataStatus: begin
        token_valid_o = 1'b1;
        token_o.kind  = TokenScanEnd;
        token_o.data  = {8'd0, status_q};
        if (token_ready_i) state_d = high_q != '0 ? StSegment : several_q ? StHeaders : StFileStatus;
      end
      StFileStatus: begin
        token_valid_o = 1'b1;
        token_o.kind  = TokenFileEnd;
        token_o.data  = {8'd0, status_q};
        if (token_ready_i) state_d = StIdle;
      end
      default: state_d = StIdle;
    endcase

    if (next_byte) rom_at_d[7:0] = rom_at_q[7:0] + 1'b1;

    // Whatever the byte was for, the file is too short; but first comes what was wrong before it.
    if (wants && ended) begin
      fail    = 1'b1;
      failure = state_q == StSoi0 || state_q == StSoi1 ? StatusNotJpeg : StatusTruncated;
    end
    if (framed_q && !factors_fit) begin
      fail    = 1'b1;
      failure = StatusSampling;
    end
    if (code_overflow || (checked_q && too_many_q)) begin
      fail    = 1'b1;
      failure = StatusCorruptHeader;
    end
    if (next_segment) state_d = StMarker0;
    if (fail_q) begin
      status_d      = failure_q;
      state_d       = trailer ? StFileStatus : StHeaders;
      token_valid_o = 1'b0;
    end
    if (stop_i && scanned_q && state_q != StIdle && state_q != StFileStatus) begin
      state_d       = StFileStatus;
      token_valid_o = 1'b0;
    end
    if (start_i) begin
      state_d           = StSoi0;
      scan_d            = '0;
      frame_seen_d      = 1'b0;
      quant_defined_d   = '0;
      huffman_defined_d = '0;
      jfif_d            = 1'b0;
      progressive_d     = 1'b0;
      several_d         = 1'b0;
      scans_d           = '0;
      sized_d           = 1'b0;
      file_end_d        = 1'b0;
      from_rom_d        = 1'b0;
      adobe_d           = 1'b0;
      scanned_d         = 1'b0;
    end
  end

  assign quant_table_o     = quant_latch_o ? scan_q.quant[sent_component] : number_q;
  assign quant_component_o = sent_component;
  assign quant_index_o     = quant_latch_o ? sent_index : step_q[5:0];
  always_comb begin
    scan_o        = scan_q;
    scan_o.status = status_q;
    band_o        = '{status: status_q, file_end: file_end_q, scan: scan_q.scan, restart_interval: scan_q.restart_interval,
                      progressive: progressive_q, members: members_q, first: first_q, last: last_q, high: high_bit_q,
                      low: low_bit_q, dc: scan_q.dc, ac: scan_q.ac};
  end
  assign busy_o   = state_q != StIdle;
  assign header_o = busy_o && !scanned_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q      <= StIdle;
      fail_q       <= 1'b0;
      tells_q      <= 1'b0;
      sized_o      <= 1'b0;
      scan_valid_o <= 1'b0;
    end else begin
      state_q <= state_d;
      fail_q  <= fail && !fail_q && !start_i && !tells_q;  // it has been told, or is about to be
      tells_q <= fail_q || (tells_q && state_q == StHeaders);
      // When all codes are in the tables. Of its own, as both decoders and render wait for it.
      scan_valid_o <= state_q == StHeaders && huffman_drained_i && !fail_q && !stop_i && !start_i &&
                      !(scan_valid_o && scan_ready_i);
      sized_o <= (sized_o || (state_q == StFrameComponent && !fail_q)) && !start_i;
    end
  end

  always_ff @(posedge clk_i) begin
    failure_q         <= failure;
    scan_q            <= scan_d;
    marker_q          <= marker_d;
    parameterless_q   <= parameterless(marker_d);
    other_segment_q   <= other_segment(marker_d);
    frame_marker_q    <= frame_marker(marker_d);
    frame_type_q      <= frame_type_status(marker_d, workspace_q);
    high_q            <= high_d;
    length_q          <= next_length;
    skipping_q        <= state_q == StSkip;
    far_q             <= length_q[15:5] != '0;
    frame_seen_q      <= frame_seen_d;
    id_q              <= id_d;
    quant_wide_q      <= quant_wide_d;
    quant_defined_q   <= quant_defined_d;
    huffman_defined_q <= huffman_defined_d;
    jfif_q            <= jfif_d;
    adobe_q           <= adobe_d;
    adobe_transform_q <= adobe_transform_d;
    scanned_q         <= scanned_d;
    step_q            <= step_d;
    component_q       <= component_d;
    wide_q            <= wide_d;
    ac_q              <= ac_d;
    number_q          <= number_d;
    match_q           <= match_d;
    no_quant_q        <= no_quant_d;
    missing_q         <= missing_d;
    wide_quant_q      <= wide_quant_d;
    wide_table_q      <= wide_table_d;
    progressive_q     <= progressive_d;
    several_q         <= several_d;
    scans_q           <= scans_d;
    sized_q           <= sized_d;
    members_q         <= members_d;
    first_q           <= first_d;
    last_q            <= last_d;
    high_bit_q        <= high_bit_d;
    low_bit_q         <= low_bit_d;
    beyond_q          <= beyond_d;
    file_end_q        <= file_end_d;
    workspace_q       <= workspace_bytes_i != '0;
    standard_q        <= standard_d;
    from_rom_q        <= from_rom_d;
    rom_valid_q       <= state_q inside {StHuffmanCount, StHuffmanLength, StHuffmanSymbol} && !next_byte;
    checked_q         <= state_q == StHuffmanCheck && !from_rom_q;
    too_many_q        <= symbols_q > 9'd256 || 16'(symbols_q) > length_q;
    negative_q        <= negative_d;
    code_q            <= code_d;
    coded_q           <= coded_d;
    framed_q          <= framed_d;
    rom_at_q          <= rom_at_d;
    symbols_q         <= symbols_d;
    index_q           <= index_d;
    code_length_q     <= code_length_d;
    count_left_q      <= count_left_d;
    escaped_q         <= escaped_d;
    filled_q          <= filled_d;
    status_q          <= status_d;
  end

`ifndef SYNTHESIS
  a_scan_in_its_state: assert property (@(posedge clk_i) disable iff (!rst_ni) scan_valid_o |-> state_q == StHeaders && !fail_q);
`endif

endmodule
