// The stream contract of the audio units.
//
// For each request a unit receives exactly one Sound and, if its status is STATUS_OK, exactly `count` values; if not,
// nothing, and it passes the status on. Counts are known before the first value, so there is no `last`, and nothing goes
// wrong in mid-stream.
#pragma once

#include <ap_int.h>
#include <hls_stream.h>

#include "headrace/status.hpp"

namespace headrace {

// In the order of their indices.
constexpr unsigned SOUND_RATES = 8;
constexpr uint32_t SOUND_RATE[SOUND_RATES] = {8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000};
constexpr unsigned RATE_16000 = 2;
constexpr uint32_t MAX_FRAMES = 65535;  // of 160 samples at 16 kHz

struct Sound {
    Status status;       // not STATUS_OK: no values follow
    ap_uint<3> rate;     // of the file, index into SOUND_RATE
    ap_uint<32> count;   // values that follow; frames behind mel
};

using Pcm = ap_int<17>;     // LSB 2^-16: a 16-bit sample twice, or the sum of two channels
using Sample16k = ap_int<24>;  // LSB 2^-21
using LogMel = ap_int<24>;  // LSB 2^-18, natural logarithm

}  // namespace headrace
