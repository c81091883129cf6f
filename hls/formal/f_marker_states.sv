// The state machine of marker_machine leads to its rest from any state and from bits that are none,
// whatever the headers and the last failure say, when the file has ended. All that its readers and
// decoders say is free.
//
// A reader asks while it is its turn, and its failures are none with StatusOk. The tables take all
// codes.
module f_marker_states
  import headrace_pkg::*;
  import parse_pkg::*;
(
  input logic       clk_i,
  input logic       workspace_i,
  input logic [7:0] byte_i,
  input logic [4:0] left_i,
  input request_t   request_i,
  input turn_t      over_i,
  input logic       frame_unfit_i,
  input logic       tables_bad_i,
  input logic       several_i,
  input logic       scan_bad_i,
  input logic       scan_missing_i,
  input logic       standard_i,
  input logic       progression_done_i,
  input logic       progression_sound_i,
  input logic       too_small_i,
  input logic       scan_ready_i,
  input logic       data_over_i,
  input logic [7:0] data_marker_i,
  input logic       token_ready_i
);

  logic  scan_valid_o;
  turn_t turn_o;

  // verilator lint_off PINMISSING
  marker_machine u (
    .clk_i, .workspace_i, .byte_i, .left_i, .request_i, .over_i, .frame_unfit_i, .tables_bad_i,
    .several_i, .scan_bad_i, .scan_missing_i, .standard_i, .progression_done_i, .progression_sound_i,
    .too_small_i, .scan_ready_i, .data_over_i, .data_marker_i, .token_ready_i, .scan_valid_o,
    .turn_o, .rst_ni(1'b1), .start_i(1'b0), .stop_i(1'b0), .have_byte_i(1'b0), .ended_i(1'b1),
    .huffman_drained_i(1'b1), .data_valid_i(1'b0)
  );
  // verilator lint_on PINMISSING

  logic       none;   // the state is none
  logic       skips;  // StSkip knows whether its end is near
  logic       sound;  // no status says that no data follow the next headers
  logic       reads;  // a reader's turn
  logic       answers, asked_moved, done_moved, taken_moved, over_moved, token_moved;
  logic [7:0] rank, of_state, headers, failed, told;
  assign none    = !u.is_state(u.state_q);
  assign skips   = u.near_q || u.far_q;
  assign sound   = u.status_q == StatusOk && !u.file_end_q;
  assign reads   = turn_o.frame || turn_o.quant || turn_o.huffman || turn_o.standard ||
                   turn_o.application || turn_o.scan;
  assign answers = !reads || over_i != '0 || request_i.fail || request_i.wants ||
                   frame_unfit_i || tables_bad_i;

  // A failure that was found acts in this clock: the headers are told, or the file's end.
  assign failed = u.status_d == StatusOk && !u.file_end_q ? 8'd17 : 8'd4;
  // One that has been told is not found again; a clock later it is.
  assign told   = 8'(u.tells_q);

  always_comb begin
    headers = sound ? 8'd13 : 8'd0;
    unique case (1'b1)
      u.at.idle:               of_state = 8'd0;
      u.at.file_status:        of_state = 8'd1 + 8'(token_moved);
      u.at.headers:            of_state = headers + (scan_valid_o ? 8'd1 + 8'(taken_moved) : 8'd3);
      u.at.turn.data:          of_state = 8'd12 + 8'(over_moved);
      u.at.data_status:        of_state = (sound ? 8'd17 : 8'd10) + 8'(token_moved);
      u.at.segment:            of_state = 8'd9;
      u.at.file_end:           of_state = u.file_end_q ? 8'd8 : 8'd26;
      u.at.progression:        of_state = (sound ? 8'd24 : 8'd6) + 8'(done_moved);
      u.at.scan_status:        of_state = sound ? 8'd23 : 8'd5;
      u.at.turn.standard:      of_state = headers + 8'd5 + 8'(asked_moved) + 8'd3 * told;
      u.at.scan_check:         of_state = u.file_end_q ? 8'd12 : 8'd26;
      u.at.turn.scan:          of_state = 8'd27 + 8'(asked_moved) + 8'd3 * told;
      u.at.turn.application:   of_state = 8'd10 + 8'(asked_moved) + 8'd3 * told;
      u.at.turn.frame, u.at.turn.quant, u.at.turn.huffman:
                               of_state = 8'd7 + 8'(asked_moved) + 8'd3 * told;
      u.at.skip:               of_state = u.tells_q ? 8'd9 : skips ? 8'd7 : 8'd8;
      default:                 of_state = 8'd5 + told;
    endcase
    if (u.no_state_q) rank = 8'(u.state_q != u.StIdle);
    else if (none) rank = 8'd2;
    else rank = u.fails ? failed : of_state;
  end

  state_checker #(.Moves(5)) u_check (
    .clk_i,
    .rank_i (rank),
    .moves_i({answers, progression_done_i, scan_ready_i, data_over_i, token_ready_i}),
    .moved_o({asked_moved, done_moved, taken_moved, over_moved, token_moved})
  );

  always_comb begin
    m_asks_in_turn: assume (reads || (request_i == '0 && !frame_unfit_i && !tables_bad_i));
    m_over_in_turn: assume ((over_i & ~turn_o) == '0 && request_i.over == (over_i != '0));
    m_failures_say_why: assume (!request_i.fail || request_i.failure != StatusOk);
  end

endmodule
