// What the benches of Verilated units share: a model that lives as long as its library, so that each call is also a
// request after another one, and streams that pause at random.
#pragma once

#include <cstdint>
#include <cstring>

#include <verilated.h>

constexpr int BROKEN = 255, TIMEOUT = 254;

struct Random {
    uint64_t state;
    explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15u + 1) {}
    uint32_t operator()() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return static_cast<uint32_t>(state >> 32);
    }
};

// Whether a stream goes on in this clock: always, or at a random rate if it stalls.
class Pace {
    Random& random;
    uint32_t rate;  // of 2^32

public:
    Pace(Random& random, bool stalls) : random(random), rate(stalls ? (random() | 0x20000000) : 0) {}
    bool operator()() { return rate == 0 || random() <= rate; }
};

// A beat of headrace_pkg.sv: a port's pixels, and those behind them are not there.
struct Beat {
    static constexpr unsigned MOST = 4;  // pixels
    uint32_t pixel[MOST] = {};
    unsigned keep = 0, last = 0, status = 0;
};

// The number of pixels in a beat of that port.
template <class Port>
constexpr unsigned lanes_of = sizeof(Port) == 8 ? 2 : Beat::MOST;

// The fields of a port, the last one lowest: status, last, keep, pixels.
template <class Port>
Beat beat_at(const Port& port) {
    uint64_t words[3] = {};
    std::memcpy(words, &port, sizeof port);
    const auto bits = [&](unsigned at, unsigned width) {
        const uint64_t upper = at % 64 ? words[at / 64 + 1] << (64 - at % 64) : 0;
        return static_cast<unsigned>((words[at / 64] >> at % 64 | upper) & ((uint64_t{1} << width) - 1));
    };
    constexpr unsigned lanes = lanes_of<Port>;
    Beat beat{.keep = bits(9, lanes), .last = bits(8, 1), .status = bits(0, 8)};
    for (unsigned i = 0; i < lanes; i++) beat.pixel[i] = bits(9 + lanes + 24 * i, 24);
    return beat;
}

template <class Port>
void put_beat(Port& port, const Beat& beat) {
    constexpr unsigned lanes = lanes_of<Port>;
    unsigned __int128 bits = beat.status | beat.last << 8 | beat.keep << 9;
    for (unsigned i = 0; i < lanes; i++) bits |= static_cast<unsigned __int128>(beat.pixel[i]) << (9 + lanes + 24 * i);
    std::memcpy(&port, &bits, sizeof port);
}

template <class Model>
class Bench {
    // Registers, memories and inputs begin with random values.
    static VerilatedContext* randomised(VerilatedContext& context) {
        context.randReset(2);
        context.randSeed(1);
        return &context;
    }

public:
    VerilatedContext context;
    Model model{randomised(context)};
    uint64_t cycles = 0;

    Bench() { reset(); }
    // Also in the middle of a request: whatever was under way is lost.
    void reset() {
        model.rst_ni = 0;
        for (int i = 0; i < 4; i++) clock();
        model.rst_ni = 1;
    }
    // The first half lets outputs follow the inputs, the second is the clock's edge.
    void settle() {
        model.clk_i = 0;
        model.eval();
    }
    void edge() {
        model.clk_i = 1;
        model.eval();
        context.timeInc(1);
        cycles++;
    }
    void clock() {
        settle();
        edge();
    }
};
