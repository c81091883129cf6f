// What the host and audio_mel_cu tell each other through registers. kernel.xml has the arguments
// and their offsets.
package audio_mel_cu_pkg;

  typedef struct packed {
    logic [63:0] wav;
    logic [63:0] mel;
    logic [63:0] tables;
    logic [63:0] result;
    logic [31:0] wav_bytes;
    logic [31:0] mel_capacity;
    logic [31:0] stage;
    logic [31:0] mels;
    logic [31:0] preemphasis;
    logic [31:0] log_floor;
    logic [31:0] left_out;
    logic [31:0] plan;
    logic [31:0] min_samples;
    logic [31:0] max_samples;
    logic [31:0] taps_rate;
  } arguments_t;

  localparam int unsigned ArgumentWords = $bits(arguments_t) / 32;
  localparam logic [ArgumentWords-1:0][11:0] ArgumentOffset = {
    12'h014, 12'h010, 12'h020, 12'h01C, 12'h02C, 12'h028, 12'h038, 12'h034,
    12'h040, 12'h048, 12'h050, 12'h058, 12'h060, 12'h068, 12'h070, 12'h078,
    12'h080, 12'h088, 12'h090};

  typedef struct packed {
    logic [31:0] status;
    logic [31:0] count;
    logic [31:0] source_count;
    logic [31:0] source_rate;
  } outputs_t;

  localparam int unsigned OutputWords = $bits(outputs_t) / 32;
  localparam logic [OutputWords-1:0][11:0] OutputOffset = {12'h098, 12'h0A0, 12'h0A8, 12'h0B0};

  // Clocks of the last run, or of the one that runs; at 0x140, in this order.
  typedef struct packed {
    logic [31:0] cycles;        // start to done
    logic [31:0] first_output;  // start to the first word that memory took
    logic [31:0] last_output;   // and to the last
    logic [31:0] tables;        // tables were on their way
    logic [31:0] wait_pcm;      // a sample of the file waited
    logic [31:0] wait_write;    // a word of the output waited for memory
  } counters_t;

  localparam int unsigned ProgramWords = 384;  // of 128 bits: the filterbank's program, the window

  // By the rate's index.
  localparam logic [7:0][15:0] RateHz = {
    16'd48000, 16'd44100, 16'd32000, 16'd24000, 16'd22050, 16'd16000, 16'd11025, 16'd8000};
  localparam logic [7:0][14:0] TapsWords = {  // of 128 bits: 22 for each word of 88 taps
    15'(22 * 3), 15'(22 * 441), 15'(22 * 2), 15'(22 * 3), 15'(22 * 441), 15'd0, 15'(22 * 882),
    15'(22 * 2)};

endpackage
