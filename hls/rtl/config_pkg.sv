// The size of the image units: what a build chooses. A build for another board takes another file
// of this name in its place; each constant may be changed alone.
package config_pkg;

  localparam int unsigned MaxWidth = 8192;  // source pixels in a row: sizes the line buffers
  localparam int unsigned Pixels   = 4;     // a clock, 2 or 4, from render into resize
  localparam int unsigned Symbols  = 2;     // Huffman symbols a clock where codes are short: 1 or 2

endpackage
