#include "resize/resize.hpp"

#include "headrace/drain.hpp"

namespace headrace {
namespace {

uint8_t blend(uint8_t top_left, uint8_t top_right, uint8_t low_left, uint8_t low_right, Tap column, Tap row) {
#pragma HLS INLINE
    const uint32_t top = top_left * (ONE - column.weight) + top_right * column.weight;
    const uint32_t low = low_left * (ONE - column.weight) + low_right * column.weight;
    return static_cast<uint8_t>((top * (ONE - row.weight) + low * row.weight + (1u << 15)) >> 16);
}

}  // namespace

void resize(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, const Wanted& wanted,
            hls::stream<Frame>& out_frames, hls::stream<Pixel>& out_pixels) {
    const Frame frame = frames.read();
    if (frame.status != STATUS_OK) {
        out_frames.write(frame);
        return;
    }
    const uint32_t width = frame.width, height = frame.height;
    const Plan plan = plan_resize(wanted, width, height);
    if (plan.status != STATUS_OK) {
        out_frames.write(Frame{0, 0, plan.status});
        drain(pixels);
        return;
    }
    const uint32_t out_width = plan.out_width;
    out_frames.write(Frame{out_width, plan.out_height, STATUS_OK});
    const double scale_x = scale_of(width, out_width);
    const double scale_y = scale_of(height, plan.out_height);

    uint8_t rows[2][MAX_WIDTH][3];  // source row y lies in rows[y & 1]
#pragma HLS ARRAY_PARTITION variable = rows complete dim = 1
#pragma HLS ARRAY_PARTITION variable = rows complete dim = 3
#pragma HLS BIND_STORAGE variable = rows type = ram_2p
    const uint32_t end = plan.source.last_row + 1;  // of the source rows that come
    uint32_t taken = plan.source.first_row;         // the next one to be taken in
    Pixel in{0, 0, 0, 0, STATUS_OK};
    Pixel held{0, 0, 0, 0, STATUS_OK};  // one behind, so that the last pixel leaves with the final status
    bool holding = false;

output_rows:
    for (uint32_t y = plan.out.first_row; y <= plan.out.last_row && !in.last; y++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        const Tap row = tap(scale_y, y, height);
        const uint32_t next = row.first + 1u < end ? row.first + 1u : row.first;
    source_rows:
        for (; taken <= next && !in.last; taken++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        source_pixels:
            for (uint32_t x = plan.source.first_column; x <= plan.source.last_column && !in.last; x++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 4096
                in = pixels.read();
                rows[taken & 1][x][0] = in.r;
                rows[taken & 1][x][1] = in.g;
                rows[taken & 1][x][2] = in.b;
            }
        }
        if (in.last && (in.status != STATUS_OK || taken < end)) break;  // ended early
        const uint32_t top = row.first & 1, low = next & 1;
    output_pixels:
        for (uint32_t x = plan.out.first_column; x <= plan.out.last_column; x++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 65535
            const Tap column = tap(scale_x, x, width);
            const uint32_t left = column.first, right = left < plan.source.last_column ? left + 1 : left;
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
        if (in.last && taken == end) in.last = 0;
    }
    const bool whole = taken == end && in.status == STATUS_OK;
    held.status = whole ? Status(STATUS_OK) : in.last ? in.status : drain(pixels);
    held.last = 1;
    out_pixels.write(held);
}

}  // namespace headrace
