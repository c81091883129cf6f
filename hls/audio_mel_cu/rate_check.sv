// Lets a sound pass whose taps are loaded, or that needs none; makes an error of another one.
//
// Reference   check_rate() of audio_mel_cu.cpp.
// Interface   sound and samples in and out, as in audio_pkg. `idle_o`: no sound waits, and all
//             samples of the last one have passed.
// Throughput  a sample a clock. Latency a clock for the sound, none for samples.
// Bad input   a sound at neither 16 kHz nor `taps_rate_i`: StatusBadArgument, its samples are
//             drained.
module rate_check
  import headrace_pkg::*;
  import audio_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic [2:0] taps_rate_i,
  output logic       idle_o,

  input  sound_t     sound_i,
  input  logic       sound_valid_i,
  output logic       sound_ready_o,
  input  pcm_t       pcm_i,
  input  logic       pcm_valid_i,
  output logic       pcm_ready_o,

  output sound_t     sound_o,
  output logic       sound_valid_o,
  input  logic       sound_ready_i,
  output pcm_t       pcm_o,
  output logic       pcm_valid_o,
  input  logic       pcm_ready_i
);

  logic        take, fits, drops_q, more_q;
  logic [31:0] left_q;  // samples still to come

  assign sound_ready_o = idle_o;
  assign take          = sound_valid_i && sound_ready_o;
  assign fits          = sound_i.rate == Rate16000 || sound_i.rate == taps_rate_i;
  assign idle_o        = !sound_valid_o && !more_q;
  assign pcm_o         = pcm_i;
  assign pcm_valid_o   = pcm_valid_i && more_q && !drops_q;
  assign pcm_ready_o   = more_q && (drops_q || pcm_ready_i);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      sound_valid_o <= 1'b0;
      more_q        <= 1'b0;
    end else begin
      if (take) sound_valid_o <= 1'b1;
      else if (sound_ready_i) sound_valid_o <= 1'b0;
      if (take) more_q <= sound_i.status == StatusOk && sound_i.count != '0;
      else if (pcm_valid_i && pcm_ready_o && left_q == 32'd1) more_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (take) begin
      sound_o <= sound_i;
      drops_q <= !fits;
      left_q  <= sound_i.count;
      if (sound_i.status == StatusOk && !fits) sound_o.status <= StatusBadArgument;
    end else if (pcm_valid_i && pcm_ready_o) begin
      left_q <= left_q - 1'b1;
    end
  end

`ifndef SYNTHESIS
  a_sound_holds: assert property (@(posedge clk_i) disable iff (!rst_ni)
      sound_valid_o && !sound_ready_i |=> sound_valid_o && $stable(sound_o));
`endif

endmodule
