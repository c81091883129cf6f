// What stands at the top of the window, as symbol_pairs tells it.
package entropy_pkg;

  localparam int unsigned PairBits = 8;   // of the window, which tell it
  localparam int unsigned MaxTotal = 17;  // bits of a short code and its extra bits, or of a pair

  // What the next look-up depends on: one symbol, or two that are taken at once.
  typedef struct packed {
    logic       found;  // else the code is a long one, and nothing else counts
    logic [4:0] total;  // bits of both
    logic [3:0] run;    // coefficients that they advance, less one
    logic       ends;   // they end the block: EOB
    logic       bad;    // one alone, which is an error; `total` is then without its extra bits
  } step_t;

  typedef struct packed {
    logic [4:0] length;  // bits in front of its extra bits
    logic [3:0] run;
    logic [3:0] size;
  } symbol_t;

  // The symbols themselves, which may come a clock later.
  typedef struct packed {
    logic    two;     // `second` is one as well; with `ends` it is EOB
    symbol_t second;  // `length`: from the top of the window
    symbol_t first;
  } pair_t;

endpackage
