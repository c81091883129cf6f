// Division of one number in six clocks, a row of stages with two binary digits a clock each.
//
// Reference   quotient = {rest_i, bits_i} / denominator, cut off; rest_i must be below the
//             denominator. The quotient of a denominator of 0 is not defined.
// Arithmetic  non-restoring: a rest below 0 has the denominator added in the next place, else it is
//             taken away. The second digit's rest is found for both first digits at once, with
//             three times the denominator.
// Interface   `step_i` in every sixth clock: with it each stage takes over from the one before, and
//             the first one from the inputs. The quotient is shown in the clock of `step_i`, Digits
//             / 12 slots after the one that took it.
// Throughput  a division a slot of six clocks. Latency Digits / 12 slots.
module norm_divide
  import mel_normalize_pkg::*;
#(
  parameter int unsigned Digits  = 36,  // of the quotient, a multiple of 12
  parameter int unsigned Width   = 16,  // of the denominator
  // Each division has its own denominator; else it stands still, a clock before.
  parameter bit          Carried = 0
) (
  input  logic              clk_i,
  input  logic              step_i,
  input  logic [Width-1:0]  rest_i,
  input  logic [Digits-1:0] bits_i,
  input  logic [Width-1:0]  denominator_i,
  output logic [Digits-1:0] quotient_o
);

  localparam int unsigned Stages = Digits / StageDigits;

  if (Digits % StageDigits != 0 || Digits == 0) begin : gen_bad_parameters
    $fatal(1, "%m: Digits must be a multiple of 12");
  end

  // Behind stage s - 1: `bits` are those of the numerator that are left, and from below the
  // quotient's.
  logic [Stages:0][Width:0]    rest;  // with its sign
  logic [Stages:0][Width-1:0]  denominator;
  logic [Stages:0][Width+1:0]  triple;  // of the denominator
  logic [Stages:0][Digits-1:0] bits;

  assign rest[0]        = {1'b0, rest_i};
  assign bits[0]        = bits_i;
  assign denominator[0] = denominator_i;
  assign triple[0]      = {1'b0, denominator_i, 1'b0} + {2'b0, denominator_i};
  assign quotient_o     = bits[Stages];

  logic [Width+1:0] still_triple_q;
  always_ff @(posedge clk_i) still_triple_q <= triple[0];

  function automatic logic [Width:0] sum(logic [Width:0] a, logic [Width:0] b, logic carry);
    logic [Width+1:0] places;
    places = {a, 1'b1} + {b, carry};
    return places[Width+1:1];
  endfunction

  for (genvar s = 0; s < Stages; s++) begin : gen_stage
    logic [Width:0]    rest_q;
    logic [Width-1:0]  divisor;
    logic [Width+1:0]  divisor_3;
    logic [Digits-1:0] bits_q;
    logic              add;
    logic [Width:0]    once, thrice;               // what is added in the second digit's place
    // Rests behind the first digit, and behind the second one of each first.
    logic [Width:0]    first, second_0, second_1;
    logic              digit;                      // the first

    assign add      = rest_q[Width];
    assign once     = add ? (Width + 1)'(divisor) : ~(Width + 1)'(divisor);
    assign thrice   = add ? divisor_3[Width:0] : ~divisor_3[Width:0];
    assign digit    = !first[Width];
    // The lowest place carries the 1 of a complement.
    assign first    = sum({rest_q[Width-1:0], bits_q[Digits-1]}, once, !add);
    assign second_0 = sum({rest_q[Width-2:0], bits_q[Digits-1-:2]}, add ? thrice : once, !add);
    assign second_1 = sum({rest_q[Width-2:0], bits_q[Digits-1-:2]}, add ? once : thrice, !add);
    assign rest[s+1] = digit ? second_1 : second_0;
    assign bits[s+1] = {bits_q[Digits-3:0], digit, digit ? !second_1[Width] : !second_0[Width]};

    always_ff @(posedge clk_i) begin
      rest_q <= step_i ? rest[s] : rest[s+1];
      bits_q <= step_i ? bits[s] : bits[s+1];
    end

    if (Carried) begin : gen_carried
      logic [Width-1:0] divisor_q;
      logic [Width+1:0] triple_q;
      always_ff @(posedge clk_i) if (step_i) {triple_q, divisor_q} <= {triple[s], denominator[s]};
      assign divisor   = divisor_q;
      assign divisor_3 = triple_q;
    end else begin : gen_still
      assign divisor   = denominator_i;
      assign divisor_3 = still_triple_q;
    end
    assign denominator[s+1] = divisor;
    assign triple[s+1]      = divisor_3;
  end

endmodule
