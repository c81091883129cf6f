#include "crop/crop.hpp"

#include "headrace/drain.hpp"

namespace headrace {

void crop(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, const Crop& crop, bool cut,
          hls::stream<Frame>& out_frames, hls::stream<Beat>& out_pixels) {
    const Frame frame = frames.read();
    if (frame.status != STATUS_OK) {
        out_frames.write(frame);
        return;
    }
    const uint32_t width = frame.width, wide = crop.width, high = crop.height;
    const Place place = place_crop(crop, width, frame.height);
    if (!place.inside) {
        out_frames.write(Frame{0, 0, STATUS_CROP_OUTSIDE});
        drain(pixels);
        return;
    }
    out_frames.write(Frame{wide, high, STATUS_OK});

    const uint32_t begin = cut ? place.left & ~1u : 0;
    const uint32_t behind_pairs = ((place.left + wide - 1) | 1) + 1;
    const uint32_t end = cut && behind_pairs < width ? behind_pairs : width;
    uint32_t x = begin, y = cut ? place.top : 0;  // of the beat's first pixel
    bool last = false;
    Beat held = {};  // one behind, so that the last one leaves with the final status
    bool holding = false;
input_beats:
    while (!last) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 67107840
        Beat in = pixels.read();
        last = in.last;
        const uint8_t status = in.status;
        // Columns of the window, counted from the beat's first pixel.
        const uint32_t from = place.left > x ? place.left - x : 0;
        const uint32_t to = place.left + wide > x ? place.left + wide - x : 0;
        if (from > in.begin) in.begin = static_cast<uint8_t>(from < BEAT ? from : BEAT);
        if (to < in.end) in.end = static_cast<uint8_t>(to);
        if (in.begin < in.end && y - place.top < high) {  // unsigned: also false above
            if (holding) out_pixels.write(held);
            held = in;
            held.last = false;
            holding = true;
        }
        x += BEAT;
        if (x >= end) {
            x = begin;
            y++;
        }
        if (last) {
            held.last = true;
            held.status = status;
            out_pixels.write(held);
        }
    }
}

}  // namespace headrace
