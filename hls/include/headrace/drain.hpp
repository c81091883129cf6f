// Read pixels up to and with `last`; returns the status that the last one carries.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

inline Status drain(hls::stream<Pixel>& pixels) {
    Pixel pixel{0, 0, 0, 0, STATUS_OK};
    while (!pixel.last) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 268435456
        pixel = pixels.read();
    }
    return pixel.status;
}

}  // namespace headrace
