// Which sizes and which part of the source follow from what is wanted of an image, before its first pixel: for decode and
// resize.
//
// Reference   resize.hpp for sizes and positions, crop.hpp for the place of the crop.
#pragma once

#include "crop/crop.hpp"
#include "headrace/image_stream.hpp"

namespace headrace {

constexpr unsigned ONE = 256;  // 1.0 as a weight

// Where an output row or column comes from: source `first` with weight ONE - weight, and the next with `weight`.
struct Tap {
    uint16_t first;
    uint16_t weight;
};

inline Tap tap(double scale, uint32_t position, uint32_t source_size) {
#pragma HLS INLINE
    const double at = scale * (position + 0.5) - 0.5;
    if (at < 0) return {0, 0};
    const uint32_t first = static_cast<uint32_t>(at);
    if (first >= source_size - 1) return {static_cast<uint16_t>(source_size - 1), 0};
    const double scaled = (at - first) * ONE;  // exact: a difference below 1 and a power of two
    uint32_t weight = static_cast<uint32_t>(scaled);
    const double rest = scaled - weight;
    if (rest > 0.5 || (rest == 0.5 && (weight & 1))) weight++;
    if (weight == ONE) return {static_cast<uint16_t>(first + 1), 0};
    return {static_cast<uint16_t>(first), static_cast<uint16_t>(weight)};
}

// Not size / out_size: OpenCV divides twice, and the second rounding shows where weights are ties.
inline double scale_of(uint32_t size, uint32_t out_size) {
#pragma HLS INLINE
    return 1.0 / (static_cast<double>(out_size) / size);
}

// What is wanted of an image: all of it resized, or with `crops` a window of that.
struct Wanted {
    uint32_t resize_short;
    bool crops;
    Crop crop;
};

// What follows from it for an image of some size.
struct Plan {
    Status status;        // OK or STATUS_RESIZE_LIMIT
    uint32_t out_width, out_height;
    Window source, out;   // what is needed, and what is made of it; all for a crop outside the image
};

inline Plan plan_resize(const Wanted& wanted, uint32_t width, uint32_t height) {
    const uint32_t target = wanted.resize_short;
    const bool upright = width <= height;
    const uint32_t longer = upright ? target * height / width : target * width / height;  // below 2^32
    if (target == 0 || longer > 65535) return {STATUS_RESIZE_LIMIT, 0, 0, {0, height - 1, 0, width - 1}, {}};
    const uint32_t out_width = upright ? target : longer, out_height = upright ? longer : target;
    Plan plan{STATUS_OK, out_width, out_height, {0, height - 1, 0, width - 1},
              {0, out_height - 1, 0, out_width - 1}};
    const Place place = place_crop(wanted.crop, out_width, out_height);
    if (wanted.crops && place.inside) {
        // Two pixels go together, as beats do in the RTL.
        const uint32_t right = (place.left + wanted.crop.width - 1) | 1;
        plan.out = {place.top, place.top + wanted.crop.height - 1, place.left & ~1u,
                    right < out_width ? right : out_width - 1};
        const double scale_x = scale_of(width, out_width), scale_y = scale_of(height, out_height);
        const Tap first_row = tap(scale_y, plan.out.first_row, height);
        const Tap last_row = tap(scale_y, plan.out.last_row, height);
        const Tap first = tap(scale_x, plan.out.first_column, width);
        const Tap last = tap(scale_x, plan.out.last_column, width);
        // So do the eight columns of a block. The outermost one of the window is not needed: there decode may have other
        // chroma than that of the whole image.
        const uint32_t left_word = first.first == 0 ? 0 : (first.first - 1) / 8;
        const uint32_t last_column = (last.first + (last.weight != 0) + 1) / 8 * 8 + 7;
        plan.source = {first_row.first, last_row.first + (last_row.weight != 0 ? 1u : 0u), 8 * left_word,
                       last_column < width ? last_column : width - 1};
    }
    return plan;
}

}  // namespace headrace
