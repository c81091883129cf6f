// Types within mel; mel.cpp tells why each is as wide.
package mel_pkg;

  typedef logic signed [33:0] emphasised_t;  // Q3.30
  typedef logic signed [33:0] component_t;   // of a point; the scale grows with the FFT's stages
  typedef logic signed [34:0] wide_t;        // sum or difference of two
  typedef logic signed [26:0] factor_t;      // LSB 2^-25
  typedef logic        [50:0] power_t;       // LSB 2^-29
  typedef logic        [59:0] energy_t;      // LSB 2^-42

  typedef struct packed {
    component_t re;
    component_t im;
  } point_t;  // 68 bits

  typedef struct packed {
    logic [23:0] rising;   // LSB 2^-28
    logic [23:0] falling;
    logic        emit;
  } entry_t;  // 49 bits

  localparam int unsigned ProgramWords = 256;
  localparam int unsigned MaxMels      = 128;
  localparam int unsigned Slots        = 4;  // frames in a memory between two steps

endpackage
