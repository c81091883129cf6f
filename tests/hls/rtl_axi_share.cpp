// Test bench of hls/rtl/axi/axi_read_share.sv and axi_write_share.sv: clients with random bursts, and a memory that answers
// those of different clients in any order. HEADRACE_WRITES chooses which.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>

#ifdef HEADRACE_WRITES
#include "Vaxi_write_share.h"
using Model = Vaxi_write_share;
#else
#include "Vaxi_read_share.h"
using Model = Vaxi_read_share;
#endif
#include "rtl_bench.hpp"

namespace {

constexpr unsigned CLIENTS = 3;
enum Fault : int { NONE = 0, HANG = 1, PROTOCOL = 2, ASSERTION = 3 };

Bench<Model>& ready() {
    static auto* const bench = new Bench<Model>;  // never ends: it outlives everything at exit
    bench->context.fatalOnError(false);
    return *bench;
}

struct Address {
    uint64_t address;
    unsigned beats;
    bool operator==(const Address&) const = default;
};

struct Client {
    uint32_t left;               // bursts not yet begun
    bool asking = false;         // shows an address
    Address burst{};
    std::deque<Address> granted; // addresses that memory took and did not answer
    std::deque<Address> data;    // writes: bursts whose data is not all gone; the first may be without a granted address
    unsigned beat = 0;           // of data's first
    bool showing = false;        // writes: shows data
    uint32_t passed_over = 0;    // addresses of others taken while this one waited
};

}  // namespace

struct Outcome {
    uint64_t cycles, most_passed_over;
};

