// A float32 to a multiple of 2^-18 in 24 bits, cut off towards 0; beyond -32 and 32, and NaN, it
// saturates by its sign.
//
// Reference   fixed_point() in mel_normalize.cpp.
// Throughput  one a clock. Latency two clocks.
module norm_fixed
  import audio_pkg::*;
(
  input  logic        clk_i,
  input  logic [31:0] bits_i,
  output log_mel_t    value_o
);

  localparam logic [7:0] Exponent = 8'd132;  // of 32

  logic        negative_q, saturates_q;
  logic [7:0]  distance;    // places to go down: at once up to three of them,
  logic [7:2]  distance_q;  // then the others
  logic [23:0] mantissa_q, magnitude;

  assign distance  = Exponent - bits_i[30:23];
  assign magnitude = distance_q[7:5] != '0 ? '0 : mantissa_q >> {distance_q[4:2], 2'b0};

  always_ff @(posedge clk_i) begin
    negative_q  <= bits_i[31];
    saturates_q <= bits_i[30:23] >= Exponent;
    distance_q  <= distance[7:2];
    mantissa_q  <= {1'b1, bits_i[22:0]} >> distance[1:0];
    if (saturates_q) value_o <= negative_q ? 24'sh800000 : 24'sh7FFFFF;
    else value_o <= negative_q ? -log_mel_t'(magnitude) : log_mel_t'(magnitude);
  end

endmodule
