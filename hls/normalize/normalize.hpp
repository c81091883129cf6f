// Normalize: each channel's value looked up in a table of 256 entries.
//
// Reference   numpy float32 (x / 255 - mean) / std bit for bit, because the host computes the tables with numpy; an
//             entry holds the bits of the output type (float32, float16 or int8) in its low 32, 16 or 8 bits.
// Interface   tables[channel][value], loaded before; pixels in, samples out, both in raster order until `last`.
// Throughput  two pixels per clock: eight reads of a table in four clocks, two in each, by its two ports. Latency: one
//             table read.
// Memory      three tables of 256 x 32 bits: one BRAM36 each.
// Bad input   there is none; upstream errors pass.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

// Of the pixels of a beat: see Beat.
struct SampleBeat {
    uint32_t value[CHANNELS][BEAT];
    uint8_t begin, end;
    bool last;
    uint8_t status;
};

void normalize(hls::stream<Beat>& pixels, const uint32_t tables[CHANNELS][256], hls::stream<SampleBeat>& samples);

}  // namespace headrace
