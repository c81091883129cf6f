// The workspace of the benches: a memory that reads as early and writes as late as AXI lets it, and knows only whole words
// that lie in it.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

class Workspace {
    static constexpr uint64_t WORD = 16, PAGE = 4096;
    struct Word {
        uint32_t part[4];
    };
    struct Burst {
        uint64_t at, words;
        uint64_t due;             // clock of its first data or of its response
        std::vector<Word> data;
    };
    std::vector<Word> words_;
    std::deque<Burst> reads_, writes_, answers_;
    uint64_t latency_, error_after_;
    bool takes_writes_;

    // Words from an address, or false.
    bool place(uint64_t address, uint64_t count, uint64_t& at) const {
        at = (address - BASE) / WORD;
        return address % WORD == 0 && address >= BASE && at + count <= words_.size() &&
               address % PAGE + count * WORD <= PAGE;
    }

public:
    static constexpr uint64_t BASE = 0xFFFF'DF80;  // aligned to a block, and blocks lie on both sides of 4 GiB
    uint64_t read_words = 0, written_words = 0;

    // What it holds before does not matter. From word number `error_after` on it answers with errors, with `takes_writes` those that are read.
    Workspace(uint64_t bytes, uint64_t latency, uint64_t error_after, uint32_t seed, bool takes_writes = false)
        : words_(bytes / WORD), latency_(latency), error_after_(error_after), takes_writes_(takes_writes) {
        std::minstd_rand random(seed + 1);
        for (auto& word : words_) {
            for (auto& part : word.part) part = random();
        }
    }

    uint32_t part(uint64_t word, unsigned number) const { return words_[word].part[number]; }
    bool reading() const { return !reads_.empty(); }
    bool rests() const { return reads_.empty() && writes_.empty() && answers_.empty(); }
    // With the interconnect: bursts whose data is missing are lost.
    void reset_writes() {
        writes_.clear();
        answers_.clear();
    }
    void reset_reads() { reads_.clear(); }

    // The inputs of this clock.
    template <class Model, class Pauses>
    void offer(Model& m, uint64_t clock, const Pauses& pauses) const {
        m.arready_i = !pauses();
        m.awready_i = !pauses();
        m.wready_i = !writes_.empty() && !pauses();
        m.rvalid_i = !reads_.empty() && reads_.front().due <= clock && !pauses();
        if (m.rvalid_i) {
            const Burst& burst = reads_.front();
            std::memcpy(&m.rdata_i, &burst.data[burst.at], WORD);
            m.rresp_i = read_words >= error_after_ ? 2 : 0;
            if constexpr (requires { m.rlast_i; }) m.rlast_i = burst.at + 1 == burst.words;
        }
        m.bvalid_i = !answers_.empty() && answers_.front().due <= clock && !pauses();
        m.bresp_i = written_words >= error_after_ && !takes_writes_ ? 2 : 0;
    }

    // What is handed over in it. False for an access that should not have been made.
    template <class Model>
    bool take(const Model& m, uint64_t clock) {
        uint64_t at;
        if (m.rvalid_i) {
            read_words++;
            if (++reads_.front().at == reads_.front().words) reads_.pop_front();
        }
        if (m.bvalid_i) {  // only now it may be seen
            const Burst& burst = answers_.front();
            for (uint64_t i = 0; i < burst.words; i++) words_[burst.at + i] = burst.data[i];
            answers_.pop_front();
        }
        if (m.arvalid_o && m.arready_i) {
            const uint64_t count = m.arlen_o + 1u;
            if (!place(m.araddr_o, count, at)) return false;
            reads_.push_back({0, count, clock + latency_, {words_.begin() + at, words_.begin() + at + count}});
        }
        if (m.wvalid_o && m.wready_i) {
            Burst& burst = writes_.front();
            Word word;
            std::memcpy(&word, &m.wdata_o, WORD);
            burst.data.push_back(word);
            written_words++;
            if ((burst.data.size() == burst.words) != m.wlast_o || m.wstrb_o != 0xFFFF) return false;
            if (m.wlast_o) {
                burst.due = clock + latency_;
                answers_.push_back(burst);
                writes_.pop_front();
            }
        }
        if (m.awvalid_o && m.awready_i) {
            const uint64_t count = m.awlen_o + 1u;
            if (!place(m.awaddr_o, count, at)) return false;
            writes_.push_back({at, count, 0, {}});
        }
        return true;
    }
};
