// What the host and audio_norm_cu tell each other through registers. kernel.xml has the arguments
// and their offsets.
package audio_norm_cu_pkg;

  typedef struct packed {
    logic [63:0] mel;
    logic [63:0] tensor;
    logic [63:0] result;
    logic [31:0] frames;
    logic [31:0] counted;
    logic [31:0] mels;
    logic [31:0] tensor_capacity;
    logic [31:0] format;
    logic [31:0] std_floor;
    logic [31:0] least;
    logic [31:0] mean;
    logic [31:0] scale;
  } arguments_t;

  localparam int unsigned ArgumentWords = $bits(arguments_t) / 32;
  localparam logic [ArgumentWords-1:0][11:0] ArgumentOffset = {
    12'h014, 12'h010, 12'h020, 12'h01C, 12'h02C, 12'h028, 12'h034, 12'h03C, 12'h044, 12'h04C,
    12'h054, 12'h05C, 12'h064, 12'h06C, 12'h074};

  localparam logic [11:0] StatusOffset = 12'h07C;

  // Clocks of the last run, or of the one that runs; at 0x140, in this order.
  typedef struct packed {
    logic [31:0] cycles;        // start to done
    logic [31:0] statistics;    // start to the last band's scale
    logic [31:0] first_output;  // start to the first word of the tensor that memory took
    logic [31:0] last_output;   // and to the last
    logic [31:0] wait_read;     // a word of the mel bands was wanted and not there
    logic [31:0] wait_write;    // a word of the tensor waited for memory
  } counters_t;

endpackage
