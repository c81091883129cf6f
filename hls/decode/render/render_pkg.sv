// What travels inside render.
package render_pkg;

  import headrace_pkg::MaxWidth;
  import headrace_pkg::WordBits;
  import headrace_pkg::SourcePixels;

  // Of eight samples, in the row memories: 32 rows of luma, and twice 16 of chroma.
  localparam int unsigned LumaWords   = 4 * MaxWidth;
  localparam int unsigned ChromaWords = 2 * MaxWidth;
  localparam int unsigned LumaAddressWidth   = $clog2(LumaWords);
  localparam int unsigned ChromaAddressWidth = $clog2(ChromaWords);
  // Of as many MCU rows as ever fit.
  localparam int unsigned RingBits           = ChromaAddressWidth - 3;

  // A scan and what follows from it. The row memories are rings of rows, each of the power of two
  // words above that of the MCUs times the component's blocks, and 2^ring_log2 MCU rows fit.
  typedef struct packed {
    logic [15:0] first_row;       // that is sent
    logic [15:0] last_row;        // that is sent
    logic [15:0] bottom_row;      // of the image
    logic [WordBits-1:0] first_word;  // of a luma row, that is sent
    logic [WordBits-1:0] last_word;   // the same, as far as there are pixels in it
    logic [2:0]  last_pixel;      // in that word
    logic [WordBits-1:0] first_mcu;   // MCUs that come of an MCU row: from this one
    logic [WordBits-1:0] end_mcu;     // to this one, and
    logic [WordBits-1:0] last_mcu;    // the last of the row
    logic [12:0] last_mcu_row;    // that comes
    logic        color;
    logic        rgb;
    logic [2:0][1:0] blocks_h;    // log2 of the component's blocks in an MCU
    logic [2:0][1:0] blocks_v;
    logic [2:0][3:0] stride_log2;
    logic [1:0][1:0] h_shift;     // of Cb and Cr: log2 of how many samples of luma stand beside one
    logic [1:0][1:0] v_shift;
    logic [1:0]      fancy_h;     // triangle filter along rows, else replication
    logic [1:0]      fancy_v;
    logic            row_below;   // is needed by the last row of an MCU row
    logic [3:0]      ring_log2;
  } layout_t;

  // Eight luma samples of a row and the words with the chroma samples that belong to them.
  typedef struct packed {
    logic [7:0][7:0] luma;
    logic [7:0][7:0] cb_near, cb_far;  // of the luma row's chroma row, of the next
    logic [7:0][7:0] cr_near, cr_far;
    logic [1:0]      part;       // of the chroma words: the luma word's number, modulo 4
    logic            first;      // of the row that is sent
    logic            last;       // the same
    logic            last_row;   // that is sent
    logic            odd_row;
  } row_words_t;

  // A source beat before colour conversion.
  typedef struct packed {
    logic [SourcePixels-1:0][7:0] y, cb, cr;  // [0] is the left one
    logic [SourcePixels-1:0]      keep;
    logic                         last;       // of the image
  } ycc_beat_t;

endpackage
