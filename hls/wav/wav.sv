// WAV: the bytes of a file to its samples, in mono.
//
// Reference   wav.cpp, and so `pcm` of host/dpu/reference/audio_file.py.
// Interface   `start_i` for a clock while `done_o`, with the file's size; its words, the first byte
//             lowest. `done_o` rises when no more of them are wanted and the last sample is out;
//             those that are left are not taken. Sound and samples as in audio_pkg.
// Throughput  a sample frame a clock; of chunks that are skipped, 16 bytes a clock. Latency 35
//             clocks from the start of a file whose fmt and data come first to the sound, 9 for
//             each chunk between, 12 for an extension; then 2.
// Limits      16-bit PCM, mono or stereo, eight rates, 64 chunks, MaxFrames frames of 160 samples
//             at 16 kHz. The header is WAVE_FORMAT_PCM, or WAVE_FORMAT_EXTENSIBLE with 16 valid
//             bits and PCM's GUID.
// Bad input   a status before any sample, with rate and count 0.
module wav
  import headrace_pkg::*;
  import audio_pkg::*;
(
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic         start_i,
  input  logic [31:0]  bytes_i,
  output logic         done_o,

  input  logic [127:0] word_i,
  input  logic         word_valid_i,
  output logic         word_ready_o,

  output sound_t       sound_o,
  output logic         sound_valid_o,
  input  logic         sound_ready_i,

  output pcm_t         pcm_o,
  output logic         pcm_valid_o,
  input  logic         pcm_ready_i
);

  localparam logic [31:0] Riff = 32'h46464952;  // first byte lowest
  localparam logic [31:0] Wave = 32'h45564157;
  localparam logic [31:0] Fmt  = 32'h20746D66;
  localparam logic [31:0] Data = 32'h61746164;
  localparam int unsigned MaxChunks = 64;  // a power of two
  localparam logic [15:0] FormatPcm        = 16'd1;
  localparam logic [15:0] FormatExtensible = 16'hFFFE;
  localparam logic [31:0] LongFmtBytes     = 32'd40;  // with an extension
  // The extension of 16-bit PCM: its length (22) and the valid bits, then KSDATAFORMAT_SUBTYPE_PCM.
  // Between them is the mask of speakers, which may be any.
  localparam logic [31:0] PcmValidBits     = {16'd16, 16'd22};
  localparam logic [3:0][31:0] PcmGuid = {
    32'h719B3800, 32'hAA000080, 32'h00100000, 32'h00000001};

  // Sample frames that give MaxFrames frames at 16 kHz.
  localparam logic [24:0] MaxAt16k = 25'(MaxFrames * 160 - 1);
  localparam logic [7:0][24:0] Most = {
    25'(3 * MaxAt16k), 25'(64'(MaxAt16k) * 44100 / 16000), 25'(2 * MaxAt16k),
    25'(64'(MaxAt16k) * 3 / 2), 25'(64'(MaxAt16k) * 22050 / 16000), MaxAt16k,
    25'(64'(MaxAt16k) * 11025 / 16000), 25'(MaxAt16k / 2)
  };

  typedef enum logic [3:0] {
    Idle,
    Fetch,    // four bytes
    Look,     // at them
    Chunk,    // may one begin here?
    Skip,     // to it
    Size,     // of the chunk is known
    Pad,      // behind the chunk
    Compare,  // its end with the file's
    Measure,  // the data chunk
    Limit,
    Judge,
    Answer,
    Samples
  } state_e;
  typedef enum logic [3:0] {
    FieldRiff, FieldLength, FieldWave, FieldName, FieldSize, FieldForm, FieldRate, FieldByteRate,
    FieldBlock,
    FieldValidBits, FieldSpeakers, FieldGuid0, FieldGuid1, FieldGuid2, FieldGuid3
  } field_e;

  state_e      state_d, state_q;
  // Not in Idle; in Fetch; in Samples; and of a channel: registers of their own, as they go far.
  logic        on_q, fetch_q, samples_q, two_q;
  field_e      field_q;
  status_e     status_q;
  logic [31:0] four, four_q;
  logic [7:0]  same_q;    // its half bytes are those of the file's first name, or of its second
  logic        four_valid, take, skip;
  logic [31:0] left_q;    // bytes of the file behind what was fetched
  logic [31:0] size_q;    // of the chunk, or what is left of it
  logic [32:0] rest_q;    // padded
  logic [32:0] next_q;    // with the eight bytes of a next chunk's header
  logic        beyond_q;  // these end behind the file
  logic        brief_q;   // left_q was less than 16 a clock ago
  logic [6:0]  chunks_q;
  logic        is_data_q, is_fmt_q, formed_q;
  logic        small_q;   // the chunk has less than 16 bytes
  // The format; fmt has room for an extension, all of it in the file.
  logic        extensible_q, long_q;
  logic        is_pcm_q, mono_q, stereo_q, rate_known_q, block_2_q, block_4_q, bits_16_q;
  logic [2:0]  rate_q;
  logic        misfit_q, truncated_q, too_long_q;
  logic [31:0] frames_q, most_q;  // at the rate
  logic        some_q;       // it is not 0, from Limit on
  logic        last_taken;

  wav_words u_words (
    .clk_i,
    .rst_ni,
    .start_i,
    .on_i    (on_q),
    .word_i,
    .word_valid_i,
    .word_ready_o,
    .four_o  (four),
    .valid_o (four_valid),
    .two_i   (two_q),
    .take_i  (take),
    .skip_i  (skip),
    .halves_i(rest_q[32:1])
  );

  assign skip = state_q == Skip;

  // ---- Headers: four bytes are fetched, then looked at ----
  always_comb begin
    state_d = state_q;
    unique case (state_q)
      Idle: if (start_i) state_d = bytes_i < 32'd12 ? Answer : Fetch;
      Fetch: if (four_valid) state_d = Look;
      Look: begin
        unique case (field_q)
          FieldRiff:  state_d = same_q == '1 ? Fetch : Answer;
          FieldWave:  state_d = same_q == '1 ? Chunk : Answer;
          FieldSize:  state_d = Size;
          FieldBlock: state_d = extensible_q && long_q ? Fetch : Pad;
          FieldGuid3: state_d = Pad;
          default:    state_d = Fetch;
        endcase
      end
      Size: begin
        if (is_data_q) state_d = Measure;
        else if (!is_fmt_q) state_d = Pad;
        else if (formed_q || small_q || brief_q) state_d = Answer;
        else state_d = Fetch;
      end
      Pad:     state_d = Compare;
      Compare: state_d = Chunk;
      Chunk: begin
        if (chunks_q[$clog2(MaxChunks)] || beyond_q) state_d = Answer;
        else state_d = Skip;
      end
      Skip:    state_d = Fetch;
      Measure: state_d = Limit;
      Limit:   state_d = Judge;
      Judge:   state_d = Answer;
      Answer: begin
        if (sound_ready_i) state_d = status_q == StatusOk && some_q ? Samples : Idle;
      end
      Samples: if (last_taken) state_d = Idle;
      default: state_d = Idle;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q   <= Idle;
      on_q      <= 1'b0;
      fetch_q   <= 1'b0;
      samples_q <= 1'b0;
      two_q     <= 1'b0;
    end else begin
      state_q   <= state_d;
      on_q      <= state_d != Idle;
      fetch_q   <= state_d == Fetch;
      samples_q <= state_d == Samples;
      two_q     <= state_d == Samples && !stereo_q;
    end
  end

  // What an answer says that is given in this state.
  always_ff @(posedge clk_i) begin
    unique case (state_q)
      Idle, Look: status_q <= StatusNotWav;
      Size:       status_q <= StatusCorruptHeader;
      Chunk:      status_q <= chunks_q[$clog2(MaxChunks)] ? StatusCorruptHeader : StatusTruncated;
      Judge: begin
        if (!formed_q) status_q <= StatusCorruptHeader;
        else if (!is_pcm_q || !bits_16_q) status_q <= StatusSoundFormat;
        else if (!mono_q && !stereo_q) status_q <= StatusChannels;
        else if (!rate_known_q) status_q <= StatusRate;
        else if (misfit_q) status_q <= StatusCorruptHeader;
        else if (truncated_q) status_q <= StatusTruncated;
        else if (too_long_q) status_q <= StatusTooLong;
        else status_q <= StatusOk;
      end
      default: ;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Fetch) begin
      four_q <= four;
      for (int unsigned i = 0; i < 8; i++) begin  // FieldRiff or FieldWave
        same_q[i] <= four[4*i+:4] == (field_q[1] ? Wave[4*i+:4] : Riff[4*i+:4]);
      end
    end
    brief_q <= left_q[31:4] == '0;
    most_q <= 32'(Most[rate_q]);  // the rate is known long before
    unique case (state_q)
      Idle:    left_q <= bytes_i;
      Fetch:   if (four_valid) left_q <= left_q - 32'd4;
      Compare: left_q <= left_q - rest_q[31:0];
      default: ;
    endcase
    unique case (state_q)
      Idle: begin
        field_q  <= FieldRiff;
        chunks_q <= '0;
        formed_q <= 1'b0;
        rest_q   <= '0;  // nothing to skip before the first chunk
      end
      Look: begin
        field_q <= field_q == FieldGuid3 ? FieldName : field_e'(field_q + 4'd1);
        unique case (field_q)
          FieldName: begin
            is_data_q <= four_q == Data;
            is_fmt_q  <= four_q == Fmt;
          end
          FieldWave: beyond_q <= left_q[31:3] == '0;
          FieldSize: begin
            size_q  <= four_q;
            small_q <= four_q[31:4] == '0;
          end
          FieldForm: begin
            is_pcm_q     <= four_q[15:0] == FormatPcm;
            extensible_q <= four_q[15:0] == FormatExtensible;
            mono_q       <= four_q[31:16] == 16'd1;
            stereo_q     <= four_q[31:16] == 16'd2;
          end
          FieldRate: begin
            rate_known_q <= 1'b1;
            unique case (four_q)
              32'd8000:  rate_q <= Rate8000;
              32'd11025: rate_q <= Rate11025;
              32'd16000: rate_q <= Rate16000;
              32'd22050: rate_q <= Rate22050;
              32'd24000: rate_q <= Rate24000;
              32'd32000: rate_q <= Rate32000;
              32'd44100: rate_q <= Rate44100;
              32'd48000: rate_q <= Rate48000;
              default:   rate_known_q <= 1'b0;
            endcase
          end
          FieldBlock: begin
            block_2_q <= four_q[15:0] == 16'd2;
            block_4_q <= four_q[15:0] == 16'd4;
            bits_16_q <= four_q[31:16] == 16'd16;
            formed_q  <= 1'b1;
            size_q    <= size_q - 32'd16;
          end
          FieldValidBits: is_pcm_q <= four_q == PcmValidBits;
          FieldGuid0: if (four_q != PcmGuid[0]) is_pcm_q <= 1'b0;
          FieldGuid1: if (four_q != PcmGuid[1]) is_pcm_q <= 1'b0;
          FieldGuid2: if (four_q != PcmGuid[2]) is_pcm_q <= 1'b0;
          FieldGuid3: begin
            if (four_q != PcmGuid[3]) is_pcm_q <= 1'b0;
            size_q <= size_q - 32'd24;
          end
          default: ;
        endcase
      end
      Size:    long_q <= size_q >= LongFmtBytes && left_q >= LongFmtBytes;
      Pad: begin  // chunks begin at even places
        rest_q <= {1'b0, size_q} + 33'(size_q[0]);
        next_q <= {1'b0, size_q} + (size_q[0] ? 33'd9 : 33'd8);
      end
      Compare: beyond_q <= next_q > {1'b0, left_q};
      Chunk: begin
        chunks_q <= chunks_q + 7'd1;
        field_q  <= FieldName;
      end
      Measure: begin
        frames_q    <= stereo_q ? {2'b0, size_q[31:2]} : {1'b0, size_q[31:1]};
        misfit_q    <= stereo_q ? !block_4_q || size_q[1:0] != '0 : !block_2_q || size_q[0];
        truncated_q <= size_q > left_q;
      end
      Limit: begin
        too_long_q <= frames_q > most_q;
        some_q     <= frames_q != '0;
      end
      Samples: if (take && four_valid) begin
        frames_q <= frames_q - 32'd1;
        some_q   <= frames_q != 32'd1;
      end
      default: ;
    endcase
  end

  assign sound_o.status = status_q;
  assign sound_o.rate   = status_q == StatusOk ? rate_q : '0;
  assign sound_o.count  = status_q == StatusOk ? frames_q : '0;
  assign sound_valid_o  = state_q == Answer;
  assign done_o         = state_q == Idle;

  // ---- Samples: a frame is taken, then its channels are added ----
  logic        frame_valid_q, go;
  logic [31:0] frame_q;
  pcm_t        pcm_q;

  assign go         = pcm_ready_i || !pcm_valid_o;
  assign take       = fetch_q || (samples_q && some_q && go);
  assign last_taken = !some_q && !frame_valid_q && pcm_valid_o && pcm_ready_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      frame_valid_q <= 1'b0;
      pcm_valid_o   <= 1'b0;
    end else if (go) begin
      frame_valid_q <= samples_q && some_q && four_valid;
      pcm_valid_o   <= frame_valid_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (go) begin
      frame_q <= four;
      pcm_q   <= 17'($signed(stereo_q ? frame_q[31:16] : frame_q[15:0])) +
                 17'($signed(frame_q[15:0]));
    end
  end
  assign pcm_o = pcm_q;

`ifndef SYNTHESIS
  a_start_when_done: assert property (@(posedge clk_i) disable iff (!rst_ni) start_i |-> done_o);
  a_sound_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    sound_valid_o && !sound_ready_i |=> sound_valid_o && $stable(sound_o));
  a_pcm_stays: assert property (@(posedge clk_i) disable iff (!rst_ni)
    pcm_valid_o && !pcm_ready_i |=> pcm_valid_o && $stable(pcm_o));
`endif

endmodule
