#include "crop/crop.hpp"

#include "headrace/drain.hpp"

namespace headrace {

void crop(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, const Crop& crop, bool cut,
          hls::stream<Frame>& out_frames, hls::stream<Pixel>& out_pixels) {
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

    Pixel in{0, 0, 0, 0, STATUS_OK};
    Pixel held{0, 0, 0, 0, STATUS_OK};
    bool holding = false;
    const uint32_t begin = cut ? place.left & ~1u : 0;
    const uint32_t right = (place.left + wide - 1) | 1;
    const uint32_t end = cut && right < width ? right + 1 : width;
    uint32_t x = begin, y = cut ? place.top : 0;
input_pixels:
    while (!in.last) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 268435456
        in = pixels.read();
        if (x - place.left < wide && y - place.top < high) {  // unsigned: also false to the left and above
            if (holding) out_pixels.write(held);
            held = Pixel{in.r, in.g, in.b, 0, STATUS_OK};
            holding = true;
        }
        if (++x == end) {
            x = begin;
            y++;
        }
    }
    held.last = 1;
    held.status = in.status;
    out_pixels.write(held);
}

}  // namespace headrace
