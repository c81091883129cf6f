// Test bench of mel: one request through it.
#include <cstdint>

#include "mel/mel.hpp"

using namespace headrace;

// Samples have LSB 2^-21. Returns the status; 255 if the unit broke the stream contract. `values` has room for
// `capacity`.
extern "C" int csim_mel(const uint64_t* program, uint32_t status, const int32_t* given, uint32_t count, uint32_t n_mels,
                        uint32_t preemphasis, uint32_t log_floor, uint32_t plan, uint32_t min_samples,
                        uint32_t max_samples, int32_t* out, uint64_t capacity, uint32_t* frames) {
    hls::stream<ap_uint<128>> words;
    hls::stream<Sound> sounds, out_sounds;
    hls::stream<Sample16k> samples;
    hls::stream<LogMel> values;
    for (unsigned i = 0; i < PROGRAM_WORDS; i++) {
        ap_uint<128> word = program[2 * i + 1];
        words.write(word << 64 | ap_uint<128>(program[2 * i]));
    }
    sounds.write(Sound{Status(status), RATE_16000, count});
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++) samples.write(given[i]);
    mel(words, sounds, samples, n_mels, preemphasis, log_floor, plan, min_samples, max_samples, out_sounds,
        values);
    const Sound sound = out_sounds.read();
    *frames = sound.count;
    uint64_t got = 0;
    for (; !values.empty(); got++) {
        const LogMel value = values.read();
        if (got < capacity) out[got] = value;
    }
    const bool drained = words.empty() && sounds.empty() && samples.empty() && out_sounds.empty();
    const uint64_t wanted = sound.status == STATUS_OK ? uint64_t(sound.count) * n_mels : 0;
    if (!drained || got != wanted || sound.rate != RATE_16000) return 255;
    return sound.status;
}
