// Test bench of hls/rtl/axi/axi_read.sv: a memory with latency, stalls and a bad range, and a consumer.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>

#include "Vaxi_read.h"
#include "rtl_axi_memory.hpp"

namespace {

struct Burst {
    uint64_t address;
    unsigned beats;
    uint64_t due;  // clock of the first beat
};

}  // namespace

struct Outcome {
    uint64_t cycles, first, taken, bursts, most_flying, error;
};

/// `memory` lies at `base`; beyond its `size` bytes reads end in DECERR. Words go to `out`, `stop_after` of them are
/// taken before `stop_i` rises. `stall` and `slow` of 256: how often memory's side is not ready or has nothing, and how
/// often the consumer is not ready. At clock `reset_at` the unit is reset for some clocks; memory goes on as before, or
/// with `forgets` is reset as well, and the run ends when the unit is idle.
extern "C" int rtl_axi_read(const uint8_t* memory, uint64_t base, uint64_t size, uint64_t address, uint32_t words,
                            uint32_t stop_after, uint32_t latency, uint32_t stall, uint32_t slow, uint32_t reset_at,
                            uint32_t forgets, uint32_t seed, uint8_t* out, Outcome* outcome) {
    Bench<Vaxi_read>& bench = lasting_bench<Vaxi_read>();
    Vaxi_read& m = bench.model;
    std::mt19937 random(seed);
    const auto stalled = [&] { return (random() & 255) < stall; };
    const uint32_t reset_clocks = 1 + random() % 8;
    std::deque<Burst> bursts;
    uint64_t flying = 0;
    *outcome = Outcome{};
    const uint64_t bound = 2000 + 20ull * (words + 64) * 256 / (256 - stall) * 256 / (256 - slow) +
                           50ull * latency;
    bool r_offered = false, stopping = false;
    for (uint64_t clock = 0; clock < bound; clock++) {
        // Inputs of this clock. What was offered and not taken stays.
        m.rst_ni = clock < reset_at || clock >= reset_at + uint64_t{reset_clocks};
        m.start_i = clock == 0;
        m.address_i = address;
        m.words_i = words;
        stopping = stopping || outcome->taken == stop_after;
        m.stop_i = stopping && clock > 0;
        m.arready_i = !stalled();
        m.word_ready_i = outcome->taken < stop_after && (random() & 255) >= slow;
        if (!r_offered) r_offered = !bursts.empty() && bursts.front().due <= clock && !stalled();
        m.rvalid_i = r_offered;
        if (r_offered) {
            const Burst& burst = bursts.front();
            const bool bad = burst.address < base || burst.address + WORD_BYTES > base + size;
            uint32_t data[4] = {0xBADBADBA, 0xBADBADBA, 0xBADBADBA, 0xBADBADBA};
            if (!bad) std::memcpy(data, memory + (burst.address - base), WORD_BYTES);
            for (int i = 0; i < 4; i++) m.rdata_i[i] = data[i];
            m.rresp_i = bad ? 3 : 0;
            m.rlast_i = burst.beats == 1;
        }
        bench.settle();
        if (clock > 1 && m.rst_ni && m.idle_o) {
            outcome->cycles = clock;
            outcome->error = m.error_o;
            m.stop_i = 0;
            return flying || bench.context.gotError() ? PROTOCOL : NONE;
        }
        const bool ar = m.arvalid_o && m.arready_i, r = r_offered && m.rready_o;
        if (ar) {
            const unsigned beats = m.arlen_o + 1;
            if (!lawful_burst(m.araddr_o, beats, m.arsize_o, m.arburst_o) || beats > 64) return PROTOCOL;
            bursts.push_back({m.araddr_o, beats, clock + 1 + latency});
            flying += beats;
            outcome->bursts++;
            outcome->most_flying = std::max(outcome->most_flying, flying);
        }
        if (r) {
            Burst& burst = bursts.front();
            burst.address += WORD_BYTES;
            flying--;
            r_offered = false;
            if (--burst.beats == 0) bursts.pop_front();
        } else if (r_offered && !stopping) {
            return PROTOCOL;  // room was promised
        }
        if (m.word_valid_o && m.word_ready_i) {
            if (outcome->taken == words) return PROTOCOL;
            uint32_t data[4];
            for (int i = 0; i < 4; i++) data[i] = m.word_o[i];
            std::memcpy(out + outcome->taken * WORD_BYTES, data, WORD_BYTES);
            if (outcome->taken == 0) outcome->first = clock;
            outcome->taken++;
        }
        if (clock == reset_at && forgets) {
            bursts.clear();
            r_offered = false;
            flying = 0;
        }
        bench.edge();
        if (bench.context.gotError()) return ASSERTION;
    }
    return HANG;
}
