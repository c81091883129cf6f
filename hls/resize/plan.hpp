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

// One side of an image and of the resized one. Source positions are (d + 0.5) * in / out in 256ths, as quotient and
// remainder, so they go from pixel to pixel by a sum. OpenCV has them in double, with a scale of 1.0 / (double(out) / in),
// two rounded divisions. Where the remainder is not half of `out`, that rounds to the same weight: errors of double are
// below 2^-34, and the nearest such position is 2^-25 from a tie. Where it is half, the rounding errors decide: the scale
// is off by `error` / out units in its last place, so the position by (d + 0.5) times that, and rounding the position to
// 53 places takes it back to the tie, unless that is more than half a unit in the position's last place.
struct Axis {
    uint32_t in, out;
    uint32_t step, step_rest;  // ONE * in / out
    uint32_t error;            // how far off the scale is, in units of its last place, times out
    bool error_up;             // it is too large
    int shift;                 // from the place of the first 1 in a position to its exponent less that of the scale, plus 1
};

// A quotient of two numbers from 2^52 on and below 2^53, to 53 places, rounded. It never lies just between two.
struct Mantissa {
    uint64_t value;
    bool below_one;  // the quotient
};

inline Mantissa divide_mantissas(uint64_t rest, uint64_t divisor) {
    uint64_t quotient = 0;
    const bool below_one = rest < divisor;
    for (int i = 0; i < 54 + below_one; i++) {
#pragma HLS PIPELINE II = 1
        const bool bit = rest >= divisor;
        quotient = quotient << 1 | bit;
        rest = (bit ? rest - divisor : rest) << 1;
    }
    return {(quotient >> 1) + (quotient & 1), below_one};
}

inline int leading_one(uint32_t number) {
#pragma HLS INLINE
    int place = 0;
    for (int i = 1; i < 24; i++) {
#pragma HLS UNROLL
        if (number >> i & 1) place = i;
    }
    return place;
}

inline Axis axis_of(uint32_t in, uint32_t out) {
    const int in_places = leading_one(in), out_places = leading_one(out);
    const Mantissa ratio = divide_mantissas(static_cast<uint64_t>(out) << (52 - out_places),
                                            static_cast<uint64_t>(in) << (52 - in_places));
    const Mantissa scale = divide_mantissas(uint64_t{1} << 52, ratio.value);
    const int exponent = in_places - out_places + ratio.below_one - scale.below_one;  // of the scale
    // scale * out - in is a small number of units of the scale's last place: its low bits say it all.
    const uint32_t product = static_cast<uint32_t>(scale.value) * out & 0x3FFFF;
    const bool down = product >> 17;
    return {in,   out,  ONE * in / out,     ONE * in % out, down ? 0x40000 - product : product,
            !down, -exponent - 7};
}

// The position of pixel d on an axis: (whole + rest / out) 256ths.
struct Position {
    uint32_t whole, rest;
    uint64_t error;  // (2 * d + 1) * Axis::error
};

inline Position position_of(const Axis& axis, uint32_t d) {
#pragma HLS INLINE
    const uint64_t halves = 2 * static_cast<uint64_t>(d) + 1;
    const uint64_t dividend = ONE / 2 * halves * axis.in;  // below 2^40
    return {static_cast<uint32_t>(dividend / axis.out), static_cast<uint32_t>(dividend % axis.out), halves * axis.error};
}

inline void advance(Position& at, const Axis& axis) {
#pragma HLS INLINE
    at.whole += axis.step;
    at.rest += axis.step_rest;
    if (at.rest >= axis.out) {
        at.rest -= axis.out;
        at.whole++;
    }
    at.error += 2 * axis.error;
}

inline Tap tap_at(const Position& at, const Axis& axis) {
#pragma HLS INLINE
    bool up = 2 * at.rest > axis.out;
    if (2 * at.rest == axis.out) {
        const bool beyond = 2 * at.error > static_cast<uint64_t>(axis.out) << (leading_one(at.whole) + axis.shift);
        up = beyond ? axis.error_up : at.whole & 1;
    }
    if (at.whole < ONE / 2) return {0, 0};
    const uint32_t rounded = at.whole - ONE / 2 + up;
    const uint32_t first = rounded / ONE, last = axis.in - 1;
    if (first >= last) return {static_cast<uint16_t>(last), 0};
    return {static_cast<uint16_t>(first), static_cast<uint16_t>(rounded % ONE)};
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
        const Axis x = axis_of(width, out_width), y = axis_of(height, out_height);
        const Tap first_row = tap_at(position_of(y, plan.out.first_row), y);
        const Tap last_row = tap_at(position_of(y, plan.out.last_row), y);
        const Tap first = tap_at(position_of(x, plan.out.first_column), x);
        const Tap last = tap_at(position_of(x, plan.out.last_column), x);
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
