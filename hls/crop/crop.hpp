// Crop: a window of the image.
//
// Reference   numpy: image[y:y + crop_height, x:x + crop_width]. An offset of CENTRED centres the window on that axis as
//             torchvision's CenterCrop does: (size - crop) / 2, halves to the even number.
// Interface   one Frame and its pixels in, one Frame and its pixels out; see headrace/image_stream.hpp.
// Throughput  one input pixel per clock.
// Latency     one pixel of the window; the last one waits for the end of the input, whose status it carries.
// Bad input   a window that is empty or not inside the image: STATUS_CROP_OUTSIDE. Upstream errors pass.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

constexpr uint32_t CENTRED = 0xFFFFFFFF;

void crop(hls::stream<Frame>& frames, hls::stream<Pixel>& pixels, ap_uint<32> crop_width, ap_uint<32> crop_height,
          ap_uint<32> crop_x, ap_uint<32> crop_y, hls::stream<Frame>& out_frames, hls::stream<Pixel>& out_pixels);

}  // namespace headrace
