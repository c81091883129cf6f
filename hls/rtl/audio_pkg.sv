// What the audio units have in common: what travels between them. Status codes are those of
// headrace_pkg.
//
// For each request a unit receives exactly one sound_t and, if its status is StatusOk, exactly
// `count` values; if not, nothing, and it passes the status on. Counts are known before the first
// value, so there is no `last`, and nothing goes wrong in mid-stream.
package audio_pkg;

  // Index of a rate in the files that are taken: 8000, 11025, 16000, 22050, 24000, 32000, 44100,
  // 48000 Hz.
  localparam logic [2:0] Rate8000  = 3'd0;
  localparam logic [2:0] Rate11025 = 3'd1;
  localparam logic [2:0] Rate16000 = 3'd2;
  localparam logic [2:0] Rate22050 = 3'd3;
  localparam logic [2:0] Rate24000 = 3'd4;
  localparam logic [2:0] Rate32000 = 3'd5;
  localparam logic [2:0] Rate44100 = 3'd6;
  localparam logic [2:0] Rate48000 = 3'd7;

  localparam int unsigned MaxFrames = 65535;  // of 160 samples at 16 kHz

  typedef struct packed {
    headrace_pkg::status_e status;  // not StatusOk: no values follow
    logic [2:0]            rate;    // of the file
    logic [31:0]           count;   // values that follow; frames behind mel
  } sound_t;  // 43 bits

  // LSB 2^-16: a 16-bit sample twice, or the sum of two channels.
  typedef logic signed [16:0] pcm_t;
  typedef logic signed [23:0] sample_t;   // LSB 2^-21, at 16 kHz
  typedef logic signed [23:0] log_mel_t;  // LSB 2^-18, natural logarithm

endpackage
