// A word of memory, 128 bits, and its halves.
//
// What is synthesised is the vendor's concatenation and ranges. C simulation copies the halves, which lie in an ap_uint
// in just this order: the same word in a sixth of the time, and there are 38,000 in a tensor.
#pragma once

#include <cstdint>
#include <cstring>

#include "ap_int.h"

namespace headrace {

struct Halves {
    uint64_t low, high;
};

inline ap_uint<128> word_of(const Halves& halves) {
#pragma HLS INLINE
#ifdef __SYNTHESIS__
    return (ap_uint<64>(halves.high), ap_uint<64>(halves.low));
#else
    ap_uint<128> word = 0;
    static_assert(sizeof word == sizeof halves, "C simulation on another ap_uint");
    std::memcpy(static_cast<void*>(&word), &halves, sizeof halves);
    return word;
#endif
}

inline Halves halves_of(const ap_uint<128>& word) {
#pragma HLS INLINE
#ifdef __SYNTHESIS__
    return {word.range(63, 0).to_uint64(), word.range(127, 64).to_uint64()};
#else
    Halves halves;
    std::memcpy(&halves, static_cast<const void*>(&word), sizeof halves);
    return halves;
#endif
}

}  // namespace headrace
