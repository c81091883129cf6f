// Where the output pixels of an axis come from: source pixel `first` with weight 256 - weight, the
// next with weight. `needs` is the last of the two that has a weight.
//
// Reference   tap() in resize.cpp, bit for bit: at = scale * (x + 0.5) - 0.5 in double, first =
//             floor(at), weight = round(256 * (at - first)), half to even, clamped at both ends. A
//             weight of 256 comes as the next `first` with weight 0, which is the same pixel.
// Arithmetic  256 * (x + 0.5) * in / out goes from x to x as an exact quotient and remainder. Where
//             the remainder is not half of `out`, double arithmetic rounds the same way: its errors
//             are below 2^-34, and the nearest such position is 2^-25 from a tie. Where it is half,
//             the rounding errors of the C++ decide. The scale is off by error / out units in its
//             last place, so the position before its own rounding is off by (x + 0.5) * error / out
//             of them; rounding the position to 53 places takes it back to the tie (then half to
//             even) unless that is more than half a unit in the last place of the position.
// Interface   `axis_i` stable for three clocks before `rst_ni` rises and while it is high; then the
//             taps of the pixels that are wanted, Lanes at a time, again and again. `last_o` with
//             the last ones; where their number is odd, the second lane repeats the first and
//             `both_o` is low.
// Throughput  Lanes taps a clock. Latency about nine clocks after reset, and once those of the taps
//             before the first that is wanted.
module resize_taps
  import resize_pkg::*;
