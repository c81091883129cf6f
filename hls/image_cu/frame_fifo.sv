// Short FIFOs for the frame and the beats between two image units, and a note of the stream's end.
//
// Interface   ready/valid on both sides, see headrace_pkg.sv; Beat is beat_t or source_beat_t.
//             `ended_o` rises when the last of a request has left: a frame with an error, or a beat
//             with `last`; it stands until `clear_i`, which leaves the FIFOs as they are.
// Throughput  a beat a clock. Latency one clock.
module frame_fifo
  import headrace_pkg::*;
#(
  parameter int unsigned Depth = 32,  // beats; a power of two, up to 32 cost the same
  parameter type         Beat  = beat_t
) (
  input  logic   clk_i,
  input  logic   rst_ni,
  input  logic   clear_i,
  output logic   ended_o,

  input  frame_t frame_i,
  input  logic   frame_valid_i,
  output logic   frame_ready_o,
  input  Beat    beat_i,
  input  logic   beat_valid_i,
  output logic   beat_ready_o,

  output frame_t frame_o,
  output logic   frame_valid_o,
  input  logic   frame_ready_i,
  output Beat    beat_o,
  output logic   beat_valid_o,
  input  logic   beat_ready_i
);

  stream_fifo #(.Width($bits(frame_t)), .Depth(2)) u_frame (
    .clk_i, .rst_ni,
    .data_i (frame_i),
    .valid_i(frame_valid_i),
    .ready_o(frame_ready_o),
    .data_o (frame_o),
    .valid_o(frame_valid_o),
    .ready_i(frame_ready_i),
    .count_o()
  );

  stream_fifo #(.Width($bits(Beat)), .Depth(Depth)) u_beat (
    .clk_i, .rst_ni,
    .data_i (beat_i),
    .valid_i(beat_valid_i),
    .ready_o(beat_ready_o),
    .data_o (beat_o),
    .valid_o(beat_valid_o),
    .ready_i(beat_ready_i),
    .count_o()
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) ended_o <= 1'b0;
    else if (frame_valid_o && frame_ready_i && frame_o.status != StatusOk) ended_o <= 1'b1;
    else if (beat_valid_o && beat_ready_i && beat_o.last) ended_o <= 1'b1;
  end

endmodule
