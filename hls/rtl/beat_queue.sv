// The end of an image unit: a queue of pixels, and beats out of it of which the last one waits for
// the input's end.
//
// Interface   pixels without back-pressure: `room_o` says that the queue is at most half full, a
//             clock ago. `pass_i`: the input has ended well, and the last beat may leave. `end_i`:
//             nothing more comes; without `pass_i` a beat with `status_i` and no pixels takes the
//             place of the last one, or follows where there is none.
// Throughput  a beat a clock. Latency one clock.
module beat_queue
  import headrace_pkg::*;
#(
  parameter int unsigned Depth = 32  // a power of two
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  pixel_t [1:0] pixel_i,
  input  logic         both_i,  // else only the left one
  input  logic         last_i,  // of the frame
  input  logic         valid_i,
  output logic         room_o,

  input  logic         pass_i,
  input  logic         end_i,
  input  status_e      status_i,

  output beat_t        beat_o,
  output logic         beat_valid_o,
  input  logic         beat_ready_i,
  output logic         last_leaves_o
);

  pixel_t [1:0]           pixel;
  logic                   both, last, valid, ends;
  logic [$clog2(Depth):0] beats;

  always_ff @(posedge clk_i) room_o <= beats < ($clog2(Depth) + 1)'(Depth / 2);

  stream_fifo #(
    .Width(50),
    .Depth(Depth)
  ) u_beats (
    .clk_i,
    .rst_ni,
    .data_i ({pixel_i, both_i, last_i}),
    .valid_i,
    .ready_o(),
    .data_o ({pixel, both, last}),
    .valid_o(valid),
    .ready_i(beat_ready_i && beat_valid_o),
    .count_o(beats)
  );

  assign ends          = end_i && (!valid || (last && !pass_i));
  assign beat_valid_o  = ends || (valid && (!last || pass_i));
  assign last_leaves_o = beat_valid_o && beat_ready_i && beat_o.last;

  assign beat_o.pixel  = ends ? '0 : pixel;
  assign beat_o.keep   = ends ? 2'b00 : {both, 1'b1};
  assign beat_o.last   = ends || last;
  assign beat_o.status = ends ? status_i : StatusOk;

`ifndef SYNTHESIS
  a_queue_has_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(valid_i && beats == ($clog2(Depth) + 1)'(Depth)));
  a_beat_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    beat_valid_o && !beat_ready_i |=> beat_valid_o && $stable(beat_o));
`endif

endmodule
