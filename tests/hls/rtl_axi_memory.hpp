// What the benches of units with an AXI master share: what can go wrong, the rules of bursts, and a memory to write to.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>

#include "rtl_bench.hpp"

constexpr uint64_t WORD_BYTES = 16, PAGE_BYTES = 4096;

enum Fault : int { NONE = 0, HANG = 1, PROTOCOL = 2, ASSERTION = 3 };

/// One for all runs: what a run leaves behind is seen by the next. A failed assertion is told, not fatal.
template <class Model>
Bench<Model>& lasting_bench() {
    static auto* const bench = new Bench<Model>;  // never ends: it outlives everything at exit
    bench->context.fatalOnError(false);
    return *bench;
}

/// Whole words of `bytes`, all of them on one page.
inline bool lawful_burst(uint64_t address, unsigned beats, unsigned size, unsigned kind,
                         uint64_t bytes = WORD_BYTES) {
    const uint64_t last = address + beats * bytes - 1;
    const bool whole = address % bytes == 0 && uint64_t{1} << size == bytes;
    return whole && address / PAGE_BYTES == last / PAGE_BYTES && kind == 1;
}

/// `memory` lies at `base`. Writes beyond its `size` bytes end in SLVERR, responses come `latency` clocks after the last
/// word. Words may come before their address. Their size is that of the model's `wdata_o`.
class WriteMemory {
    static constexpr uint64_t MAX_WORD_BYTES = 32;
    struct Burst {
        uint64_t address;
        unsigned beats;
        bool bad = false;
        uint64_t due = 0;  // clock of the response
    };
    struct Word {
        bool last;
        uint32_t strobe;
        std::array<uint8_t, MAX_WORD_BYTES> data;
    };

    uint8_t* memory;
    uint64_t base, size, latency;
    std::deque<Burst> addressed, answers;  // awaiting data, awaiting their response
    std::deque<Word> words;                // that wait for their address
    bool answering = false;
    uint64_t answered = 0;

public:
    uint64_t bursts = 0, most_waiting = 0;  // all; for a response at the same time

    WriteMemory(uint8_t* memory, uint64_t base, uint64_t size, uint64_t latency)
        : memory(memory), base(base), size(size), latency(latency) {}

    /// The inputs of this clock. What was offered and not taken stays.
    template <class Model, class Stalled>
    void offer(Model& m, uint64_t clock, const Stalled& stalled) {
        m.awready_i = !stalled();
        m.wready_i = !stalled();
        answering = answering || (!answers.empty() && answers.front().due <= clock && !stalled());
        m.bvalid_i = answering;
        m.bresp_i = answering && answers.front().bad ? 2 : 0;
    }

    /// What is handed over in it. False: against the rules.
    template <class Model>
    bool take(const Model& m, uint64_t clock) {
        constexpr uint64_t bytes = sizeof m.wdata_o;
        if (m.awvalid_o && m.awready_i) {
            const unsigned beats = m.awlen_o + 1;
            if (!lawful_burst(m.awaddr_o, beats, m.awsize_o, m.awburst_o, bytes)) return false;
            addressed.push_back({m.awaddr_o, beats});
            most_waiting = std::max(most_waiting, ++bursts - answered);
        }
        if (m.wvalid_o && m.wready_i) {
            Word word{static_cast<bool>(m.wlast_o), m.wstrb_o, {}};
            for (unsigned i = 0; i < bytes / 4; i++) {
                const uint32_t part = m.wdata_o[i];
                std::memcpy(word.data.data() + 4 * i, &part, 4);
            }
            words.push_back(word);
        }
        for (; !words.empty() && !addressed.empty(); words.pop_front()) {
            if (words.front().last != (addressed.front().beats == 1)) return false;
            write(words.front(), bytes, clock);
        }
        if (m.bvalid_i && m.bready_o) {
            answers.pop_front();
            answered++;
            answering = false;
        }
        return true;
    }

    /// Nothing is under way.
    template <class Model>
    bool rests(const Model& m) const {
        return addressed.empty() && answers.empty() && words.empty() && !m.awvalid_o && !m.wvalid_o;
    }

private:
    void write(const Word& word, uint64_t bytes, uint64_t clock) {
        Burst& burst = addressed.front();
        for (unsigned i = 0; i < bytes; i++) {
            const uint64_t at = burst.address + i;
            if (!(word.strobe >> i & 1)) continue;
            if (at < base || at >= base + size) burst.bad = true;
            else memory[at - base] = word.data[i];
        }
        burst.address += bytes;
        if (--burst.beats != 0) return;
        burst.due = clock + 1 + latency;
        answers.push_back(burst);
        addressed.pop_front();
    }
};
