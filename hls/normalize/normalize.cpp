#include "normalize/normalize.hpp"

namespace headrace {

void normalize(hls::stream<Beat>& pixels, const uint32_t tables[CHANNELS][256], hls::stream<SampleBeat>& samples) {
    bool last = false;
    while (!last) {
#pragma HLS PIPELINE II = 4
#pragma HLS LOOP_TRIPCOUNT max = 33554432
        const Beat in = pixels.read();
        last = in.last;
        SampleBeat out;
        out.begin = in.begin;
        out.end = in.end;
        out.last = in.last;
        out.status = in.status;
        for (unsigned c = 0; c < CHANNELS; c++) {
            for (unsigned i = 0; i < BEAT; i++) out.value[c][i] = tables[c][in.value[c][i]];
        }
        samples.write(out);
    }
}

}  // namespace headrace
