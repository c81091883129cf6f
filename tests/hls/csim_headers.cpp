// Use of the stand-ins for vendor headers: beats with side channels through a stream.
#include "ap_axi_sdata.h"
#include "hls_stream.h"

extern "C" int csim_headers() {
    hls::stream<ap_axiu<24, 1, 0, 0>, 16> beats("beats");
    for (int i = 0; i < 200000; i++) {  // beyond the stream's own chunk
        ap_axiu<24, 1, 0, 0> beat{};
        beat.data = 0xABC000 + i;
        beat.keep = -1;
        beat.user = i & 1;
        beat.last = i == 199999;
        beats << beat;
        if (i % 3 == 2) {
            const auto out = beats.read();
            if (out.data != ((0xABC000u + i / 3) & 0xFFFFFF) || out.keep != 7 || out.user != ((i / 3) & 1)) return 1;
        }
    }
    ap_axiu<24, 1, 0, 0> out{};
    int left = 0;
    while (beats.read_nb(out)) left++;
    ap_axis<16, 0, 0, 0> negative{};
    negative.data = -5;
    return out.last == 1 && left == 200000 - 66666 && negative.data == -5 && beats.empty() ? 0 : 2;
}
