// What the modules of resample have in common.
package resample_pkg;

  localparam int unsigned Lanes   = 88;    // multipliers: outputs under way
  localparam int unsigned Words   = 1024;  // of taps
  localparam int unsigned TapBits = 24;    // LSB 2^-23
  localparam int unsigned Rounded = 18;    // bits, from LSB 2^-39 to 2^-21

  // 16000 / rate in lowest terms; `twice`: two passes for an input.
  typedef struct packed {
    logic [9:0] up;
    logic [8:0] down;
    logic       twice;
    logic       filtered;  // not 16 kHz
  } ratio_t;

  // By the rate's index.
  localparam ratio_t [7:0] Ratio = {
    {10'd1, 9'd3, 1'b0, 1'b1},
    {10'd160, 9'd441, 1'b0, 1'b1},
    {10'd1, 9'd2, 1'b0, 1'b1},
    {10'd2, 9'd3, 1'b0, 1'b1},
    {10'd320, 9'd441, 1'b0, 1'b1},
    {10'd1, 9'd1, 1'b0, 1'b0},
    {10'd640, 9'd441, 1'b1, 1'b1},
    {10'd2, 9'd1, 1'b1, 1'b1}
  };

  // A multiplication of one input by one word of taps.
  typedef struct packed {
    audio_pkg::pcm_t x;
    logic            odd;       // outputs: those of the other accumulators
    logic            first;     // of these in this sound: sums begin
    logic            move;      // the oldest of them was complete: they move on by a lane before
    logic            filtered;
    logic            gives;     // completes an output that is wanted
  } step_t;

endpackage
