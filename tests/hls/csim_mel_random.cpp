// Random requests through mel, for the sanitizers: half of the programs end where they like, half nowhere.
#include <cstdint>
#include <random>

#include "mel/mel.hpp"

using namespace headrace;

int main() {
    std::mt19937_64 random(16);
    for (int request = 0; request < 60; request++) {
        hls::stream<ap_uint<128>> program;
        hls::stream<Sound> sounds, frames;
        hls::stream<Sample16k> samples;
        hls::stream<LogMel> values;
        for (unsigned i = 0; i < PROGRAM_WORDS; i++) {
            const uint64_t up = random() & ~(uint64_t(request % 2) << 50);
            program.write(ap_uint<128>(random()) << 64 | ap_uint<128>(up));
        }
        const uint32_t count = random() % (request % 3 ? 700 : 3);
        sounds.write(Sound{STATUS_OK, RATE_16000, count});
        for (uint32_t i = 0; i < count; i++) samples.write(random() % 2 ? (1 << 23) - 1 : -(1 << 23));
        const unsigned n_mels = 4 * (1 + random() % 32);
        mel(program, sounds, samples, n_mels, random() % (1 << 24), uint32_t(random()), random() & 0xFFFF,
            random() % 2 * random() % 900, random() % 2 ? 900 : 65535 * 160, frames, values);
        for (uint64_t left = uint64_t(frames.read().count) * n_mels; left; left--) values.read();
        if (!values.empty() || !samples.empty() || !program.empty() || !sounds.empty()) return 1;
    }
    return 0;
}
