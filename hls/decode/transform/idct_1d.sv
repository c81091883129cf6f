// One dimension of the inverse DCT: eight values in, eight values out, every clock.
//
// Reference   inverse_dct in decode.cpp: Loeffler, Ligtenberg and Moschytz with constants in Q2.13,
//             divided by 2^Shift and rounded. Word widths are those of libjpeg-turbo's AVX2 code:
//             in0 +- in4, in7 + in3 and in5 + in1 wrap in 16 bits, all other sums are exact and fit
//             32 bits for any input.
// Interface   `valid_i` marks the clocks with data; nothing stalls. The result saturates to
//             OutputWidth bits, or wraps if `wrap_i` was set: that is what libjpeg-turbo does with
//             blocks whose coefficients are all in the first row, for which the transform of a
//             column is a shift to the left.
// Throughput  one transform a clock. Latency 8 clocks. 12 multipliers of 17x16 bits, each with a
//             register before and two behind it.
module idct_1d #(
  parameter int unsigned Shift       = 11,
  parameter int unsigned OutputWidth = 16
) (
  input  logic                            clk_i,
  input  logic                            rst_ni,

  input  logic [7:0][15:0]                in_i,    // signed
  input  logic                            wrap_i,
  input  logic                            valid_i,

  output logic [7:0][OutputWidth-1:0]     out_o,   // signed
  output logic                            valid_o
);

  localparam int unsigned Latency  = 8;
  localparam int unsigned SumWidth = 32 - Shift;

  if (Shift < 1 || SumWidth <= OutputWidth) begin : gen_bad_shift
    $fatal(1, "%m: more than OutputWidth bits must be left of 32 after Shift");
  end

  localparam logic [31:0] Half = 32'd1 << (Shift - 1);

  typedef logic signed [15:0] word_t;
  typedef logic signed [16:0] sum_t;
  typedef logic signed [31:0] product_t;

  // Q2.13, the names of jidctint.c.
  localparam word_t Fix0_298 = 16'sd2446;
  localparam word_t Fix0_390 = 16'sd3196;
  localparam word_t Fix0_541 = 16'sd4433;
  localparam word_t Fix0_765 = 16'sd6270;
  localparam word_t Fix0_899 = 16'sd7373;
  localparam word_t Fix1_175 = 16'sd9633;
  localparam word_t Fix1_501 = 16'sd12299;
  localparam word_t Fix1_847 = 16'sd15137;
  localparam word_t Fix1_961 = 16'sd16069;
  localparam word_t Fix2_053 = 16'sd16819;
  localparam word_t Fix2_562 = 16'sd20995;
  localparam word_t Fix3_072 = 16'sd25172;

  logic [Latency-1:0] valid_q;
  logic [Latency-2:0] wrap_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q <= '0;
    else         valid_q <= {valid_q[Latency-2:0], valid_i};
  end
  always_ff @(posedge clk_i) wrap_q <= {wrap_q[Latency-3:0], wrap_i};

  // ---- Clock 1: sums in front of the multipliers ----
  word_t in[8];
  for (genvar i = 0; i < 8; i++) begin : gen_in
    assign in[i] = word_t'(in_i[i]);
  end

  word_t s04_q, d04_q, z3_q, z4_q;              // wrap
  sum_t  s26_q, s17_q, s35_q;                   // exact
  word_t in1_q, in2_q, in3_q, in5_q, in6_q, in7_q;

  always_ff @(posedge clk_i) begin
    s04_q <= in[0] + in[4];
    d04_q <= in[0] - in[4];
    z3_q  <= in[7] + in[3];
    z4_q  <= in[5] + in[1];
    s26_q <= sum_t'(in[2]) + sum_t'(in[6]);
    s17_q <= sum_t'(in[1]) + sum_t'(in[7]);
    s35_q <= sum_t'(in[3]) + sum_t'(in[5]);
    in1_q <= in[1];
    in2_q <= in[2];
    in3_q <= in[3];
    in5_q <= in[5];
    in6_q <= in[6];
    in7_q <= in[7];
  end

  // ---- Clocks 2 and 3: products ----
  product_t m26_q, m2_q, m6_q, m17_q, m35_q, m1_q, m3_q, m5_q, m7_q, mz3_q, mz4_q;
  product_t p26_q, p2_q, p6_q, p17_q, p35_q, p1_q, p3_q, p5_q, p7_q, pz3_q, pz4_q;
  sum_t     z34_q;
  product_t mz34_q;
  product_t tmp0_q, tmp1_q, tmp0_q2, tmp1_q2;   // with the rounding term

  function automatic product_t even_part(word_t sum);
    logic signed [31:0] scaled;
    scaled = {{3{sum[15]}}, sum, 13'd0};
    return Shift <= 13 ? (scaled | Half) : (scaled + Half);
  endfunction

  always_ff @(posedge clk_i) begin
    m26_q  <= s26_q * Fix0_541;
    m2_q   <= in2_q * Fix0_765;
    m6_q   <= in6_q * Fix1_847;
    m17_q  <= s17_q * Fix0_899;
    m35_q  <= s35_q * Fix2_562;
    m1_q   <= in1_q * Fix1_501;
    m3_q   <= in3_q * Fix3_072;
    m5_q   <= in5_q * Fix2_053;
    m7_q   <= in7_q * Fix0_298;
    mz3_q  <= z3_q * Fix1_961;
    mz4_q  <= z4_q * Fix0_390;
    z34_q  <= sum_t'(z3_q) + sum_t'(z4_q);
    tmp0_q <= even_part(s04_q);
    tmp1_q <= even_part(d04_q);

    p26_q   <= m26_q;
    p2_q    <= m2_q;
    p6_q    <= m6_q;
    p17_q   <= m17_q;
    p35_q   <= m35_q;
    p1_q    <= m1_q;
    p3_q    <= m3_q;
    p5_q    <= m5_q;
    p7_q    <= m7_q;
    pz3_q   <= mz3_q;
    pz4_q   <= mz4_q;
    mz34_q  <= z34_q * Fix1_175;
    tmp0_q2 <= tmp0_q;
    tmp1_q2 <= tmp1_q;
  end

  // ---- Clock 4: even part of two products, the odd part without z3 and z4 ----
  product_t tmp2_q, tmp3_q, tmp0_q3, tmp1_q3;
  product_t odd_q[4], odd_q2[4], odd_q3[4];
  product_t pz34_q, pz3_q2, pz4_q2;

  always_ff @(posedge clk_i) begin
    tmp2_q   <= p26_q - p6_q;
    tmp3_q   <= p26_q + p2_q;
    tmp0_q3  <= tmp0_q2;
    tmp1_q3  <= tmp1_q2;
    odd_q[0] <= p1_q - p17_q;
    odd_q[1] <= p3_q - p35_q;
    odd_q[2] <= p5_q - p35_q;
    odd_q[3] <= p7_q - p17_q;
    pz34_q   <= mz34_q;
    pz3_q2   <= pz3_q;
    pz4_q2   <= pz4_q;
  end

  // ---- Clocks 5 and 6: both parts ----
  product_t even_q[4], even_q2[4];
  product_t z3_sum_q, z4_sum_q;

  always_ff @(posedge clk_i) begin
    even_q[0] <= tmp0_q3 + tmp3_q;
    even_q[1] <= tmp1_q3 + tmp2_q;
    even_q[2] <= tmp1_q3 - tmp2_q;
    even_q[3] <= tmp0_q3 - tmp3_q;
    z3_sum_q  <= pz34_q - pz3_q2;
    z4_sum_q  <= pz34_q - pz4_q2;
    odd_q2    <= odd_q;

    even_q2   <= even_q;
    odd_q3[0] <= odd_q2[0] + z4_sum_q;
    odd_q3[1] <= odd_q2[1] + z3_sum_q;
    odd_q3[2] <= odd_q2[2] + z4_sum_q;
    odd_q3[3] <= odd_q2[3] + z3_sum_q;
  end

  // ---- Clocks 7 and 8: butterfly, saturation ----
  logic [7:0][SumWidth-1:0] sum_d, sum_q;

  always_comb begin
    for (int unsigned i = 0; i < 4; i++) begin
      sum_d[i]     = SumWidth'((even_q2[i] + odd_q3[i]) >> Shift);
      sum_d[7 - i] = SumWidth'((even_q2[i] - odd_q3[i]) >> Shift);
    end
  end

  function automatic logic [OutputWidth-1:0] saturate(logic [SumWidth-1:0] sum, logic wrap);
    logic fits;
    fits = (&sum[SumWidth-1:OutputWidth-1]) || !(|sum[SumWidth-1:OutputWidth-1]);
    return fits || wrap ? sum[OutputWidth-1:0]
                        : {sum[SumWidth-1], {(OutputWidth - 1) {!sum[SumWidth-1]}}};
  endfunction

  always_ff @(posedge clk_i) begin
    sum_q <= sum_d;
    for (int unsigned i = 0; i < 8; i++) out_o[i] <= saturate(sum_q[i], wrap_q[Latency-2]);
  end

  assign valid_o = valid_q[Latency-1];

endmodule
