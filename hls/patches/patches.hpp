// Patches: the pixels of a frame to words of a tensor, patch by patch, as vision transformers take them.
//
// Reference   host/dpu/reference/processor.py, laid_out: MergedPatches, PatchImages, PaddedPatches; also rows, columns,
//             channels (NHWC), which is one patch as wide as the image. Values come from a table for each channel.
// Order       squares of `merge` times `merge` patches, row by row; in a square its patches, row by row. In a patch: if
//             `channels_last` its rows, columns and channels, else its channels, each `frames` times with rows and
//             columns. `fill` bytes of zeros follow the last patch.
// Interface   one Frame and its pixels in; see headrace/image_stream.hpp. Words of 16 bytes out, in the order of memory;
//             zeros fill the last one. `sample_bytes` of the table's values count: 1, 2 or 4.
// Throughput  two pixels a clock in. Out, four samples a clock of 4 bytes, else eight.
// Latency     a row of squares.
// Memory      16,384 words of eight pixels (384 KiB). A row of a patch begins with a new word. If two rows of squares fit,
//             one is filled while the other is sent.
// Bad input   STATUS_BAD_ARGUMENT: sides that are no multiples of a square, a side, `merge` or `frames` of 0, or a row of
//             squares beyond the memory. STATUS_BUFFER_TOO_SMALL: a tensor of more than `capacity` bytes; no word is sent.
//             Upstream errors pass. Before an error in mid-frame, words of complete rows of squares may have been sent.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

constexpr unsigned PATCH_WORDS = 16384;

struct PatchLayout {
    uint32_t side_width, side_height;  // of a patch, in pixels
    uint32_t merge, frames;
    bool channels_last;
    uint32_t fill;
};

struct PatchesEnd {
    Status status;
    uint32_t width, height;
    uint64_t bytes;  // of the tensor, also when it does not fit
};

void patches(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, const uint32_t table[CHANNELS][256],
             const PatchLayout& layout, unsigned sample_bytes, uint64_t capacity, hls::stream<ap_uint<128>>& words,
             PatchesEnd& end);

}  // namespace headrace
