// Natural logarithm of an energy: natural_log() of mel.cpp, and the floor behind it.
//
// Arithmetic  bits in front of the point times ln 2, and a table of 512 steps with linear
//             interpolation, which is at most 4.8e-7 too low; rounded to LSB 2^-18, and limited to
//             24 bits.
// Interface   ready/valid on both sides; `last` travels along. Throughput one a clock. Latency 13
//             clocks.
module natural_log
  import audio_pkg::*;
  import mel_pkg::*;
  import mel_tables_pkg::*;
(
  input  logic              clk_i,
  input  logic              rst_ni,

  input  logic signed [7:0] offset_i,       // powers count 2^offset_i times
  input  logic              least_valid_i,  // there is a least value
  input  log_mel_t          least_i,

  input  energy_t           energy_i,
  input  exponent_t         exponent_i,
  input  logic              last_i,
  input  logic              valid_i,
  output logic              ready_o,

  output log_mel_t          value_o,
  output logic              last_o,
  output logic              valid_o,
  input  logic              ready_i
);

  localparam int unsigned Latency = 13;

  logic               go;
  logic [Latency:1]   valid_q, last_q;
  assign go      = ready_i || !valid_o;
  assign ready_o = go;
  assign valid_o = valid_q[Latency];
  assign last_o  = last_q[Latency];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q <= '0;
    else if (go) valid_q <= {valid_q[Latency-1:1], valid_i};
  end
  always_ff @(posedge clk_i) begin
    if (go) last_q <= {last_q[Latency-1:1], last_i};
  end

  // ---- Leading zeros, a bit of their number a clock; of 0 as of 1 ----
  energy_t    [6:0] mantissa;
  logic [6:0][5:0]  zeros;
  logic [6:1][63:0] mantissa_q;
  logic [6:1][5:0]  zeros_q;

  assign mantissa = {mantissa_q, energy_i};
  assign zeros    = {zeros_q, 6'd0};

  for (genvar i = 0; i < 6; i++) begin : gen_shift
    localparam int unsigned Width = 32 >> i;
    logic empty;
    assign empty = mantissa[i][63-:Width] == '0;
    always_ff @(posedge clk_i) begin
      if (go) begin
        mantissa_q[i+1] <= empty ? mantissa[i] << Width : mantissa[i];
        // 0 comes out with 63 leading zeros.
        zeros_q[i+1]    <= zeros[i] | (empty ? 6'(Width) : 6'd0);
      end
    end
  end

  // ---- Bits in front of the point, within what has a place ----
  logic signed [9:0] base_1, base_2, base_3, base_4, base_5, base_6, bits_7;
  logic        [6:0] entry_8;

  always_ff @(posedge clk_i) begin
    if (go) begin
      base_1  <= 10'(offset_i) + 10'sd19 - $signed({4'd0, exponent_i, 1'b0});
      base_2  <= base_1;
      base_3  <= base_2;
      base_4  <= base_3;
      base_5  <= base_4;
      base_6  <= base_5;
      bits_7  <= base_6 - $signed({4'd0, zeros_q[6]});
      entry_8 <= bits_7 < -10'sd64 ? 7'd0 : bits_7 > 10'sd63 ? 7'd127 : bits_7[6:0] ^ 7'd64;
    end
  end

  // ---- Tables ----
  // Value, and what is added up to the next one.
  (* ram_style = "block" *) logic [42:0] logarithms[512];
  (* ram_style = "block" *) logic [33:0] exponents[128];  // with half a place for the rounding
  initial begin
    for (int i = 0; i < 512; i++) begin
      logarithms[i] = {Logarithm[i], 17'(Logarithm[i+1] - Logarithm[i])};
    end
    for (int i = 0; i < 128; i++) exponents[i] = {Exponent[i][32], Exponent[i]} + 34'd128;
  end

  logic        [42:0] table_7, table_8;
  logic        [33:0] exponent_9;
  logic        [16:0] fraction_7, fraction_8;
  logic        [33:0] product_9;
  logic        [25:0] table_9;
  logic signed [33:0] sum_10, sum_11;
  logic        [16:0] step_10;

  always_ff @(posedge clk_i) begin
    if (go) begin
      table_7    <= logarithms[mantissa_q[6][62:54]];
      fraction_7 <= mantissa_q[6][53:37];
      table_8    <= table_7;
      fraction_8 <= fraction_7;
      product_9  <= table_8[16:0] * fraction_8;
      table_9    <= table_8[42:17];
      exponent_9 <= exponents[entry_8];
      sum_10     <= $signed(exponent_9) + $signed({8'd0, table_9});
      step_10    <= product_9[33:17];
      sum_11     <= sum_10 + $signed({17'd0, step_10});
    end
  end

  // ---- The limits of 24 bits, and the least value ----
  log_mel_t value_12, value_13;
  always_ff @(posedge clk_i) begin
    if (go) begin
      if (sum_11[33:31] == 3'b000 || sum_11[33:31] == 3'b111) value_12 <= sum_11[31:8];
      else value_12 <= {sum_11[33], {23{!sum_11[33]}}};
      value_13 <= least_valid_i && value_12 < least_i ? least_i : value_12;
    end
  end
  assign value_o = value_13;

`ifndef SYNTHESIS
  a_value_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    valid_o && !ready_i |=> valid_o && $stable(value_o));
`endif

endmodule
