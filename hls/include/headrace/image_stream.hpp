// The stream contract between image units.
//
// For each request a unit receives exactly one Frame, then, if frame.status is OK, pixels in raster order until
// one has `last` set. A unit that finds an error before its first pixel sends a Frame with that status and no
// pixels, and drains its input. An upstream error in mid-image ends the pixels early: the beat with `last` then
// carries the status, as `tuser` does on Ethernet streams, and every unit passes it on. So every process ends on
// `last` and on nothing else, whatever the input was.
#pragma once

#include "ap_int.h"
#include "hls_stream.h"
#include "headrace/status.hpp"

namespace headrace {

constexpr unsigned MAX_WIDTH = 4096;    // source pixels in a row: sizes the line buffers

struct Frame {
    ap_uint<16> width;   // pixels
    ap_uint<16> height;  // pixels
    Status status;       // not OK: no pixels follow
};

struct Pixel {
    ap_uint<8> r;
    ap_uint<8> g;
    ap_uint<8> b;
    ap_uint<1> last;   // ends the frame
    Status status;     // OK, or in the beat with `last` the error that ended the frame early
};

// The part of a frame that its pixels are of, where not all are wanted.
struct Window {
    uint32_t first_row, last_row, first_column, last_column;
};

}  // namespace headrace