#(
  parameter int unsigned Lanes     = 2,  // 1 or 2
  parameter int unsigned FirstBits = 16  // of `first`
) (
  input  logic                            clk_i,
  input  logic                            rst_ni,

  input  axis_t                           axis_i,
  // First pixel that is wanted: a multiple of Lanes.
  input  logic [15:0]                     begin_i,
  // Behind the last one: a multiple of Lanes, or the axis' end.
  input  logic [15:0]                     end_i,

  output logic [Lanes-1:0][FirstBits-1:0] first_o,
  output logic [Lanes-1:0][FirstBits-1:0] needs_o,
  output logic [Lanes-1:0][7:0]           weight_o,
  output logic                            both_o,
  output logic                            last_o,
  output logic                            valid_o,
  input  logic                            ready_i
);

  localparam int unsigned Depth  = 32;
  localparam int unsigned Stages = 7;

  if (Lanes != 1 && Lanes != 2) begin : gen_bad_lanes
    $fatal(1, "%m: Lanes must be 1 or 2");
  end

  // ---- The axis, as the lanes want it ----
  logic [24:0] step_quotient_q;
  logic [15:0] step_remainder, step_remainder_q;
  logic [15:0] step_less_q;                    // out less the remainder
  logic [17:0] start_remainder_q;              // of the second lane, before the carry
  logic [15:0] start1_remainder_q;
  logic        start1_carry_q;
  logic [24:0] start1_quotient_q;
  logic [18:0] start1_error_q;
  logic [15:0] end_q;                          // last source pixel

  assign step_remainder = Lanes == 2 ? axis_i.two_remainder : axis_i.one_remainder;

  always_ff @(posedge clk_i) begin
    step_quotient_q  <= Lanes == 2 ? axis_i.two_quotient : 25'(axis_i.one_quotient);
    step_remainder_q <= step_remainder;
    step_less_q      <= axis_i.size_out - step_remainder;
    end_q            <= axis_i.size_in - 16'd1;

    start_remainder_q  <= 18'(axis_i.half_remainder) + 18'(axis_i.one_remainder);
    start1_carry_q     <= start_remainder_q >= 18'(axis_i.size_out);
    start1_remainder_q <= start_remainder_q >= 18'(axis_i.size_out) ?
                          16'(start_remainder_q - 18'(axis_i.size_out)) : start_remainder_q[15:0];
    start1_quotient_q  <= 25'(axis_i.half_quotient) + 25'(axis_i.one_quotient);
    start1_error_q     <= 19'(axis_i.error) + {1'b0, axis_i.error, 1'b0};
  end

  // ---- Which pixels ----
  logic                     go_q;
  logic [15:0]              left_q;   // pixels from the current one to the end
  logic [15:0]              before_q; // pixels to the first that is wanted
  logic [15:0]              wanted_q; // pixels from there to the end
  logic                     known_q;  // the first one's position is kept, for the next time
  // Registers of their own, because they enable many others.
  logic                     begun_q;       // before_q is 0
  logic                     at_end_q;      // left_q is at most Lanes
  logic                     wanted_end_q;  // wanted_q is at most Lanes
  logic                     advance_q;     // go_q, and not at_end_q
  logic                     restart_q;     // go_q, at_end_q and known_q
  logic                     start_q;       // reset, a clock ago: then go_q is still 0
  logic                     go_d, at_end_d, keep;
  logic [Stages:1]          valid_q, last_q, both_q;
  logic [$clog2(Depth):0]   count;

  always_ff @(posedge clk_i) start_q <= !rst_ni;

  assign keep = go_q && begun_q && !known_q;
  assign go_d = count < ($clog2(Depth) + 1)'(Depth / 2);

  always_comb begin
    at_end_d = at_end_q;
    if (advance_q) at_end_d = left_q <= 16'(2 * Lanes);
    if (restart_q) at_end_d = wanted_end_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      go_q     <= 1'b0;
      valid_q  <= '0;
      left_q   <= end_i;
      at_end_q <= end_i <= 16'(Lanes);
      before_q <= begin_i;
      begun_q  <= begin_i == '0;
      known_q  <= 1'b0;
      {advance_q, restart_q} <= '0;
    end else begin
      go_q      <= go_d;
      at_end_q  <= at_end_d;
      advance_q <= go_d && !at_end_d;
      restart_q <= go_d && at_end_d && (known_q || keep);
      valid_q   <= {valid_q[Stages-1:1], go_q && begun_q};
      if (advance_q) left_q <= left_q - 16'(Lanes);
      if (restart_q) left_q <= wanted_q;
      if (go_q && !begun_q) begin
        before_q <= before_q - 16'(Lanes);
        begun_q  <= before_q == 16'(Lanes);
      end
      if (keep) known_q <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (keep) {wanted_q, wanted_end_q} <= {left_q, at_end_q};
    last_q <= {last_q[Stages-1:1], at_end_q};
    both_q <= {both_q[Stages-1:1], left_q != 16'd1};
  end

  // ---- Their taps ----
  logic [Lanes-1:0][FirstBits-1:0] first_7, first, needs_7, needs;
  logic [Lanes-1:0][7:0]           weight_7, weight;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    logic [15:0] start_remainder;
    logic [24:0] start_quotient;
    logic        start_carry;
    logic [18:0] start_error;
    assign start_remainder = lane == 0 ? axis_i.half_remainder : start1_remainder_q;
    assign start_quotient  = lane == 0 ? 25'(axis_i.half_quotient) : start1_quotient_q;
    assign start_carry     = lane == 0 ? 1'b0 : start1_carry_q;
    assign start_error     = lane == 0 ? 19'(axis_i.error) : start1_error_q;

    // The position: (quotient_q + carry_q) / 256 and remainder_q / out of a 256th.
    logic [15:0] remainder_q;
    logic [24:0] quotient_q;
    logic        carry_q;
    logic [33:0] error_q;  // (2 * x + 1) * error
    logic [15:0] kept_remainder_q;
    logic [24:0] kept_quotient_q;
    logic        kept_carry_q;
    logic [33:0] kept_error_q;
    logic [16:0] sum, less;
    assign sum  = 17'(remainder_q) + 17'(step_remainder_q);
    assign less = 17'(remainder_q) - 17'(step_less_q);  // sum less out; bit 16: below 0

    always_ff @(posedge clk_i) begin
      if (keep) begin
        {kept_remainder_q, kept_quotient_q, kept_carry_q, kept_error_q} <=
            {remainder_q, quotient_q, carry_q, error_q};
      end
      if (start_q) begin
        remainder_q <= start_remainder;
        quotient_q  <= start_quotient;
        carry_q     <= start_carry;
        error_q     <= 34'(start_error);
      end else if (restart_q) begin  // where the first one is also the last, it stays until then
        {remainder_q, quotient_q, carry_q, error_q} <=
            {kept_remainder_q, kept_quotient_q, kept_carry_q, kept_error_q};
      end else if (advance_q) begin
        remainder_q <= less[16] ? sum[15:0] : less[15:0];
        quotient_q  <= quotient_q + step_quotient_q + 25'(carry_q);
        carry_q     <= !less[16];
        error_q     <= error_q + (34'(axis_i.error) << Lanes);
      end
    end

    logic [15:0]       rest_1;
    logic [23:0]       position_1, position_2, position_3, position_4, position_5;  // whole 256ths
    logic [33:0]       error_1, error_2, error_3, error_4;
    logic              above_2, above_3, above_4, above_5;
    logic              tie_2, tie_3, tie_4, tie_5;
    logic [4:0]        leading_2;  // place of the first 1
    logic [4:0]        shift_3;
    logic [34:0]       bound_4;
    logic              beyond_5;   // rounding does not bring the position back to the tie
    logic [23:0]       rounded_6, upper_6;  // upper: and 255, so up to the next whole pixel
    logic              negative_6, above_end;

    logic [4:0] leading;
    always_comb begin
      leading = '0;
      for (int i = 7; i < 24; i++) if (position_1[i]) leading = 5'(i);
    end

    logic up;
    assign up = above_5 || (tie_5 && (beyond_5 ? axis_i.error_up : position_5[0]));

    always_ff @(posedge clk_i) begin
      position_1 <= quotient_q[23:0] + 24'(carry_q);
      rest_1     <= remainder_q;
      error_1    <= error_q;

      above_2    <= {rest_1, 1'b0} > {1'b0, axis_i.size_out};
      tie_2      <= {rest_1, 1'b0} == {1'b0, axis_i.size_out};
      leading_2  <= leading;
      position_2 <= position_1;
      error_2    <= error_1;

      // The exponent of the position less that of the scale, plus 1; never negative behind the
      // first half pixel.
      shift_3    <= 5'(7'(leading_2) + axis_i.shift);
      {above_3, tie_3, position_3, error_3} <= {above_2, tie_2, position_2, error_2};

      bound_4    <= 35'(axis_i.size_out) << shift_3;
      {above_4, tie_4, position_4, error_4} <= {above_3, tie_3, position_3, error_3};

      beyond_5   <= {error_4, 1'b0} > bound_4;
      {above_5, tie_5, position_5} <= {above_4, tie_4, position_4};

      rounded_6  <= position_5 - 24'd128 + 24'(up);
      upper_6    <= position_5 + 24'd127 + 24'(up);
      negative_6 <= position_5 < 24'd128;
    end

    assign above_end = rounded_6[23:8] >= end_q;

    always_ff @(posedge clk_i) begin
      first_7[lane]  <= negative_6 ? '0 : FirstBits'(above_end ? end_q : rounded_6[23:8]);
      needs_7[lane]  <= negative_6 ? '0 : FirstBits'(above_end ? end_q : upper_6[23:8]);
      weight_7[lane] <= negative_6 || above_end ? '0 : rounded_6[7:0];
    end
    // Without a second pixel: like the first one, so that whoever waits for the last lane waits for
    // no more than that.
    assign first[lane]  = both_q[Stages] ? first_7[lane] : first_7[0];
    assign needs[lane]  = both_q[Stages] ? needs_7[lane] : needs_7[0];
    assign weight[lane] = both_q[Stages] ? weight_7[lane] : weight_7[0];
  end

  stream_fifo #(
    .Width(Lanes * (2 * FirstBits + 8) + 2),
    .Depth(Depth)
  ) u_fifo (
    .clk_i,
    .rst_ni,
    .data_i ({first, needs, weight, both_q[Stages], last_q[Stages]}),
    .valid_i(valid_q[Stages]),
    .ready_o(),
    .data_o ({first_o, needs_o, weight_o, both_o, last_o}),
    .valid_o,
    .ready_i,
    .count_o(count)
  );

`ifndef SYNTHESIS
  a_starts_first: assert property (@(posedge clk_i) disable iff (!rst_ni) start_q |-> !go_q);
  a_moves: assert property (@(posedge clk_i) disable iff (!rst_ni)
    advance_q == (go_q && !at_end_q) && restart_q == (go_q && at_end_q && known_q));
  a_begun: assert property (@(posedge clk_i) disable iff (!rst_ni) begun_q == (before_q == '0));
  a_at_end: assert property (@(posedge clk_i) disable iff (!rst_ni)
    at_end_q == (left_q <= 16'(Lanes)));
  a_needs: assert property (@(posedge clk_i) disable iff (!rst_ni)
    valid_o |-> needs_o[0] == first_o[0] + FirstBits'(weight_o[0] != '0) &&
                needs_o[Lanes-1] == first_o[Lanes-1] + FirstBits'(weight_o[Lanes-1] != '0));
  a_room: assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(valid_q[Stages] && count == Depth));
`endif

endmodule
