// Resize: bilinear, the shorter side to a given length, aspect kept.
//
// Reference   cv2.resize(..., interpolation=cv2.INTER_LINEAR_EXACT) bit for bit, up and down. The longer side becomes
//             floor(resize_short * long / short), as torchvision's Resize does.
// Arithmetic  Weights Q1.8: w = round(frac * 256), half to even, of the source position (d + 0.5) * scale - 0.5.
//             Rows first, exact in Q8.8 (16 bits); then columns, exact in Q8.16, rounded once: (x + 2^15) >> 16.
//             The position is the one that OpenCV has in double, by integers: exact rational arithmetic alone differs
//             where frac * 256 is a tie (source 49, output 256, column 125), because rounding errors of double decide
//             the tie there: see Axis in plan.hpp.
// Interface   one Frame and its pixels in, one Frame and its pixels out; see headrace/image_stream.hpp.
//             Pixels come of Plan::source, and leave of Plan::out; both from a beat's first place on.
// Throughput  two processes side by side. One takes in a beat of a source row, or blends two columns of an output row,
//             per clock; the other takes two of these columns, or makes one output pixel.
// Latency     two source rows.
// Memory      two source rows of MAX_WIDTH pixels (48 KiB), and one blended (48 KiB), each word read once and written once
//             per clock at most; the output's width is not bounded by a buffer.
// Bad input   a length of 0, or a result beyond 65535 pixels on a side: STATUS_RESIZE_LIMIT. Upstream errors pass.
#pragma once

#include "headrace/image_stream.hpp"
#include "resize/plan.hpp"

namespace headrace {

void resize(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, const Wanted& wanted,
            hls::stream<Frame>& out_frames, hls::stream<Beat>& out_pixels);

}  // namespace headrace
