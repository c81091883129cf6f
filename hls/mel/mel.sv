// Mel: 16 kHz samples to the logarithm of a mel spectrogram.
//
// Reference   mel.cpp, bit for bit.
// Interface   for each request first 256 words of the filterbank's program and 128 of the window,
//             then a sound and its samples in; a sound with the count of frames and, frame after
//             frame, n_mels values out. The settings stand still from the first word on until the
//             last value has left.
// Throughput  a sample a clock; two points of the DFT, one step of the filterbank and one value a
//             clock behind it, so that a frame is done within its 160 samples.
// Latency     of the program 384 clocks, of the sound 33, of zeros in front of it 100; 615 from
//             the last sample in a frame's window to its first value, with the program of 80
//             filters, and 677 with frames of 400 samples; 72 more where frames lose their mean.
// Limits      n_mels 4 to 128; any other is not checked. One request inside at a time.
// Bad input   upstream statuses pass. A sound without a frame: StatusBadArgument. An ill-made
//             program gives wrong values, as many as of a right one.
module mel
  import audio_pkg::*;
  import headrace_pkg::*;
  import mel_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic [7:0]   n_mels_i,
  input  logic [23:0]  preemphasis_i,  // LSB 2^-24
  input  logic [31:0]  log_floor_i,    // LSB 2^-40, or as the least value
  input  logic [15:0]  plan_i,
  input  logic [31:0]  min_samples_i,  // a sound of fewer gets zeros
  input  logic [31:0]  max_samples_i,  // one of more is cut
  output logic         idle_o,         // nothing is inside, but for a part of a program

  input  logic [127:0] program_i,
  input  logic         program_valid_i,
  output logic         program_ready_o,

  input  sound_t       sound_i,
  input  logic         sound_valid_i,
  output logic         sound_ready_o,

  input  sample_t      sample_i,
  input  logic         sample_valid_i,
  output logic         sample_ready_o,

  output sound_t       frames_o,
  output logic         frames_valid_o,
  input  logic         frames_ready_i,

  output log_mel_t     value_o,
  output logic         value_valid_o,
  input  logic         value_ready_i
);

  plan_t plan;
  logic  ends_inside;
  assign plan        = plan_i;
  assign ends_inside = plan.ends != EndsZeros && plan.ends != EndsMirrored;

  typedef enum logic [2:0] {
    StLoad,    // the program and the window
    StSound,
    StLimit,   // the count of samples
    StDivide,  // it by the hop of 160, for the number of frames
    StFrames,
    StRun,
    StDrain    // samples that no frame needs
  } state_e;

  state_e      state_q;
  logic [8:0]  word_q;       // of the program
  sound_t      sound_q;
  logic [1:0]  limit_q;      // step of StLimit
  logic [31:0] count_q;      // of samples, with zeros behind them or less than there are
  logic [31:0] samples_q;    // of them, those that come
  logic [32:0] beyond;       // zeros
  logic [31:0] pad_q;
  logic [32:0] spanned;      // for frames that lie inside
  logic [26:0] dividend_q;   // of a division by 5, a bit a clock; the quotient comes in from below
  logic [4:0]  bits_left_q;
  logic [2:0]  rest_q;       // below 5
  logic [3:0]  rest;
  logic [27:0] frame_count_q, frames_left_q;
  logic        none_q;       // no frame
  logic        start, value_last, loading, ok, frames_idle;

  assign program_ready_o = state_q == StLoad;
  assign idle_o          = state_q == StLoad;
  assign sound_ready_o   = state_q == StSound;
  assign frames_valid_o  = state_q == StFrames;
  assign loading         = program_ready_o && program_valid_i;
  assign rest            = {rest_q, dividend_q[26]};
  assign ok              = sound_q.status == StatusOk;
  assign start           = state_q == StFrames && frames_ready_i && ok;
  assign beyond          = {1'b0, count_q} - {1'b0, sound_q.count};
  assign spanned         = {1'b0, count_q} - 33'd240;

  always_comb begin
    frames_o = sound_q;
    if (ok) begin
      frames_o.status = none_q ? StatusBadArgument : StatusOk;
      frames_o.count  = {4'd0, frame_count_q};
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StLoad;
      word_q  <= '0;
    end else begin
      if (loading) word_q <= word_q == 9'(ProgramWords - 1) ? '0 : word_q + 9'd1;
      unique case (state_q)
        StLoad:   if (loading && word_q == 9'(ProgramWords - 1)) state_q <= StSound;
        StSound:  if (sound_valid_i) state_q <= sound_i.status == StatusOk ? StLimit : StFrames;
        StLimit:  if (limit_q == 2'd2) state_q <= StDivide;
        StDivide: if (bits_left_q == '0) state_q <= StFrames;
        StFrames: begin
          if (frames_ready_i) state_q <= !ok ? StLoad : none_q ? StDrain : StRun;
        end
        StRun: begin
          if (value_valid_o && value_ready_i && value_last && frames_left_q == 28'd1) begin
            state_q <= frames_idle ? StLoad : StDrain;
          end
        end
        StDrain:  if (frames_idle) state_q <= StLoad;
        default:  state_q <= StLoad;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (sound_ready_o) begin
      sound_q     <= sound_i;
      count_q     <= sound_i.count;
      limit_q     <= '0;
      bits_left_q <= 5'd27;
      rest_q      <= '0;
    end else if (state_q == StLimit) begin
      limit_q <= limit_q + 2'd1;
      if (limit_q == 2'd0 && count_q < min_samples_i) count_q <= min_samples_i;
      if (limit_q == 2'd1 && count_q > max_samples_i) count_q <= max_samples_i;
      pad_q      <= beyond[32] ? '0 : beyond[31:0];
      samples_q  <= beyond[32] ? count_q : sound_q.count;
      dividend_q <= !ends_inside ? count_q[31:5] : spanned[32] ? '0 : spanned[31:5];
    end else if (state_q == StDivide && bits_left_q != '0) begin
      bits_left_q <= bits_left_q - 5'd1;
      dividend_q  <= {dividend_q[25:0], rest >= 4'd5};
      rest_q      <= 3'(rest >= 4'd5 ? rest - 4'd5 : rest);
    end
    frame_count_q <= {1'b0, dividend_q} + 28'(plan.ends == EndsZeros);
    none_q        <= dividend_q == '0 && plan.ends != EndsZeros;
    if (start) frames_left_q <= frame_count_q;
    else if (value_valid_o && value_ready_i && value_last) frames_left_q <= frames_left_q - 28'd1;
  end

  // ---- Frames, DFT, spectrum: as many frames inside as spectrum has memory for ----
  logic            framed, begun, read, windowed, pointed, transformed, written, room;
  windowed_point_t frame_low, frame_high;
  point_t          points_low, points_high, point_low, point_high;
  exponent_t       exponent;
  logic [2:0]      inside_q;
  logic [1:0]      write_slot_q, read_slot;
  logic [7:0]      k;
  power_t          up, down;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      inside_q     <= '0;
      write_slot_q <= '0;
    end else begin
      inside_q <= inside_q + 3'(begun) - 3'(read);
      if (transformed) write_slot_q <= write_slot_q + 2'd1;
    end
  end

  frame i_frame (
    .clk_i,
    .rst_ni,
    .load_i         (loading && word_q >= 9'(ProgramSteps)),
    .load_index_i   (word_q[6:0]),
    .load_word_i    (program_i),
    .points_400_i   (plan.points_400),
    .ends_i         (plan.ends),
    .mean_removed_i (plan.mean_removed && ends_inside),
    .alone_i        (plan.alone && ends_inside),
    .preemphasis_i,
    .start_i        (start),
    .given_i        (sound_q.count),
    .count_i        (samples_q),
    .pad_i          (pad_q),
    .frames_i       (frame_count_q),
    .idle_o         (frames_idle),
    .sample_i,
    .sample_valid_i,
    .sample_ready_o,
    .room_i         (room),
    .begin_o        (framed),
    .start_o        (windowed),
    .low_o          (frame_low),
    .high_o         (frame_high)
  );

  frame_points i_points (
    .clk_i,
    .rst_ni,
    .points_400_i   (plan.points_400),
    .max_exponent_i (plan.least_floor ? 5'd31 : 5'd13),
    .room_o         (room),
    .begin_i        (framed),
    .start_i        (windowed),
    .low_i          (frame_low),
    .high_i         (frame_high),
    .room_i         (inside_q < 3'(Slots)),
    .begin_o        (begun),
    .exponent_o     (exponent),
    .start_o        (pointed),
    .low_o          (points_low),
    .high_o         (points_high)
  );

  fft i_fft (
    .clk_i,
    .rst_ni,
    .points_400_i (plan.points_400),
    .start_i      (pointed),
    .low_i        (points_low),
    .high_i       (points_high),
    .start_o      (transformed),
    .low_o        (point_low),
    .high_o       (point_high)
  );

  spectrum i_spectrum (
    .clk_i,
    .rst_ni,
    .points_400_i (plan.points_400),
    .start_i      (transformed),
    .slot_i       (write_slot_q),
    .low_i        (point_low),
    .high_i       (point_high),
    .written_o    (written),
    .read_slot_i  (read_slot),
    .k_i          (k),
    .up_o         (up),
    .down_o       (down)
  );

  // ---- Exponents of the frames from their points on to their values ----
  exponent_t [Exponents-1:0] exponents_q;
  logic [2:0]                exponent_in_q, exponent_out_q;
  logic                      given;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      exponent_in_q  <= '0;
      exponent_out_q <= '0;
    end else begin
      if (begun) exponent_in_q <= exponent_in_q + 3'd1;
      if (given) exponent_out_q <= exponent_out_q + 3'd1;
    end
  end
  always_ff @(posedge clk_i) if (begun) exponents_q[exponent_in_q] <= exponent;

  // ---- Filters and logarithm ----
  energy_t   energy;
  exponent_t energy_exponent;
  logic      energy_last, energy_valid, energy_ready;

  filterbank i_filterbank (
    .clk_i,
    .rst_ni,
    .load_i            (loading && word_q < 9'(ProgramSteps)),
    .load_index_i      (word_q[7:0]),
    .load_word_i       (program_i),
    .points_400_i      (plan.points_400),
    .n_mels_i,
    .floor_added_i     (!plan.least_floor),
    .log_floor_i,
    .ready_i           (written),
    .read_o            (read),
    .slot_o            (read_slot),
    .k_o               (k),
    .up_i              (up),
    .down_i            (down),
    .given_o           (given),
    .exponent_i        (exponents_q[exponent_out_q]),
    .energy_o          (energy),
    .energy_exponent_o (energy_exponent),
    .energy_last_o     (energy_last),
    .energy_valid_o    (energy_valid),
    .energy_ready_i    (energy_ready)
  );

  natural_log i_log (
    .clk_i,
    .rst_ni,
    .offset_i      (plan.exponent),
    .least_valid_i (plan.least_floor),
    .least_i       (log_floor_i[23:0]),
    .energy_i      (energy),
    .exponent_i    (energy_exponent),
    .last_i        (energy_last),
    .valid_i       (energy_valid),
    .ready_o       (energy_ready),
    .value_o,
    .last_o        (value_last),
    .valid_o       (value_valid_o),
    .ready_i       (value_ready_i)
  );

`ifndef SYNTHESIS
  a_idle_between_requests: assert property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == StLoad |-> frames_idle && inside_q == '0 && !value_valid_o);
  a_frame_within_slots: assert property (@(posedge clk_i) disable iff (!rst_ni)
      inside_q <= 3'(Slots));
`endif

endmodule
