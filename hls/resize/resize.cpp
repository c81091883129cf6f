// Two processes, as in the RTL: rows -> columns. What a pixel takes of two source rows depends on its row alone, so rows
// are blended first, each word of both once; columns then reads two neighbours in a row, one of an even and one of an odd
// column. So every memory has one read and one write port, and the index into it is all that is dynamic.
#include "resize/resize.hpp"

#include "headrace/drain.hpp"

namespace headrace {
namespace {

constexpr unsigned WORDS = MAX_WIDTH / BEAT;  // in a row

// Eight source columns of an output row: Q8.8, and half of a last place, with which columns rounds.
struct BlendedBeat {
    uint16_t value[BEAT][CHANNELS];
    bool end;        // instead of a row: the frame ends here,
    uint8_t status;  // with this status
};

struct BlendedPixel {
    uint16_t value[CHANNELS];
};

struct PixelWord {
    uint8_t value[CHANNELS][BEAT];
};

// The output rows of the window, at the width of the source. A source row is taken in when it is first needed, and what
// the last output row does not need is read before it, so that the status is known by then.
void rows(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, const Wanted& wanted, hls::stream<Frame>& out_frames,
          hls::stream<Frame>& sizes, hls::stream<BlendedBeat>& blended) {
    const Frame frame = frames.read();
    Plan plan{};
    plan.status = frame.status;
    if (frame.status == STATUS_OK) {
        plan = plan_resize(wanted, frame.width, frame.height);
        if (plan.status != STATUS_OK) drain(pixels);
    }
    out_frames.write(Frame{plan.out_width, plan.out_height, plan.status});
    sizes.write(Frame{frame.width, frame.height, plan.status});
    if (plan.status != STATUS_OK) return;

    PixelWord held[2][WORDS];  // source row y lies in held[y & 1]
#pragma HLS ARRAY_PARTITION variable = held complete dim = 1
#pragma HLS AGGREGATE variable = held
#pragma HLS BIND_STORAGE variable = held type = ram_2p
    const Axis axis = axis_of(frame.height, plan.out_height);
    Position at = position_of(axis, plan.out.first_row);
    const uint32_t words = (plan.source.last_column - plan.source.first_column) / BEAT + 1;
    const uint32_t end = plan.source.last_row + 1;  // of the source rows that come
    uint32_t taken = plan.source.first_row;         // the next one to be taken in
    bool last = false;                              // of the input has come,
    uint8_t status = STATUS_OK;                     // with this status

output_rows:
    for (uint32_t y = plan.out.first_row; y <= plan.out.last_row; y++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        const Tap tap = tap_at(at, axis);
        advance(at, axis);
        const uint32_t next = tap.first + 1u < end ? tap.first + 1u : tap.first;
    source_rows:
        for (; taken <= next && !last; taken++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        source_words:
            for (uint32_t w = 0; w < words && !last; w++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 1024
                const Beat in = pixels.read();
                for (unsigned c = 0; c < CHANNELS; c++) {
                    for (unsigned i = 0; i < BEAT; i++) held[taken & 1][w].value[c][i] = in.value[c][i];
                }
                last = in.last;
                status = in.status;
            }
        }
        if (y == plan.out.last_row && !last) {
            status = drain(pixels);
            last = true;
        }
        if (last && (status != STATUS_OK || taken <= next)) {  // an error, or an early end
            BlendedBeat out = {};
            out.end = true;
            out.status = status;
            blended.write(out);
            return;
        }
        const uint32_t top = tap.first & 1, low = next & 1, weight = tap.weight;
    words:
        for (uint32_t w = 0; w < words; w++) {
#pragma HLS PIPELINE II = 4
#pragma HLS LOOP_TRIPCOUNT max = 1024
            const PixelWord upper = held[top][w], lower = held[low][w];
            BlendedBeat out;
            out.end = false;
            out.status = STATUS_OK;
            for (unsigned i = 0; i < BEAT; i++) {
                for (unsigned c = 0; c < CHANNELS; c++) {
                    out.value[i][c] = static_cast<uint16_t>(upper.value[c][i] * (ONE - weight) +
                                                            lower.value[c][i] * weight + ONE / 2);
                }
            }
            blended.write(out);
        }
    }
}

void columns(hls::stream<Frame>& sizes, hls::stream<BlendedBeat>& blended, const Wanted& wanted,
             hls::stream<Beat>& pixels) {
    const Frame source = sizes.read();
    if (source.status != STATUS_OK) return;
    const Plan plan = plan_resize(wanted, source.width, source.height);

    BlendedPixel even[WORDS * BEAT / 2 + 1], odd[WORDS * BEAT / 2];  // columns of a row, counted from the window's first
#pragma HLS AGGREGATE variable = even
#pragma HLS AGGREGATE variable = odd
#pragma HLS BIND_STORAGE variable = even type = ram_2p
#pragma HLS BIND_STORAGE variable = odd type = ram_2p
    const Axis axis = axis_of(source.width, plan.out_width);
    const Position first = position_of(axis, plan.out.first_column);
    const uint32_t words = (plan.source.last_column - plan.source.first_column) / BEAT + 1;
    const uint32_t wide = plan.out.last_column - plan.out.first_column + 1;

output_rows:
    for (uint32_t y = plan.out.first_row; y <= plan.out.last_row; y++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
    words:
        for (uint32_t w = 0; w < words; w++) {
#pragma HLS PIPELINE II = 4
#pragma HLS LOOP_TRIPCOUNT max = 1024
            const BlendedBeat in = blended.read();
            if (in.end) {
                pixels.write(end_of_frame(in.status));
                return;
            }
            for (unsigned i = 0; i < BEAT / 2; i++) {
                for (unsigned c = 0; c < CHANNELS; c++) {
                    even[w * (BEAT / 2) + i].value[c] = in.value[2 * i][c];
                    odd[w * (BEAT / 2) + i].value[c] = in.value[2 * i + 1][c];
                }
            }
        }
        Position at = first;
        Beat out = {};
    output_pixels:
        for (uint32_t x = 0; x < wide; x++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 65535
            const Tap tap = tap_at(at, axis);
            advance(at, axis);
            const uint32_t left = tap.first - plan.source.first_column;
            const BlendedPixel of_even = even[(left + 1) / 2], of_odd = odd[left / 2];
            const unsigned place = x % BEAT;
            for (unsigned c = 0; c < CHANNELS; c++) {
#pragma HLS UNROLL
                const uint32_t near = left & 1 ? of_odd.value[c] : of_even.value[c];
                const uint32_t far = left & 1 ? of_even.value[c] : of_odd.value[c];
                out.value[c][place] = static_cast<uint8_t>((near * (ONE - tap.weight) + far * tap.weight) >> 16);
            }
            if (place == BEAT - 1 || x == wide - 1) {
                out.end = place + 1;
                out.last = x == wide - 1 && y == plan.out.last_row;
                pixels.write(out);
            }
        }
    }
}

}  // namespace

void resize(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, const Wanted& wanted,
            hls::stream<Frame>& out_frames, hls::stream<Beat>& out_pixels) {
#pragma HLS DATAFLOW
    hls::stream<Frame> sizes("resize sizes");
    hls::stream<BlendedBeat> blended("resize blended rows");
#pragma HLS STREAM variable = blended depth = 16
    rows(frames, pixels, wanted, out_frames, sizes, blended);
    columns(sizes, blended, wanted, out_pixels);
}

}  // namespace headrace
