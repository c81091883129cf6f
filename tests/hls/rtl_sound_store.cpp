// Test bench of hls/audio_mel_cu/sound_store.sv: a sound and values with random stalls, a memory with latency and a bad range.
#include <cstdint>
#include <random>

#include "Vsound_store.h"
#include "rtl_axi_memory.hpp"

struct Settings {
    uint64_t address;
    uint32_t capacity, bands, mels, left_out, sound_status, count;
    uint32_t latency, stall, seed;  // `stall` of 256: how often a side is not ready or has nothing
};

struct Outcome {
    uint64_t cycles, status, count, bytes, bus_error;
};

/// `values` of the sound, `given` of them. `memory` lies at `base`; writes beyond its `size` bytes end in SLVERR.
extern "C" int rtl_sound_store(const Settings* settings, const int32_t* values, uint64_t given, uint8_t* memory,
                               uint64_t base, uint64_t size, Outcome* outcome) {
    Bench<Vsound_store>& bench = lasting_bench<Vsound_store>();
    Vsound_store& m = bench.model;
    const Settings& s = *settings;
    std::mt19937 random(s.seed);
    const auto stalled = [&] { return (random() & 255) < s.stall; };
    WriteMemory behind(memory, base, size, s.latency);
    *outcome = Outcome{};
    const uint64_t bound = 5000 + 30 * (given + 256) * 256 / (256 - s.stall) + 100ull * s.latency;
    bool sound_offered = false, sound_taken = false, value_offered = false;
    uint64_t taken = 0;
    for (uint64_t clock = 0; clock < bound; clock++) {
        m.start_i = clock == 0;
        m.address_i = s.address;
        m.capacity_i = s.capacity;
        m.bands_i = s.bands;
        m.mels_i = s.mels;
        m.left_out_i = s.left_out;
        behind.offer(m, clock, stalled);
        sound_offered = !sound_taken && (sound_offered || !stalled());
        m.sound_valid_i = sound_offered;
        m.sound_i = static_cast<uint64_t>(s.sound_status) << 35 | static_cast<uint64_t>(2) << 32 | s.count;
        value_offered = sound_taken && taken < given && (value_offered || !stalled());
        m.value_valid_i = value_offered;
        m.value_i = value_offered ? values[taken] & 0xFFFFFF : random() & 0xFFFFFF;
        bench.settle();
        if (clock > 1 && m.idle_o) {
            *outcome = {clock, m.status_o, m.count_o, m.bytes_o, m.bus_error_o};
            return !behind.rests(m) || taken != given ? PROTOCOL : NONE;
        }
        if (m.sound_valid_i && m.sound_ready_o) sound_taken = true;
        if (m.value_valid_i && m.value_ready_o) taken++, value_offered = false;
        if (!behind.take(m, clock)) return PROTOCOL;
        bench.edge();
        if (bench.context.gotError()) return ASSERTION;
    }
    return HANG;
}
