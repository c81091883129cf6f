// Read beats up to and with `last`; returns the status that the last one carries.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

inline uint8_t drain(hls::stream<Beat>& pixels) {
    bool last = false;
    uint8_t status = STATUS_OK;
    while (!last) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 33554432
        const Beat beat = pixels.read();
        last = beat.last;
        status = beat.status;
    }
    return status;
}

}  // namespace headrace
