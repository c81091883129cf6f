// Resample: a sound at one of eight rates to 16 kHz, by a polyphase FIR.
//
// Reference   taps() of host/dpu/reference/resampling.py, rounded to 24 bits: output m is the sum over inputs i, 0 beyond both
//             ends, of x[i] * h[half + m * down - i * up]. At 16 kHz the samples as they are.
// Interface   sound and samples in and out; ceil(count * 16000 / rate) come out. The taps of the request's rate, loaded
//             before, as taps_table of host/dpu/units/audio_tables.py lays them out.
// Arithmetic  x Q0.16 in 17 bits, taps Q0.23, sums exact with 39 fraction bits, rounded once (half up) to Q2.21. The
//             taps' gain is below 2.56, so nothing is clipped.
// Method      a transposed FIR: TAP_LANES accumulators, each that of an output under way. An input is multiplied by one
//             word of taps, a tap for each; when the oldest output is complete, all move on by a lane. At 8 and
//             11.025 kHz, twice as many outputs overlap: even and odd ones take turns, in two passes for each input.
// Throughput  one input sample a clock; one in two clocks at 8 and 11.025 kHz.
// Latency     the filter's: an output needs inputs TAP_LANES / 2 outputs ahead (twice that with two passes).
// Memory      882 words of 88 taps at most.
// Bad input   there is none; upstream errors pass.
#pragma once

#include "headrace/sound_stream.hpp"

namespace headrace {

constexpr unsigned TAP_LANES = 88;
constexpr unsigned TAP_WORDS = 1024;

using Tap = ap_int<24>;  // LSB 2^-23

// Takes the table of `rate` from memory's words, each four taps of 32 bits; nothing at 16 kHz.
void load_taps(hls::stream<ap_uint<128>>& words, ap_uint<3> rate, Tap taps[TAP_WORDS][TAP_LANES]);

void resample(hls::stream<Sound>& sounds, hls::stream<Pcm>& pcm, const Tap taps[TAP_WORDS][TAP_LANES],
              hls::stream<Sound>& out_sounds, hls::stream<Sample16k>& samples);

}  // namespace headrace