/// `bursts` of each client. `stall` of 256: how often memory, and a client that could go on, hangs back. With `only` below 3
/// just that client has bursts.
extern "C" int rtl_axi_share(uint32_t bursts, uint32_t stall, uint32_t only, uint32_t seed, Outcome* outcome) {
    Bench<Model>& bench = ready();
    Model& m = bench.model;
    Random random(seed);
    for (int i = 0; i < 20; i++) random();
    const auto stalled = [&] { return (random() & 255) < stall; };
    std::array<Client, CLIENTS> clients;
    for (unsigned i = 0; i < CLIENTS; i++) clients[i] = Client{only >= CLIENTS || only == i ? bursts : 0};
    *outcome = Outcome{};
    int answering = -1;  // the client whose answer is shown: a beat, or a response
#ifdef HEADRACE_WRITES
    std::deque<unsigned> order;  // whose data comes next
    std::array<uint32_t, CLIENTS> answerable{};
#endif
    for (uint64_t clock = 0; clock < 1000 + 100ull * bursts * CLIENTS * 256 / (256 - stall) * 4; clock++) {
        uint32_t valid = 0;
        for (unsigned i = 0; i < CLIENTS; i++) {
            Client& c = clients[i];
            if (!c.asking && c.left && !stalled()) {
                c.asking = true;
                c.left--;
                c.burst = {static_cast<uint64_t>(random()) << 32 | random(), 1 + random() % 16};
                c.data.push_back(c.burst);
            }
            valid |= static_cast<uint32_t>(c.asking) << i;
#ifdef HEADRACE_WRITES
            m.awaddr_i[2 * i] = static_cast<uint32_t>(c.burst.address);
            m.awaddr_i[2 * i + 1] = c.burst.address >> 32;
            m.awlen_i = (m.awlen_i & ~(0xFFu << 8 * i)) | (c.burst.beats - 1) << 8 * i;
            if (!c.showing) c.showing = !c.data.empty() && !stalled();
            // What a word says: whose it is, of which burst and which of its beats.
            const Address of = c.data.empty() ? Address{} : c.data.front();
            m.wdata_i[4 * i] = i;
            m.wdata_i[4 * i + 1] = c.beat;
            m.wdata_i[4 * i + 2] = static_cast<uint32_t>(of.address);
            m.wdata_i[4 * i + 3] = of.address >> 32;
            m.wstrb_i = (m.wstrb_i & ~(0xFFFFull << 16 * i)) | (of.address & 0xFFFF) << 16 * i;
            m.wvalid_i = (m.wvalid_i & ~(1u << i)) | static_cast<unsigned>(c.showing) << i;
            m.wlast_i = (m.wlast_i & ~(1u << i)) | static_cast<unsigned>(c.beat + 1 == of.beats) << i;
#else
            m.araddr_i[2 * i] = static_cast<uint32_t>(c.burst.address);
            m.araddr_i[2 * i + 1] = c.burst.address >> 32;
            m.arlen_i = (m.arlen_i & ~(0xFFu << 8 * i)) | (c.burst.beats - 1) << 8 * i;
#endif
        }
        // Memory answers any client that it owes something.
        if (answering < 0 && !stalled()) {
            const unsigned first = random() % CLIENTS;
            for (unsigned k = 0; k < CLIENTS && answering < 0; k++) {
                const unsigned i = (first + k) % CLIENTS;
#ifdef HEADRACE_WRITES
                if (answerable[i]) answering = static_cast<int>(i);
#else
                if (!clients[i].granted.empty()) answering = static_cast<int>(i);
#endif
            }
        }
        const unsigned id = answering < 0 ? random() % CLIENTS : static_cast<unsigned>(answering);
        const uint32_t expected = answering < 0 ? 0 : 1u << id;
#ifdef HEADRACE_WRITES
        m.awvalid_i = valid;
        m.awready_i = !stalled();
        m.wready_i = !order.empty() && !stalled();
        m.bid_i = id;
        m.bvalid_i = answering >= 0;
        bench.settle();
        if (m.bvalid_o != expected) return PROTOCOL;
        const bool taken = m.awvalid_o && m.awready_i;
        const unsigned whose = m.awid_o;
        const Address shown{m.awaddr_o, m.awlen_o + 1u};
        const uint32_t grants = m.awready_o & valid;
#else
        m.arvalid_i = valid;
        m.arready_i = !stalled();
        m.rid_i = id;
        m.rvalid_i = answering >= 0;
        bench.settle();
        if (m.rvalid_o != expected) return PROTOCOL;
        const bool taken = m.arvalid_o && m.arready_i;
        const unsigned whose = m.arid_o;
        const Address shown{m.araddr_o, m.arlen_o + 1u};
        const uint32_t grants = m.arready_o & valid;
#endif
        if (taken) {
            if (whose >= CLIENTS || grants != 1u << whose || !(shown == clients[whose].burst)) return PROTOCOL;
        } else if (grants) {
            return PROTOCOL;
        }
#ifdef HEADRACE_WRITES
        if (m.wvalid_o && m.wready_i) {
            const unsigned i = order.front();
            Client& c = clients[i];
            const Address of = c.granted.front();
            const uint64_t says = m.wdata_o[2] | static_cast<uint64_t>(m.wdata_o[3]) << 32;
            if (m.wdata_o[0] != i || m.wdata_o[1] != c.beat || says != of.address) return PROTOCOL;
            if (m.wstrb_o != (of.address & 0xFFFF) || m.wlast_o != (c.beat + 1 == of.beats)) return PROTOCOL;
            if (m.wready_o != 1u << i) return PROTOCOL;
            c.showing = false;
            if (++c.beat == of.beats) {
                c.beat = 0;
                c.data.pop_front();
                c.granted.pop_front();
                order.pop_front();
                answerable[i]++;
            }
        } else if (m.wready_o & m.wvalid_i) {
            return PROTOCOL;
        }
        if (answering >= 0) {
            answerable[id]--;
            answering = -1;
        }
        if (taken) order.push_back(whose);
#else
        if (answering >= 0) {
            Client& c = clients[id];
            if (--c.granted.front().beats == 0) c.granted.pop_front();
            answering = -1;
        }
#endif
        if (taken) {
            for (unsigned i = 0; i < CLIENTS; i++) {
                Client& c = clients[i];
                if (i != whose && c.asking) c.passed_over++;
                outcome->most_passed_over = std::max<uint64_t>(outcome->most_passed_over, c.passed_over);
            }
            Client& c = clients[whose];
            c.granted.push_back(c.burst);
            c.asking = false;
            c.passed_over = 0;
        }
        bench.edge();
        if (bench.context.gotError()) return ASSERTION;
        bool over = true;
        for (const Client& c : clients) over &= !c.left && !c.asking && c.granted.empty();
#ifdef HEADRACE_WRITES
        for (const uint32_t owed : answerable) over &= !owed;
#endif
        outcome->cycles = clock + 1;
        if (over) return NONE;
    }
    return HANG;
}
