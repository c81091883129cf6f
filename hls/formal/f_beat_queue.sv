// The properties of beat_queue: pixels stay in order and none is lost, a beat that waits stays, and
// a frame's last beat waits for the end of the input.
//
// Depth 8 stands for all: the queue is a stream_fifo, of which f_stream_fifo has the proof. Of the
// pixels one bit is kept, and the other bits are 0: each travels like the first.
module f_beat_queue
  import headrace_pkg::*;
#(
  parameter int unsigned Depth = 8
) (
  input logic       clk_i,
  input logic       rst_ni,
  input logic       mark_i,
  input logic       bit_i,
  input logic       both_i,
  input logic       last_i,
  input logic       valid_i,
  input logic       pass_i,
  input logic       end_i,
  input status_e    status_i,
  input logic       beat_ready_i
);

  localparam int unsigned Bits = $clog2(Depth);

  pixel_t [1:0]  pixel_i;
  beat_t         beat_o;
  logic          room_o, beat_valid_o, last_leaves_o, leaves;
  logic          past_q = 1'b0, up_q = 1'b0;
  logic [Bits:0] late_q;   // words that came since there was room
  logic          pass_q, end_q, ended_q;
  status_e       status_q;

  assign pixel_i = 48'(bit_i);
  beat_queue #(.Depth(Depth)) u (.*);

  // Pixels leave with each beat but those that end a frame early.
  assign leaves = u.valid && u.beat_ready_i && u.beat_valid_o;
  stream_checker #(.Width(3), .Depth(Depth)) u_check (
    .clk_i, .rst_ni, .mark_i,
    .in_i ({bit_i, both_i, last_i}),        .in_valid_i (valid_i), .in_ready_i(u.u_beats.ready_o),
    .out_i({u.pixel[0].b[0], u.both, u.last}), .out_valid_i(u.valid), .out_ready_i(leaves),
    .inside_i(($clog2(Depth + 1) + 1)'(u.beats))
  );

  logic  held_q;
  beat_t held_beat_q;
  always_ff @(posedge clk_i) begin
    past_q      <= 1'b1;
    up_q        <= rst_ni;
    held_q      <= rst_ni && beat_valid_o && !beat_ready_i;
    held_beat_q <= beat_o;
    pass_q      <= rst_ni && pass_i && !last_leaves_o;
    end_q       <= rst_ni && end_i && !last_leaves_o;
    status_q    <= status_i;
    if (!rst_ni || room_o) late_q <= '0;
    else late_q <= late_q + (Bits + 1)'(valid_i);
  end

  always_comb begin
    if (!past_q) m_first_clock_resets: assume (!rst_ni);
    m_stops_without_room: assume (!(valid_i && up_q && !room_o) || 32'(late_q) < Depth / 2 - 1);
    m_silent_behind_reset: assume (up_q || !valid_i);
    m_end_is_the_end: assume (!(end_i && valid_i));
    m_end_stays: assume (!end_q || (end_i && status_i == status_q));
    m_pass_stays: assume (!pass_q || pass_i);
    m_pass_comes_before_end: assume (!(end_q && !pass_q) || !pass_i);
    if (past_q) begin
      a_queue_has_room: assert (!(valid_i && 32'(u.beats) == Depth));
      a_beat_stays: assert (!held_q || (beat_valid_o && beat_o == held_beat_q));
      a_last_waits: assert (!(beat_valid_o && beat_o.last) || pass_i || end_i);
      a_ok_is_passed: assert (!(beat_valid_o && beat_o.last && beat_o.keep != '0) || pass_i);
      a_error_has_no_pixels: assert (!(beat_valid_o && beat_o.keep == '0) ||
                                     (beat_o.last && end_i && beat_o.pixel == '0));
      h_room: assert (!up_q || room_o || 32'(u.beats) <= Depth / 2 + 1 + 32'(late_q));
      h_room_now: assert (!up_q || !room_o || 32'(u.beats) <= Depth / 2);
      h_pointers: assert (u.u_beats.tail_q == u.u_beats.head_q + Bits'(u.beats));
      h_followed: assert (!u_check.follows_q ||
          {u.u_beats.memory[u.u_beats.head_q + Bits'(u_check.ahead_q)][2], // the pixel's bit
           u.u_beats.memory[u.u_beats.head_q + Bits'(u_check.ahead_q)][1:0]} == u_check.word_q);
      c_error_ends: cover (last_leaves_o && beat_o.keep == '0 && beat_o.status == StatusTruncated);
      c_last_passes: cover (last_leaves_o && beat_o.keep == 2'b11);
    end
  end

endmodule
