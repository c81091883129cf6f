// What the modules of patches share.
package patches_pkg;

  localparam int unsigned BandWords   = 16384;  // of eight pixels
  localparam int unsigned AddressBits = $clog2(BandWords);

  typedef logic [AddressBits-1:0] address_t;

  typedef struct packed {
    logic [15:0] side_width;     // of a patch, in pixels
    logic [15:0] side_height;
    logic [7:0]  merge;          // patches on a side of a square
    logic [3:0]  frames;
    logic        channels_last;
    logic [31:0] fill;           // bytes of zeros behind the last patch
  } layout_t;  // 77 bits

  // A row of squares, a band, as it lies in the memory.
  typedef struct packed {
    address_t    row_words;      // words of a row of pixels
    address_t    part_words;     // of as many rows as a patch has
    logic [15:0] across;         // squares
    logic        upper;          // it lies in the memory's upper half
  } band_t;

endpackage
