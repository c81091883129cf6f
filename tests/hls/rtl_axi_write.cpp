// Test bench of hls/rtl/axi_write.sv: commands and words with random stalls, a memory with latency and a bad range.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "Vaxi_write.h"
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

Bench<Vaxi_write>& ready() {  // one for all runs: what a run leaves behind is seen by the next
    static auto* const bench = new Bench<Vaxi_write>;  // never ends: it outlives everything at exit
    bench->context.fatalOnError(false);
    return *bench;
}

}  // namespace

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
    Bench<Vaxi_write>& bench = ready();
    Vaxi_write& m = bench.model;
    std::mt19937 random(seed);
    const auto stalled = [&] { return (random() & 255) < stall; };
    std::deque<Burst> addressed, answers;  // awaiting data, awaiting their response
    std::deque<std::pair<bool, std::array<uint8_t, WORD_BYTES>>> words;  // that came before their address
    *outcome = Outcome{};
    uint64_t total = 0, command = 0, given = 0, answered = 0;
    for (uint64_t i = 0; i < count; i++) total += commands[i].words;
    const uint64_t bound = 5000 + 30 * (total + 64 * count) * 256 / (256 - stall) + 100ull * latency * (count + 1);
    bool command_offered = false, word_offered = false, b_offered = false, within = false;
    for (uint64_t clock = 0; clock < bound; clock++) {
        m.clear_i = clock == 0;
        m.awready_i = !stalled();
        m.wready_i = !stalled();
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
        if (!b_offered) b_offered = !answers.empty() && answers.front().due <= clock && !stalled();
        m.bvalid_i = b_offered;
        m.bresp_i = b_offered && answers.front().bad ? 2 : 0;
        bench.settle();
        if (clock > 1 && m.idle_o && command == count) {
            outcome->cycles = clock;
            outcome->bus_error = m.bus_error_o;
            const bool rest = !addressed.empty() || !answers.empty() || !words.empty() || m.awvalid_o || m.wvalid_o;
            return rest || given != total ? PROTOCOL : NONE;
        }
        if (m.command_valid_i && m.command_ready_o) command++, command_offered = false;
        if (m.word_valid_i && m.word_ready_o) given++, word_offered = false;
        if (m.awvalid_o && m.awready_i) {
            const unsigned beats = m.awlen_o + 1;
            const uint64_t from = m.awaddr_o, to = from + beats * WORD_BYTES - 1;
            if (from % WORD_BYTES || from / PAGE_BYTES != to / PAGE_BYTES) return PROTOCOL;
            if (m.awsize_o != 4 || m.awburst_o != 1) return PROTOCOL;
            addressed.push_back({from, beats});
            outcome->bursts++;
            outcome->most_waiting = std::max(outcome->most_waiting, outcome->bursts - answered);
        }
        outcome->held += within && !m.wvalid_o;
        if (m.wvalid_o && m.wready_i) {
            std::array<uint8_t, WORD_BYTES> word;
            for (int i = 0; i < 4; i++) {
                const uint32_t part = m.wdata_o[i];
                std::memcpy(word.data() + 4 * i, &part, 4);
            }
            if (m.wstrb_o != 0xFFFF) return PROTOCOL;
            words.push_back({m.wlast_o, word});
            within = !m.wlast_o;
        }
        while (!words.empty() && !addressed.empty()) {
            Burst& burst = addressed.front();
            if (words.front().first != (burst.beats == 1)) return PROTOCOL;
            if (burst.address < base || burst.address + WORD_BYTES > base + size) burst.bad = true;
            else std::memcpy(memory + (burst.address - base), words.front().second.data(), WORD_BYTES);
            burst.address += WORD_BYTES;
            if (--burst.beats == 0) {
                burst.due = clock + 1 + latency;
                answers.push_back(burst);
                addressed.pop_front();
            }
            words.pop_front();
        }
        if (b_offered && m.bready_o) {
            answers.pop_front();
            answered++;
            b_offered = false;
        }
        bench.edge();
        if (bench.context.gotError()) return ASSERTION;
    }
    return HANG;
}
