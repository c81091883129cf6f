// re * re + im * im, rounded from LSB 2^-44 to 2^-31: power() of mel.cpp.
//
// Throughput  one a clock. Latency four clocks.
module power
  import mel_pkg::*;
(
  input  logic   clk_i,
  input  wide_t  re_i,  // LSB 2^-22
  input  wide_t  im_i,
  output power_t power_o
);

  logic signed [17:0] re_high, im_high, re_low, im_low;
  logic signed [35:0] re_high_1, im_high_1, re_middle_1, im_middle_1;
  logic        [33:0] re_low_1, im_low_1;
  logic signed [36:0] high_2, middle_2;
  logic        [34:0] low_2;
  logic        [54:0] high_3;
  logic        [21:0] low_3;

  assign re_high = re_i[34:17];
  assign im_high = im_i[34:17];
  assign re_low  = {1'b0, re_i[16:0]};
  assign im_low  = {1'b0, im_i[16:0]};

  always_ff @(posedge clk_i) begin
    re_high_1   <= re_high * re_high;
    im_high_1   <= im_high * im_high;
    re_middle_1 <= re_high * re_low;
    im_middle_1 <= im_high * im_low;
    re_low_1    <= re_i[16:0] * re_i[16:0];
    im_low_1    <= im_i[16:0] * im_i[16:0];

    high_2   <= 37'(re_high_1) + 37'(im_high_1);
    middle_2 <= 37'(re_middle_1) + 37'(im_middle_1);
    low_2    <= 35'(re_low_1) + 35'(im_low_1) + 35'd4096;

    high_3 <= {high_2[33:0], 21'd0} + {{13{middle_2[36]}}, middle_2, 5'd0};
    low_3  <= low_2[34:13];

    power_o <= high_3 + 55'(low_3);
  end

endmodule
