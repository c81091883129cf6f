// mel_normalize as a function over arrays of 128-bit words.
#include <cstring>

#include "mel_normalize/mel_normalize.hpp"

extern "C" void csim_mel_normalize(const uint64_t* words, uint64_t count, uint32_t frames, uint32_t counted,
                                   uint32_t mels, uint32_t format, uint32_t std_floor, int32_t least, int32_t mean,
                                   uint32_t scale, uint64_t* out) {
    hls::stream<ap_uint<128>> in("in"), given("given");
    for (uint64_t i = 0; i < count; i++) {
        ap_uint<128> word = words[2 * i + 1];
        in.write((word << 64) | ap_uint<128>(words[2 * i]));
    }
    const headrace::NormRule rule{std_floor, least, mean, scale};
    headrace::mel_normalize(in, frames, counted, mels, format & 1, format >> 1, rule, given);
    for (; !given.empty(); out += 2) {
        const ap_uint<128> word = given.read();
        out[0] = word.range(63, 0).to_uint64();
        out[1] = word.range(127, 64).to_uint64();
    }
}
