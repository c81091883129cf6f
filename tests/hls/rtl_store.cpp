// Test bench of hls/image_cu/store.sv: frames and beats in with random stalls, a memory with latency and a bad range.
#include <cstdint>
#include <random>

#include "Vstore.h"
#include "rtl_axi_memory.hpp"

namespace {

/// sample_beat_t: {value[1][2..0], value[0][2..0], keep, last, status}, 203 bits.
void put_beat(Vstore& m, const uint32_t* left, const uint32_t* right, unsigned keep, bool last, unsigned status) {
    const uint32_t low = (keep << 9) | (last << 8) | status;
    uint64_t carry = low;
    unsigned bits = 11;
    for (int i = 0; i < 7; i++) {
        if (i < 6) carry |= static_cast<uint64_t>(i < 3 ? left[i] : right[i - 3]) << bits;
        m.sample_i[i] = static_cast<uint32_t>(carry);
        carry >>= 32;
    }
}

}  // namespace

struct Settings {
    uint32_t width, height, frame_status, end_status;  // of the frame; of its last beat
    uint64_t pixels;                                   // given, in rows of `width`
    uint64_t address;
    uint32_t capacity, planar, shift;
    uint32_t latency, stall, seed;  // `stall` of 256: how often a side is not ready or has nothing
    uint32_t eager;                 // beats come without pauses, whatever `stall`
};

struct Outcome {
    uint64_t cycles, status, width, height, bytes, bus_error, taken_by, bursts, most_waiting;
};

/// `samples`: three words a pixel. `memory` lies at `base`; writes beyond its `size` bytes end in SLVERR.
extern "C" int rtl_store(const Settings* settings, const uint32_t* samples, uint8_t* memory, uint64_t base,
                         uint64_t size, Outcome* outcome) {
    Bench<Vstore>& bench = lasting_bench<Vstore>();
    Vstore& m = bench.model;
    const Settings& s = *settings;
    std::mt19937 random(s.seed);
    const auto stalled = [&] { return (random() & 255) < s.stall; };
    WriteMemory behind(memory, base, size, s.latency);
    *outcome = Outcome{};
    const uint64_t bound = 5000 + 30ull * (s.pixels + 256) * 256 / (256 - s.stall) + 100ull * s.latency;
    bool frame_given = false, frame_offered = false, beat_offered = false, beats_end = false;
    uint64_t pixel = 0;
    uint32_t x = 0;
    for (uint64_t clock = 0; clock < bound; clock++) {
        m.start_i = clock == 0;
        m.address_i = s.address;
        m.capacity_i = s.capacity;
        m.planar_i = s.planar;
        m.shift_i = s.shift;
        behind.offer(m, clock, stalled);
        frame_offered = frame_offered || (!frame_given && !stalled());
        m.frame_valid_i = frame_offered;
        m.frame_i = (static_cast<uint64_t>(s.width) << 24) | (static_cast<uint64_t>(s.height) << 8) | s.frame_status;
        const bool beats = frame_given && s.frame_status == 0 && !beats_end;
        beat_offered = beats && (beat_offered || s.eager || !stalled());
        m.sample_valid_i = beat_offered;
        const bool pixels = pixel < s.pixels;  // else the beat that only ends the frame, with an error
        const bool two = pixels && s.width - x >= 2 && pixel + 1 < s.pixels;
        const bool last = s.end_status ? !pixels : pixel + 1 + two == s.pixels;
        if (beat_offered) {
            const uint32_t* left = samples + 3 * (pixels ? pixel : 0);
            put_beat(m, left, two ? left + 3 : left, two ? 3 : pixels, last, last ? s.end_status : 0);
        }
        bench.settle();
        if (clock > 1 && m.idle_o) {
            *outcome = {clock, m.status_o, m.width_o, m.height_o, m.bytes_o, m.bus_error_o, outcome->taken_by,
                        behind.bursts, behind.most_waiting};
            return !behind.rests(m) || (frame_given && s.frame_status == 0 && !beats_end) ? PROTOCOL : NONE;
        }
        if (m.frame_valid_i && m.frame_ready_o) frame_given = true, frame_offered = false;
        if (m.sample_valid_i && m.sample_ready_o) {
            beat_offered = false;
            beats_end = last;
            if (pixels) pixel += two + 1, x += two + 1;
            if (x == s.width) x = 0;
            if (beats_end) outcome->taken_by = clock;
        }
        if (!behind.take(m, clock)) return PROTOCOL;
        bench.edge();
        if (bench.context.gotError()) return ASSERTION;
    }
    return HANG;
}
