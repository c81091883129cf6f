#include "normalize/normalize.hpp"

namespace headrace {

void normalize(hls::stream<Pixel>& pixels, const uint32_t tables[3][256], hls::stream<Sample>& samples) {
    Pixel in{0, 0, 0, 0, STATUS_OK};
    while (!in.last) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 268435456
        in = pixels.read();
        samples.write(Sample{{tables[0][in.r], tables[1][in.g], tables[2][in.b]}, in.last, in.status});
    }
}

}  // namespace headrace
