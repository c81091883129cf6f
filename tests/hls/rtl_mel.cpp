// Test bench of Verilated mel: a request through it, clock by clock.
//
// The model lives as long as the library and is reset once, so that each call is also a request after another one.
// Seed 0: input always there, output always taken. Other seeds: every stream pauses at random, by a rate of its own, and
// with odd ones the sound waits for the whole program.
#include <algorithm>

#include "Vmel.h"
#include "rtl_sound.hpp"

namespace {

constexpr uint32_t RATE = 2;  // index of 16 kHz
constexpr uint32_t WORDS = 384;  // of the program and the window

struct Numbers {
    uint64_t cycles;  // from the first word of the program to the last value
    uint64_t held;    // of them, clocks in which a sample was there and was not taken
};

}  // namespace

// As csim_mel. With `reset_at` the unit is reset in that clock, and this ends with TIMEOUT.
extern "C" int rtl_mel(const uint64_t* program, uint32_t status, const int32_t* given, uint32_t count, uint32_t n_mels,
                       uint32_t preemphasis, uint32_t log_floor, uint32_t plan, uint32_t min_samples,
                       uint32_t max_samples, int32_t* out, uint64_t capacity, uint32_t* frames, uint32_t seed,
                       uint64_t reset_at, Numbers* numbers) {
    static Bench<Vmel> b;
    Vmel& m = b.model;
    Random random(seed);
    const bool stalls = seed != 0;
    Pace word_in(random, stalls), sound_in(random, stalls), sample_in(random, stalls), frames_out(random, stalls),
        value_out(random, stalls);
    m.n_mels_i = n_mels;
    m.preemphasis_i = preemphasis;
    m.log_floor_i = log_floor;
    m.plan_i = plan;
    m.min_samples_i = min_samples;
    m.max_samples_i = max_samples;
    m.sound_i = SoundBits(status, RATE, count).bits();
    m.program_valid_i = m.sound_valid_i = m.sample_valid_i = 0;
    uint32_t words = 0, samples = 0, ended = 0, ends = 0;
    uint64_t values = 0, wanted = 0;
    bool sound_sent = false, told = false;
    const uint64_t limit = (stalls ? 20 : 1) * (3000 + uint64_t(std::max(count, min_samples)) * 105 / 100);
    *numbers = Numbers{0, 0};
    for (uint64_t now = 1; now < limit; now++) {
        if (!m.program_valid_i && words < WORDS && word_in()) {
            m.program_valid_i = 1;
            for (int i = 0; i < 4; i++) m.program_i[i] = program[2 * words + i / 2] >> (i % 2 * 32);
        }
        if (!m.sound_valid_i && !sound_sent && (seed % 2 == 0 || words == WORDS) && sound_in()) m.sound_valid_i = 1;
        if (!m.sample_valid_i && status == 0 && samples < count && sample_in()) {
            m.sample_valid_i = 1;
            m.sample_i = given[samples] & 0xFFFFFF;
        }
        if (now == reset_at) break;
        m.frames_ready_i = frames_out();
        m.value_ready_i = value_out();
        b.settle();
        const bool word_taken = m.program_valid_i && m.program_ready_o;
        const bool sound_taken = m.sound_valid_i && m.sound_ready_o;
        const bool sample_taken = m.sample_valid_i && m.sample_ready_o;
        numbers->held += m.sample_valid_i && !m.sample_ready_o;
        if (m.frames_valid_o && m.frames_ready_i) {
            const SoundBits sound(m.frames_o);
            if (told || !sound_sent || sound.rate != RATE || (status && sound.status != status)) return BROKEN;
            told = true;
            ends = sound.status;
            *frames = sound.count;
            wanted = ends == 0 ? uint64_t(*frames) * n_mels : 0;
            numbers->cycles = now;
        }
        if (m.value_valid_o && m.value_ready_i) {
            if (!told || values == wanted) return BROKEN;
            if (values < capacity) out[values] = static_cast<int32_t>(m.value_o << 8) >> 8;
            values++;
            numbers->cycles = now;
        }
        // Over, and nothing else came out for a while.
        const bool done = told && values == wanted && samples == (status == 0 ? count : 0) && m.program_ready_o;
        b.edge();
        if (word_taken) {
            words++;
            m.program_valid_i = 0;
        }
        if (sound_taken) {
            sound_sent = true;
            m.sound_valid_i = 0;
        }
        if (sample_taken) {
            samples++;
            m.sample_valid_i = 0;
        }
        if (done && ++ended > 3) return ends;
    }
    m.program_valid_i = m.sound_valid_i = m.sample_valid_i = 0;
    b.reset();
    return TIMEOUT;
}
