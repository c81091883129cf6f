// Test bench of hls/rtl/axi/axi_write.sv: commands and words with random stalls, a memory with latency and a bad range.
#include <cstdint>
#include <cstring>
#include <random>

#include "Vaxi_write.h"
#include "rtl_axi_memory.hpp"

struct Command {
    uint64_t address, words;
};

struct Outcome {
    uint64_t cycles, bus_error, bursts, most_waiting, held;  // most_waiting: bursts for a response; held: clocks in which W had nothing within a burst
};

/// The words of `count` commands are `data`, in order. `memory` lies at `base`; writes beyond its `size` bytes end in
/// SLVERR. `stall` of 256: how often each side is not ready or has nothing; `late`: commands come after all the words
/// that fit, else with them.
extern "C" int rtl_axi_write(const Command* commands, uint64_t count, const uint8_t* data, uint8_t* memory,
                             uint64_t base, uint64_t size, uint32_t latency, uint32_t stall, uint32_t late,
                             uint32_t seed, Outcome* outcome) {
    Bench<Vaxi_write>& bench = lasting_bench<Vaxi_write>();
    Vaxi_write& m = bench.model;
    std::mt19937 random(seed);
    const auto stalled = [&] { return (random() & 255) < stall; };
    WriteMemory behind(memory, base, size, latency);
    *outcome = Outcome{};
    uint64_t total = 0, command = 0, given = 0;
    for (uint64_t i = 0; i < count; i++) total += commands[i].words;
    const uint64_t bound = 5000 + 30 * (total + 64 * count) * 256 / (256 - stall) + 100ull * latency * (count + 1);
    bool command_offered = false, word_offered = false, within = false;
    for (uint64_t clock = 0; clock < bound; clock++) {
        m.clear_i = clock == 0;
        behind.offer(m, clock, stalled);
        command_offered = clock > late && command < count && (command_offered || !stalled());
        m.command_valid_i = command_offered;
        if (command_offered) m.address_i = commands[command].address, m.words_i = commands[command].words;
        word_offered = clock > 0 && given < total && (word_offered || !stalled());
        m.word_valid_i = word_offered;
        if (word_offered) {
            for (int i = 0; i < 4; i++) {
                uint32_t part;
                std::memcpy(&part, data + WORD_BYTES * given + 4 * i, 4);
                m.word_i[i] = part;
            }
        }
        bench.settle();
        if (clock > 1 && m.idle_o && command == count) {
            outcome->cycles = clock;
            outcome->bus_error = m.bus_error_o;
            outcome->bursts = behind.bursts;
            outcome->most_waiting = behind.most_waiting;
            return !behind.rests(m) || given != total ? PROTOCOL : NONE;
        }
        if (m.command_valid_i && m.command_ready_o) command++, command_offered = false;
        if (m.word_valid_i && m.word_ready_o) given++, word_offered = false;
        outcome->held += within && !m.wvalid_o;
        if (m.wvalid_o && m.wready_i) {
            if (m.wstrb_o != 0xFFFF) return PROTOCOL;
            within = !m.wlast_o;
        }
        if (!behind.take(m, clock)) return PROTOCOL;
        bench.edge();
        if (bench.context.gotError()) return ASSERTION;
    }
    return HANG;
}
