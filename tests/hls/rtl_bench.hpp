// What the benches of Verilated units share: a model that lives as long as its library, so that each call is also a
// request after another one, and streams that pause at random.
#pragma once

#include <cstdint>

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
