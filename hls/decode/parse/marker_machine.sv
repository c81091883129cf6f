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
  input  logic         frame_unfit_i,
  input  logic         huffman_bad_i,

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

  // A state is a number, and bits that stand for it where a path is long: whose turn it is; that a
  // byte is taken as soon as there is one, whatever it is; that the byte is a marker; StSkip; any
  // but StIdle.
  typedef struct packed {
    turn_t      turn;
    logic       takes;
    logic       marks;
    logic       skips;
    logic       busy;
    logic [4:0] code;
  } state_t;

  localparam turn_t TurnFrame       = 7'b1000000;
  localparam turn_t TurnQuant       = 7'b0100000;
  localparam turn_t TurnHuffman     = 7'b0010000;
  localparam turn_t TurnStandard    = 7'b0001000;
  localparam turn_t TurnApplication = 7'b0000100;
  localparam turn_t TurnScan        = 7'b0000010;
  localparam turn_t TurnData        = 7'b0000001;

  localparam state_t StIdle        = {7'd0, 4'b0000, 5'd0};
  localparam state_t StSegment     = {7'd0, 4'b0001, 5'd1};
  localparam state_t StSkip        = {7'd0, 4'b0011, 5'd2};
  localparam state_t StFrame       = {TurnFrame, 4'b0001, 5'd3};
  localparam state_t StQuant       = {TurnQuant, 4'b0001, 5'd4};
  localparam state_t StHuffman     = {TurnHuffman, 4'b0001, 5'd5};
  localparam state_t StApplication = {TurnApplication, 4'b0001, 5'd6};
  localparam state_t StScan        = {TurnScan, 4'b1001, 5'd7};
  localparam state_t StScanCheck   = {7'd0, 4'b0001, 5'd8};
  localparam state_t StFileEnd     = {7'd0, 4'b0001, 5'd9};
  // Of several scans: whether this one goes on from those before.
  localparam state_t StProgression = {7'd0, 4'b0001, 5'd10};
  localparam state_t StScanStatus  = {7'd0, 4'b0001, 5'd11};
  // Tables of the standard, in place of those that the file lacks.
  localparam state_t StStandard    = {TurnStandard, 4'b0001, 5'd12};
  localparam state_t StHeaders     = {7'd0, 4'b0001, 5'd13};  // tells what the headers say
  localparam state_t StData        = {TurnData, 4'b0101, 5'd14};  // entropy-coded data
  localparam state_t StDataStatus  = {7'd0, 4'b0001, 5'd15};  // tokens at its end,
  localparam state_t StFileStatus  = {7'd0, 4'b0001, 5'd16};  // and at the file's
  localparam state_t StSoi0        = {7'd0, 4'b1001, 5'd17};  // 0xFF, SOI, 0xFF
  localparam state_t StSoi1        = {7'd0, 4'b1001, 5'd18};
  localparam state_t StSoi2        = {7'd0, 4'b1001, 5'd19};
  localparam state_t StMarker0     = {7'd0, 4'b1001, 5'd20};  // to 0xFF
  localparam state_t StMarker      = {7'd0, 4'b1101, 5'd21};  // fill bytes and the marker
  localparam state_t StLength0     = {7'd0, 4'b1001, 5'd22};
  localparam state_t StLength1     = {7'd0, 4'b1001, 5'd23};
  localparam state_t StRestart0    = {7'd0, 4'b1001, 5'd24};  // DRI
  localparam state_t StRestart1    = {7'd0, 4'b1001, 5'd25};

  state_t      state_d, state_q;
  logic        no_state_q;                 // state_q was none
  logic [7:0]  marker_d, marker_q;
  logic        parameterless_q, other_segment_q, frame_marker_q;  // what the marker is
  status_e     frame_type_q;
  logic [7:0]  high_d, high_q;             // the first byte of a pair
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
  logic        fail, fail_q, tells_q;
  logic        ended_q, early_q, unfit_q, bad_q;  // what has: no byte, that of SOI
  status_e     failure, failure_q;
  logic        next_segment;
  logic        wants;                      // a byte: without one the file is too short

  assign busy_o             = state_q.busy;
  assign header_o           = busy_o && !scanned_q;
  assign begin_o            = state_q.code == StLength1.code && have_byte_i;
  assign length_o           = length_q;
  assign empty_o            = empty_q;
  assign marker_o           = marker_q;
  assign failed_o           = fail_q;
  assign progressive_o      = progressive_q;
  assign scanned_o          = scanned_q;
  assign restart_interval_o = restart_interval_q;
  assign check_o            = state_q.code == StScanCheck.code;
  assign progression_o      = (state_q.code == StScanCheck.code && several_i) ||
                              state_q.code == StFileEnd.code;
  assign needed_known_o     = needed_known_q;
  assign status_o           = status_q;
  assign file_end_o         = file_end_q;
  assign trailer            = scanned_q && !several_i;
  assign turn_o             = state_q.turn;

  // The bits of a state that do not go with its number could wait for ever.
  function automatic logic is_state(state_t state);
    return state inside {
      StIdle, StSegment, StSkip, StFrame, StQuant, StHuffman, StApplication, StScan, StScanCheck,
      StFileEnd, StProgression, StScanStatus, StStandard, StHeaders, StData, StDataStatus,
      StFileStatus, StSoi0, StSoi1, StSoi2, StMarker0, StMarker, StLength0, StLength1, StRestart0,
      StRestart1};
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

  always_comb begin
    state_d            = state_q;
    // Where there is no byte yet, another one follows before the marker counts.
    marker_d           = state_q.marks ? byte_i : marker_q;
    high_d             = high_q;
    frame_seen_d       = frame_seen_q;
    progressive_d      = progressive_q;
    scanned_d          = scanned_q;
    needed_known_d     = needed_known_q;
    file_end_d         = file_end_q;
    restart_interval_d = restart_interval_q;
    status_d           = status_q;

    // StSkip begins when it is known whether it is far: the rest of a word is then never too much.
    // Near the end there is a byte a clock.
    near         = state_q.skips && near_q;
    take_rest_o  = far_q;
    wants        = state_q.takes || (state_q.skips && far_q) || (near && !empty_q) ||
                   request_i.wants;
    take_o       = state_q.takes || (near && !empty_q) || request_i.take;
    skipped      = take_rest_o ? 9'(left_i) : near && !empty_q && have_byte_i ? 9'd1 : 9'd0;
    fail         = 1'b0;
    failure      = StatusCorruptHeader;
    next_segment = 1'b0;

    token_valid_o = 1'b0;
    token_o       = data_i;

    unique case (state_q.code)
      StIdle.code: ;

      StSoi0.code: if (have_byte_i) begin
        state_d = StSoi1;
        fail    = byte_i != 8'hFF;
        failure = StatusNotJpeg;
      end
      StSoi1.code: if (have_byte_i) begin
        state_d = StSoi2;
        fail    = byte_i != Soi;
        failure = StatusNotJpeg;
      end
      // OpenCV knows a JPEG file by FF D8 FF; from there on it skips what libjpeg skips.
      StSoi2.code: if (have_byte_i) begin
        state_d = StMarker;
        fail    = byte_i != 8'hFF;
      end

      // As libjpeg, which warns: whatever is no marker is skipped, FF 00 too.
      StMarker0.code: if (have_byte_i) begin
        if (byte_i == 8'hFF) state_d = StMarker;
      end
      StMarker.code: if (have_byte_i) begin
        if (byte_i == '0) state_d = StMarker0;
        else if (byte_i != 8'hFF) state_d = StSegment;
      end

      // A frame type is judged before its segment, which may be missing.
      StSegment.code: begin
        state_d = StLength0;
        if (parameterless_q) begin
          state_d = StMarker0;
        end else if (marker_q == Eoi && scanned_q && several_i) begin
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

      StLength0.code: if (have_byte_i) begin
        high_d  = byte_i;
        state_d = StLength1;
      end
      StLength1.code: if (have_byte_i) begin
        if (high_q == '0 && byte_i[7:1] == '0) fail = 1'b1;  // less than 2
        else if (trailer) state_d = StSkip;
        else if (frame_marker_q) begin
          if (frame_seen_q) fail = 1'b1;
          frame_seen_d  = 1'b1;
          progressive_d = marker_q == Sof2;
          state_d       = StFrame;
        end else begin
          unique case (marker_q)
            Dqt:         state_d = StQuant;
            Dht:         state_d = StHuffman;
            Dri:         state_d = StRestart0;
            App0, App14: state_d = StApplication;
            Sos: begin
              if (!frame_seen_q) fail = 1'b1;
              state_d = StScan;
            end
            default:     state_d = StSkip;
          endcase
        end
      end

      StSkip.code: next_segment = near && empty_q;

      StFrame.code: begin
        next_segment = request_i.over;
        failure      = status_e'(request_i.failure);
      end
      StQuant.code, StHuffman.code: next_segment = request_i.over;
      StApplication.code:      if (request_i.over) state_d = StSkip;
      StScan.code: begin
        failure = status_e'(request_i.failure);
        if (request_i.over) state_d = StScanCheck;
      end

      StRestart0.code: if (have_byte_i) begin
        high_d  = byte_i;
        state_d = StRestart1;
      end
      StRestart1.code: if (have_byte_i) begin
        restart_interval_d = {high_q, byte_i};
        next_segment       = length_2_q;
        fail               = !length_2_q;
      end

      StScanCheck.code: begin
        status_d = scan_missing_i ? StatusMissingTable : StatusOk;
        state_d  = several_i ? StProgression
                 : !standard_i || scan_missing_i ? StHeaders : StStandard;
        fail     = scan_bad_i;
      end

      // ---- Several scans ----
      StFileEnd.code: begin
        status_d = StatusOk;
        state_d  = StProgression;
      end
      StProgression.code: if (progression_done_i) state_d = StScanStatus;
      StScanStatus.code: begin
        state_d = !standard_i || file_end_q || status_q != StatusOk ? StHeaders : StStandard;
        if (!progression_sound_i) begin
          fail    = 1'b1;
          failure = file_end_q ? StatusTruncated : StatusCorruptHeader;
        end else if (status_q == StatusOk && !scanned_q) begin
          needed_known_d = 1'b1;
          if (too_small_i) begin
            fail    = 1'b1;
            failure = StatusBufferTooSmall;
          end
        end
      end

      StStandard.code: if (request_i.over) state_d = StHeaders;

      StHeaders.code: begin
        if (scan_valid_o && scan_ready_i) begin
          scanned_d = 1'b1;
          state_d   = status_q == StatusOk && !file_end_q ? StData : StIdle;
        end
      end

      StData.code: begin
        token_valid_o = data_valid_i;
        if (data_over_i) begin
          status_d = ended_i || data_marker_i == Eoi ? StatusTruncated : StatusCorruptHuffman;
          high_d   = data_marker_i;
          state_d  = StDataStatus;
        end
      end
      StDataStatus.code: begin
        token_valid_o = 1'b1;
        token_o       = '{kind: TokenScanEnd, two: 1'b0, data: {8'd0, status_q}};
        if (token_ready_i) begin
          state_d = high_q != '0 ? StSegment : several_i ? StHeaders : StFileStatus;
        end
      end
      StFileStatus.code: begin
        token_valid_o = 1'b1;
        token_o       = '{kind: TokenFileEnd, two: 1'b0, data: {8'd0, status_q}};
        if (token_ready_i) state_d = StIdle;
      end
      default: state_d = StIdle;
    endcase

    if (request_i.fail || (wants && ended_i) || frame_unfit_i || huffman_bad_i) fail = 1'b1;
    if (next_segment) state_d = StMarker0;
    // Whatever the byte was for, the file is too short; but first comes what was wrong before it.
    if (fail_q) begin
      status_d = bad_q   ? StatusCorruptHeader :
                 unfit_q ? StatusSampling :
                 ended_q ? (early_q ? StatusNotJpeg : StatusTruncated) : failure_q;
      state_d       = trailer ? StFileStatus : StHeaders;
      token_valid_o = 1'b0;
    end
    if (stop_i && scanned_q && state_q.busy &&
        state_q.code != StFileStatus.code) begin
      state_d       = StFileStatus;
      token_valid_o = 1'b0;
    end
    if (start_i) begin
      state_d            = StSoi0;
      frame_seen_d       = 1'b0;
      progressive_d      = 1'b0;
      scanned_d          = 1'b0;
      needed_known_d     = 1'b0;
      file_end_d         = 1'b0;
      restart_interval_d = '0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni || no_state_q) begin
      state_q      <= StIdle;
      fail_q       <= 1'b0;
      tells_q      <= 1'b0;
      scan_valid_o <= 1'b0;
      far_q        <= 1'b0;
    end else begin
      far_q   <= state_q.skips && length_q[15:5] != '0 && !start_i;
      state_q <= state_d;
      fail_q  <= fail && !fail_q && !start_i && !tells_q;  // it has been told, or is about to be
      tells_q <= fail_q || (tells_q && state_q.code == StHeaders.code);
      // When all codes are in the tables. A register, as both decoders and render wait for it.
      scan_valid_o <= state_q.code == StHeaders.code && huffman_drained_i && !fail_q && !stop_i &&
                      !start_i && !(scan_valid_o && scan_ready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    no_state_q         <= rst_ni && !is_state(state_q);
    failure_q          <= failure;
    ended_q            <= wants && ended_i;
    early_q            <= state_q.code == StSoi0.code || state_q.code == StSoi1.code;
    unfit_q            <= frame_unfit_i;
    bad_q              <= huffman_bad_i;
    marker_q           <= marker_d;
    parameterless_q    <= parameterless(marker_d);
    other_segment_q    <= other_segment(marker_d);
    frame_marker_q     <= frame_marker(marker_d);
    frame_type_q       <= frame_type_status(marker_d, workspace_i);
    high_q             <= high_d;
    length_q           <= begin_o ? {high_q, byte_i} - 16'd2
                                  : length_q - 16'(skipped | less_q | 9'(request_i.one));
    less_q             <= request_i.less;
    empty_q            <= begin_o ? {high_q, byte_i} == 16'd2
                                  : length_q == '0 || (length_q == 16'd1 &&
                                                       (request_i.one ||
                                                        (near && have_byte_i)));
    length_2_q         <= length_q == 16'd2;
    near_q             <= state_q.skips && length_q[15:5] == '0 && !far_q;
    frame_seen_q       <= frame_seen_d;
    progressive_q      <= progressive_d;
    scanned_q          <= scanned_d;
    needed_known_q     <= needed_known_d;
    file_end_q         <= file_end_d;
    restart_interval_q <= restart_interval_d;
    status_q           <= status_d;
  end

`ifndef SYNTHESIS
  a_scan_in_its_state: assert property (@(posedge clk_i) disable iff (!rst_ni)
      scan_valid_o && !no_state_q |-> state_q.code == StHeaders.code && !fail_q);
`endif

endmodule
