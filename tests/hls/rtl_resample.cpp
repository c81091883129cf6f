// Test bench of Verilated resample: a sound through the unit, clock by clock, after its taps if there are any to load.
// Seed 0: samples always there, always taken. Other seeds: every stream pauses at random.
#include "Vresample.h"
#include "rtl_sound.hpp"

struct Numbers {
    uint64_t load;    // clocks from the load's taking to the sound's
    uint64_t header;  // from there to the sound that comes out
    uint64_t cycles;  // and from there to the last sample
};

// `table`: of `table_words` words of 16 bytes, for `rate`; none if 0. `out_sound`: rate and count.
// Returns the status, or TIMEOUT after a reset behind `most_clocks`.
extern "C" int rtl_resample(const uint32_t* table, uint64_t table_words, uint32_t load, uint32_t status, uint32_t rate,
                            const int32_t* pcm, uint32_t count, int32_t* out, uint64_t capacity, uint32_t* out_sound,
                            uint64_t most_clocks, uint32_t seed, Numbers* numbers) {
    static Bench<Vresample> bench;
    Vresample& m = bench.model;
    Random random(seed);
    Pace tables(random, seed != 0), in(random, seed != 0), heard(random, seed != 0), taken(random, seed != 0);
    uint64_t table_sent = 0, sent = 0, given = 0;
    uint64_t load_clock = 0, sound_clock = 0, answer_clock = 0;
    bool loaded = !load, told = false, answered = false, broken = false;
    SoundBits said(0);
    m.table_valid_i = m.pcm_valid_i = m.sound_valid_i = m.load_valid_i = 0;
    const uint64_t inputs = status == 0 ? count : 0;
    for (uint64_t now = 1; now < most_clocks && !broken; now++) {
        m.load_valid_i = !loaded;
        m.load_rate_i = rate;
        m.sound_valid_i = !told;  // together with the load, which goes before
        m.sound_i = SoundBits(status, rate, count).bits();
        if (!m.table_valid_i && table_sent < table_words && tables()) {
            m.table_valid_i = 1;
            for (int i = 0; i < 4; i++) m.table_i[i] = table[4 * table_sent + i];
        }
        if (!m.pcm_valid_i && sent < inputs && in()) {
            m.pcm_valid_i = 1;
            m.pcm_i = pcm[sent] & 0x1FFFF;
        }
        m.sound_ready_i = heard();
        m.sample_ready_i = taken();
        bench.settle();
        const bool load_taken = m.load_valid_i && m.load_ready_o, sound_taken = m.sound_valid_i && m.sound_ready_o;
        const bool table_taken = m.table_valid_i && m.table_ready_o, pcm_taken = m.pcm_valid_i && m.pcm_ready_o;
        if (m.sound_valid_o && m.sound_ready_i) {
            broken |= answered || !told;
            answered = true;
            said = SoundBits(m.sound_o);
            answer_clock = now;
            numbers->cycles = 0;
        }
        if (m.sample_valid_o && m.sample_ready_i) {
            broken |= !answered || said.status != 0 || given >= said.count || given >= capacity;
            if (!broken) out[given++] = int32_t(m.sample_o << 8) >> 8;
            numbers->cycles = now - answer_clock;
        }
        bench.edge();
        if (load_taken) {
            loaded = true;
            load_clock = now;
        }
        if (sound_taken) {
            told = true;
            sound_clock = now;
        }
        if (table_taken) {
            table_sent++;
            m.table_valid_i = 0;
        }
        if (pcm_taken) {
            sent++;
            m.pcm_valid_i = 0;
        }
        if (answered && given == (said.status == 0 ? said.count : 0) && sent == inputs && table_sent == table_words) {
            numbers->load = load ? sound_clock - load_clock : 0;
            numbers->header = answer_clock - sound_clock;
            out_sound[0] = said.rate;
            out_sound[1] = said.count;
            m.load_valid_i = m.sound_valid_i = 0;
            for (int i = 0; i < 8; i++) {  // nothing else comes out
                bench.clock();
                broken |= m.sound_valid_o || m.sample_valid_o;
            }
            return broken ? BROKEN : said.status;
        }
    }
    m.table_valid_i = m.pcm_valid_i = m.sound_valid_i = m.load_valid_i = 0;
    bench.reset();
    return broken ? BROKEN : TIMEOUT;
}
