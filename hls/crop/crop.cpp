#include "crop/crop.hpp"

#include "headrace/drain.hpp"

namespace headrace {
namespace {

uint32_t offset(uint32_t wanted, uint32_t size, uint32_t window) {
#pragma HLS INLINE
    if (wanted != CENTRED) return wanted;
    const uint32_t twice = size - window;
    const uint32_t half = twice >> 1;
    return half + (twice & half & 1);  // a half goes up only from an odd number
}

}  // namespace

void crop(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, ap_uint<32> crop_width, ap_uint<32> crop_height,
          ap_uint<32> crop_x, ap_uint<32> crop_y, hls::stream<Frame>& out_frames, hls::stream<Pixel>& out_pixels) {
    const Frame frame = frames.read();
    if (frame.status != STATUS_OK) {
        out_frames.write(frame);
        return;
    }
    const uint32_t width = frame.width, height = frame.height, wide = crop_width, high = crop_height;
    const bool fits = wide >= 1 && high >= 1 && wide <= width && high <= height;
    const uint32_t left = offset(crop_x, width, wide), top = offset(crop_y, height, high);
    if (!fits || left > width - wide || top > height - high) {
        out_frames.write(Frame{0, 0, STATUS_CROP_OUTSIDE});
        drain(pixels);
        return;
    }
    out_frames.write(Frame{wide, high, STATUS_OK});

    Pixel in{0, 0, 0, 0, STATUS_OK};
    Pixel held{0, 0, 0, 0, STATUS_OK};
    bool holding = false;
    uint32_t x = 0, y = 0;
input_pixels:
    while (!in.last) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 268435456
        in = pixels.read();
        if (x - left < wide && y - top < high) {  // unsigned: also false to the left and above
            if (holding) out_pixels.write(held);
            held = Pixel{in.r, in.g, in.b, 0, STATUS_OK};
            holding = true;
        }
        if (++x == width) {
            x = 0;
            y++;
        }
    }
    held.last = 1;
    held.status = in.status;
    out_pixels.write(held);
}

}  // namespace headrace
