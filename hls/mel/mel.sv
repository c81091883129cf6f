// Mel: 16 kHz samples to the logarithm of a mel spectrogram.
//
// Reference   mel.cpp, bit for bit.
// Interface   for each request first 256 words of the filterbank's program, then a sound and its
//             samples in; a sound with the count of frames and, frame after frame, n_mels values
//             out. The settings stand still from the first word on until the last value has left.
// Throughput  a sample a clock; two points of the FFT, one step of the filterbank and one value a
//             clock behind it, so that a frame is done within its 160 samples.
// Latency     of the program 256 clocks, of the sound 29, of the zeros in front of it 100; 475 from
//             the last sample in a frame's window to its first value, with the program of 80
//             filters.
// Limits      n_mels 4 to 128; any other is not checked. One request inside at a time.
// Bad input   upstream statuses pass. An ill-made program gives wrong values, as many as of a right
//             one.
module mel
  import audio_pkg::*;
  import headrace_pkg::*;
  import mel_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic [7:0]   n_mels_i,
  input  logic [17:0]  preemphasis_i,  // LSB 2^-18
  input  logic [31:0]  log_floor_i,    // LSB 2^-40

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

  typedef enum logic [2:0] {
    StLoad,    // the program
    StSound,
    StDivide,  // by the hop of 160, for the number of frames
    StFrames,
    StRun
  } state_e;

  state_e      state_q;
  logic [7:0]  word_q;       // of the program
  sound_t      sound_q;
  logic [26:0] dividend_q;   // of a division by 5, a bit a clock; the quotient comes in from below
  logic [4:0]  bits_left_q;
  logic [2:0]  rest_q;       // below 5
  logic [3:0]  rest;
  logic [27:0] frame_count, frames_left_q;
  logic        start, value_last, loading;

  assign program_ready_o = state_q == StLoad;
  assign sound_ready_o   = state_q == StSound;
  assign frames_valid_o  = state_q == StFrames;
  assign loading         = program_ready_o && program_valid_i;
  assign rest            = {rest_q, dividend_q[26]};
  assign frame_count      = {1'b0, dividend_q} + 28'd1;
  assign start           = state_q == StFrames && frames_ready_i && sound_q.status == StatusOk;

  always_comb begin
    frames_o = sound_q;
    if (sound_q.status == StatusOk) frames_o.count = {4'd0, frame_count};
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StLoad;
      word_q  <= '0;
    end else begin
      if (loading) word_q <= word_q + 8'd1;
      unique case (state_q)
        StLoad:   if (loading && word_q == 8'(ProgramWords - 1)) state_q <= StSound;
        StSound:  if (sound_valid_i) state_q <= sound_i.status == StatusOk ? StDivide : StFrames;
        StDivide: if (bits_left_q == 5'd1) state_q <= StFrames;
        StFrames: if (frames_ready_i) state_q <= sound_q.status == StatusOk ? StRun : StLoad;
        StRun: begin
          if (value_valid_o && value_ready_i && value_last && frames_left_q == 28'd1) begin
            state_q <= StLoad;
          end
        end
        default:  state_q <= StLoad;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (sound_ready_o) begin
      sound_q     <= sound_i;
      dividend_q  <= sound_i.count[31:5];
      bits_left_q <= 5'd27;
      rest_q      <= '0;
    end else if (state_q == StDivide) begin
      bits_left_q <= bits_left_q - 5'd1;
      dividend_q  <= {dividend_q[25:0], rest >= 4'd5};
      rest_q      <= 3'(rest >= 4'd5 ? rest - 4'd5 : rest);
    end
    if (start) frames_left_q <= frame_count;
    else if (value_valid_o && value_ready_i && value_last) frames_left_q <= frames_left_q - 28'd1;
  end

  // ---- Frames, FFT, spectrum: as many frames inside as spectrum has memory for ----
  logic       frames_idle, begun, read, windowed, transformed, written;
  point_t     frame_low, frame_high, point_low, point_high;
  logic [2:0] inside_q;
  logic [1:0] write_slot_q, read_slot;
  logic [7:0] k;
  power_t     up, down;

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
    .start_i        (start),
    .count_i        (sound_q.count),
    .frames_i       (frame_count),
    .preemphasis_i,
    .idle_o         (frames_idle),
    .sample_i,
    .sample_valid_i,
    .sample_ready_o,
    .room_i         (inside_q < 3'(Slots)),
    .begin_o        (begun),
    .start_o        (windowed),
    .low_o          (frame_low),
    .high_o         (frame_high)
  );

  fft i_fft (
    .clk_i,
    .rst_ni,
    .start_i (windowed),
    .low_i   (frame_low),
    .high_i  (frame_high),
    .start_o (transformed),
    .low_o   (point_low),
    .high_o  (point_high)
  );

  spectrum i_spectrum (
    .clk_i,
    .rst_ni,
    .start_i     (transformed),
    .slot_i      (write_slot_q),
    .low_i       (point_low),
    .high_i      (point_high),
    .written_o   (written),
    .read_slot_i (read_slot),
    .k_i         (k),
    .up_o        (up),
    .down_o      (down)
  );

  // ---- Filters and logarithm ----
  energy_t energy;
  logic    energy_last, energy_valid, energy_ready;

  filterbank i_filterbank (
    .clk_i,
    .rst_ni,
    .load_i         (loading),
    .load_index_i   (word_q),
    .load_word_i    (program_i),
    .n_mels_i,
    .log_floor_i,
    .ready_i        (written),
    .read_o         (read),
    .slot_o         (read_slot),
    .k_o            (k),
    .up_i           (up),
    .down_i         (down),
    .energy_o       (energy),
    .energy_last_o  (energy_last),
    .energy_valid_o (energy_valid),
    .energy_ready_i (energy_ready)
  );

  natural_log i_log (
    .clk_i,
    .rst_ni,
    .energy_i (energy),
    .last_i   (energy_last),
    .valid_i  (energy_valid),
    .ready_o  (energy_ready),
    .value_o,
    .last_o   (value_last),
    .valid_o  (value_valid_o),
    .ready_i  (value_ready_i)
  );

`ifndef SYNTHESIS
  a_idle_between_requests: assert property (@(posedge clk_i) disable iff (!rst_ni)
    state_q == StLoad |-> frames_idle && inside_q == '0 && !value_valid_o);
  a_frame_within_slots: assert property (@(posedge clk_i) disable iff (!rst_ni)
      inside_q <= 3'(Slots));
`endif

endmodule
