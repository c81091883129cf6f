// Source beats to beats of two pixels, for units that take no more.
//
// Interface   ready/valid on both sides, see headrace_pkg.sv. Left pixels leave first; a beat
//             without pixels leaves as one.
// Throughput  two pixels a clock. Latency none: nothing is stored, and with two pixels in a source
//             beat this is wires.
module beat_split
  import headrace_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  source_beat_t beat_i,
  input  logic         beat_valid_i,
  output logic         beat_ready_o,

  output beat_t        beat_o,
  output logic         beat_valid_o,
  input  logic         beat_ready_i
);

  localparam int unsigned Parts    = SourcePixels / 2;
  localparam int unsigned PartBits = Parts > 1 ? $clog2(Parts) : 1;

  if (SourcePixels != 2 && SourcePixels != 4) begin : gen_bad_pixels
    $fatal(1, "%m: config_pkg::Pixels must be 2 or 4");
  end

  pixel_t [Parts-1:0][1:0] pixel;
  logic   [Parts:0][1:0]   keep;  // and nothing behind the last part
  logic   [PartBits-1:0]   part_q;
  logic                    ends;  // the last part that has pixels

  assign pixel = beat_i.pixel;
  assign keep  = {2'b00, beat_i.keep};
  assign ends  = !keep[(PartBits+1)'(part_q) + (PartBits+1)'(1)][0];

  assign beat_o.pixel  = pixel[part_q];
  assign beat_o.keep   = keep[part_q];
  assign beat_o.last   = beat_i.last && ends;
  assign beat_o.status = ends ? beat_i.status : StatusOk;
  assign beat_valid_o  = beat_valid_i;
  assign beat_ready_o  = beat_ready_i && ends;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || (beat_valid_i && beat_ready_o)) part_q <= '0;
    else if (beat_valid_i && beat_ready_i) part_q <= part_q + 1'b1;
  end

endmodule
