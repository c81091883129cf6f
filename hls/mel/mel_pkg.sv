// Types within mel; mel.cpp tells why each is as wide.
package mel_pkg;

  typedef logic signed [42:0] emphasised_t;  // Q3.39
  typedef logic signed [43:0] windowed_t;    // Q3.40
  typedef logic signed [33:0] component_t;   // of a point, in units of its frame
  typedef logic signed [34:0] wide_t;        // sum or difference of two
  typedef logic signed [35:0] half_t;        // half of what a DFT of 5 gives
  typedef logic signed [26:0] factor_t;      // LSB 2^-25
  typedef logic        [54:0] power_t;       // LSB 2^-31
  typedef logic        [63:0] energy_t;      // LSB 2^-44
  typedef logic        [4:0]  exponent_t;    // a frame's values are 2^exponent times as large

  typedef struct packed {
    component_t re;
    component_t im;
  } point_t;  // 68 bits

  typedef struct packed {
    windowed_t re;
    windowed_t im;
  } windowed_point_t;  // 88 bits

  typedef struct packed {
    half_t re;
    half_t im;
  } half_point_t;  // 72 bits

  typedef struct packed {
    logic [23:0] rising;   // LSB 2^-28
    logic [23:0] falling;
    logic        emit;
  } entry_t;  // 49 bits

  localparam logic [1:0] EndsZeros    = 2'd0;
  localparam logic [1:0] EndsMirrored = 2'd1;  // others: inside

  typedef struct packed {
    logic signed [7:0] exponent;     // powers count 2^exponent times
    logic [1:0]        zero;
    logic              alone;         // pre-emphasis in each frame by itself
    logic              mean_removed;  // each frame loses its mean; both where it lies inside
    logic              least_floor;
    logic [1:0]        ends;
    logic              points_400;
  } plan_t;  // the 16 bits of plan_of()

  localparam int unsigned ProgramSteps = 256;
  localparam int unsigned ProgramWords = 384;  // with the window's
  localparam int unsigned MaxMels      = 128;
  localparam int unsigned Slots        = 4;    // frames in a memory between two steps
  localparam int unsigned Exponents    = 8;    // frames from their points on to their values

endpackage
