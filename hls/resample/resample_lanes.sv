// The multipliers and accumulators of resample.
//
// Interface   `step_i` and `taps_i` belong to the same clock; nothing holds them. `sample_o` with
//             `sample_valid_o`, without back-pressure.
// Arithmetic  accumulators of 42 bits with 39 of fraction: sums are exact, and begin with the half
//             that rounds. What carries out of bit 41 is the same that the sample of 24 bits, from
//             bit 18 on, does not have.
// Throughput  a step a clock. Latency three clocks: input register (taps_i), product, sum.
// Multipliers 88 of 24 by 17 bits, and behind each an adder.
// Memory      two accumulators a lane, those of even and odd outputs, in LUT RAM.
module resample_lanes
  import audio_pkg::*;
  import resample_pkg::*;
(
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  step_t                         step_i,
  input  logic                          step_valid_i,
  input  logic [Lanes-1:0][TapBits-1:0] taps_i,

  output sample_t                       sample_o,
  output logic                          sample_valid_o
);

  localparam int unsigned SumBits     = TapBits + Rounded;
  localparam int unsigned ProductBits = TapBits + $bits(pcm_t);
  localparam logic [SumBits-1:0] Half = SumBits'(1) << (Rounded - 1);

  step_t                         step_q;
  logic                          valid_q;
  logic [Lanes:0][SumBits-1:0]   held;  // Half moves in behind the youngest
  logic [Lanes-1:0][SumBits-1:0] sum;

  assign held[Lanes] = Half;

  always_ff @(posedge clk_i) begin
    step_q <= step_i;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q <= 1'b0;
    else valid_q <= step_valid_i;
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    (* ram_style = "distributed" *) logic [SumBits-1:0] memory[2];  // even, odd
    logic signed [ProductBits-1:0] product_q;
    logic        [SumBits-1:0]     base;

    always_ff @(posedge clk_i) begin
      product_q <= $signed(taps_i[lane]) * step_i.x;
    end

    assign held[lane] = memory[step_q.odd];
    assign base       = step_q.first ? Half : step_q.move ? held[lane+1] : held[lane];
    assign sum[lane]  = base + SumBits'(product_q);

    always_ff @(posedge clk_i) begin
      if (valid_q) memory[step_q.odd] <= sum[lane];
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) sample_valid_o <= 1'b0;
    else sample_valid_o <= valid_q && step_q.gives;
  end
  always_ff @(posedge clk_i) begin
    sample_o <= step_q.filtered ? sum[0][SumBits-1:Rounded] : {{2{step_q.x[16]}}, step_q.x, 5'd0};
  end

endmodule
