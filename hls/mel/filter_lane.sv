// One lane of the filterbank: the sum of the filter that it leaves and of the next one; Lane of
// mel.cpp.
//
// Interface   a step a clock, with the power of its bin and without a gap within a frame; `last_i`
//             with the last one of a frame. What a step emits comes with `emit_o` five clocks
//             later, its number in `count_o`, and `total_o` with the clock behind the last step.
// Arithmetic  exact products of 55 and 24 bits (four DSPs each), rounded once to LSB 2^-44.
module filter_lane
  import mel_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,
  input  logic       valid_i,
  input  logic       last_i,
  input  entry_t     entry_i,
  input  power_t     power_i,
  output logic       emit_o,
  output energy_t    energy_o,
  output logic [8:0] count_o,
  output logic [8:0] total_o
);

  energy_t [1:0] weighted_4;  // [0] falling, [1] rising
  logic [1:0][23:0] weight;
  assign weight = {entry_i.rising, entry_i.falling};

  // A product has two registers: those of one DSP of an AMD card, and of an ECP5 those of two
  // multipliers and behind the sum of their products. The lower bits of high_3 are high_2 a clock
  // later: with a reset they are no shift register of LUTs, which would take these registers.
  for (genvar i = 0; i < 2; i++) begin : gen_weight
    logic [27:0] top_1, top_2;
    logic [40:0] high_1, middle_1, low_1, high_2, middle_2;
    logic [26:0] low_2;  // the bits from half a place on
    logic [44:0] high_3;
    logic [42:0] low_3;
    logic [27:0] rounded;
    assign rounded = 28'(low_2) + 28'd1;
    always_ff @(posedge clk_i) begin
      top_1         <= power_i[54:51] * weight[i];
      high_1        <= power_i[50:34] * weight[i];
      middle_1      <= power_i[33:17] * weight[i];
      low_1         <= power_i[16:0] * weight[i];
      {top_2, high_2, middle_2, low_2} <= {top_1, high_1, middle_1, low_1[40:14]};
      low_3         <= {middle_2, 2'd0} + 43'(rounded[27:1]);
      weighted_4[i] <= {high_3, 19'd0} + 64'(low_3);
    end
    always_ff @(posedge clk_i) begin
      if (!rst_ni) high_3 <= '0;
      else high_3 <= {top_2, 17'd0} + 45'(high_2);
    end
  end

  logic [4:1] valid_q, last_q, emit_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= '0;
      last_q  <= '0;
      emit_q  <= '0;
    end else begin
      valid_q <= {valid_q[3:1], valid_i};
      last_q  <= {last_q[3:1], last_i};
      emit_q  <= {emit_q[3:1], entry_i.emit};
    end
  end

  // Sums are 0 between two frames. The count stays until the next one's first step.
  energy_t    leaving_q, next_q, leaving, next;
  logic [8:0] total_q, count;
  logic       first_q, clear;
  assign clear   = !valid_q[4] || last_q[4];
  assign leaving = leaving_q + weighted_4[0];
  assign next    = next_q + weighted_4[1];
  assign count   = first_q ? '0 : total_q;
  assign total_o = total_q;

  always_ff @(posedge clk_i) begin
    first_q <= clear;
    if (clear) leaving_q <= '0;
    else leaving_q <= emit_q[4] ? next : leaving;
    if (clear || emit_q[4]) next_q <= '0;
    else next_q <= next;
    if (valid_q[4]) total_q <= count + 9'(emit_q[4]);
    energy_o <= leaving;
    count_o  <= count;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) emit_o <= 1'b0;
    else emit_o <= valid_q[4] && emit_q[4];
  end

`ifndef SYNTHESIS
  a_no_gap: assert property (@(posedge clk_i) disable iff (!rst_ni)
    valid_i && !last_i |=> valid_i);
`endif

endmodule
