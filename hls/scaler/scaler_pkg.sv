// What the modules of the scaler share: its sizes, its lists of steps, and what is asked of it.
package scaler_pkg;

  localparam int unsigned Lanes      = 8;     // weights of an entry
  localparam int unsigned WideLanes  = 4;     // weights of a step where an entry has two
  localparam int unsigned Entries    = 4096;  // of the list along rows
  localparam int unsigned HeldWords      = 4096;  // of the row memory
  localparam int unsigned EntryBits  = $clog2(Entries);
  localparam int unsigned HeldBits   = $clog2(HeldWords);
  localparam int unsigned WeightBits = 24;

  // An entry of a list, the low 196 bits of two words. Step b counts along rows and if wide only.
  typedef struct packed {
    logic                             give_b;
    logic                             take_b;
    logic                             give;
    logic                             take;
    logic [Lanes-1:0][WeightBits-1:0] weight;  // signed
  } entry_t;

  typedef struct packed {
    logic [31:0] entries;
    logic [4:0]  bits;
    logic        gather;
  } pass_t;

  typedef struct packed {
    logic [15:0]           out_width;
    logic [15:0]           out_height;
    pass_t                 rows;
    pass_t                 columns;
    logic                  wide;
    logic                  columns_first;
    logic [15:0]           canvas_width;
    logic [15:0]           canvas_height;
    logic [15:0]           left;           // of the image on the canvas
    logic [15:0]           top;
    headrace_pkg::pixel_t  colour;         // of the canvas elsewhere
  } setup_t;  // 198 bits

  typedef logic signed [2:0][31:0] sums_t;  // [channel: 0 red]

endpackage
