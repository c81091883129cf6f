// The stream contract between image units.
//
// For each request a unit receives exactly one Frame, then, if frame.status is OK, beats of pixels in raster order until
// one has `last` set. A unit that finds an error before its first pixel sends a Frame with that status and no
// pixels, and drains its input. An upstream error in mid-image ends the pixels early: the beat with `last` then
// carries the status, as `tuser` does on Ethernet streams, and every unit passes it on. So every process ends on
// `last` and on nothing else, whatever the input was.
//
// A beat is eight pixels, as a row of a block is, and a loop over beats has an initiation interval of four clocks: two
// pixels a clock, as in the RTL, with the hardware of two. C simulation does its work on streams by the beat.
#pragma once

#include "ap_int.h"
#include "hls_stream.h"
#include "headrace/config.hpp"
#include "headrace/status.hpp"

namespace headrace {

constexpr unsigned CHANNELS = 3;
constexpr unsigned BEAT = 8;          // pixels

struct Frame {
    ap_uint<16> width;   // pixels
    ap_uint<16> height;  // pixels
    Status status;       // not OK: no pixels follow
};

// Pixels beside each other; a row begins with a new beat. Those that count are `begin` to before `end`: a row's last beat
// may hold fewer than eight, crop leaves out some at either end, and a beat that is there for its status has none.
struct Beat {
    uint8_t value[CHANNELS][BEAT];  // R, G, B
    uint8_t begin, end;
    bool last;       // ends the frame
    uint8_t status;  // OK, or with `last` the error that ended the frame early
};

// The beat that ends a frame without pixels of its own.
inline Beat end_of_frame(uint8_t status) {
#pragma HLS INLINE
    Beat beat = {};
    beat.last = true;
    beat.status = status;
    return beat;
}

// The part of a frame that its pixels are of, where not all are wanted.
struct Window {
    uint32_t first_row, last_row, first_column, last_column;
};

}  // namespace headrace
