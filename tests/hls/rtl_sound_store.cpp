// Test bench of hls/audio_mel_cu/sound_store.sv: a sound and values with random stalls, a memory with latency and a bad range.
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "Vsound_store.h"
#include "rtl_bench.hpp"

namespace {

constexpr uint64_t WORD_BYTES = 16, PAGE_BYTES = 4096;

enum Fault : int { NONE = 0, HANG = 1, PROTOCOL = 2, ASSERTION = 3 };

struct Burst {
    uint64_t address;
    unsigned beats;
    bool bad = false;
    uint64_t due = 0;  // clock of the response
};

Bench<Vsound_store>& ready() {  // one for all runs: what a run leaves behind is seen by the next
    static auto* const bench = new Bench<Vsound_store>;  // never ends: it outlives everything at exit
    bench->context.fatalOnError(false);
    return *bench;
}

}  // namespace

struct Settings {
    uint64_t address;
    uint32_t capacity, bands, mels, sound_status, count;
    uint32_t latency, stall, seed;  // `stall` of 256: how often a side is not ready or has nothing
};

struct Outcome {
    uint64_t cycles, status, count, bytes, bus_error;
};

/// `values` of the sound, `given` of them. `memory` lies at `base`; writes beyond its `size` bytes end in SLVERR.
extern "C" int rtl_sound_store(const Settings* settings, const int32_t* values, uint64_t given, uint8_t* memory,
                               uint64_t base, uint64_t size, Outcome* outcome) {
    Bench<Vsound_store>& bench = ready();
    Vsound_store& m = bench.model;
    const Settings& s = *settings;
    std::mt19937 random(s.seed);
    const auto stalled = [&] { return (random() & 255) < s.stall; };
    std::deque<Burst> addressed, answers;  // awaiting data, awaiting their response
    std::deque<std::pair<bool, std::array<uint8_t, WORD_BYTES>>> words;  // that came before their address
    *outcome = Outcome{};
    const uint64_t bound = 5000 + 30 * (given + 256) * 256 / (256 - s.stall) + 100ull * s.latency;
    bool sound_offered = false, sound_taken = false, value_offered = false, b_offered = false;
    uint64_t taken = 0;
    for (uint64_t clock = 0; clock < bound; clock++) {
        m.start_i = clock == 0;
        m.address_i = s.address;
        m.capacity_i = s.capacity;
        m.bands_i = s.bands;
        m.mels_i = s.mels;
        m.awready_i = !stalled();
        m.wready_i = !stalled();
        sound_offered = !sound_taken && (sound_offered || !stalled());
        m.sound_valid_i = sound_offered;
        m.sound_i = static_cast<uint64_t>(s.sound_status) << 35 | static_cast<uint64_t>(2) << 32 | s.count;
        value_offered = sound_taken && taken < given && (value_offered || !stalled());
        m.value_valid_i = value_offered;
        m.value_i = value_offered ? values[taken] & 0xFFFFFF : random() & 0xFFFFFF;
        if (!b_offered) b_offered = !answers.empty() && answers.front().due <= clock && !stalled();
        m.bvalid_i = b_offered;
        m.bresp_i = b_offered && answers.front().bad ? 2 : 0;
        bench.settle();
        if (clock > 1 && m.idle_o) {
            *outcome = {clock, m.status_o, m.count_o, m.bytes_o, m.bus_error_o};
            const bool rest = !addressed.empty() || !answers.empty() || !words.empty() || m.awvalid_o || m.wvalid_o;
            return rest || taken != given ? PROTOCOL : NONE;
        }
        if (m.sound_valid_i && m.sound_ready_o) sound_taken = true;
        if (m.value_valid_i && m.value_ready_o) taken++, value_offered = false;
        if (m.awvalid_o && m.awready_i) addressed.push_back({m.awaddr_o, m.awlen_o + 1u});
        if (m.wvalid_o && m.wready_i) {
            std::array<uint8_t, WORD_BYTES> word;
            for (int i = 0; i < 4; i++) {
                const uint32_t part = m.wdata_o[i];
                std::memcpy(word.data() + 4 * i, &part, 4);
            }
            words.push_back({m.wlast_o, word});
        }
        while (!words.empty() && !addressed.empty()) {
            Burst& burst = addressed.front();
            if (words.front().first != (burst.beats == 1)) return PROTOCOL;
            if (burst.address < base || burst.address + WORD_BYTES > base + size) burst.bad = true;
            else std::memcpy(memory + (burst.address - base), words.front().second.data(), WORD_BYTES);
            burst.address += WORD_BYTES;
            if (--burst.beats == 0) {
                burst.due = clock + 1 + s.latency;
                answers.push_back(burst);
                addressed.pop_front();
            }
            words.pop_front();
        }
        if (b_offered && m.bready_o) {
            answers.pop_front();
            b_offered = false;
        }
        bench.edge();
        if (bench.context.gotError()) return ASSERTION;
    }
    return HANG;
}
