// The size of the resized image, and the steps of the source position along both axes.
//
// Reference   resize.cpp: the longer side is floor(short * long / short side of the source); the
//             scale of an axis is 1.0 / (double(out) / in), two correctly rounded divisions. What
//             matters of the scale is how far rounding took it from in / out, because that alone
//             decides weights that are ties: see resize_taps.
// Interface   `start_i` with sizes that stay until `done_o`, from where the results stay until the
//             next start.
// Arithmetic  one divider without restoring, a bit a clock, 54 bits wide: a rest below 0 has the
//             divisor added in the next place, else it is taken away. A quotient of two 53-bit
//             significands is never exactly between two others, so the bit behind the last says
//             which way to round.
// Latency     about 340 clocks, fewer where the sizes are large; known only to matter for images of
//             a few rows.
// Limits      a short side of 0, or a longer one beyond 65535: `limit_o`. Sizes of 0 end there too.
module resize_setup
  import resize_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        start_i,
  input  logic [15:0] width_i,
  input  logic [15:0] height_i,
  input  logic [15:0] short_i,

  output logic        done_o,   // for one clock
  output logic        limit_o,
  output axis_t       x_o,
  output axis_t       y_o
);

  localparam int unsigned HalfSteps = 23;  // bits of 128 * in / out

  typedef enum logic [3:0] {
    StIdle,
    StOrder,      // which side is the shorter one
    StProduct,    // short * long, two clocks
    StLongerLoad, StLonger, StLimit,
    StStepsLoad, StSteps,
    StRatioLoad, StNormalize, StRatio,  // double(out) / in
    StInverseLoad, StInverse,
    StError,                  // three clocks
    StStore,
    StDone
  } state_e;
  state_e state_q;

  logic        y_q;  // the axis at work: y, else x
  logic        upright_q;
  logic [15:0] width_q, height_q, short_q, shorter_q, longer_q;  // sides of the source
  axis_t       x_q, y_axis_q;
  logic        limit_q;

  logic [15:0] in, out;
  assign in  = y_q ? y_axis_q.size_in : x_q.size_in;
  assign out = y_q ? y_axis_q.size_out : x_q.size_out;

  // ---- Divider ----
  logic [54:0] rest_q;  // twice the rest, which is at least -den_q; first the dividend
  logic [53:0] den_q, quotient_q;
  logic [54:0] sum;     // with a place below, whose carry is the 1 of a complement
  logic [54:0] next_rest;
  logic        negative, quotient_bit;
  logic [5:0]  count_q;
  logic [15:0] steps_remainder;  // of StSteps

  assign negative     = rest_q[54];
  assign sum          = {rest_q[53:0], 1'b1} + {negative ? den_q : ~den_q, !negative};
  assign next_rest    = {sum[54:1], 1'b0};
  assign quotient_bit = !sum[54];
  assign steps_remainder = rest_q[31:16] + (negative ? out : '0);

  logic [52:0] rounded;  // the quotient with 53 places
  assign rounded = quotient_q[53:1] + 53'(quotient_q[0]);

  // ---- Multiplier ----
  logic [17:0] factor_q;
  logic [15:0] factor2_q;
  logic [33:0] product_q;
  always_ff @(posedge clk_i) product_q <= factor_q * factor2_q;

  logic signed [6:0] exponent_q;  // of out / in, then minus that of in / out
  // The quotient has a place: while it is 0, the exponent follows, a clock behind.
  logic              begun_q;

  always_ff @(posedge clk_i) begin
    begun_q <= state_q == StRatio || state_q == StInverse;
    rest_q  <= next_rest;  // where it is not needed, too: few states say what enters
    if (!rst_ni) begin
      state_q <= StIdle;
    end else begin
      unique case (state_q)
        StIdle: begin
          width_q  <= width_i;
          height_q <= height_i;
          short_q  <= short_i;
          if (start_i) state_q <= StOrder;
        end
        StOrder: begin
          upright_q <= width_q <= height_q;
          shorter_q <= width_q <= height_q ? width_q : height_q;
          longer_q  <= width_q <= height_q ? height_q : width_q;
          count_q   <= 6'd2;
          state_q   <= StProduct;
        end
        StProduct: begin
          factor_q  <= 18'(short_q);
          factor2_q <= longer_q;
          count_q   <= count_q - 6'd1;
          if (count_q == 6'd0) state_q <= StLongerLoad;
        end
        StLongerLoad: begin
          rest_q     <= 55'(product_q[31:0]);
          den_q      <= {7'd0, shorter_q, 31'd0};
          quotient_q <= '0;
          count_q    <= 6'd31;
          state_q    <= StLonger;
        end
        StLonger: begin
          quotient_q <= {quotient_q[52:0], quotient_bit};
          count_q    <= count_q - 6'd1;
          if (count_q == 6'd0) state_q <= StLimit;
        end
        StLimit: begin
          y_q               <= 1'b0;
          x_q.size_in       <= width_q;
          y_axis_q.size_in  <= height_q;
          x_q.size_out      <= upright_q ? short_q : quotient_q[15:0];
          y_axis_q.size_out <= upright_q ? quotient_q[15:0] : short_q;
          limit_q           <= short_q == '0 || quotient_q[31:16] != '0;
          state_q           <= (short_q == '0 || quotient_q[31:16] != '0) ? StDone : StStepsLoad;
        end

        StStepsLoad: begin
          rest_q     <= 55'(in);
          den_q      <= {23'd0, out, 15'd0};
          quotient_q <= '0;
          count_q    <= '0;
          state_q    <= StSteps;
        end
        StSteps: begin
          quotient_q <= {quotient_q[52:0], quotient_bit};
          count_q    <= count_q + 6'd1;
          if (count_q == 6'(HalfSteps)) begin
            if (y_q) begin
              y_axis_q.half_quotient  <= quotient_q[22:0];
              y_axis_q.half_remainder <= steps_remainder;
            end else begin
              x_q.half_quotient  <= quotient_q[22:0];
              x_q.half_remainder <= steps_remainder;
            end
          end
          if (count_q == 6'(HalfSteps + 1)) begin
            if (y_q) begin
              y_axis_q.one_quotient  <= quotient_q[23:0];
              y_axis_q.one_remainder <= steps_remainder;
            end else begin
              x_q.one_quotient  <= quotient_q[23:0];
              x_q.one_remainder <= steps_remainder;
            end
          end
          if (count_q == 6'(HalfSteps + 2)) begin
            if (y_q) begin
              y_axis_q.two_quotient  <= quotient_q[24:0];
              y_axis_q.two_remainder <= steps_remainder;
            end else begin
              x_q.two_quotient  <= quotient_q[24:0];
              x_q.two_remainder <= steps_remainder;
            end
            state_q <= StRatioLoad;
          end
        end

        StRatioLoad: begin
          rest_q     <= {2'b0, out, 37'd0};
          den_q      <= {1'b0, in, 37'd0};
          exponent_q <= '0;
          state_q    <= StNormalize;
        end
        StNormalize: begin
          rest_q <= rest_q[52] ? rest_q : {rest_q[53:0], 1'b0};
          if (!den_q[52]) den_q <= {den_q[52:0], 1'b0};
          if (rest_q[52] && !den_q[52]) exponent_q <= exponent_q + 7'sd1;
          if (!rest_q[52] && den_q[52]) exponent_q <= exponent_q - 7'sd1;
          quotient_q <= '0;
          if (rest_q[52] && den_q[52]) state_q <= StRatio;
        end
        StRatio: begin
          if (quotient_q[53]) begin
            den_q   <= {1'b0, rounded};
            state_q <= StInverseLoad;
          end else begin
            quotient_q <= {quotient_q[52:0], quotient_bit};
            if (begun_q && quotient_q == '0) exponent_q <= exponent_q - 7'sd1;
          end
        end
        StInverseLoad: begin
          rest_q     <= {3'b001, 52'd0};
          quotient_q <= '0;
          state_q    <= StInverse;
        end
        StInverse: begin
          if (quotient_q[53]) begin
            count_q <= 6'd2;
            state_q <= StError;
          end else begin
            quotient_q <= {quotient_q[52:0], quotient_bit};
            if (begun_q && quotient_q == '0) exponent_q <= exponent_q + 7'sd1;
          end
        end
        // scale * out - in, in units of the scale's last place, is a small number: its low bits say
        // it all.
        StError: begin
          factor_q  <= rounded[17:0];
          factor2_q <= out;
          count_q   <= count_q - 6'd1;
          if (count_q == 6'd0) state_q <= StStore;
        end
        StStore: begin
          if (y_q) begin
            y_axis_q.error    <= product_q[17] ? -product_q[16:0] : product_q[16:0];
            y_axis_q.error_up <= !product_q[17];
            y_axis_q.shift    <= exponent_q - 7'sd7;
          end else begin
            x_q.error    <= product_q[17] ? -product_q[16:0] : product_q[16:0];
            x_q.error_up <= !product_q[17];
            x_q.shift    <= exponent_q - 7'sd7;
          end
          y_q     <= 1'b1;
          state_q <= y_q ? StDone : StStepsLoad;
        end

        StDone:  state_q <= StIdle;
        default: state_q <= StIdle;
      endcase
    end
  end

  assign done_o  = state_q == StDone;
  assign limit_o = limit_q;
  assign x_o     = x_q;
  assign y_o     = y_axis_q;

`ifndef SYNTHESIS
  a_rest_is_near_zero: assert property (@(posedge clk_i) disable iff (!rst_ni)
    state_q inside {StLonger, StSteps, StRatio, StInverse} && den_q != '0 |->
    $signed({rest_q[54], rest_q}) < $signed({1'b0, den_q, 1'b0}) &&
    $signed({rest_q[54], rest_q}) >= -$signed({1'b0, den_q, 1'b0}));
`endif

endmodule
