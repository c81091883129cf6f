// What the host and the image CU tell each other through registers. kernel.xml has the arguments
// and their offsets.
package image_cu_pkg;

  typedef struct packed {
    logic [63:0] jpeg;
    logic [31:0] jpeg_bytes;
    logic [63:0] tensor;
    logic [31:0] tensor_capacity;
    logic [63:0] tables;
    logic [63:0] result;
    logic [31:0] stage;
    logic [31:0] format;
    logic [31:0] resize_short;
    logic [31:0] crop_width;
    logic [31:0] crop_height;
    logic [31:0] crop_x;
    logic [31:0] crop_y;
    logic [63:0] workspace;
    logic [31:0] workspace_bytes;
    logic [63:0] ring;
    logic [31:0] ring_entries;
    logic [31:0] ring_first;
    logic [31:0] polls;
    logic [63:0] program_at;
    logic [31:0] program_bytes;
  } arguments_t;  // 896 bits

  // Where the words of arguments_t lie.
  localparam int unsigned ArgumentWords = $bits(arguments_t) / 32;
  localparam logic [ArgumentWords-1:0][11:0] ArgumentOffset = {
    12'h014, 12'h010, 12'h01C, 12'h028, 12'h024, 12'h030, 12'h03C, 12'h038, 12'h048, 12'h044,
    12'h050, 12'h058, 12'h060, 12'h068, 12'h070, 12'h078, 12'h080,
    12'h08C, 12'h088, 12'h094,
    12'h0A0, 12'h09C, 12'h0A8, 12'h0B0, 12'h0B8, 12'h10C, 12'h108, 12'h114};

  typedef struct packed {
    logic [31:0] status;
    logic [31:0] out_width;
    logic [31:0] out_height;
    logic [31:0] src_width;
    logic [31:0] src_height;
  } outputs_t;

  localparam int unsigned OutputWords = $bits(outputs_t) / 32;
  localparam logic [OutputWords-1:0][11:0] OutputOffset = {
    12'h0C0, 12'h0D0, 12'h0E0, 12'h0F0, 12'h100};

  // A job in the ring, as image_cu.hpp has it; its last word comes first here.
  // docs/reference/registers.md has the text of each comment.
  localparam logic [31:0] CommandStop = 32'd1;  // 0: a job
  localparam int unsigned MaxRingEntries = 65536;

  typedef struct packed {
    logic [31:0] number;           // number of the job; the host writes it last
    logic [31:0] zeros;            // 0
    logic [31:0] program_bytes;    // bytes of the program
    logic [31:0] program_at;       // bytes from the argument `program`, a multiple of 16
    logic [31:0] command;          // 0: a job; 1: stop
    logic [31:0] crop_y;           // as the register
    logic [31:0] crop_x;           // as the register
    logic [31:0] crop_height;      // as the register
    logic [31:0] crop_width;       // as the register
    logic [31:0] resize_short;     // as the register
    logic [31:0] format;           // as the register
    logic [31:0] stage;            // as the register
    logic [31:0] tensor_capacity;  // bytes of room for the tensor
    logic [31:0] tensor;           // bytes from the argument `tensor`, a multiple of 16
    logic [31:0] jpeg_bytes;       // bytes of the file
    logic [31:0] jpeg;             // bytes from the argument `jpeg`, a multiple of 16
  } descriptor_t;  // 512 bits

  // The arguments that a job brings.
  typedef struct packed {
    logic [63:0] jpeg;
    logic [31:0] jpeg_bytes;
    logic [63:0] tensor;
    logic [31:0] tensor_capacity;
    logic [31:0] stage;
    logic [31:0] format;
    logic [31:0] resize_short;
    logic [31:0] crop_width;
    logic [31:0] crop_height;
    logic [31:0] crop_x;
    logic [31:0] crop_y;
    logic [63:0] program_at;
    logic [31:0] program_bytes;
  } job_t;

  // What a pass of a program has before the scaler's lists, as image_cu.hpp has it; its last word
  // comes first here.
  typedef struct packed {
    logic [63:0] zeros;
    logic [31:0] place;
    logic [15:0] zeros_12;
    logic [15:0] source_pitch;
    logic [15:0] source_height;
    logic [15:0] source_width;
    logic [31:0] source;
    logic [31:0] fill;
    logic [19:0] zeros_8;
    logic [3:0]  frames;
    logic [7:0]  merge;
    logic [15:0] side_height;
    logic [15:0] side_width;
    logic [7:0]  zeros_6;
    logic [23:0] colour;
    logic [15:0] top;
    logic [15:0] left;
    logic [15:0] canvas_height;
    logic [15:0] canvas_width;
    logic [3:0]  zeros_3d;
    logic        more;
    logic        keeps;
    logic        channels_last;
    logic        patches;
    logic [5:0]  zeros_3c;
    logic        columns_first;
    logic        wide;
    logic [1:0]  zeros_3b;
    logic        columns_gather;
    logic [4:0]  column_bits;
    logic [1:0]  zeros_3a;
    logic        rows_gather;
    logic [4:0]  row_bits;
    logic [31:0] column_entries;
    logic [31:0] row_entries;
    logic [15:0] out_height;
    logic [15:0] out_width;
  } pass_words_t;  // 512 bits
  localparam int unsigned PassWords = $bits(pass_words_t) / 128;

  // The unit that a pass ends in.
  typedef enum logic [1:0] {
    SinkPlanes,
    SinkPatches,
    SinkWorkspace
  } sink_e;

  // What a pass has besides what it asks of scaler and patches.
  typedef struct packed {
    sink_e       sink;
    logic        more;           // another one follows
    logic [31:0] place;          // bytes in the workspace or in the tensor
    logic [31:0] source;         // bytes in the workspace
    logic [15:0] source_pitch;
    logic [15:0] source_width;
    logic [15:0] source_height;
  } pass_route_t;

  // Clocks of the last run, or of the one that runs; at 0x140, in this order.
  typedef struct packed {
    logic [31:0] cycles;          // start to done
    logic [31:0] symbols;         // Huffman symbols, not clocks
    logic [31:0] first_output;    // from start to the first word of the tensor that memory took
    logic [31:0] last_output;     // and to the last
    logic [31:0] header;          // decode_events_t
    logic [31:0] wait_data;
    logic [31:0] wait_transform;
    logic [31:0] wait_rows;
    logic [31:0] wait_output;
    logic [31:0] wait_write;      // a word of the tensor waited for memory
  } counters_t;

endpackage
