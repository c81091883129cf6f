// Test bench of hls/rtl/axi/axi_write_upsize.sv: random bursts of a writer, whose data waits for its address, and a memory
// that takes words of 32 bytes.
#include <cstdint>
#include <cstring>
#include <deque>

#include "Vaxi_write_upsize.h"
#include "rtl_axi_memory.hpp"

namespace {

constexpr uint64_t WIDE = 32;

struct Burst {
    uint64_t address;
    unsigned words;
};

}  // namespace

/// `count` bursts at `addresses`, of so many `words` of 16 bytes. `data` and `strobes` (a byte for each byte, 0 or 1) are
/// those of all words in order. Bytes with a strobe go to `memory`, which lies at 0. `stall` of 256: how often a side
/// pauses. `clocks`: those of the run.
extern "C" int rtl_axi_write_upsize(const uint64_t* addresses, const uint32_t* words, uint64_t count, const uint8_t* data,
                                    const uint8_t* strobes, uint8_t* memory, uint64_t size, uint32_t stall, uint32_t seed,
                                    uint64_t* clocks) {
    auto& bench = lasting_bench<Vaxi_write_upsize>();
    Vaxi_write_upsize& m = bench.model;
    Random random(seed);
    for (int i = 0; i < 20; i++) random();
    const auto stalled = [&] { return (random() & 255) < stall; };
    uint64_t asked = 0, sent = 0, at = 0, total = 0;  // bursts; and words
    for (uint64_t i = 0; i < count; i++) total += words[i];
    unsigned word = 0;  // of burst number `sent`
    bool asking = false, showing = false;
    std::deque<Burst> taken;  // wide ones, whose data is not complete
    for (*clocks = 0; *clocks < 1000 + 300 * total; ++*clocks) {
        asking = asking || (asked < count && !stalled());
        m.awvalid_i = asking;
        if (asking) m.awaddr_i = addresses[asked], m.awlen_i = words[asked] - 1;
        showing = showing || (at < total && !stalled());
        m.wvalid_i = showing;
        if (showing) {
            std::memcpy(&m.wdata_i, data + WORD_BYTES * at, WORD_BYTES);
            m.wstrb_i = 0;
            for (unsigned i = 0; i < WORD_BYTES; i++) m.wstrb_i |= strobes[WORD_BYTES * at + i] << i;
            m.wlast_i = word + 1 == words[sent];
        }
        m.awready_i = taken.size() < 8 && !stalled();
        m.wready_i = !taken.empty() && !stalled();
        bench.settle();
        if (m.wvalid_o && m.wready_i) {
            Burst& burst = taken.front();
            for (unsigned i = 0; i < WIDE; i++) {
                if (!(m.wstrb_o >> i & 1)) continue;
                if (burst.address + i >= size) return PROTOCOL;
                memory[burst.address + i] = m.wdata_o[i / 4] >> 8 * (i % 4);
            }
            burst.address += WIDE;
            if (m.wlast_o != (--burst.words == 0)) return PROTOCOL;
            if (m.wlast_o) taken.pop_front();
        }
        if (m.awvalid_o && m.awready_i) {
            if (!lawful_burst(m.awaddr_o, m.awlen_o + 1u, 5, 1, WIDE)) return PROTOCOL;
            taken.push_back({m.awaddr_o, m.awlen_o + 1u});
        }
        if (m.wvalid_i && m.wready_o) {
            if (sent == asked) return PROTOCOL;  // a word before its address
            showing = false;
            at++;
            if (++word == words[sent]) word = 0, sent++;
        }
        if (m.awvalid_i && m.awready_o) asking = false, asked++;
        bench.edge();
        if (bench.context.gotError()) return ASSERTION;
        if (at == total && asked == count) return taken.empty() ? NONE : PROTOCOL;
    }
    return HANG;
}
