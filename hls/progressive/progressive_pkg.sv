// What travels between the modules of progressive_decoder.
package progressive_pkg;

  import headrace_pkg::MaxJpegHeight;
  import headrace_pkg::MaxWidth;

  // The most blocks are those of 4:4:4, three of 8 x 8 pixels: 25.2 million, 1024 of a component in a row.
  localparam int unsigned BlockBits  = $clog2(3 * (MaxWidth / 8) * ((MaxJpegHeight + 7) / 8));
  localparam int unsigned AcrossBits = $clog2(MaxWidth / 8 + 1);

  // One pass over blocks of the workspace: those of some components in MCUs, or all of one component that are seen.
  typedef struct packed {
    logic [2:0]                members;     // a bit for each component
    logic [AcrossBits-1:0]     across;      // MCUs; of one component alone an MCU is a block
    logic [12:0]               down;
    logic [1:0]                h_shift;     // log2 of the blocks of luma in an MCU
    logic                      v_shift;
    logic [2:0][BlockBits-1:0] base;        // the component's first block
    logic [AcrossBits-1:0]     luma_row;    // blocks in a row of luma, in one of chroma
    logic [AcrossBits-1:0]     chroma_row;
    logic [1:0]                last_x;      // luma's last column and row of blocks in the last MCUs that are seen
    logic                      last_y;
    logic                      to_bottom;   // its last row of MCUs is the image's
  } pass_t;

  typedef struct packed {
    logic [BlockBits-1:0] number;
    logic [1:0]           component;
    logic                 seen;      // it has a sample of the image
    logic                 mcu_last;  // it is the last one of its MCU,
    logic                 pass_last; // of the pass
  } block_t;

  // A word of the workspace: eight coefficients, and which of them are not zero.
  typedef struct packed {
    logic [7:0]       some;
    logic [7:0][15:0] value;
  } word_t;

endpackage
