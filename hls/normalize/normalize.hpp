// Normalize: each channel's value looked up in a table of 256 entries.
//
// Reference   numpy float32 (x / 255 - mean) / std bit for bit, because the host computes the tables with numpy; an
//             entry holds the bits of the output type (float32, float16 or int8) in its low 32, 16 or 8 bits.
// Interface   tables[channel][value], loaded before; pixels in, samples out, both in raster order until `last`.
// Throughput  one pixel per clock. Latency: one table read.
// Memory      three tables of 256 x 32 bits: one BRAM18 each.
// Bad input   there is none; upstream errors pass.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

struct Sample {
    uint32_t channel[3];  // R, G, B
    ap_uint<1> last;
    Status status;  // OK, or with `last` the error that ended the frame early
};

void normalize(hls::stream<Pixel>& pixels, const uint32_t tables[3][256], hls::stream<Sample>& samples);

}  // namespace headrace
