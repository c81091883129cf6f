// The size of the image units: what a build chooses. A build for another board takes another file
// of this name in its place; each constant may be changed alone. include/headrace/config.hpp has
// those that the C++ also has.
package config_pkg;

  localparam int unsigned MaxWidth = 8192;  // source pixels in a row: sizes the line buffers
  localparam int unsigned Pixels   = 4;     // a clock, 2 or 4, from render into resize
  localparam int unsigned Symbols  = 2;     // Huffman symbols a clock where codes are short: 1 or 2
  localparam int unsigned WriteBytes = 32;  // a clock, 16 or 32: width of image_cu's m_axi_gmem1
  localparam bit Progressive = 1'b1;  // files of several scans, progressive ones among them
  localparam bit Samplings   = 1'b1;  // factors of 4, and of chroma; else only 1 and 2 of luma
  localparam bit Programs    = 1'b1;  // image_cu: scaler and patches, stage 4
  localparam bit Queue       = 1'b1;  // image_cu: a run may take its jobs from a ring

endpackage
