// Square root of one number of 96 bits in six clocks, a row of four stages with two binary digits a clock each.
//
// Reference   the largest integer whose square is at most the input.
// Interface   as norm_divide: `step_i` in every sixth clock; the root is shown in the clock of `step_i`, four slots after
//             the one that took the square.
// Throughput  a root a slot of six clocks. Latency four slots.
module norm_root
  import mel_normalize_pkg::*;
(
  input  logic        clk_i,
  input  logic        step_i,
  input  logic [95:0] square_i,
  output logic [47:0] root_o
);

  localparam int unsigned Stages = 48 / StageDigits;

  logic [Stages:0][95:0] square;  // bits that are left, at the upper end
  logic [Stages:0][48:0] rest;    // at most twice the root
  logic [Stages:0][47:0] root;

  assign square[0] = square_i;
  assign rest[0]   = '0;
  assign root[0]   = '0;
  assign root_o    = root[Stages];

  for (genvar s = 0; s < Stages; s++) begin : gen_stage
    localparam int unsigned Width = StageDigits * (s + 1);       // of the root behind this stage
    localparam int unsigned Left  = 96 - 2 * StageDigits * s;    // bits of the square in front of it

    logic [Width-1:0] root_q;
    logic [Width:0]   rest_q;
    logic [Left-1:0]  square_q;
    logic [Width+1:0] first, first_rest, second, second_rest;
    logic [Width+2:0] first_less, second_less;  // the sign says that the digit is 0
    logic             first_digit, second_digit;

    // While digits are missing, the root has at least one bit less than Width, and so the rest at most Width.
    assign first        = {rest_q[Width-1:0], square_q[Left-1-:2]};
    assign first_less   = {1'b0, first} - {1'b0, root_q, 2'b01};
    assign first_digit  = !first_less[Width+2];
    assign first_rest   = first_digit ? first_less[Width+1:0] : first;
    assign second       = {first_rest[Width-1:0], square_q[Left-3-:2]};
    assign second_less  = {1'b0, second} - {1'b0, root_q[Width-2:0], first_digit, 2'b01};
    assign second_digit = !second_less[Width+2];
    assign second_rest  = second_digit ? second_less[Width+1:0] : second;

    assign root[s+1]   = 48'({root_q[Width-3:0], first_digit, second_digit});
    assign rest[s+1]   = 49'(second_rest[Width:0]);
    assign square[s+1] = {square_q[Left-5:0], {(100 - Left){1'b0}}};

    always_ff @(posedge clk_i) begin
      root_q   <= step_i ? root[s][Width-1:0] : root[s+1][Width-1:0];
      rest_q   <= step_i ? rest[s][Width:0] : rest[s+1][Width:0];
      square_q <= step_i ? square[s][95-:Left] : square[s+1][95-:Left];
    end
  end

endmodule
