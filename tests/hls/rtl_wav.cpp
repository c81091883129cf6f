// Test bench of Verilated wav: a file through the unit, clock by clock. Seed 0: words always there, samples always
// taken. Other seeds: every stream pauses at random.
#include "Vwav.h"
#include "rtl_sound.hpp"

struct Numbers {
    uint64_t cycles;      // from the start to the last sample, or to the sound if there is none
    uint64_t header;      // of them, those up to the sound
    uint64_t words_left;  // that the unit did not want
};

// `sound`: rate and count, once they are told. Returns the status, or TIMEOUT after a reset behind `most_clocks`.
extern "C" int rtl_wav(const uint8_t* file, uint32_t bytes, int32_t* out, uint64_t capacity, uint32_t* sound,
                       uint64_t most_clocks, uint32_t seed, Numbers* numbers) {
    static Bench<Vwav> bench;
    Vwav& m = bench.model;
    Random random(seed);
    Pace in(random, seed != 0), heard(random, seed != 0), taken(random, seed != 0);
    const uint64_t words = (uint64_t(bytes) + 15) / 16;
    uint64_t sent = 0, count = 0, ready = 0;
    bool answered = false, broken = false;
    m.word_valid_i = 0;
    SoundBits said(0);
    for (uint64_t now = 0; now < most_clocks && !broken; now++) {
        m.start_i = now == 0;
        m.bytes_i = bytes;
        if (!m.word_valid_i && sent < words && in()) {
            m.word_valid_i = 1;
            for (int i = 0; i < 4; i++) {
                const uint8_t* at = file + 16 * sent + 4 * i;
                m.word_i[i] = at[0] | at[1] << 8 | at[2] << 16 | uint32_t(at[3]) << 24;
            }
        }
        m.sound_ready_i = heard();
        m.pcm_ready_i = taken();
        bench.settle();
        if (now > 0 && m.done_o) {
            broken = !answered || count != (said.status == 0 ? said.count : 0) || m.pcm_valid_o || m.sound_valid_o;
            if (broken) break;
            numbers->cycles = ready;
            numbers->words_left = words - sent;
            m.word_valid_i = 0;
            return said.status;
        }
        const bool word_taken = m.word_valid_i && m.word_ready_o;
        if (m.sound_valid_o && m.sound_ready_i) {
            broken |= answered;
            answered = true;
            said = SoundBits(m.sound_o);
            sound[0] = said.rate;
            sound[1] = said.count;
            numbers->header = ready = now;
        }
        if (m.pcm_valid_o && m.pcm_ready_i) {
            broken |= !answered || said.status != 0 || count >= said.count || count >= capacity;
            if (!broken) out[count++] = int32_t(m.pcm_o << 15) >> 15;
            ready = now;
        }
        bench.edge();
        if (word_taken) {
            sent++;
            m.word_valid_i = 0;
        }
    }
    m.word_valid_i = 0;
    bench.reset();
    return broken ? BROKEN : TIMEOUT;
}
