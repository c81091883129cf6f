// Natural logarithm of an energy: natural_log() of mel.cpp.
//
// Arithmetic  leading zeros times ln 2, and a table of 512 steps with linear interpolation, which
//             is at most 4.8e-7 too low; rounded to LSB 2^-18.
// Interface   ready/valid on both sides; `last` travels along. Throughput one a clock. Latency 11
//             clocks.
module natural_log
  import audio_pkg::*;
  import mel_pkg::*;
  import mel_tables_pkg::*;
(
  input  logic     clk_i,
  input  logic     rst_ni,

  input  energy_t  energy_i,
  input  logic     last_i,
  input  logic     valid_i,
  output logic     ready_o,

  output log_mel_t value_o,
  output logic     last_o,
  output logic     valid_o,
  input  logic     ready_i
);

  localparam int unsigned Latency = 11;

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
  logic [6:1][59:0] mantissa_q;
  logic [6:1][5:0]  zeros_q;

  assign mantissa = {mantissa_q, energy_i};
  assign zeros    = {zeros_q, 6'd0};

  for (genvar i = 0; i < 6; i++) begin : gen_shift
    localparam int unsigned Width = 32 >> i;
    logic empty;
    assign empty = mantissa[i][59-:Width] == '0;
    always_ff @(posedge clk_i) begin
      if (go) begin
        mantissa_q[i+1] <= empty ? mantissa[i] << Width : mantissa[i];
        // 0 comes out with 63 leading zeros.
        zeros_q[i+1]    <= zeros[i] | (empty ? 6'(Width) : 6'd0);
      end
    end
  end

  // ---- Tables ----
  // Value, and what is added up to the next one.
  (* ram_style = "block" *) logic [42:0] logarithms[512];
  logic [31:0] exponents[64];
  initial begin
    for (int i = 0; i < 512; i++) begin
      logarithms[i] = {Logarithm[i], 17'(Logarithm[i+1] - Logarithm[i])};
    end
    for (int i = 0; i < 64; i++) exponents[i] = Exponent[i < 60 ? i : 59];
  end

  logic        [42:0] table_7, table_8;
  logic        [31:0] exponent_7, exponent_8;
  logic        [16:0] fraction_7, fraction_8;
  logic        [33:0] product_9;
  logic signed [32:0] sum_9, sum_10;
  logic        [16:0] step_10;

  always_ff @(posedge clk_i) begin
    if (go) begin
      table_7    <= logarithms[mantissa_q[6][58:50]];
      exponent_7 <= exponents[zeros_q[6]];
      fraction_7 <= mantissa_q[6][49:33];
      table_8    <= table_7;
      exponent_8 <= exponent_7;
      fraction_8 <= fraction_7;
      product_9  <= table_8[16:0] * fraction_8;
      sum_9      <= 33'($signed(exponent_8)) + {7'd0, table_8[42:17]};
      sum_10     <= sum_9 + 33'sd128;
      step_10    <= product_9[33:17];
    end
  end

  logic signed [32:0] sum_11;
  always_ff @(posedge clk_i) begin
    if (go) sum_11 <= sum_10 + $signed({16'd0, step_10});
  end
  assign value_o = sum_11[31:8];

`ifndef SYNTHESIS
  a_value_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    valid_o && !ready_i |=> valid_o && $stable(value_o));
`endif

endmodule
