// From the sums of a band to its mean and the reciprocal of its standard deviation, a band in six
// clocks.
//
// Reference   band_of() in mel_normalize.cpp.
// Interface   settings stable from `clear_i` on, which comes while nothing is inside; a word of
//             statistics is taken when `word_ready_o`. Means and scales come out in the order of
//             the bands, each with its number, for a clock.
// Arithmetic  exact: a row of stages for each division and for the root, through which a band goes
//             by slots of six clocks. The spread, counted * sum q^2 - (sum q)^2, is added up by
//             columns of 17 bits from ten products of two multipliers.
// Throughput  a band in six clocks. Latency 32 slots, of the mean 7.
module norm_statistics
  import mel_normalize_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         clear_i,
  input  logic [15:0]  counted_i,  // frames that the sums are of
  input  logic [31:0]  std_floor_i,
  input  logic [15:0]  variance_floor_i,  // LSB 2^-36
  input  logic         whole_i,           // the variance is over counted_i, else over one less

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output mean_t        mean_o,
  output logic [6:0]   mean_band_o,
  output logic         mean_valid_o,
  output scale_t       scale_o,
  output logic [6:0]   scale_band_o,
  output logic         scale_valid_o
);

  // Slots, by what is at work in them: the last one of each.
  localparam int unsigned ReciprocalSlots = ReciprocalDigits / SlotClocks;
  localparam int unsigned SlotSums        = 0;
  localparam int unsigned SlotMean        = SlotSums + MeanDigits / SlotClocks;
  localparam int unsigned SlotSpread      = SlotSums + 2;
  localparam int unsigned SlotVariance    = SlotSpread + VarianceDigits / SlotClocks;
  localparam int unsigned SlotRoot        = SlotVariance + RootDigits / SlotClocks;
  localparam int unsigned SlotDivisor     = SlotRoot + 1;
  localparam int unsigned SlotReciprocal  = SlotDivisor + ReciprocalSlots;

  // ---- Slots ----
  logic [2:0]              phase_q;
  logic                    step, step_q;  // the last of a slot
  // Copies for what is many slots behind, see norm_divide: they go less far.
  logic                    root_step, deviation_step, reciprocal_step;
  logic [SlotReciprocal:0] valid_q;

  assign step         = step_q;
  assign word_ready_o = step;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      phase_q <= '0;
      step_q  <= 1'b0;
      valid_q <= '0;
    end else begin
      phase_q <= step ? '0 : phase_q + 1'b1;
      step_q  <= phase_q == 3'(SlotClocks - 2);
      if (step) valid_q <= {valid_q[SlotReciprocal-1:SlotSums], word_valid_i};
    end
  end

  // ---- Slot 0: the sums, cut to what so many values of 24 bits can have ----
  logic [127:0] word_q;
  logic         negative_q, sum_wide_q, squares_wide_q;
  logic [39:0]  magnitude_q;
  logic [38:0]  sum_q;
  logic [61:0]  squares_q;
  logic [47:0]  numerator_q;  // of the mean, in 2^-8, with half a place for rounding

  always_ff @(posedge clk_i) begin
    if (step) word_q <= word_i;
    negative_q     <= word_q[63];
    sum_wide_q     <= word_q[63:39] != {25{word_q[63]}};
    squares_wide_q <= word_q[127:126] != '0;
    magnitude_q    <= word_q[63] ? -word_q[39:0] : word_q[39:0];
    sum_q          <= sum_wide_q || magnitude_q[39:23] >= 17'(counted_i) ? {counted_i, 23'b0}
                    : magnitude_q[38:0];
    squares_q      <= squares_wide_q || word_q[125:110] >= counted_i ? {counted_i, 46'b0}
                    : word_q[125:64];
    numerator_q    <= {1'b0, sum_q, 8'b0} + 48'(counted_i[15:1]);
  end

  // ---- To SlotSpread: the spread ----
  logic        negative_1_q;
  logic [50:0] sum_1_q;      // three digits of 17 bits
  logic [67:0] squares_1_q;  // four

  always_ff @(posedge clk_i) begin
    if (step) begin
      negative_1_q <= negative_q;
      sum_1_q      <= 51'(sum_q);
      squares_1_q  <= 68'(squares_q);
    end
  end

  // What is multiplied in the six clocks, and in the fourth clock from then added. Column 2 has two
  // of them.
  logic [16:0]        squares_digit, sum_digit, sum_factor;
  logic [15:0]        counted_q;
  logic [16:0]        squares_digit_q, sum_digit_q, sum_factor_q;
  logic [32:0]        plus_q;
  logic [33:0]        minus_q;
  logic               twice, twice_q, twice_2_q;
  logic signed [36:0] term_q;
  logic [15:0]        counted_less_q;
  logic [31:0]        pairs_q;     // counted * counted, or * (counted - 1)
  logic [31:0]        low_added_q, high_added_q;
  logic [47:0]        added_q;     // pairs times what is added to the variance
  // What has been added up of a column, and is carried into it.
  logic signed [37:0] column_q, carry;
  logic [3:0][16:0]   low_q;            // digits of the spread
  logic [78:0]        spread_q, raised_q;  // and with what is added to the variance

  always_comb begin
    squares_digit = '0;
    sum_digit     = sum_1_q[16:0];
    sum_factor    = sum_1_q[16:0];
    twice         = 1'b0;
    unique case (phase_q)
      3'd0: squares_digit = squares_1_q[16:0];
      3'd1: begin
        squares_digit = squares_1_q[33:17];
        sum_factor    = sum_1_q[33:17];
        twice         = 1'b1;
      end
      3'd2: begin
        squares_digit = squares_1_q[50:34];
        sum_factor    = sum_1_q[50:34];
        twice         = 1'b1;
      end
      3'd3: begin
        sum_digit  = sum_1_q[33:17];
        sum_factor = sum_1_q[33:17];
      end
      3'd4: begin
        squares_digit = squares_1_q[67:51];
        sum_digit     = sum_1_q[33:17];
        sum_factor    = sum_1_q[50:34];
        twice         = 1'b1;
      end
      default: begin
        sum_digit  = sum_1_q[50:34];
        sum_factor = sum_1_q[50:34];
      end
    endcase
  end

  always_comb begin
    unique case (phase_q)
      3'd3:    carry = '0;                                    // column 0 begins
      3'd0:    carry = column_q;                              // the second product of column 2
      default: carry = 38'($signed(column_q[37:17]));
    endcase
  end

  always_ff @(posedge clk_i) begin
    squares_digit_q <= squares_digit;
    counted_q       <= counted_i;
    sum_digit_q     <= sum_digit;
    sum_factor_q    <= sum_factor;
    twice_q         <= twice;
    plus_q          <= counted_q * squares_digit_q;
    minus_q         <= sum_digit_q * sum_factor_q;
    twice_2_q       <= twice_q;
    term_q          <= $signed({4'b0, plus_q}) - (twice_2_q ? $signed({2'b0, minus_q, 1'b0})
                                                            : $signed({3'b0, minus_q}));
    column_q        <= carry + 38'(term_q);
    if (phase_q != 3'd0 && phase_q != 3'd3) low_q <= {column_q[16:0], low_q[3:1]};
    if (phase_q == 3'd3) spread_q <= column_q[37] ? '0 : {column_q[10:0], low_q};
    raised_q <= spread_q + 79'(added_q);
  end

  // ---- From slot 1 to SlotMean: the mean ----
  logic [MeanDigits-1:0] mean;
  logic [SlotMean:1]     mean_negative_q;
  logic [31:0]           mean_q;
  logic                  mean_valid_q;

  norm_divide #(.Digits(MeanDigits), .Width(16)) u_mean (
    .clk_i,
    .step_i       (step),
    .rest_i       (16'(numerator_q[47:36])),
    .bits_i       (numerator_q[35:0]),
    .denominator_i(counted_i),
    .quotient_o   (mean),
    .step_o       ()
  );

  always_ff @(posedge clk_i) begin
    if (step) mean_negative_q <= {mean_negative_q[SlotMean-1:1], negative_1_q};
    mean_q <= mean[31:0];
    mean_o <= mean_negative_q[SlotMean] ? -mean_t'({1'b0, mean_q}) : mean_t'({1'b0, mean_q});
  end

  // ---- To SlotVariance: the variance in 2^-44 places of q^2; to SlotRoot: its root ----
  logic [VarianceDigits-1:0] variance;
  logic [RootDigits-1:0]     deviation;

  always_ff @(posedge clk_i) begin
    counted_less_q <= counted_i - 16'(!whole_i);
    pairs_q        <= counted_q * counted_less_q;
    low_added_q    <= pairs_q[15:0] * variance_floor_i;
    high_added_q   <= pairs_q[31:16] * variance_floor_i;
    added_q        <= {high_added_q, 16'd0} + 48'(low_added_q);
  end

  norm_divide #(.Digits(VarianceDigits), .Width(32)) u_variance (
    .clk_i,
    .step_i       (step),
    .rest_i       (32'(raised_q[78:52])),
    .bits_i       ({raised_q[51:0], 44'b0}),
    .denominator_i(pairs_q),
    .quotient_o   (variance),
    .step_o       (root_step)
  );

  norm_root u_deviation (
    .clk_i,
    .step_i  (root_step),
    .square_i(variance),
    .root_o  (deviation),
    .step_o  (deviation_step)
  );

  // ---- SlotDivisor: the divisor, moved up to its first bit: by 32, 16, 8, 4, and by up to 3 ----
  logic [47:0] deviation_q, divisor_1_q, divisor_2_q, divisor_3_q, divisor_4_q, divisor_5_q,
               divisor;
  logic [5:2]  shift_q[2:5];  // as the divisors of the same clock of the slot
  logic [5:0]  shift;

  always_ff @(posedge clk_i) begin
    if (deviation_step) deviation_q <= deviation;
    divisor_1_q   <= deviation_q + 48'(std_floor_i);
    divisor_2_q   <= divisor_1_q[47:16] == '0 ? {divisor_1_q[15:0], 32'b0} : divisor_1_q;
    shift_q[2][5] <= divisor_1_q[47:16] == '0;
    divisor_3_q   <= divisor_2_q[47:32] == '0 ? {divisor_2_q[31:0], 16'b0} : divisor_2_q;
    shift_q[3]    <= {shift_q[2][5], divisor_2_q[47:32] == '0, 2'b0};
    divisor_4_q   <= divisor_3_q[47:40] == '0 ? {divisor_3_q[39:0], 8'b0} : divisor_3_q;
    shift_q[4]    <= {shift_q[3][5:4], divisor_3_q[47:40] == '0, 1'b0};
    divisor_5_q   <= divisor_4_q[47:44] == '0 ? {divisor_4_q[43:0], 4'b0} : divisor_4_q;
    shift_q[5]    <= {shift_q[4][5:3], divisor_4_q[47:44] == '0};
  end

  always_comb begin
    shift[5:2] = shift_q[5];
    if (divisor_5_q[47]) shift[1:0] = 2'd0;
    else if (divisor_5_q[46]) shift[1:0] = 2'd1;
    else if (divisor_5_q[45]) shift[1:0] = 2'd2;
    else shift[1:0] = 2'd3;
    divisor = divisor_5_q << shift[1:0];
  end

  // ---- To SlotReciprocal: its reciprocal, (2^47 - 1) / the upper 24 bits ----
  logic [ReciprocalDigits-1:0]     reciprocal;
  logic [ReciprocalSlots-1:0][5:0] scale_shift_q;
  logic [ReciprocalSlots-1:0]      some_q;

  norm_slot u_divisor (.clk_i, .step_i(deviation_step), .step_o(reciprocal_step));

  norm_divide #(.Digits(ReciprocalDigits), .Width(24)) u_reciprocal (
    .clk_i,
    .step_i       (reciprocal_step),
    .rest_i       (24'h7FFFFF),
    .bits_i       (24'hFFFFFF),
    .denominator_i(divisor[47:24]),
    .quotient_o   (reciprocal),
    .step_o       ()
  );

  always_ff @(posedge clk_i) begin
    if (reciprocal_step) begin
      scale_shift_q <= {scale_shift_q[ReciprocalSlots-2:0], shift};
      some_q        <= {some_q[ReciprocalSlots-2:0], divisor[47] && counted_i != 16'd1};
    end
    scale_o <= '{reciprocal: some_q[ReciprocalSlots-1] ? reciprocal : '0,
                 shift: scale_shift_q[ReciprocalSlots-1]};
  end

  // ---- Numbers ----
  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      mean_valid_q  <= 1'b0;
      mean_valid_o  <= 1'b0;
      scale_valid_o <= 1'b0;
      mean_band_o   <= '0;
      scale_band_o  <= '0;
    end else begin
      mean_valid_q  <= step && valid_q[SlotMean];
      mean_valid_o  <= mean_valid_q;
      scale_valid_o <= step && valid_q[SlotReciprocal];
      if (mean_valid_o) mean_band_o <= mean_band_o + 1'b1;
      if (scale_valid_o) scale_band_o <= scale_band_o + 1'b1;
    end
  end

`ifndef SYNTHESIS
  a_scale_is_0_or_normalised: assert property (@(posedge clk_i) disable iff (!rst_ni)
      scale_valid_o |-> scale_o.reciprocal == '0 || scale_o.reciprocal[23]);
`endif

endmodule
