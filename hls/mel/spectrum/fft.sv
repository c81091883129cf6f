// DFT of 256 or 200 complex points, without the scale: see fft_stage and fft_fifths.
//
// Interface   of 256 points a frame in 128 consecutive clocks as pairs of points t and t + 128, the
//             first one told by `start_i`; out as pairs of points k and k + 128, k = 0 to 127 with
//             its seven bits reversed. Of 200 points in as fft_fifths has it; out in 100 clocks as
//             pairs of points k and k + 100, see spectrum. `points_400_i` stands still while a
//             frame is inside.
// Throughput  two points a clock. Latency 173 clocks; with 200 points 296.
module fft
  import mel_pkg::*;
(
  input  logic   clk_i,
  input  logic   rst_ni,
  input  logic   points_400_i,
  input  logic   start_i,
  input  point_t low_i,
  input  point_t high_i,
  output logic   start_o,
  output point_t low_o,
  output point_t high_o
);

  logic   [8:0]      start;
  logic   [7:0]      start_in;
  point_t [8:0]      low, high;
  point_t [7:0]      low_in, high_in;
  logic              start_fifths, swapped;
  point_t            low_fifths, high_fifths;
  logic   [7:0][7:0] turn_index;
  wide_t  [7:0]      turn_re, turn_im;
  half_t  [7:0]      turned_re, turned_im;

  assign start[0] = start_i && !points_400_i;
  assign low[0]   = low_i;
  assign high[0]  = high_i;

  for (genvar i = 0; i < 8; i++) begin : gen_stage
    if (i == 5) begin : gen_join
      assign start_in[i] = points_400_i ? start_fifths : start[i];
      assign low_in[i]   = points_400_i ? low_fifths : low[i];
      assign high_in[i]  = points_400_i ? high_fifths : high[i];
    end else begin : gen_next
      assign start_in[i] = start[i];
      assign low_in[i]   = low[i];
      assign high_in[i]  = high[i];
    end
    if (i >= 4) begin : gen_unshared
      assign turn_index[i] = '0;
      assign turn_re[i]    = '0;
      assign turn_im[i]    = '0;
    end
    fft_stage #(.Stage(i)) i_stage (
      .clk_i,
      .rst_ni,
      .points_400_i,
      .start_i      (start_in[i]),
      .swapped_i    (swapped),
      .low_i        (low_in[i]),
      .high_i       (high_in[i]),
      .start_o      (start[i+1]),
      .low_o        (low[i+1]),
      .high_o       (high[i+1]),
      .turn_index_i (turn_index[i]),
      .turn_re_i    (turn_re[i]),
      .turn_im_i    (turn_im[i]),
      .turn_re_o    (turned_re[i]),
      .turn_im_o    (turned_im[i])
    );
  end

  fft_fifths i_fifths (
    .clk_i,
    .rst_ni,
    .start_i      (start_i && points_400_i),
    .low_i,
    .high_i,
    .turn_index_o (turn_index[3:0]),
    .turn_re_o    (turn_re[3:0]),
    .turn_im_o    (turn_im[3:0]),
    .turn_re_i    (turned_re[3:0]),
    .turn_im_i    (turned_im[3:0]),
    .start_o      (start_fifths),
    .swapped_o    (swapped),
    .low_o        (low_fifths),
    .high_o       (high_fifths)
  );

  assign start_o = start[8];
  assign low_o   = low[8];
  assign high_o  = high[8];

endmodule
