// Marker machine: from SOI to EOI it finds the markers and gives each segment to the module that
// reads it, and each scan to the decoders.
//
// Reference   T.81 B.1 and B.2; jpeg_parser.cpp, check by check in its order.
// Interface   `turn_o` tells who reads bytes; `begin_o` is high for a clock before each segment.
//             Requests of the readers come back in the same clock. At the end of the headers a scan
//             is offered with `scan_valid_o` once all codes are in the tables, and its data follow.
//             Of several scans the next headers follow them, up to a scan with `file_end_o` or with
//             a status other than StatusOk. The data of a single scan end in TokenFileEnd.
// Throughput  a byte a clock; where a segment is skipped 16, but for its last 32 (Exif and the like
//             may be longer than the image).
// Bad input   ends in a status. The machine looks for the file's end before each byte, and every
//             state leaves on it. A failure acts a clock after it was found, to keep paths short;
//             what is done in between is lost. A state that is none, as an upset may leave it,
//             leads to StIdle within two clocks.
module marker_machine
  import headrace_pkg::*;
  import parse_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic         stop_i,
  input  logic         workspace_i,        // there is one
  output logic         busy_o,
  output logic         header_o,           // reading the headers

  // Bytes of the file.
  input  logic [7:0]   byte_i,
  input  logic         have_byte_i,
  input  logic         ended_i,
  input  logic [4:0]   left_i,             // bytes that the word has left
  output logic         take_o,
  output logic         take_rest_o,

  // Readers of segments.
  output turn_t        turn_o,
  output logic         begin_o,            // of a segment, whose length is known a clock later
  output logic [15:0]  length_o,           // bytes of it that are left; may wrap below 0 in DQT
  output logic         empty_o,            // length_o is 0; a clock late, but for a single byte
  output logic [7:0]   marker_o,
  output logic         failed_o,           // the headers have just failed
  input  request_t     request_i,          // of the one whose turn it is
  input  turn_t        over_i,             // it has read its segment
  input  logic         frame_unfit_i,
  input  logic         tables_bad_i,

  // What the headers say.
  output logic         progressive_o,      // the frame is
  output logic         scanned_o,          // after the first scan
  output logic [15:0]  restart_interval_o,
  input  logic         several_i,          // scans

  // The check of a scan.
  output logic         check_o,
  input  logic         scan_bad_i,
  input  logic         scan_missing_i,     // tables
  input  logic         standard_i,         // it needs tables of the standard
  output logic         progression_o,      // looks whether the scan goes on from those before it
  input  logic         progression_done_i,
  input  logic         progression_sound_i,
  input  logic         too_small_i,        // the workspace is
  output logic         needed_known_o,     // the size of the workspace is

  output status_e      status_o,
  output logic         file_end_o,         // the scan is none: EOI
  input  logic         huffman_drained_i,  // all codes are in the tables
  output logic         scan_valid_o,
  input  logic         scan_ready_i,

  // Entropy-coded data.
  input  logic         data_over_i,
  input  logic [7:0]   data_marker_i,      // that ends them; 0 for none
  input  token_t       data_i,
  input  logic         data_valid_i,
  output token_t       token_o,
  output logic         token_valid_o,
  input  logic         token_ready_i
);

  // A state is one bit: that of the reader whose turn it is, or its own. One bit more tells that a
  // byte is taken as soon as there is one, whatever it is.
  typedef struct packed {
    turn_t turn;
    logic  idle;
    logic  segment;
    logic  skip;
    logic  scan_check;
    logic  file_end;
    logic  progression;  // of several scans: whether this one goes on from those before
    logic  scan_status;
    logic  headers;      // tells what the headers say
    logic  data_status;  // tokens at the data's end,
    logic  file_status;  // and at the file's
    logic  soi0;         // 0xFF, SOI, 0xFF
    logic  soi1;
    logic  soi2;
    logic  marker0;      // to 0xFF
    logic  marker;       // fill bytes and the marker
    logic  length0;
    logic  length1;
    logic  restart0;     // DRI
    logic  restart1;
  } bit_t;
  typedef struct packed {
    bit_t on;
    logic takes;
  } state_t;

  localparam state_t StIdle       = '{on: '{turn: '0, idle: 1'b1, default: 1'b0}, takes: 1'b0};
  localparam state_t StHeaders    = '{on: '{turn: '0, headers: 1'b1, default: 1'b0}, takes: 1'b0};
  localparam state_t StFileStatus = '{on: '{turn: '0, file_status: 1'b1, default: 1'b0},
                                      takes: 1'b0};
  localparam state_t StSoi0       = '{on: '{turn: '0, soi0: 1'b1, default: 1'b0}, takes: 1'b1};

  state_t      state_d, state_q;
  logic        no_state_q;                 // state_q was none
  logic [7:0]  marker_q;
  logic        parameterless_q, other_segment_q, frame_marker_q;  // what the marker is
  logic        dqt_q, dht_q, dri_q, sos_q, eoi_q, dhp_q, application_q;
  logic        taken_q, lossless_q;        // of a frame marker
  logic [7:0]  high_d, high_q;             // the first byte of a pair
  logic        high_zero_q;                // it is 0
  logic [15:0] length_q;
  logic        empty_q;
  logic        length_2_q;                 // length_q was 2 a clock ago
  logic        far_q;                      // in StSkip for a clock; length_q was 32 or more then
  logic        near_q, near;               // in StSkip, and the last rest of a word was taken
  logic [8:0]  less_q;                     // of a table, a clock ago
  logic [8:0]  skipped;                    // bytes
  logic        frame_seen_d, frame_seen_q;
  logic        progressive_d, progressive_q;
  logic        scanned_d, scanned_q;
  logic        needed_known_d, needed_known_q;
  logic        file_end_d, file_end_q;
  logic [15:0] restart_interval_d, restart_interval_q;
  status_e     status_d, status_q;
  logic        trailer;                    // after the only scan

  // The headers end with `failure`, if nothing outside the states has failed.
  logic        fail, tells_q;
  logic        hushed_q;                   // a failure does not count: one has been found, or told
  // What has: a state, a reader; no byte, that of SOI.
  logic        found_q, asked_q, ended_q, early_q, unfit_q, bad_q;
  logic        fails;
  status_e     failure, failure_q;
  logic        next_segment;
  logic        wants;                      // a byte: without one the file is too short
  logic        told;                       // the scan is taken,
  logic        ends;                       // and no data follow

  assign busy_o             = !state_q.on.idle;
  assign header_o           = busy_o && !scanned_q;
  assign begin_o            = state_q.on.length1 && have_byte_i;
  assign length_o           = length_q;
  assign empty_o            = empty_q;
  assign marker_o           = marker_q;
  assign failed_o           = fails;
  assign progressive_o      = progressive_q;
  assign scanned_o          = scanned_q;
  assign restart_interval_o = restart_interval_q;
  assign check_o            = state_q.on.scan_check;
  assign progression_o      = (state_q.on.scan_check && several_i) ||
                              state_q.on.file_end;
  assign needed_known_o     = needed_known_q;
  assign status_o           = status_q;
  assign file_end_o         = file_end_q;
  assign trailer            = scanned_q && !several_i;
  assign turn_o             = state_q.on.turn;

  // No bit or several could wait for ever, and so could what does not go with the bit.
  function automatic logic is_state(state_t state);
    logic one, more, takes;
    {one, more} = '0;
    for (int unsigned i = 0; i < $bits(bit_t); i++) begin
      more |= one && state.on[i];
      one  |= state.on[i];
    end
    takes = state.on.turn.scan || state.on.soi0 || state.on.soi1 || state.on.soi2 ||
            state.on.marker0 || state.on.marker || state.on.length0 || state.on.length1 ||
            state.on.restart0 || state.on.restart1;
    return one && !more && state.takes == takes;
  endfunction

  function automatic logic parameterless(logic [7:0] marker);
    return marker == Tem || marker[7:3] == Rst0[7:3];
  endfunction

  function automatic logic other_segment(logic [7:0] marker);
    return marker[7:4] == App0[7:4] || marker inside {Com, Dht, Dqt, Dri, Dnl};
  endfunction

  function automatic logic frame_marker(logic [7:0] marker);
    return marker[7:4] == Sof0[7:4] && marker != Dht && marker != Jpg;
  endfunction

  // ---- The next state ----
  bit_t at, next;
  logic leaves;      // the byte is the end of a marker
  logic kinds_skip;  // of the segment that begins nothing is read
  logic file_ends;   // EOI after several scans
  assign at         = state_q.on;
  assign leaves     = have_byte_i && byte_i != '0 && byte_i != 8'hFF;
  assign kinds_skip = trailer || !(frame_marker_q || dqt_q || dht_q || dri_q || application_q ||
                                   sos_q);
  assign file_ends  = eoi_q && scanned_q && several_i;

  // As libjpeg, which warns: whatever is no marker is skipped, FF 00 too. OpenCV knows a JPEG file
  // by FF D8 FF; from there on it skips what libjpeg skips.
  always_comb begin
    next_segment = (near && empty_q) || (at.restart1 && have_byte_i) ||
                   over_i.frame || over_i.quant || over_i.huffman;
    next         = '0;

    next.idle    = at.idle || (at.file_status && token_ready_i) || (at.headers && told && ends);
    next.soi0    = at.soi0 && !have_byte_i;
    next.soi1    = have_byte_i ? at.soi0 : at.soi1;
    next.soi2    = have_byte_i ? at.soi1 : at.soi2;
    next.marker0 = (at.marker0 && !(have_byte_i && byte_i == 8'hFF)) ||
                   (at.marker && have_byte_i && byte_i == '0) ||
                   (at.segment && parameterless_q) || next_segment;
    next.marker  = (at.marker && (!have_byte_i || byte_i == 8'hFF)) ||
                   (at.marker0 && have_byte_i && byte_i == 8'hFF) || (at.soi2 && have_byte_i);
    next.segment = (at.marker && leaves) ||
                   (at.data_status && token_ready_i && high_q != '0);
    next.length0 = (at.length0 && !have_byte_i) ||
                   (at.segment && !parameterless_q && !file_ends && !(trailer && eoi_q));
    next.length1 = have_byte_i ? at.length0 : at.length1;

    next.skip             = (at.skip && !(near && empty_q)) || (begin_o && kinds_skip) ||
                            over_i.application;
    next.turn.frame       = (at.turn.frame && !over_i.frame) ||
                            (begin_o && !trailer && frame_marker_q);
    next.turn.quant       = (at.turn.quant && !over_i.quant) || (begin_o && !trailer && dqt_q);
    next.turn.huffman     = (at.turn.huffman && !over_i.huffman) || (begin_o && !trailer && dht_q);
    next.turn.application = (at.turn.application && !over_i.application) ||
                            (begin_o && !trailer && application_q);
    next.turn.scan        = (at.turn.scan && !over_i.scan) || (begin_o && !trailer && sos_q);
    next.restart0         = (at.restart0 && !have_byte_i) || (begin_o && !trailer && dri_q);
    next.restart1         = have_byte_i ? at.restart0 : at.restart1;

    next.scan_check    = over_i.scan;
    next.file_end      = at.segment && !parameterless_q && file_ends;
    next.progression   = (at.scan_check && several_i) || at.file_end ||
                         (at.progression && !progression_done_i);
    next.scan_status   = at.progression && progression_done_i;
    next.turn.standard = (at.scan_check && !several_i && standard_i && !scan_missing_i) ||
                         (at.scan_status && standard_i && !ends) ||
                         (at.turn.standard && !over_i.standard);
    next.headers       = (at.scan_check && !several_i && (!standard_i || scan_missing_i)) ||
                         (at.scan_status && (!standard_i || ends)) ||
                         over_i.standard || (at.headers && !told) ||
                         (at.data_status && token_ready_i && high_q == '0 && several_i);
    next.turn.data     = (at.headers && told && !ends) || (at.turn.data && !data_over_i);
    next.data_status   = (at.turn.data && data_over_i) || (at.data_status && !token_ready_i);
    next.file_status   = (at.segment && !parameterless_q && !file_ends && trailer && eoi_q) ||
                         (at.data_status && token_ready_i && high_q == '0 && !several_i) ||
                         (at.file_status && !token_ready_i);

    state_d.on    = next;
    state_d.takes = (state_q.takes && !(at.marker && leaves) && !at.length1 &&
                     !over_i.scan) ||
                    (at.length1 && !have_byte_i) || (begin_o && !trailer && (dri_q || sos_q)) ||
                    (at.segment && (parameterless_q || !(file_ends || (trailer && eoi_q)))) ||
                    next_segment;
    if (fails) state_d = trailer ? StFileStatus : StHeaders;
    if (stop_i && scanned_q && !at.idle && !at.file_status) state_d = StFileStatus;
    if (start_i) state_d = StSoi0;
  end

  // ---- What the states do ----
  // StSkip begins when it is known whether it is far: the rest of a word is then never too much.
  // Near the end there is a byte a clock.
  assign near        = at.skip && near_q;
  assign take_rest_o = far_q;
  assign wants       = state_q.takes || (at.skip && far_q) || (near && !empty_q) || request_i.wants;
  assign take_o      = state_q.takes || (near && !empty_q) || request_i.take;
  assign skipped     = take_rest_o ? 9'(left_i) : near && !empty_q && have_byte_i ? 9'd1 : 9'd0;

  assign fails = (found_q || asked_q || ended_q || unfit_q || bad_q) && !hushed_q;

  assign told = scan_valid_o && scan_ready_i;
  assign ends = file_end_q || status_q != StatusOk;

  // The bytes of a failure in a header do not matter: it acts before the next state.
  always_comb begin
    high_d             = high_q;
    frame_seen_d       = frame_seen_q;
    progressive_d      = progressive_q;
    scanned_d          = scanned_q || (at.headers && told);
    needed_known_d     = needed_known_q;
    file_end_d         = file_end_q;
    restart_interval_d = restart_interval_q;
    status_d           = status_q;
    fail               = 1'b0;
    failure            = StatusCorruptHeader;

    if (have_byte_i && (at.length0 || at.restart0)) high_d = byte_i;
    if (at.turn.data && data_over_i) high_d = data_marker_i;
    if (at.restart1 && have_byte_i) restart_interval_d = {high_q, byte_i};
    if (begin_o && !trailer && frame_marker_q) begin
      frame_seen_d  = 1'b1;
      progressive_d = marker_q == Sof2;
    end
    if (at.segment && file_ends) file_end_d = 1'b1;

    if (have_byte_i) begin
      if (at.soi0 && byte_i != 8'hFF) fail = 1'b1;
      if (at.soi1 && byte_i != Soi) fail = 1'b1;
      if (at.soi2 && byte_i != 8'hFF) fail = 1'b1;
      if (at.length1 && high_zero_q && byte_i[7:1] == '0) fail = 1'b1;  // less than 2
      if (at.restart1 && !length_2_q) fail = 1'b1;
    end
    if (begin_o && !trailer && frame_marker_q && frame_seen_q) fail = 1'b1;
    if (begin_o && !trailer && sos_q && !frame_seen_q) fail = 1'b1;
    if (at.soi0 || at.soi1) failure = StatusNotJpeg;
    if (at.turn.frame || at.turn.scan) failure = status_e'(request_i.failure);

    if (at.segment && !parameterless_q && !file_ends) begin
      if (trailer) begin  // segments say nothing about the image
        if (eoi_q) status_d = StatusOk;
        else if (sos_q || !other_segment_q) fail = 1'b1;
        if (sos_q) failure = StatusMultipleScans;
      end else begin
        // A frame type is judged before its segment, which may be missing. DAC is among the markers
        // of frames, and is refused as theirs of arithmetic coding are.
        fail    = !(other_segment_q || sos_q || (frame_marker_q && taken_q));
        failure = lossless_q                    ? StatusLossless :
                  frame_marker_q && marker_q[3] ? StatusArithmetic :
                  frame_marker_q || dhp_q       ? StatusProgressive : StatusCorruptHeader;
      end
    end

    if (at.scan_check) begin
      status_d = scan_missing_i ? StatusMissingTable : StatusOk;
      if (scan_bad_i) fail = 1'b1;
    end
    if (at.file_end) status_d = StatusOk;
    if (at.scan_status) begin
      if (!progression_sound_i) begin
        fail = 1'b1;
        if (file_end_q) failure = StatusTruncated;
      end else if (status_q == StatusOk && !scanned_q) begin
        needed_known_d = 1'b1;
        if (too_small_i) begin
          fail    = 1'b1;
          failure = StatusBufferTooSmall;
        end
      end
    end
    if (at.turn.data && data_over_i) begin
      status_d = ended_i || data_marker_i == Eoi ? StatusTruncated : StatusCorruptHuffman;
    end

    // Whatever the byte was for, the file is too short; but first comes what was wrong before it.
    if (fails) begin
      status_d = bad_q   ? StatusCorruptHeader :
                 unfit_q ? StatusSampling :
                 ended_q && !asked_q ? (early_q ? StatusNotJpeg : StatusTruncated) : failure_q;
    end
    if (start_i) begin
      frame_seen_d       = 1'b0;
      progressive_d      = 1'b0;
      scanned_d          = 1'b0;
      needed_known_d     = 1'b0;
      file_end_d         = 1'b0;
      restart_interval_d = '0;
    end
  end

  // ---- Tokens ----
  logic silent;
  assign silent        = fails || (stop_i && scanned_q && !at.idle && !at.file_status);
  assign token_valid_o = !silent && ((at.turn.data && data_valid_i) || at.data_status ||
                                     at.file_status);
  always_comb begin
    token_o = data_i;
    if (!at.turn.data) begin
      token_o = '{kind: at.file_status ? TokenFileEnd : TokenScanEnd, two: 1'b0,
                  data: {8'd0, status_q}};
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || no_state_q) begin
      state_q      <= StIdle;
      hushed_q     <= 1'b1;
      tells_q      <= 1'b0;
      scan_valid_o <= 1'b0;
      far_q        <= 1'b0;
    end else begin
      far_q   <= at.skip && length_q[15:5] != '0 && !start_i;
      state_q <= state_d;
      hushed_q <= fails || start_i || tells_q;  // it has been told, or is about to be
      tells_q <= fails || (tells_q && at.headers);
      // When all codes are in the tables. A register, as both decoders and render wait for it.
      scan_valid_o <= at.headers && huffman_drained_i && !fails && !stop_i &&
                      !start_i && !(scan_valid_o && scan_ready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    no_state_q         <= rst_ni && !is_state(state_q);
    failure_q          <= failure;
    found_q            <= fail;
    asked_q            <= request_i.fail;
    ended_q            <= wants && ended_i;
    early_q            <= at.soi0 || at.soi1;
    unfit_q            <= frame_unfit_i;
    bad_q              <= tables_bad_i;
    // Where there is no byte yet, another one follows before these count.
    if (at.marker || at.turn.data) begin
      marker_q        <= byte_i;
      parameterless_q <= parameterless(byte_i);
      other_segment_q <= other_segment(byte_i);
      frame_marker_q  <= frame_marker(byte_i);
      taken_q         <= byte_i[3:1] == Sof0[3:1] || (byte_i[3:0] == Sof2[3:0] && workspace_i);
      lossless_q      <= byte_i == Sof3;
      dqt_q           <= byte_i == Dqt;
      dht_q           <= byte_i == Dht;
      dri_q           <= byte_i == Dri;
      sos_q           <= byte_i == Sos;
      eoi_q           <= byte_i == Eoi;
      dhp_q           <= byte_i == Dhp;
      application_q   <= byte_i inside {App0, App14};
    end
    if (at.length0) high_zero_q <= byte_i == '0;
    high_q             <= high_d;
    length_q           <= begin_o ? {high_q, byte_i} - 16'd2
                                  : length_q - 16'(skipped | less_q | 9'(request_i.one));
    less_q             <= request_i.less;
    empty_q            <= begin_o ? {high_q, byte_i} == 16'd2
                                  : length_q == '0 || (length_q == 16'd1 &&
                                                       (request_i.one ||
                                                        (near && have_byte_i)));
    length_2_q         <= length_q == 16'd2;
    near_q             <= at.skip && length_q[15:5] == '0 && !far_q;
    frame_seen_q       <= frame_seen_d;
    progressive_q      <= progressive_d;
    scanned_q          <= scanned_d;
    needed_known_q     <= needed_known_d;
    file_end_q         <= file_end_d;
    restart_interval_q <= restart_interval_d;
    status_q           <= status_d;
  end

`ifndef SYNTHESIS
  a_over_in_turn: assert property (@(posedge clk_i) disable iff (!rst_ni)
      request_i.over == (over_i != '0) && (over_i & ~turn_o) == '0);
  a_scan_in_its_state: assert property (@(posedge clk_i) disable iff (!rst_ni)
      scan_valid_o && !no_state_q |-> at.headers && !fails);
`endif

endmodule
