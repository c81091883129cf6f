// Pixels that come in pairs and leave up to two a clock, as many as are asked for.
//
// Interface   pairs by ready/valid, alone with `both_i` low. `held_o` pixels are there, of which
//             `pixel_o` has the next two; `used_i`, at most that, leave with the clock.
// Throughput  two pixels a clock in and out.
// Latency     one clock.
module pixel_gear
  import headrace_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  pixel_t [1:0] pixel_i,
  input  logic         both_i,
  input  logic         valid_i,
  output logic         ready_o,

  output pixel_t [1:0] pixel_o,
  output logic [2:0]   held_o,
  input  logic [1:0]   used_i
);

  pixel_t [4:0] pixels_q, left;
  logic   [2:0] left_count;

  assign ready_o = held_o <= 3'd3;
  assign pixel_o = pixels_q[1:0];

  assign left_count = held_o - 3'(used_i);
  always_comb begin
    left = pixels_q;
    if (used_i == 2'd1) left = {pixels_q[4], pixels_q[4:1]};
    if (used_i == 2'd2) left = {{2{pixels_q[4]}}, pixels_q[4:2]};
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) held_o <= '0;
    else held_o <= left_count + (valid_i && ready_o ? 3'(both_i) + 3'd1 : 3'd0);
    for (int i = 0; i < 5; i++) begin
      pixels_q[i] <= left[i];
      if (ready_o && left_count == 3'(i)) pixels_q[i] <= pixel_i[0];
      if (ready_o && left_count + 3'd1 == 3'(i)) pixels_q[i] <= pixel_i[1];
    end
  end

`ifndef SYNTHESIS
  a_used_are_there: assert property (@(posedge clk_i) disable iff (!rst_ni)
    3'(used_i) <= held_o);
`endif

endmodule
