// The step of the next slot: `step_i`, six clocks later.
//
// Interface   `step_i` in every sixth clock. After a change of its phase, older steps only run
//             before what came with the newer ones.
// Throughput  a step a clock. Latency six clocks.
module norm_slot
  import mel_normalize_pkg::*;
(
  input  logic clk_i,
  input  logic step_i,
  output logic step_o
);

  logic [SlotClocks:1] late_q;

  always_ff @(posedge clk_i) late_q <= {late_q[SlotClocks-1:1], step_i};
  assign step_o = late_q[SlotClocks];

endmodule
