// Crop: a window of the image.
//
// Reference   numpy: image[y:y + crop_height, x:x + crop_width]. An offset of CENTRED centres the window on that axis as
//             torchvision's CenterCrop does: (size - crop) / 2, halves to the even number.
// Interface   one Frame and its pixels in, one Frame and its pixels out; see headrace/image_stream.hpp. Pixels stay at
//             their places in a beat; those outside the window no longer count.
//             With `cut` the pixels are of the window's rows, and of its columns and those beside them in pairs.
// Throughput  one beat per clock, so that no unit waits for it.
// Latency     one beat of the window; the last one waits for the end of the input, whose status it carries.
// Bad input   a window that is empty or not inside the image: STATUS_CROP_OUTSIDE. Upstream errors pass.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

constexpr uint32_t CENTRED = 0xFFFFFFFF;

struct Crop {
    uint32_t width, height, x, y;
};

// Where a crop lies in an image.
struct Place {
    bool inside;
    uint32_t left, top;
};

inline uint32_t offset(uint32_t wanted, uint32_t size, uint32_t window) {
#pragma HLS INLINE
    if (wanted != CENTRED) return wanted;
    const uint32_t twice = size - window;
    const uint32_t half = twice >> 1;
    return half + (twice & half & 1);  // a half goes up only from an odd number
}

inline Place place_crop(const Crop& crop, uint32_t width, uint32_t height) {
    const bool fits = crop.width >= 1 && crop.height >= 1 && crop.width <= width && crop.height <= height;
    const uint32_t left = offset(crop.x, width, crop.width), top = offset(crop.y, height, crop.height);
    return {fits && left <= width - crop.width && top <= height - crop.height, left, top};
}

void crop(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, const Crop& crop, bool cut,
          hls::stream<Frame>& out_frames, hls::stream<Beat>& out_pixels);

}  // namespace headrace
