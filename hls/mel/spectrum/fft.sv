// FFT of 256 complex points, without the scale: see fft_stage.
//
// Interface   a frame in 128 consecutive clocks as pairs of points t and t + 128, the first one
//             told by `start_i`; out as pairs of points k and k + 128, k = 0 to 127 with its seven
//             bits reversed.
// Throughput  two points a clock. Latency 169 clocks.
module fft
  import mel_pkg::*;
(
  input  logic   clk_i,
  input  logic   rst_ni,
  input  logic   start_i,
  input  point_t low_i,
  input  point_t high_i,
  output logic   start_o,
  output point_t low_o,
  output point_t high_o
);

  logic   [8:0] start;
  point_t [8:0] low, high;

  assign start[0] = start_i;
  assign low[0]   = low_i;
  assign high[0]  = high_i;

  for (genvar i = 0; i < 8; i++) begin : gen_stage
    fft_stage #(.Stage(i)) i_stage (
      .clk_i,
      .rst_ni,
      .start_i (start[i]),
      .low_i   (low[i]),
      .high_i  (high[i]),
      .start_o (start[i+1]),
      .low_o   (low[i+1]),
      .high_o  (high[i+1])
    );
  end

  assign start_o = start[8];
  assign low_o   = low[8];
  assign high_o  = high[8];

endmodule
