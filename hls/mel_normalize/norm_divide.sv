// Division of one number in six clocks, a row of stages with two binary digits a clock each, restoring.
//
// Reference   quotient = {rest_i, bits_i} / denominator, cut off; rest_i must be below the denominator. The quotient of a
//             denominator of 0 is not defined.
// Interface   `step_i` in every sixth clock: with it each stage takes over from the one before, and the first one from the
//             inputs. The quotient is shown in the clock of `step_i`, Digits / 12 slots after the one that took it.
// Throughput  a division a slot of six clocks. Latency Digits / 12 slots.
module norm_divide
  import mel_normalize_pkg::*;
#(
  parameter int unsigned Digits  = 36,  // of the quotient, a multiple of 12
  parameter int unsigned Width   = 16,  // of the denominator
  parameter bit          Carried = 0    // each division has its own denominator; else it stands still
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

  // Behind stage s - 1: `bits` are those of the numerator that are left, and from below the quotient's.
  logic [Stages:0][Width-1:0]  rest, denominator;
  logic [Stages:0][Digits-1:0] bits;

  assign rest[0]        = rest_i;
  assign bits[0]        = bits_i;
  assign denominator[0] = denominator_i;
  assign quotient_o     = bits[Stages];

  for (genvar s = 0; s < Stages; s++) begin : gen_stage
    logic [Width-1:0]  rest_q, first_rest, divisor;
    logic [Digits-1:0] bits_q;
    logic [Width:0]    first, second;
    logic [Width+1:0]  first_less, second_less;  // the sign says that the digit is 0

    assign first       = {rest_q, bits_q[Digits-1]};
    assign first_less  = {1'b0, first} - {2'b0, divisor};
    assign first_rest  = first_less[Width+1] ? first[Width-1:0] : first_less[Width-1:0];
    assign second      = {first_rest, bits_q[Digits-2]};
    assign second_less = {1'b0, second} - {2'b0, divisor};
    assign rest[s+1]   = second_less[Width+1] ? second[Width-1:0] : second_less[Width-1:0];
    assign bits[s+1]   = {bits_q[Digits-3:0], !first_less[Width+1], !second_less[Width+1]};

    always_ff @(posedge clk_i) begin
      rest_q <= step_i ? rest[s] : rest[s+1];
      bits_q <= step_i ? bits[s] : bits[s+1];
    end

    if (Carried) begin : gen_carried
      logic [Width-1:0] divisor_q;
      always_ff @(posedge clk_i) if (step_i) divisor_q <= denominator[s];
      assign divisor = divisor_q;
    end else begin : gen_still
      assign divisor = denominator_i;
    end
    assign denominator[s+1] = divisor;
  end

endmodule
