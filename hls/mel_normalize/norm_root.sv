// Square root of one number of 96 bits in six clocks, a row of six stages.
//
// Reference   the largest integer whose square is at most the input.
// Arithmetic  restoring. The first two stages find two binary digits a clock, the others, whose
//             numbers are wider, one.
// Interface   as norm_divide: `step_i` in every sixth clock; the root is shown in the clock of
//             `step_i`, six slots after the one that took the square.
// Throughput  a root a slot of six clocks. Latency six slots.
module norm_root
  import mel_normalize_pkg::*;
(
  input  logic        clk_i,
  input  logic        step_i,
  input  logic [95:0] square_i,
  output logic [47:0] root_o
);

  localparam int unsigned Stages = 6, TwoDigitStages = 2;

  logic [Stages:0][95:0] square;  // bits that are left, at the upper end
  logic [Stages:0][48:0] rest;    // at most twice the root
  logic [Stages:0][47:0] root;

  assign square[0] = square_i;
  assign rest[0]   = '0;
  assign root[0]   = '0;
  assign root_o    = root[Stages];

  for (genvar s = 0; s < Stages; s++) begin : gen_stage
    localparam int unsigned Digits = s < TwoDigitStages ? 2 : 1;  // a clock
    // Found before.
    localparam int unsigned Before = SlotClocks * (s < TwoDigitStages ? 2 * s : s + TwoDigitStages);
    localparam int unsigned Width  = Before + SlotClocks * Digits;  // of the root behind this stage
    // Bits of the square in front of it.
    localparam int unsigned Left   = 96 - 2 * Before;

    logic [Width-1:0] root_q, next_root;
    logic [Width:0]   rest_q, next_rest;
    logic [Left-1:0]  square_q, next_square;
    logic [Width+1:0] minuend;
    logic [Width+2:0] less;  // the sign says that the digit is 0

    // While digits are missing, the root has at least one bit less than Width, and so the rest at
    // most Width.
    always_comb begin
      next_root   = root_q;
      next_rest   = rest_q;
      next_square = square_q;
      minuend     = '0;
      less        = '0;
      for (int unsigned k = 0; k < Digits; k++) begin
        minuend     = {next_rest[Width-1:0], next_square[Left-1-:2]};
        less        = {1'b0, minuend} - {1'b0, next_root, 2'b01};
        next_rest   = less[Width+2] ? minuend[Width:0] : less[Width:0];
        next_root   = {next_root[Width-2:0], !less[Width+2]};
        next_square = {next_square[Left-3:0], 2'b0};
      end
    end

    assign root[s+1]   = 48'(next_root);
    assign rest[s+1]   = 49'(next_rest);
    assign square[s+1] = {next_square, {(96 - Left){1'b0}}};

    always_ff @(posedge clk_i) begin
      root_q   <= step_i ? root[s][Width-1:0] : next_root;
      rest_q   <= step_i ? rest[s][Width:0] : next_rest;
      square_q <= step_i ? square[s][95-:Left] : next_square;
    end
  end

endmodule
