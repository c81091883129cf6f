// A complex number times exp(-j a), given the cosine and sine of a; see rounded() of mel.cpp.
//
// Arithmetic  exact products of 35 and 27 bits (two DSPs each, 18 and 17 bits of the number),
//             rounded once, half up, to LSB 2^Shift of the number's.
// Throughput  one a clock. Latency four clocks.
module rotate
  import mel_pkg::*;
#(
  parameter int unsigned Shift = 0
) (
  input  logic               clk_i,
  input  wide_t              re_i,
  input  wide_t              im_i,
  input  factor_t            cosine_i,
  input  factor_t            sine_i,
  output logic signed [35:0] re_o,
  output logic signed [35:0] im_o
);

  wide_t   re_1, im_1;
  factor_t cosine_1, sine_1;

  always_ff @(posedge clk_i) begin
    re_1     <= re_i;
    im_1     <= im_i;
    cosine_1 <= cosine_i;
    sine_1   <= sine_i;
  end

  logic signed [17:0] re_high, im_high, re_low, im_low;
  assign re_high = re_1[34:17];
  assign im_high = im_1[34:17];
  assign re_low  = {1'b0, re_1[16:0]};
  assign im_low  = {1'b0, im_1[16:0]};

  logic signed [44:0] re_cos_high_2, re_sin_high_2, im_cos_high_2, im_sin_high_2;
  logic signed [44:0] re_cos_low_2, re_sin_low_2, im_cos_low_2, im_sin_low_2;
  logic signed [45:0] re_high_3, im_high_3, re_low_3, im_low_3;
  logic signed [63:0] re_4, im_4;

  always_ff @(posedge clk_i) begin
    re_cos_high_2 <= re_high * cosine_1;
    re_sin_high_2 <= re_high * sine_1;
    im_cos_high_2 <= im_high * cosine_1;
    im_sin_high_2 <= im_high * sine_1;
    re_cos_low_2  <= re_low * cosine_1;
    re_sin_low_2  <= re_low * sine_1;
    im_cos_low_2  <= im_low * cosine_1;
    im_sin_low_2  <= im_low * sine_1;

    // The half that rounds is a multiple of 2^17.
    re_high_3 <= 46'(re_cos_high_2) + 46'(im_sin_high_2) + (46'sd1 << (7 + Shift));
    im_high_3 <= 46'(im_cos_high_2) - 46'(re_sin_high_2) + (46'sd1 << (7 + Shift));
    re_low_3  <= 46'(re_cos_low_2) + 46'(im_sin_low_2);
    im_low_3  <= 46'(im_cos_low_2) - 46'(re_sin_low_2);

    re_4 <= {re_high_3[45], re_high_3, 17'd0} + 64'(re_low_3);
    im_4 <= {im_high_3[45], im_high_3, 17'd0} + 64'(im_low_3);
  end

  assign re_o = re_4[25+Shift+:36];
  assign im_o = im_4[25+Shift+:36];

endmodule
