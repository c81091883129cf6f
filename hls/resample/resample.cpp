#include "resample/resample.hpp"

namespace headrace {
namespace {

constexpr unsigned ROUNDED = 18;  // bits

// 16000 / rate in lowest terms, and the passes for an input. 16 kHz has no filter.
struct Ratio {
    uint16_t up, down;
    bool twice, filtered;
};
constexpr Ratio RATIO[SOUND_RATES] = {
    {2, 1, true, true},      {640, 441, true, true}, {1, 1, false, false},    {320, 441, false, true},
    {2, 3, false, true},     {1, 2, false, true},    {160, 441, false, true}, {1, 3, false, true},
};

}  // namespace

void load_taps(hls::stream<ap_uint<128>>& words, ap_uint<3> rate, Tap taps[TAP_WORDS][TAP_LANES]) {
    const Ratio ratio = RATIO[rate.to_uint()];
    if (!ratio.filtered) return;
    const unsigned count = ratio.down << ratio.twice;
load:
    for (unsigned i = 0; i < count; i++) {
#pragma HLS LOOP_TRIPCOUNT max = 882
        for (unsigned lane = 0; lane < TAP_LANES; lane += 4) {
#pragma HLS PIPELINE II = 1
            const ap_uint<128> word = words.read();
            for (unsigned j = 0; j < 4; j++) {
#pragma HLS UNROLL
                taps[i][lane + j] = word.range(32 * j + 23, 32 * j);
            }
        }
    }
}

void resample(hls::stream<Sound>& sounds, hls::stream<Pcm>& pcm, const Tap taps[TAP_WORDS][TAP_LANES],
              hls::stream<Sound>& out_sounds, hls::stream<Sample16k>& samples) {
    const Sound sound = sounds.read();
    if (sound.status != STATUS_OK) {
        out_sounds.write(sound);
        return;
    }
    const Ratio ratio = RATIO[sound.rate.to_uint()];
    uint32_t inputs = sound.count;
    uint32_t outputs = static_cast<uint32_t>((uint64_t(inputs) * ratio.up + ratio.down - 1) / ratio.down);
    out_sounds.write(Sound{STATUS_OK, sound.rate, outputs});

    int64_t sums[2][TAP_LANES];  // [even or odd outputs][oldest first], with the half that rounds; 42 bits count
#pragma HLS ARRAY_PARTITION variable = sums complete
    for (unsigned lane = 0; lane < TAP_LANES; lane++) {
#pragma HLS UNROLL
        sums[0][lane] = sums[1][lane] = 1 << (ROUNDED - 1);
    }
    // Outputs before the first sample, under way at the start.
    unsigned unwanted = ratio.filtered ? TAP_LANES / 2 << ratio.twice : 0;
    unsigned word = 0;  // of the taps, for this input and pass
    bool odd = false, second = false;
    int64_t x = 0;
steps:
    while (outputs != 0) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 31456929
        if (!second) {
            x = inputs != 0 ? pcm.read().to_int() : 0;
            if (inputs != 0) inputs--;
        }
        int64_t next[TAP_LANES + 1];
#pragma HLS ARRAY_PARTITION variable = next complete
        for (unsigned lane = 0; lane < TAP_LANES; lane++) {
#pragma HLS UNROLL
            next[lane] = sums[odd][lane] + (ratio.filtered ? x * taps[word][lane].to_int() : 0);
        }
        next[TAP_LANES] = 1 << (ROUNDED - 1);
        const bool complete = word < ratio.up;  // no further input has a tap for the oldest
        for (unsigned lane = 0; lane < TAP_LANES; lane++) {
#pragma HLS UNROLL
            sums[odd][lane] = next[lane + complete];
        }
        if (complete && unwanted != 0) {
            unwanted--;
        } else if (complete) {
            samples.write(ratio.filtered ? Sample16k(next[0] >> ROUNDED) : Sample16k(x << 5));
            outputs--;
        }
        // The pass with the older output goes first, and always completes it.
        odd ^= ratio.twice && (!second || complete);
        second = ratio.twice && !second;
        word += second ? ratio.down : (complete ? ratio.down : 0) - ratio.up;
    }
}

}  // namespace headrace
