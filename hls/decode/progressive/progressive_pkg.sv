// What travels between the modules of progressive_decoder.
package progressive_pkg;

  import headrace_pkg::MaxJpegHeight;
  import headrace_pkg::MaxWidth;
  import headrace_pkg::scan_t;

  // The most blocks are those of 4:4:4, three of 8 x 8 pixels: 25.2 million, 1024 of a component in
  // a row.
  localparam int unsigned BlockBits  = $clog2(3 * (MaxWidth / 8) * ((MaxJpegHeight + 7) / 8));
  localparam int unsigned BlockXBits = $clog2(MaxWidth / 8);
  localparam int unsigned BlockYBits = $clog2((MaxJpegHeight + 7) / 8);

  // One pass over blocks of the workspace: those of some components in MCUs, or all of one
  // component that are seen.
  typedef struct packed {
    logic [2:0]                 members;     // a bit for each component
    logic [BlockXBits-1:0]      last_mcu_x;  // of one component alone an MCU is a block
    logic [BlockYBits-1:0]      last_mcu_y;
    logic                       to_bottom;   // the last row of MCUs is the image's
    // Of each component:
    logic [2:0][1:0]            end_x;       // the last column and row of blocks in an MCU,
    logic [2:0][1:0]            end_y;
    logic [2:0][1:0]            last_x;      // and in the last MCUs those that are seen
    logic [2:0][1:0]            last_y;
    logic [2:0][BlockBits-1:0]  base;        // its first block
    logic [2:0][BlockXBits:0]   row;         // blocks in a row, those of whole MCUs,
    logic [2:0][BlockXBits+2:0] mcu_row;     // and in a row of MCUs
  } pass_t;

  // Log2 of a component's blocks in an MCU.
  function automatic logic [2:0][1:0] h_shifts(scan_t scan);
    return {scan.chroma_h, scan.h_shift};
  endfunction
  function automatic logic [2:0][1:0] v_shifts(scan_t scan);
    return {scan.chroma_v, scan.v_shift};
  endfunction

  // The last of so many, which are a power of two.
  function automatic logic [1:0] last_of(logic [1:0] log2);
    return {log2[1], log2 != '0};
  endfunction

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

  // A Huffman symbol as it stands in the memory of huffman_search, so that little has to be worked
  // out behind its output.
  typedef struct packed {
    logic [3:0] run;
    logic       some;      // its size is not 0
    logic       band_end;  // of an AC table: EOB, or a run of them
    logic [3:0] extra;     // bits behind the code: the size, or those of a run of EOBs
    logic [4:0] drop;      // 16 less these
    logic       above_1;   // the size
    logic       above_10;
    logic       above_11;
  } symbol_t;

  function automatic symbol_t symbol_of(logic ac, logic [7:0] value);
    symbol_t symbol;
    symbol.run      = value[7:4];
    symbol.some     = value[3:0] != '0;
    symbol.band_end = ac && value[3:0] == '0 && value[7:4] != 4'd15;
    symbol.extra    = symbol.band_end ? value[7:4] : value[3:0];
    symbol.drop     = 5'd16 - 5'(symbol.extra);
    symbol.above_1  = value[3:0] > 4'd1;
    symbol.above_10 = value[3:0] > 4'd10;
    symbol.above_11 = value[3:0] > 4'd11;
    return symbol;
  endfunction

  // A code of at most ShortBits bits and what it stands for.
  localparam int unsigned ShortBits = 7;
  typedef struct packed {
    logic       ends;      // EOB, or a run of them
    logic [4:0] total;     // bits of the code and the extra bits behind it
    logic [3:0] run;
    logic [3:0] size;      // the extra bits
  } short_code_t;

endpackage
