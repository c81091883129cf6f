// Test bench of hls/image_cu/store.sv: frames and beats in with random stalls, a memory with latency and a bad range.
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "Vstore.h"
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

Bench<Vstore>& ready() {  // one for all runs: what a run leaves behind is seen by the next
    static auto* const bench = new Bench<Vstore>;  // never ends: it outlives everything at exit
    bench->context.fatalOnError(false);
    return *bench;
}

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
    uint64_t cycles, status, width, height, bytes, bus_error, taken_by, bursts;
};

/// `samples`: three words a pixel. `memory` lies at `base`; writes beyond its `size` bytes end in SLVERR.
extern "C" int rtl_store(const Settings* settings, const uint32_t* samples, uint8_t* memory, uint64_t base,
                         uint64_t size, Outcome* outcome) {
    Bench<Vstore>& bench = ready();
    Vstore& m = bench.model;
    const Settings& s = *settings;
    std::mt19937 random(s.seed);
    const auto stalled = [&] { return (random() & 255) < s.stall; };
    std::deque<Burst> addressed, answers;  // awaiting data, awaiting their response
    std::deque<std::pair<bool, std::array<uint8_t, 18>>> data;  // words that came before their address
    *outcome = Outcome{};
    const uint64_t bound = 5000 + 30ull * (s.pixels + 256) * 256 / (256 - s.stall) + 100ull * s.latency;
    bool frame_given = false, frame_offered = false, beat_offered = false, b_offered = false, beats_end = false;
    uint64_t pixel = 0;
    uint32_t x = 0;
    for (uint64_t clock = 0; clock < bound; clock++) {
        m.start_i = clock == 0;
        m.address_i = s.address;
        m.capacity_i = s.capacity;
        m.planar_i = s.planar;
        m.shift_i = s.shift;
        m.awready_i = !stalled();
        m.wready_i = !stalled();
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
        if (!b_offered) b_offered = !answers.empty() && answers.front().due <= clock && !stalled();
        m.bvalid_i = b_offered;
        m.bresp_i = b_offered && answers.front().bad ? 2 : 0;
        bench.settle();
        if (clock > 1 && m.idle_o) {
            *outcome = {clock, m.status_o, m.width_o, m.height_o, m.bytes_o, m.bus_error_o, outcome->taken_by,
                        outcome->bursts};
            const bool rest = !addressed.empty() || !answers.empty() || !data.empty() || m.awvalid_o || m.wvalid_o;
            return rest || (frame_given && s.frame_status == 0 && !beats_end) ? PROTOCOL : NONE;
        }
        if (m.frame_valid_i && m.frame_ready_o) frame_given = true, frame_offered = false;
        if (m.sample_valid_i && m.sample_ready_o) {
            beat_offered = false;
            beats_end = last;
            if (pixels) pixel += two + 1, x += two + 1;
            if (x == s.width) x = 0;
            if (beats_end) outcome->taken_by = clock;
        }
        if (m.awvalid_o && m.awready_i) {
            const unsigned count = m.awlen_o + 1;
            const uint64_t from = m.awaddr_o, to = from + count * WORD_BYTES - 1;
            if (from % WORD_BYTES || from / PAGE_BYTES != to / PAGE_BYTES) return PROTOCOL;
            if (m.awsize_o != 4 || m.awburst_o != 1) return PROTOCOL;
            addressed.push_back({from, count});
            outcome->bursts++;
        }
        if (m.wvalid_o && m.wready_i) {
            std::array<uint8_t, 18> word;
            for (int i = 0; i < 4; i++) {
                const uint32_t part = m.wdata_o[i];
                std::memcpy(word.data() + 4 * i, &part, 4);
            }
            const uint16_t strobe = m.wstrb_o;
            std::memcpy(word.data() + 16, &strobe, 2);
            data.push_back({m.wlast_o, word});
        }
        while (!data.empty() && !addressed.empty()) {
            Burst& burst = addressed.front();
            const auto& [ends, word] = data.front();
            if (ends != (burst.beats == 1)) return PROTOCOL;
            const uint16_t strobe = static_cast<uint16_t>(word[16] | word[17] << 8);
            for (unsigned i = 0; i < WORD_BYTES; i++) {
                if (!(strobe >> i & 1)) continue;
                const uint64_t at = burst.address + i;
                if (at < base || at >= base + size) burst.bad = true;
                else memory[at - base] = word[i];
            }
            burst.address += WORD_BYTES;
            if (--burst.beats == 0) {
                burst.due = clock + 1 + s.latency;
                answers.push_back(burst);
                addressed.pop_front();
            }
            data.pop_front();
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
