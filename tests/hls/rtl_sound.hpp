// The sound that units of audio hand on, as the benches of their RTL see it.
#pragma once

#include <cstdint>

#include "rtl_bench.hpp"

// A sound_t in 43 bits.
struct SoundBits {
    uint32_t status, rate, count;
    explicit SoundBits(uint64_t bits) : status(bits >> 35 & 0xFF), rate(bits >> 32 & 7), count(bits & 0xFFFFFFFF) {}
    SoundBits(uint32_t status, uint32_t rate, uint32_t count) : status(status), rate(rate), count(count) {}
    uint64_t bits() const { return uint64_t(status) << 35 | uint64_t(rate) << 32 | count; }
};
