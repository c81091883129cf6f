// Square root of one number of 96 bits, a row of eight stages with a binary digit a clock each.
//
// Reference   the largest integer whose square is at most the input.
// Arithmetic  restoring.
// Interface   as norm_divide: `step_i` in every sixth clock; the root is shown in the clock of
//             `step_o`, eight slots after the one that took the square.
// Throughput  a root a slot of six clocks. Latency eight slots.
module norm_root
  import mel_normalize_pkg::*;
(
  input  logic        clk_i,
  input  logic        step_i,
  input  logic [95:0] square_i,
  output logic [47:0] root_o,
  output logic        step_o
);

  localparam int unsigned Stages = RootDigits / SlotClocks;

  logic [Stages:0][95:0] square;  // bits that are left, at the upper end
  logic [Stages:0][48:0] rest;    // at most twice the root
  logic [Stages:0][47:0] root;
  logic [Stages:0]       step;

  assign square[0] = square_i;
  assign rest[0]   = '0;
  assign root[0]   = '0;
  assign step[0]   = step_i;
  assign root_o    = root[Stages];
  assign step_o    = step[Stages];

  for (genvar s = 0; s < Stages; s++) begin : gen_stage
    localparam int unsigned Before = SlotClocks * s;          // digits found before
    localparam int unsigned Width  = Before + SlotClocks;     // of the root behind this stage
    localparam int unsigned Left   = 2 * (RootDigits - Before);  // bits of the square in front

    logic [Width-1:0] root_q, next_root;
    logic [Width:0]   rest_q, next_rest;
    logic [Left-1:0]  square_q, next_square;
    logic [Width+1:0] minuend;
    logic [Width+2:0] less;  // the sign says that the digit is 0

    norm_slot u_slot (.clk_i, .step_i(step[s]), .step_o(step[s+1]));

    // While digits are missing, the root has at least one bit less than Width, and so the rest at
    // most Width.
    assign minuend     = {rest_q[Width-1:0], square_q[Left-1-:2]};
    assign less        = {1'b0, minuend} - {1'b0, root_q, 2'b01};
    assign next_rest   = less[Width+2] ? minuend[Width:0] : less[Width:0];
    assign next_root   = {root_q[Width-2:0], !less[Width+2]};
    assign next_square = {square_q[Left-3:0], 2'b0};

    assign root[s+1]   = 48'(next_root);
    assign rest[s+1]   = 49'(next_rest);
    assign square[s+1] = {next_square, {(96 - Left){1'b0}}};

    always_ff @(posedge clk_i) begin
      root_q   <= step[s] ? root[s][Width-1:0] : next_root;
      rest_q   <= step[s] ? rest[s][Width:0] : next_rest;
      square_q <= step[s] ? square[s][95-:Left] : next_square;
    end
  end

endmodule
