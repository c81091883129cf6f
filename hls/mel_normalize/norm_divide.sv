// Division of one number in slots of six clocks, a row of stages with a binary digit a clock each.
//
// Reference   quotient = {rest_i, bits_i} / denominator, cut off; rest_i must be below the
//             denominator. The quotient of a denominator of 0 is not defined.
// Arithmetic  non-restoring: a rest below 0 has the denominator added in the next place, else it is
//             taken away.
// Interface   `step_i` in every sixth clock: with it the first stage takes over the inputs. Each
//             stage takes over from the one before six clocks later, with its own copy of the step,
//             as one register would go too far. The quotient is shown in the clock of `step_o`,
//             Digits / 6 slots after the one that took it.
// Throughput  a division a slot of six clocks. Latency Digits / 6 slots.
module norm_divide
  import mel_normalize_pkg::*;
#(
  parameter int unsigned Digits = 36,  // of the quotient, a multiple of SlotClocks
  parameter int unsigned Width  = 16   // of the denominator
) (
  input  logic              clk_i,
  input  logic              step_i,
  input  logic [Width-1:0]  rest_i,
  input  logic [Digits-1:0] bits_i,
  input  logic [Width-1:0]  denominator_i,
  output logic [Digits-1:0] quotient_o,
  output logic              step_o
);

  localparam int unsigned Stages = Digits / SlotClocks;

  if (Digits % SlotClocks != 0 || Digits == 0) begin : gen_bad_parameters
    $fatal(1, "%m: Digits must be a multiple of SlotClocks");
  end

  // Behind stage s - 1: `bits` are those of the numerator that are left, and from below the
  // quotient's.
  logic [Stages:0][Width:0]    rest;  // with its sign
  logic [Stages:0][Width-1:0]  denominator;
  logic [Stages:0][Digits-1:0] bits;
  logic [Stages:0]             step;

  assign rest[0]        = {1'b0, rest_i};
  assign bits[0]        = bits_i;
  assign denominator[0] = denominator_i;
  assign step[0]        = step_i;
  assign quotient_o     = bits[Stages];
  assign step_o         = step[Stages];

  for (genvar s = 0; s < Stages; s++) begin : gen_stage
    logic [Width:0]    rest_q, added;
    logic [Width+1:0]  sum;  // with a place below, whose carry is the 1 of a complement
    logic [Width-1:0]  denominator_q;
    logic [Digits-1:0] bits_q;
    logic              add;

    norm_slot u_slot (.clk_i, .step_i(step[s]), .step_o(step[s+1]));

    assign add              = rest_q[Width];
    assign added            = add ? (Width + 1)'(denominator_q) : ~(Width + 1)'(denominator_q);
    assign sum              = {rest_q[Width-1:0], bits_q[Digits-1], 1'b1} + {added, !add};
    assign rest[s+1]        = sum[Width+1:1];
    assign bits[s+1]        = {bits_q[Digits-2:0], !sum[Width+1]};
    assign denominator[s+1] = denominator_q;

    always_ff @(posedge clk_i) begin
      rest_q <= step[s] ? rest[s] : rest[s+1];
      bits_q <= step[s] ? bits[s] : bits[s+1];
      if (step[s]) denominator_q <= denominator[s];
    end
  end

endmodule
