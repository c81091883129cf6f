// What the parts of mel_normalize tell each other.
package mel_normalize_pkg;

  localparam int unsigned MaxMels    = 128;
  localparam int unsigned TileFrames = 128;

  // Clocks of a band in a stage of norm_statistics: a division finds a binary digit in each.
  localparam int unsigned SlotClocks       = 6;
  localparam int unsigned MeanDigits       = 36;
  localparam int unsigned VarianceDigits   = 96;
  localparam int unsigned RootDigits       = VarianceDigits / 2;
  localparam int unsigned ReciprocalDigits = 24;

  typedef logic signed [32:0] mean_t;  // LSB 2^-26: 2^-8 of a value's

  // A result is (value - mean) * reciprocal * 2^(shift - 57), value and mean in 2^-26.
  typedef struct packed {
    logic [23:0] reciprocal;  // 2^23 to 2^24 - 1; 0 makes zeros of all values
    logic [5:0]  shift;       // 1 to 47
  } scale_t;

endpackage
