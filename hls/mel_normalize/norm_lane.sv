// One value, its band's mean and scale to the bits of the normalised value.
//
// Reference   normalised() in mel_normalize.cpp.
// Interface   no handshake: what comes in comes out 13 clocks later.
// Throughput  a value a clock. Latency 13 clocks.
module norm_lane
  import audio_pkg::*;
  import mel_normalize_pkg::*;
(
  input  logic        clk_i,
  input  logic        half_i,   // float16, else float32; stands still
  input  log_mel_t    value_i,
  input  logic        keep_i,   // else the result is 0
  input  mean_t       mean_i,
  input  scale_t      scale_i,
  output logic [31:0] bits_o
);

  // ---- 1, 2: the change from the mean, its sign and magnitude ----
  mean_t       change_1_q;
  scale_t      scale_1_q, scale_2_q;
  logic        keep_1_q, some_2_q, negative_2_q;
  logic [32:0] magnitude_2_q;

  // ---- 3, 4, 5: times the reciprocal, by two multipliers of two registers each ----
  logic [39:0] upper_3_q, upper_4_q;
  logic [40:0] lower_3_q, lower_4_q;
  logic [56:0] product_5_q;
  logic [5:0]  shift_3_q, shift_4_q, shift_5_q;

  always_ff @(posedge clk_i) begin
    change_1_q <= $signed({value_i, 8'b0}) - mean_i;
    scale_1_q  <= scale_i;
    keep_1_q   <= keep_i;

    negative_2_q  <= change_1_q[32];
    magnitude_2_q <= change_1_q[32] ? -change_1_q : change_1_q;
    some_2_q      <= keep_1_q && change_1_q != '0 && scale_1_q.reciprocal[23];
    scale_2_q     <= scale_1_q;

    upper_3_q <= magnitude_2_q[32:17] * scale_2_q.reciprocal;
    lower_3_q <= magnitude_2_q[16:0] * scale_2_q.reciprocal;
    shift_3_q <= scale_2_q.shift;

    upper_4_q <= upper_3_q;
    lower_4_q <= lower_3_q;
    shift_4_q <= shift_3_q;

    product_5_q <= {upper_4_q, 17'b0} + 57'(lower_4_q);
    shift_5_q   <= shift_4_q;
  end

  // ---- 6, 7, 8: places up to the first bit ----
  // Bit 56 is worth 2^(shift - 1); in float16 it stays at 2^-14 or above.
  logic [33:0] upper;         // has the first bit, as both factors have
  logic [31:0] zeros_32;
  logic [15:0] zeros_16_6_q;
  logic [1:0]  up_6_q;
  logic [5:0]  up_7_q, up_8_q, limit_7_q, shift_6_q, shift_7_q, shift_8_q;
  logic [56:0] product_6_q, product_7_q, product_8_q;
  logic [3:0]  up_16;         // leading zeros of zeros_16_6_q

  assign upper    = product_5_q[56:23];
  assign zeros_32 = upper[33:2] == '0 ? {upper[1:0], 30'b0} : upper[33:2];

  always_comb begin
    logic [7:0] eight;
    logic [3:0] four;
    up_16[3] = zeros_16_6_q[15:8] == '0;
    eight    = up_16[3] ? zeros_16_6_q[7:0] : zeros_16_6_q[15:8];
    up_16[2] = eight[7:4] == '0;
    four     = up_16[2] ? eight[3:0] : eight[7:4];
    up_16[1] = four[3:2] == '0;
    up_16[0] = up_16[1] ? !four[1] : !four[3];
  end

  always_ff @(posedge clk_i) begin
    up_6_q       <= {upper[33:2] == '0, zeros_32[31:16] == '0};
    zeros_16_6_q <= zeros_32[31:16] == '0 ? zeros_32[15:0] : zeros_32[31:16];
    product_6_q  <= product_5_q;
    shift_6_q    <= shift_5_q;

    up_7_q      <= {up_6_q, up_16};
    limit_7_q   <= shift_6_q + 6'd13;
    product_7_q <= product_6_q;
    shift_7_q   <= shift_6_q;

    up_8_q      <= half_i && up_7_q > limit_7_q ? limit_7_q : up_7_q;
    product_8_q <= product_7_q;
    shift_8_q   <= shift_7_q;
  end

  // ---- 9, 10: up ----
  logic [56:0] product_9_q, product_10_q;
  logic [2:0]  up_9_q;
  logic [7:0]  exponent_9_q, exponent_10_q;  // that of float32 or float16, less 1

  always_ff @(posedge clk_i) begin
    product_9_q  <= product_8_q << {up_8_q[5:3], 3'b0};
    up_9_q       <= up_8_q[2:0];
    exponent_9_q <= (half_i ? 8'd13 : 8'd125) + 8'(shift_8_q) - 8'(up_8_q);
    product_10_q  <= product_9_q << up_9_q;
    exponent_10_q <= exponent_9_q;
  end

  // ---- 11, 12: to nearest, ties to even ----
  // The mantissa's first bit, if set, adds the missing 1 to the exponent.
  logic [31:0] exponent_11_q, rounded_12_q;
  logic [23:0] mantissa_11_q;
  logic        up_11_q;

  always_ff @(posedge clk_i) begin
    if (half_i) begin
      exponent_11_q <= {14'b0, exponent_10_q, 10'b0};
      mantissa_11_q <= 24'(product_10_q[56:46]);
      up_11_q       <= product_10_q[45] && (product_10_q[46] || product_10_q[44:0] != '0);
    end else begin
      exponent_11_q <= {1'b0, exponent_10_q, 23'b0};
      mantissa_11_q <= product_10_q[56:33];
      up_11_q       <= product_10_q[32] && (product_10_q[33] || product_10_q[31:0] != '0);
    end
    rounded_12_q <= exponent_11_q + 32'(mantissa_11_q) + 32'(up_11_q);
  end

  // ---- 13: sign, zero, and in float16 infinity ----
  logic [12:3] negative_q, some_q;  // beside the stages
  logic [31:0] bits_q;

  assign bits_o = bits_q;

  always_ff @(posedge clk_i) begin
    negative_q <= {negative_q[11:3], negative_2_q};
    some_q     <= {some_q[11:3], some_2_q};
    if (!some_q[12]) bits_q <= '0;
    else if (!half_i) bits_q <= {negative_q[12], rounded_12_q[30:0]};
    else bits_q <= {16'b0, negative_q[12],
                    rounded_12_q > 32'h7C00 ? 15'h7C00 : rounded_12_q[14:0]};
  end

endmodule
