// Test bench of hls/rtl/axi/axi_read_upsize.sv: random bursts of three readers, and a memory of words of 32 bytes that
// answers different readers in any order, beat by beat.
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>

#include "Vaxi_read_upsize.h"
#include "rtl_axi_memory.hpp"

namespace {

constexpr uint64_t WIDE = 32;
constexpr unsigned IDS = 3;

struct Burst {
    uint64_t address;
    unsigned words;
};

}  // namespace

/// `count` bursts of words of 16 bytes out of `memory`, which lies at 0 and has `size` bytes. `stall` of 256: how often a
/// side pauses. `reset_at`: bursts that memory has taken when a reset comes, of the memory as well if `forgets`; 0: none.
/// `clocks`: those of the run, and from the reset to the first address after it.
extern "C" int rtl_axi_read_upsize(const uint8_t* memory, uint64_t size, uint64_t count, uint32_t stall, uint32_t seed,
                                   uint64_t reset_at, uint32_t forgets, uint64_t* clocks, uint64_t* silent) {
    auto& bench = lasting_bench<Vaxi_read_upsize>();
    Vaxi_read_upsize& m = bench.model;
    Random random(seed);
    for (int i = 0; i < 20; i++) random();
    const auto stalled = [&] { return (random() & 255) < stall; };
    uint64_t asked = 0, owed = 0, shown_at = 0;
    bool asking = false;
    unsigned id = 0, resetting = 0;
    Burst burst{};
    std::array<std::deque<Burst>, IDS> wanted, served;  // by the readers; by memory, in its own words
    int answering = -1;
    *silent = 0;
    for (*clocks = 0; *clocks < 5000 + 3000 * count; ++*clocks) {
        if (!asking && asked < count && !resetting && !stalled()) {
            asking = true;
            id = random() % IDS;
            const uint64_t page = random() % (size / PAGE_BYTES) * PAGE_BYTES, first = random() % 256;
            const unsigned most = random() % 2 ? 2 : 64;
            burst = {page + WORD_BYTES * first, 1 + random() % most};
            if (first + burst.words > 256) burst.words = 256 - first;
        }
        m.arvalid_i = asking;
        m.arid_i = id, m.araddr_i = burst.address, m.arlen_i = burst.words - 1;
        m.arready_i = !stalled();
        for (unsigned k = random() % IDS, n = 0; answering < 0 && n < IDS; n++, k = (k + 1) % IDS) {
            if (!served[k].empty() && !stalled()) answering = static_cast<int>(k);
        }
        m.rvalid_i = answering >= 0;
        if (answering >= 0) {
            const Burst& beat = served[answering].front();
            m.rid_i = answering;
            m.rlast_i = beat.words == 1;
            std::memcpy(&m.rdata_i, memory + beat.address, WIDE);
        }
        bench.settle();
        if (m.rvalid_o) {
            auto& mine = wanted[answering];
            if (mine.empty()) return PROTOCOL;
            Burst& word = mine.front();
            if (std::memcmp(&m.rdata_o, memory + word.address, WORD_BYTES) != 0) return PROTOCOL;
            if (m.rlast_o != (word.words == 1)) return PROTOCOL;
            word.address += WORD_BYTES;
            owed--;
            if (--word.words == 0) mine.pop_front();
        }
        if (m.rvalid_i && m.rready_o) {
            auto& mine = served[answering];
            mine.front().address += WIDE;
            if (--mine.front().words == 0) mine.pop_front();
            answering = -1;
        }
        const bool taken = m.arvalid_o && m.arready_i;
        if (taken != (m.arvalid_i && m.arready_o)) return PROTOCOL;
        if (taken) {
            if (!lawful_burst(m.araddr_o, m.arlen_o + 1u, 5, 1, WIDE)) return PROTOCOL;
            if (shown_at && !*silent) *silent = *clocks - shown_at;
            wanted[id].push_back(burst);
            served[id].push_back({m.araddr_o, m.arlen_o + 1u});
            owed += burst.words;
            asking = false;
            asked++;
        }
        bench.edge();
        if (!m.rst_ni && --resetting == 0) m.rst_ni = 1;
        if (reset_at && asked == reset_at && !shown_at) {
            m.rst_ni = 0;
            resetting = 4;
            asking = false;
            if (forgets) {
                for (unsigned i = 0; i < IDS; i++) wanted[i].clear(), served[i].clear();
                owed = 0, answering = -1;
            }
            shown_at = *clocks;
        }
        if (bench.context.gotError()) return ASSERTION;
        if (asked == count && owed == 0) return NONE;
    }
    return HANG;
}
