// What the host and image_stream tell each other through registers. docs/how_to/small_boards.md has
// the map.
package image_stream_pkg;

  typedef struct packed {
    logic [31:0] stage;         // the last unit that runs: 0 decode, 1 resize, 2 crop
    logic [31:0] resize_short;  // as those of image_cu
    logic [31:0] crop_width;
    logic [31:0] crop_height;
    logic [31:0] crop_x;
    logic [31:0] crop_y;
    logic [31:0] options;       // bit 0: tlast ends each row, not only the image
  } arguments_t;

  // Where the words of arguments_t lie.
  localparam int unsigned ArgumentWords = $bits(arguments_t) / 32;
  localparam logic [ArgumentWords-1:0][11:0] ArgumentOffset = {
    12'h010, 12'h018, 12'h020, 12'h028, 12'h030, 12'h038, 12'h040};

  typedef struct packed {
    logic [31:0] status;
    logic [31:0] out_width;
    logic [31:0] out_height;
    logic [31:0] src_width;
    logic [31:0] src_height;
  } outputs_t;

  localparam int unsigned OutputWords = $bits(outputs_t) / 32;
  localparam logic [OutputWords-1:0][11:0] OutputOffset = {
    12'h050, 12'h058, 12'h060, 12'h068, 12'h070};

  // Clocks of the last run, or of the one that runs; at 0x140, in this order.
  typedef struct packed {
    logic [31:0] cycles;          // start to done
    logic [31:0] symbols;         // Huffman symbols, not clocks
    logic [31:0] first_output;    // from start to the first beat of pixels that was taken
    logic [31:0] last_output;     // and to the last
    logic [31:0] header;          // decode_events_t
    logic [31:0] wait_data;
    logic [31:0] wait_transform;
    logic [31:0] wait_rows;
    logic [31:0] wait_output;
    logic [31:0] wait_write;      // a beat of pixels waited to be taken
  } counters_t;

endpackage
