#define HEADRACE_WRITES
#include "rtl_axi_share.cpp"

/// A reset with a burst of each of `before` clients sent and not answered. Behind it a client writes a burst, while memory
/// answers one of the old ones every `every` clocks, or none of them if that is 0. `cycles`: from the reset to the address.
extern "C" int rtl_axi_write_share_reset(uint32_t before, uint32_t every, Outcome* outcome) {
    static auto* const bench = new Bench<Model>;  // not the other's: it is left where a fault was found
    bench->context.fatalOnError(false);
    Model& m = bench->model;
    m.awvalid_i = m.wvalid_i = m.bvalid_i = m.awready_i = m.wready_i = 0;
    m.wlast_i = (1u << CLIENTS) - 1;
    m.awlen_i = 0;
    // An address and its one word; the clocks until the address is shown.
    const auto send = [&](unsigned client, uint64_t answers) -> uint64_t {
        uint64_t clock = 0, sent = 0;
        m.awvalid_i = 1u << client;
        m.awready_i = m.wready_i = 1;
        for (; clock < 5000; clock++) {
            const bool answer = answers > sent && every && clock % every == every - 1;
            sent += answer;
            m.bvalid_i = answer;
            m.bid_i = answer ? (sent - 1) % CLIENTS : 0;
            bench->settle();
            if (m.bvalid_o) return ~0ull;
            const bool taken = m.awvalid_o;
            bench->edge();
            if (taken) break;
        }
        m.awvalid_i = m.bvalid_i = 0;
        m.wvalid_i = 1u << client;
        for (int i = 0; i < 10 && m.wvalid_i; i++) {
            bench->settle();
            const bool gone = m.wvalid_o;
            bench->edge();
            if (gone) m.wvalid_i = 0;
        }
        return m.wvalid_i || sent != answers ? ~0ull : clock;
    };
    for (unsigned i = 0; i < before; i++) {
        if (send(i % CLIENTS, 0) > 10) return PROTOCOL;
    }
    m.rst_ni = 0;
    bench->clock();
    m.rst_ni = 1;
    outcome->cycles = send(CLIENTS - 1, every ? before : 0);
    if (outcome->cycles == ~0ull) return PROTOCOL;
    if (outcome->cycles >= 5000) return HANG;
    m.bvalid_i = 1;
    m.bid_i = CLIENTS - 1;
    bench->settle();
    const bool told = m.bvalid_o == 1u << (CLIENTS - 1);
    bench->edge();
    m.bvalid_i = 0;
    if (bench->context.gotError()) return ASSERTION;
    return told ? NONE : PROTOCOL;
}
