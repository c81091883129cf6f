// Scaler: the antialiased resize of Pillow and torchvision, along rows and along columns, by tables of the host, on a
// canvas of one colour.
//
// Reference   host/dpu/reference/resampler.py, bit for bit: box, bilinear, hamming, bicubic and lanczos, any ratio, both
//             libraries' fixed point, and both orders of the passes. host/dpu/units/scaler.py makes the tables.
// Arithmetic  A pass runs a list of steps. A step may take an element (a pixel of a row, or a row), multiplies by up to
//             eight weights of 24 bits, and may give an output. A list is of one of two kinds:
//               scatter  each weight belongs to an open output; its sum of products is complete when it is given.
//               gather   each weight belongs to one of the last elements; an output is the sum of the products.
//             Sums have 32 bits. An output is clamp((sum + 2^(bits - 1)) >> bits) to 8 bits, in both passes.
// Interface   one Frame and its pixels in, one Frame and its pixels out; see headrace/image_stream.hpp. `table` gives 2 *
//             (row_entries + column_entries) words: those of the list along rows, and then those of the list along
//             columns. An entry has eight weights of 24 bits, the lowest first, and in bits 192 to 195 the flags: take,
//             give, and the same of a second step. All words are read, whatever happens.
//             `wide`: a step has four weights. An entry along rows has two steps, an entry along columns one.
// Throughput  two source pixels or two output pixels a clock, whichever are more; one, if not `wide`.
// Latency     as many source rows as the first output row needs.
// Memory      4096 entries along rows (96 KiB), and 4096 words of 24 sums (384 KiB): the open outputs of two columns with
//             four weights a step, or of one column with eight. The entries bound the rows that are held.
// Bad input   STATUS_BAD_ARGUMENT: a list that does not take as many elements as come, or does not give as many as the
//             output has, a list along rows beyond the memory, bits outside 1 to 31, an output of no pixels, or one
//             that does not lie on the canvas.
//             Upstream errors pass.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

constexpr unsigned SCALER_ENTRIES = 4096, SCALER_WORDS = 4096, SCALER_LANES = 8;

struct ScalerPass {
    uint32_t entries;
    uint8_t bits;
    bool gather;
};

// Where the image lies on a larger one, which has the colour elsewhere.
struct Canvas {
    uint32_t width, height, left, top;
    uint8_t colour[CHANNELS];
};

struct ScalerSetup {
    uint32_t out_width, out_height;
    ScalerPass rows, columns;
    bool wide, columns_first;
    Canvas canvas;
};

void scaler(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, hls::stream<ap_uint<128>>& table,
            const ScalerSetup& setup, hls::stream<Frame>& out_frames, hls::stream<Beat>& out_pixels);

}  // namespace headrace
