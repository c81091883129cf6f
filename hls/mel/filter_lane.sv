// One lane of the filterbank: the sum of the filter that it leaves and of the next one; Lane of
// mel.cpp.
//
// Interface   a step a clock, with the power of its bin; `first_i` with the first one of a frame.
//             What a step emits comes with `emit_o` four clocks later, its number in `count_o`, and
//             `total_o` with the clock behind the last step.
// Arithmetic  exact products of 55 and 24 bits (four DSPs each), rounded once to LSB 2^-44.
module filter_lane
  import mel_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,
  input  logic       valid_i,
  input  logic       first_i,
  input  entry_t     entry_i,
  input  power_t     power_i,
  output logic       emit_o,
  output energy_t    energy_o,
  output logic [8:0] count_o,
  output logic [8:0] total_o
);

  energy_t [1:0] weighted_3;  // [0] falling, [1] rising
  logic [1:0][23:0] weight;
  assign weight = {entry_i.rising, entry_i.falling};

  for (genvar i = 0; i < 2; i++) begin : gen_weight
    logic [27:0] top_1;
    logic [40:0] high_1, middle_1, low_1;
    logic [44:0] high_2;
    logic [42:0] low_2;
    logic [41:0] rounded;
    assign rounded = 42'(low_1) + 42'd16384;
    always_ff @(posedge clk_i) begin
      top_1         <= power_i[54:51] * weight[i];
      high_1        <= power_i[50:34] * weight[i];
      middle_1      <= power_i[33:17] * weight[i];
      low_1         <= power_i[16:0] * weight[i];
      high_2        <= {top_1, 17'd0} + 45'(high_1);
      low_2         <= {middle_1, 2'd0} + 43'(rounded[41:15]);
      weighted_3[i] <= {high_2, 19'd0} + 64'(low_2);
    end
  end

  logic [3:1] valid_q, first_q, emit_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_q <= '0;
    else valid_q <= {valid_q[2:1], valid_i};
  end
  always_ff @(posedge clk_i) begin
    first_q <= {first_q[2:1], first_i};
    emit_q  <= {emit_q[2:1], entry_i.emit};
  end

  energy_t    leaving_q, next_q, leaving, next;
  logic [8:0] total_q;
  assign leaving = (first_q[3] ? '0 : leaving_q) + weighted_3[0];
  assign next    = (first_q[3] ? '0 : next_q) + weighted_3[1];
  assign total_o = total_q;

  always_ff @(posedge clk_i) begin
    if (valid_q[3]) begin
      leaving_q <= emit_q[3] ? next : leaving;
      next_q    <= emit_q[3] ? '0 : next;
      total_q   <= (first_q[3] ? '0 : total_q) + 9'(emit_q[3]);
    end
    energy_o <= leaving;
    count_o  <= first_q[3] ? '0 : total_q;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) emit_o <= 1'b0;
    else emit_o <= valid_q[3] && emit_q[3];
  end

endmodule
