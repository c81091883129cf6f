// Mel: 16 kHz samples to the logarithm of a mel spectrogram.
//
// Reference   log_mel() of host/dpu/reference/audio.py in float64: pre-emphasis, frames of 512 around every 160th sample with zeros
//             beyond both ends, symmetric Hann window of 400, real FFT, power, mel filters, ln(x + floor).
// Arithmetic  fixed point; every format is stated where it is chosen. docs/explanation/exactness.md has the bounds.
//             The FFT is one of 256 complex points (even samples real, odd ones imaginary), by radix-2 stages with
//             decimation in frequency, each rounded once to 34 bits, the scale growing with the bound on the values; bins
//             k and 512 / 2 - k of the real one are split from points k and 256 - k.
// Interface   for each request first PROGRAM_WORDS words of the filterbank's program (filter_program() of
//             host/dpu/units/audio_tables.py has the layout), then a Sound and its samples in, a Sound with the count of frames
//             and, frame after frame, n_mels values out; see headrace/sound_stream.hpp.
// Throughput  a frame in as many clocks as its 160 samples, as the loops are written, a stage of the FFT each a process.
// Limits      n_mels 4 to 128, a multiple of 4; preemphasis 0 (off) to 2^18 - 1, LSB 2^-18; log_floor LSB 2^-40.
// Bad input   upstream statuses pass. Of no samples there is one frame, of silence. An ill-made program gives wrong
//             values, as many as of a right one.
#pragma once

#include "headrace/sound_stream.hpp"

namespace headrace {

constexpr unsigned PROGRAM_WORDS = 256;

void mel(hls::stream<ap_uint<128>>& program, hls::stream<Sound>& sounds, hls::stream<Sample16k>& samples,
         ap_uint<8> n_mels, ap_uint<18> preemphasis, ap_uint<32> log_floor, hls::stream<Sound>& frames,
         hls::stream<LogMel>& values);

}  // namespace headrace
