// Mel: 16 kHz samples to the logarithm of a mel spectrogram.
//
// Reference   log_mel() of host/dpu/reference/audio.py in float64: pre-emphasis, frames of 512 or 400 samples at every
//             160th one, a window of 400 in their middle, real DFT, power, mel filters, ln(x + floor) or
//             max(ln(x), floor). Kaldi's frames lose the mean of their 400 samples and have the pre-emphasis each by
//             itself: a frame's samples x give x[i] - a x[i - 1] - (1 - a) mean, and (1 - a) (x[0] - mean). So the
//             samples in the ring are those of all plans, and only what a frame subtracts, and its first sample, differ.
// Arithmetic  fixed point with an exponent for each frame; every format is stated where it is chosen.
//             docs/explanation/exactness.md has the bounds. The DFT is one of 256 or 200 complex points (even samples
//             real, odd ones imaginary): of 256 by eight stages of radix 2 with decimation in frequency; of 200 = 25 * 8
//             by two of radix 5 with factors between them, and the last three of radix 2. Each result is rounded to 34
//             bits. Bins k and N / 2 - k of the real DFT are split from points k and N / 2 - k.
// Interface   for each request first PROGRAM_WORDS words: the filterbank's program and the window's weights
//             (filter_program() and window_table() of host/dpu/units/audio_tables.py have the layouts). Then a Sound and
//             its samples in, a Sound with the count of frames and, frame after frame, n_mels values out; see
//             headrace/sound_stream.hpp. A sound of fewer samples than min_samples gets zeros, and one of more than
//             max_samples is cut. `plan`: see plan_of() and Plan.
// Throughput  a frame in as many clocks as its 160 samples, as the loops are written, a stage of the DFT each a process.
// Limits      n_mels 4 to 128, a multiple of 4; preemphasis 0 (off) to 2^24 - 1, LSB 2^-24; log_floor, if it is added,
//             unsigned, LSB 2^-40, below 2^-8; if it is the least value, signed, LSB 2^-18.
// Bad input   upstream statuses pass. A sound without a frame, which there is with ENDS_ZEROS never: its samples are
//             taken, and STATUS_BAD_ARGUMENT. An ill-made program gives wrong values, as many as of a right one.
#pragma once

#include "headrace/sound_stream.hpp"

namespace headrace {

constexpr unsigned PROGRAM_STEPS = 256;
constexpr unsigned WINDOW_ROWS = 128;
constexpr unsigned PROGRAM_WORDS = PROGRAM_STEPS + WINDOW_ROWS;

// Where frames lie, and what lies beyond the ends of a sound of n samples.
enum Ends : unsigned {
    ENDS_ZEROS = 0,     // centred on every 160th sample, with zeros beyond: n / 160 + 1 frames
    ENDS_MIRRORED = 1,  // centred alike, the sound mirrored at its first and last sample: n / 160 frames
    ENDS_INSIDE = 2,    // from every 160th sample on, within the sound: (n - 400) / 160 + 1 frames
};

struct Plan {
    bool points_400;     // frames of 400 samples, otherwise of 512
    Ends ends;
    bool least_floor;    // the floor is the least logarithm, otherwise it is added to the power
    // Only with ENDS_INSIDE, of sounds without zeros behind them:
    bool mean_removed;      // a frame loses the mean of its 400 samples
    bool emphasised_alone;  // the pre-emphasis takes the first sample of a frame as the one before it
    ap_int<8> exponent;     // powers count 2^exponent times
};

// Bit 0: points_400. Bits 2 and 1: ends. Bit 3: least_floor. Bit 4: mean_removed. Bit 5: emphasised_alone. Bits 15 to 8:
// exponent.
Plan plan_of(ap_uint<16> bits);

void mel(hls::stream<ap_uint<128>>& program, hls::stream<Sound>& sounds, hls::stream<Sample16k>& samples,
         ap_uint<8> n_mels, ap_uint<24> preemphasis, ap_uint<32> log_floor, ap_uint<16> plan_bits,
         ap_uint<32> min_samples, ap_uint<32> max_samples, hls::stream<Sound>& frames, hls::stream<LogMel>& values);

}  // namespace headrace
