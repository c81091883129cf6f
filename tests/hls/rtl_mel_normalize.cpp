// Test bench of mel_normalize.sv: words in, words out, with random pauses on both sides. One model serves all runs.
#include <cstring>
#include <random>

#include "Vmel_normalize.h"
#include "rtl_bench.hpp"

namespace {

constexpr int OK = 0, TOO_LONG = 1, TOO_MUCH = 2;

}  // namespace

// `pauses`: of 256 clocks, in how many a side hangs back. `reset_at`: the clock in which the run is given up. `clocks`
// receives those, from the start, of the last statistics and the last value taken, of the last band's scale, of the first
// and the last word given, and of being idle again.
extern "C" int rtl_mel_normalize(const uint64_t* words, uint64_t count, uint32_t frames, uint32_t counted,
                                 uint32_t mels, uint32_t format, uint32_t std_floor, int32_t least, int32_t mean,
                                 uint32_t scale, uint32_t pauses_in,
                                 uint32_t pauses_out, uint32_t seed, uint64_t reset_at, uint64_t* out, uint64_t out_words, uint64_t* clocks) {
    static Bench<Vmel_normalize> bench;
    auto& model = bench.model;
    std::mt19937 random(seed);
    model.frames_i = frames;
    model.counted_i = counted;
    model.mels_i = mels;
    model.half_i = format & 1;
    model.by_frames_i = format >> 1;
    model.std_floor_i = std_floor;
    model.least_i = least & 0xFFFFFF;
    model.rescale_i = scale != 0;
    model.mean_i = static_cast<uint64_t>(static_cast<int64_t>(mean)) & 0x1FFFFFFFF;
    model.scale_i = (scale & 0xFFFFFF) << 6 | scale >> 24;
    model.start_i = model.word_valid_i = model.word_ready_i = 0;
    bench.settle();
    if (!model.idle_o) return TOO_MUCH;
    uint64_t sent = 0, got = 0;
    bool offered = false;
    const uint64_t bound = 2000 + 8 * count * (pauses_in || pauses_out ? 300 : 1);
    for (uint64_t clock = 0;; clock++) {
        if (clock > bound) return TOO_LONG;
        if (clock == reset_at) {
            bench.reset();
            return OK;
        }
        model.start_i = clock == 0;
        if (!offered) offered = sent < count && random() % 256 >= pauses_in;
        model.word_valid_i = offered;
        if (offered) std::memcpy(model.word_i.data(), words + 2 * sent, 16);
        model.word_ready_i = random() % 256 >= pauses_out;
        bench.settle();
        if (clock > 0 && model.idle_o) {
            clocks[5] = clock;
            return got == out_words && sent == count ? OK : TOO_MUCH;
        }
        if (clock > 0 && model.statistics_o) clocks[2] = clock;
        if (model.word_valid_o && model.word_ready_i) {
            if (got == out_words) return TOO_MUCH;
            if (got == 0) clocks[3] = clock;
            clocks[4] = clock;
            std::memcpy(out + 2 * got++, model.word_o.data(), 16);
        }
        if (offered && model.word_ready_o) {
            clocks[sent < mels ? 0 : 1] = clock;
            sent++;
            offered = false;
        }
        bench.edge();
    }
}
