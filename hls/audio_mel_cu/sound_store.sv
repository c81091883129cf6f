// Sound store: the values of a sound to memory as float32, and of mel bands their sums behind them.
//
// Reference   store() of audio_mel_cu.cpp.
// Interface   `start_i` for a clock while `idle_o`, the settings stable until `idle_o` again; then
//             one sound and, if its status is StatusOk, its values: `count` samples, LSB 2^-21, or
//             `mels_i` log-mels, LSB 2^-18, for each of `count` frames. After that `status_o`,
//             `count_o`, `bytes_o` and `greatest_o` stand until the next start. Bands are followed
//             by a word of 16 bytes for each of them: low 8 bytes the sum of its values in units of
//             their LSB (int64), high 8 bytes that of their squares (uint64); with `left_out_i`
//             without the last frame. `idle_o` comes after the last write response.
// Throughput  a value a clock. Latency eight clocks to axi_write.
// Limits      2^24 - 1 samples, or MaxFrames frames; mels a multiple of 4, 4 to 128: the sums of a
//             band are ready again three clocks after they were read.
// Bad input   a sound with an error status, or one that needs more than `capacity_i` bytes: nothing
//             is written, the values are drained. An error response from memory sets `bus_error_o`;
//             writing goes on to the end.
module sound_store
  import headrace_pkg::*;
  import audio_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [63:0]  address_i,   // 16-byte aligned
  input  logic [31:0]  capacity_i,  // bytes
  input  logic         bands_i,     // log-mels; else samples
  input  logic [7:0]   mels_i,
  input  logic         left_out_i,  // of the sums: the last frame
  output logic         idle_o,

  output status_e      status_o,
  output logic [31:0]  count_o,
  output logic [31:0]  bytes_o,     // of the output, also when it does not fit
  output log_mel_t     greatest_o,  // of the values; 0 of samples, and without one
  output logic         bus_error_o,

  input  sound_t             sound_i,
  input  logic               sound_valid_i,
  output logic               sound_ready_o,
  input  logic signed [23:0] value_i,
  input  logic               value_valid_i,
  output logic               value_ready_o,

  output logic [63:0]  awaddr_o,
  output logic [7:0]   awlen_o,
  output logic [2:0]   awsize_o,
  output logic [1:0]   awburst_o,
  output logic         awvalid_o,
  input  logic         awready_i,
  output logic [127:0] wdata_o,
  output logic [15:0]  wstrb_o,
  output logic         wlast_o,
  output logic         wvalid_o,
  input  logic         wready_i,
  input  logic [1:0]   bresp_i,
  input  logic         bvalid_i,
  output logic         bready_o
);

  localparam int unsigned MaxMels = 128;

  typedef enum logic [2:0] {
    StIdle,
    StSound,   // waits for it
    StSize,    // computes sizes, five clocks
    StTake,    // takes values
    StDrain,   // takes values, writes nothing
    StSums,    // gives out the sums
    StWrite    // waits for the pipeline and for memory
  } state_e;

  state_e      state_q, state_d;
  logic [2:0]  step_q;      // clocks in StSize
  logic        take_sound, take_value, last_band;
  logic        last_value_q;  // values_q is 1
  logic [23:0] values_q;    // still to come
  logic [15:0] frames_q, frames_left_q;
  logic        last_frame_q;
  logic [5:0]  quads_q;     // a quarter of mels_i
  logic [21:0] product_q;   // frames times quads
  logic [22:0] words_q;     // of the output
  logic        fits_q;
  logic        command_q;   // for axi_write, not yet taken
  logic        command_ready, writer_idle, word_ready;
  logic        moves;       // the pipeline
  logic        pipe_empty;

  assign sound_ready_o = state_q == StSound;
  assign take_sound    = sound_valid_i && sound_ready_o;
  assign value_ready_o = state_q == StTake ? moves : state_q == StDrain;
  assign take_value    = value_valid_i && value_ready_o;
  assign idle_o        = state_q == StIdle;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StIdle:  if (start_i) state_d = StSound;
      StSound: if (take_sound) state_d = sound_i.status == StatusOk ? StSize : StWrite;
      StSize:  if (step_q == 3'd5) state_d = values_q == '0 ? StWrite : fits_q ? StTake : StDrain;
      StTake:  if (take_value && last_value_q) state_d = bands_i ? StSums : StWrite;
      StDrain: if (take_value && last_value_q) state_d = StWrite;
      StSums:  if (moves && last_band) state_d = StWrite;
      StWrite: if (pipe_empty && !command_q && writer_idle) state_d = StIdle;
      default: state_d = StIdle;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q   <= StIdle;
      step_q    <= '0;
      command_q <= 1'b0;
    end else begin
      state_q <= state_d;
      step_q  <= state_q == StSize ? step_q + 1'b1 : '0;
      if (state_q == StSize && state_d == StTake) command_q <= 1'b1;
      else if (command_ready) command_q <= 1'b0;
    end
  end

  // Registered step by step.
  always_ff @(posedge clk_i) begin
    frames_q  <= count_o[15:0];
    quads_q   <= mels_i[7:2];
    product_q <= frames_q * quads_q;
    words_q   <= bands_i ? 23'(product_q) + 23'(mels_i) : 23'((count_o[24:0] + 25'd3) >> 2);
    if (state_q == StSize) bytes_o <= bands_i ? {5'b0, words_q, 4'b0} : {count_o[29:0], 2'b0};
    fits_q <= bytes_o <= capacity_i;
    if (take_sound) begin
      count_o  <= sound_i.status == StatusOk ? sound_i.count : '0;
      bytes_o  <= '0;
      status_o <= sound_i.status;
    end else if (state_q == StSize && step_q == 3'd5 && !fits_q) begin
      status_o <= StatusBufferTooSmall;
    end
    if (state_q == StSize) values_q <= bands_i ? {product_q, 2'b0} : count_o[23:0];
    else if (take_value) values_q <= values_q - 1'b1;
    last_value_q <= take_value ? values_q == 24'd2 : values_q == 24'd1;
    if (state_q == StSize) begin
      frames_left_q <= frames_q;
      last_frame_q  <= frames_q == 16'd1;
    end else if (take_value && last_band) begin
      frames_left_q <= frames_left_q - 1'b1;
      last_frame_q  <= frames_left_q == 16'd2;
    end
  end

  logic some_q;  // value has been taken
  always_ff @(posedge clk_i) begin
    if (take_sound) begin
      greatest_o <= '0;
      some_q     <= 1'b0;
    end else if (take_value && bands_i) begin
      some_q <= 1'b1;
      if (!some_q || value_i > greatest_o) greatest_o <= value_i;
    end
  end

  // ---- The pipeline: all of it moves, or stands while axi_write has no room ----
  // Values, then the bands' sums. 1: magnitude. 2, 3, 4: normalised to a float's mantissa, by up to
  // 16, 8, then 7 places; squared,
  // the sums read in 3 and registered in 4. 5: packed; the sums written.
  logic        s0_valid, s1_valid_q, s2_valid_q, s3_valid_q, s4_valid_q, word_valid_q;
  logic [6:0]  band_q, s1_band_q, s2_band_q, s3_band_q, s4_band_q;
  logic        first_q, s1_first_q, s2_first_q, s3_first_q, s4_first_q;  // of its band
  logic [1:0]  lane_q, s1_lane_q, s2_lane_q, s3_lane_q, s4_lane_q;
  // No value: the sums of a band.
  logic        s1_sums_q, s2_sums_q, s3_sums_q, s4_sums_q;
  logic        s1_ends_q, s2_ends_q, s3_ends_q, s4_ends_q;               // the word is full
  logic        s1_counts_q, s2_counts_q, s3_counts_q;                    // the value, in the sums
  logic        no_word_q;       // !word_valid_q: a register of its own, as it goes far
  logic        late_moves;      // `moves`, for the later half
  logic [3:0]  s4_writes_q;     // these lanes of the word

  assign moves      = !word_valid_q || word_ready;
  assign late_moves = no_word_q || word_ready;
  assign s0_valid   = (state_q == StTake && value_valid_i) || state_q == StSums;
  assign last_band  = band_q == 7'(mels_i - 1'b1);
  assign pipe_empty = !s1_valid_q && !s2_valid_q && !s3_valid_q && !s4_valid_q && !word_valid_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      {s1_valid_q, s2_valid_q, s3_valid_q, s4_valid_q, word_valid_q} <= '0;
      no_word_q   <= 1'b1;
      s4_writes_q <= '0;
    end else if (moves) begin
      s1_valid_q   <= s0_valid;
      s2_valid_q   <= s1_valid_q;
      s3_valid_q   <= s2_valid_q;
      s4_valid_q   <= s3_valid_q;
      word_valid_q <= s4_valid_q && s4_ends_q;
      no_word_q    <= !(s4_valid_q && s4_ends_q);
      for (int unsigned i = 0; i < 4; i++) begin
        s4_writes_q[i] <= s3_valid_q && (s3_sums_q || s3_lane_q == '0 || s3_lane_q == 2'(i));
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == StSize) begin
      band_q  <= '0;
      first_q <= 1'b1;
      lane_q  <= '0;
    end else if (moves && s0_valid) begin
      band_q  <= last_band ? '0 : band_q + 1'b1;
      if (last_band) first_q <= 1'b0;
      lane_q  <= lane_q + 1'b1;
    end
    if (moves) begin
      s1_band_q  <= band_q;
      s1_first_q <= first_q;
      s1_lane_q  <= lane_q;
      s1_sums_q  <= state_q == StSums;
      s1_ends_q  <= state_q == StSums || lane_q == 2'd3 || last_value_q;
      {s3_counts_q, s2_counts_q, s1_counts_q} <= {s2_counts_q, s1_counts_q,
                                                  !(left_out_i && last_frame_q)};
      {s2_band_q, s2_first_q, s2_lane_q, s2_sums_q, s2_ends_q} <=
          {s1_band_q, s1_first_q, s1_lane_q, s1_sums_q, s1_ends_q};
      {s3_band_q, s3_first_q, s3_lane_q, s3_sums_q, s3_ends_q} <=
          {s2_band_q, s2_first_q, s2_lane_q, s2_sums_q, s2_ends_q};
      {s4_band_q, s4_first_q, s4_lane_q, s4_sums_q, s4_ends_q} <=
          {s3_band_q, s3_first_q, s3_lane_q, s3_sums_q, s3_ends_q};
    end
  end

  // ---- The float ----
  logic [23:0] s1_magnitude_q, s2_magnitude_q, s3_magnitude_q, s4_magnitude_q;
  logic        s1_negative_q, s2_negative_q, s3_negative_q, s4_negative_q;
  logic [4:0]  s2_shift_q, s3_shift_q, s4_shift_q;
  logic [23:0] by_4, by_2;
  logic        zero_16, zero_8, zero_4, zero_2;
  logic [7:0]  exponent;
  logic [31:0] float;

  assign zero_16  = s1_magnitude_q[23:8] == '0;
  assign zero_8   = s2_magnitude_q[23:16] == '0;
  assign zero_4   = s3_magnitude_q[23:20] == '0;
  assign by_4     = zero_4 ? {s3_magnitude_q[19:0], 4'b0} : s3_magnitude_q;
  assign zero_2   = by_4[23:22] == '0;
  assign by_2     = zero_2 ? {by_4[21:0], 2'b0} : by_4;
  assign exponent = (bands_i ? 8'(127 + 23 - 18) : 8'(127 + 23 - 21)) - 8'(s4_shift_q);
  // Else it is 0.
  assign float    = s4_magnitude_q[23] ? {s4_negative_q, exponent, s4_magnitude_q[22:0]} : '0;

  always_ff @(posedge clk_i) begin
    if (moves) begin
      s1_magnitude_q <= value_i[23] ? -value_i : value_i;
      s1_negative_q  <= value_i[23];
      s2_magnitude_q <= zero_16 ? {s1_magnitude_q[7:0], 16'b0} : s1_magnitude_q;
      s2_negative_q  <= s1_negative_q;
      s2_shift_q     <= {zero_16, 4'b0};
      s3_magnitude_q <= zero_8 ? {s2_magnitude_q[15:0], 8'b0} : s2_magnitude_q;
      s3_negative_q  <= s2_negative_q;
      s3_shift_q     <= s2_shift_q | {1'b0, zero_8, 3'b0};
      s4_magnitude_q <= by_2[23] ? by_2 : {by_2[22:0], 1'b0};
      s4_negative_q  <= s3_negative_q;
      s4_shift_q     <= s3_shift_q | {2'b0, zero_4, zero_2, !by_2[23]};
    end
  end

  // ---- The sums: 40 bits hold 65535 values of 24 bits, 62 their squares ----
  (* ram_style = "block" *) logic [101:0] sums[MaxMels];
  // Products of the magnitude's low 17 bits and its upper ones, each of a single multiplier.
  logic [23:0]        s2_factor_q;  // a register of their own, as multipliers lie far apart
  logic [33:0]        s3_low_q;
  logic [23:0]        s3_mixed_q;
  logic [13:0]        s3_high_q;
  logic [46:0]        s4_square_q;
  logic signed [23:0] s2_value_q, s3_value_q, s4_value_q;
  logic [101:0]       s3_sums_of_q, s4_sums_of_q;  // {squares, values}
  logic [61:0]        squares;
  logic signed [39:0] total;

  always_ff @(posedge clk_i) begin
    if (moves) begin
      s2_factor_q <= s1_magnitude_q;
      s2_value_q  <= s1_negative_q ? -s1_magnitude_q : s1_magnitude_q;
    end
    if (late_moves) begin
      s3_low_q    <= s2_factor_q[16:0] * s2_factor_q[16:0];
      s3_mixed_q  <= s2_factor_q[16:0] * s2_factor_q[23:17];
      s3_high_q   <= s2_factor_q[23:17] * s2_factor_q[23:17];
      s3_value_q  <= s2_value_q;
      s4_square_q <= s3_counts_q ? {s3_high_q[12:0], s3_low_q} + {5'b0, s3_mixed_q, 18'b0} : '0;
      s4_value_q  <= s3_counts_q ? s3_value_q : '0;
      s3_sums_of_q <= sums[s2_band_q];  // four places ahead at least is the same band
      s4_sums_of_q <= s3_sums_of_q;
    end
  end

  assign squares = (s4_first_q ? '0 : s4_sums_of_q[101:40]) + 62'(s4_square_q);
  assign total   = (s4_first_q ? '0 : $signed(s4_sums_of_q[39:0])) + 40'(s4_value_q);

  always_ff @(posedge clk_i) begin
    if (late_moves && s4_valid_q && !s4_sums_q) sums[s4_band_q] <= {squares, total};
  end

  // ---- Words ----
  logic [127:0] word_q, sums_word;
  assign sums_word = {2'b0, s4_sums_of_q[101:40], {24{s4_sums_of_q[39]}}, s4_sums_of_q[39:0]};

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < 4; i++) begin
      if (late_moves && s4_writes_q[i]) begin
        word_q[32*i+:32] <= s4_sums_q ? sums_word[32*i+:32] : s4_lane_q == 2'(i) ? float : '0;
      end
    end
  end

  axi_write u_write (
    .clk_i,
    .rst_ni,
    .clear_i        (start_i),
    .idle_o         (writer_idle),
    .bus_error_o,
    .address_i,
    .words_i        (29'(words_q)),
    .command_valid_i(command_q),
    .command_ready_o(command_ready),
    .word_i         (word_q),
    .word_valid_i   (word_valid_q),
    .word_ready_o   (word_ready),
    .awaddr_o,
    .awlen_o,
    .awsize_o,
    .awburst_o,
    .awvalid_o,
    .awready_i,
    .wdata_o,
    .wstrb_o,
    .wlast_o,
    .wvalid_o,
    .wready_i,
    .bresp_i,
    .bvalid_i,
    .bready_o
  );

`ifndef SYNTHESIS
  a_no_word: assert property (@(posedge clk_i) disable iff (!rst_ni) no_word_q == !word_valid_q);
  a_start_when_idle: assert property (@(posedge clk_i) disable iff (!rst_ni) start_i |-> idle_o);
  a_whole_words: assert property (@(posedge clk_i) disable iff (!rst_ni)
      start_i && bands_i |-> mels_i[1:0] == '0 && mels_i != '0 && mels_i <= 8'(MaxMels));
  a_count_in_limits: assert property (@(posedge clk_i) disable iff (!rst_ni)
      take_sound && sound_i.status == StatusOk |->
      sound_i.count < (bands_i ? 32'd65536 : 32'd16777216));
`endif

endmodule
