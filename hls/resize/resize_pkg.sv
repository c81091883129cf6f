// What the parts of resize tell each other.
package resize_pkg;

  import headrace_pkg::ColumnBits;
  import headrace_pkg::SourceLaneBits;
  import headrace_pkg::SourcePixels;

  // The number of a beat in a row of the source. Words in the ring of rows have a beat's pixels.
  localparam int unsigned NumberBits = ColumnBits - SourceLaneBits;
  typedef logic [NumberBits-1:0] number_t;

  // Such a word with two rows blended, [pixel][channel: 0 red].
  typedef logic [SourcePixels-1:0][2:0][15:0] word_t;

  // A row with a column beyond half of MaxWidth takes the places of two in the ring of rows.
  function automatic logic wide_rows(number_t last);
    return last[NumberBits-1];
  endfunction

  // How the source position goes along one axis, from output pixel to output pixel, in steps of
  // 1/256 source pixel: 256 * in / out as quotient and remainder (of division by out), its half and
  // its double.
  typedef struct packed {
    logic [15:0]       size_in;
    logic [15:0]       size_out;
    logic [22:0]       half_quotient;
    logic [15:0]       half_remainder;
    logic [23:0]       one_quotient;
    logic [15:0]       one_remainder;
    logic [24:0]       two_quotient;
    logic [15:0]       two_remainder;
    // in / out in double as the C++ computes it is off by `error` / out units in the last of its 53
    // places.
    logic [16:0]       error;
    logic              error_up;  // it is above in / out
    logic signed [6:0] shift;     // -7 - floor(log2(in / out))
  } axis_t;

endpackage
