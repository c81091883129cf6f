// Test bench of resample in C++: a sound through the unit, after its taps if there are any to load.
#include "resample/resample.hpp"

using namespace headrace;

// As rtl_resample. Returns the status, or 255 if the unit broke the stream contract.
extern "C" int csim_resample(const uint32_t* table, uint64_t table_words, uint32_t load, uint32_t status,
                             uint32_t rate, const int32_t* pcm, uint32_t count, int32_t* out, uint64_t capacity,
                             uint32_t* out_sound) {
    static Tap taps[TAP_WORDS][TAP_LANES];
    hls::stream<ap_uint<128>> words;
    hls::stream<Sound> sounds, out_sounds;
    hls::stream<Pcm> samples;
    hls::stream<Sample16k> out_samples;
    for (uint64_t i = 0; i < table_words; i++) {
        ap_uint<128> word = 0;
        for (unsigned j = 0; j < 4; j++) word.range(32 * j + 31, 32 * j) = table[4 * i + j];
        words.write(word);
    }
    if (load) load_taps(words, rate, taps);
    sounds.write(Sound{status, rate, count});
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++) samples.write(pcm[i]);
    resample(sounds, samples, taps, out_sounds, out_samples);
    const Sound said = out_sounds.read();
    out_sound[0] = said.rate;
    out_sound[1] = said.count;
    const uint64_t given = said.status == STATUS_OK ? said.count.to_uint64() : 0;
    const bool read = words.empty() && sounds.empty() && samples.empty();
    if (!read || !out_sounds.empty() || out_samples.size() != given || given > capacity) return 255;
    for (uint64_t i = 0; i < given; i++) out[i] = out_samples.read();
    return said.status;
}
