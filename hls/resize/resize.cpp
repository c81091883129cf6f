#include "resize/resize.hpp"

#include "headrace/drain.hpp"

namespace headrace {
namespace {

constexpr unsigned ONE = 256;  // 1.0 as a weight

// Where an output row or column comes from: source `first` with weight ONE - weight, and the next with `weight`.
struct Tap {
    uint16_t first;
    uint16_t weight;
};

Tap tap(double scale, uint32_t position, uint32_t source_size) {
#pragma HLS INLINE
    const double at = scale * (position + 0.5) - 0.5;
    if (at < 0) return {0, 0};
    const uint32_t first = static_cast<uint32_t>(at);
    if (first >= source_size - 1) return {static_cast<uint16_t>(source_size - 1), 0};
    const double scaled = (at - first) * ONE;  // exact: a difference below 1 and a power of two
    uint32_t weight = static_cast<uint32_t>(scaled);
    const double rest = scaled - weight;
    if (rest > 0.5 || (rest == 0.5 && (weight & 1))) weight++;
    return {static_cast<uint16_t>(first), static_cast<uint16_t>(weight)};
}

uint8_t blend(uint8_t top_left, uint8_t top_right, uint8_t low_left, uint8_t low_right, Tap column, Tap row) {
#pragma HLS INLINE
    const uint32_t top = top_left * (ONE - column.weight) + top_right * column.weight;
    const uint32_t low = low_left * (ONE - column.weight) + low_right * column.weight;
    return static_cast<uint8_t>((top * (ONE - row.weight) + low * row.weight + (1u << 15)) >> 16);
}

}  // namespace

void resize(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, ap_uint<16> resize_short,
            hls::stream<Frame>& out_frames, hls::stream<Pixel>& out_pixels) {
    const Frame frame = frames.read();
    if (frame.status != STATUS_OK) {
        out_frames.write(frame);
        return;
    }
    const uint32_t width = frame.width, height = frame.height, target = resize_short;
    const bool upright = width <= height;
    const uint32_t longer = upright ? target * height / width : target * width / height;  // below 2^32
    if (target == 0 || longer > 65535) {
        out_frames.write(Frame{0, 0, STATUS_RESIZE_LIMIT});
        drain(pixels);
        return;
    }
    const uint32_t out_width = upright ? target : longer, out_height = upright ? longer : target;
    out_frames.write(Frame{out_width, out_height, STATUS_OK});
    // Not width / out_width: OpenCV divides twice, and the second rounding shows where weights are ties.
    const double scale_x = 1.0 / (static_cast<double>(out_width) / width);
    const double scale_y = 1.0 / (static_cast<double>(out_height) / height);

    uint8_t rows[2][MAX_WIDTH][3];  // source row y lies in rows[y & 1]
#pragma HLS ARRAY_PARTITION variable = rows complete dim = 1
#pragma HLS ARRAY_PARTITION variable = rows complete dim = 3
#pragma HLS BIND_STORAGE variable = rows type = ram_2p
    uint32_t taken = 0;  // source rows taken in so far
    Pixel in{0, 0, 0, 0, STATUS_OK};
    Pixel held{0, 0, 0, 0, STATUS_OK};  // one behind, so that the last pixel leaves with the final status
    bool holding = false;

output_rows:
    for (uint32_t y = 0; y < out_height && !in.last; y++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        const Tap row = tap(scale_y, y, height);
        const uint32_t next = row.first + 1 < height ? row.first + 1u : row.first;
    source_rows:
        for (; taken <= next && !in.last; taken++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        source_pixels:
            for (uint32_t x = 0; x < width && !in.last; x++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 4096
                in = pixels.read();
                rows[taken & 1][x][0] = in.r;
                rows[taken & 1][x][1] = in.g;
                rows[taken & 1][x][2] = in.b;
            }
        }
        if (in.last && (in.status != STATUS_OK || taken < height)) break;  // ended early
        const uint32_t top = row.first & 1, low = next & 1;
    output_pixels:
        for (uint32_t x = 0; x < out_width; x++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 65535
            const Tap column = tap(scale_x, x, width);
            const uint32_t left = column.first, right = left + 1 < width ? left + 1 : left;
            if (holding) out_pixels.write(held);
            uint8_t value[3];
#pragma HLS ARRAY_PARTITION variable = value complete
            for (int c = 0; c < 3; c++) {
#pragma HLS UNROLL
                value[c] = blend(rows[top][left][c], rows[top][right][c], rows[low][left][c], rows[low][right][c],
                                 column, row);
            }
            held = Pixel{value[0], value[1], value[2], 0, STATUS_OK};
            holding = true;
        }
        // The last source row may serve several output rows; only an early end stops them.
        if (in.last && taken == height) in.last = 0;
    }
    const bool whole = taken == height && in.status == STATUS_OK;
    held.status = whole ? Status(STATUS_OK) : in.last ? in.status : drain(pixels);
    held.last = 1;
    out_pixels.write(held);
}

}  // namespace headrace
