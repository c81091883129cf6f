// WAV: the bytes of a file to its samples, in mono.
//
// Reference   `pcm` of host/dpu/reference/audio_file.py: what it refuses, for whatever reason, ends in a status.
// Interface   `bytes` of the file in 128-bit words, the first byte lowest; every word of the file is read, or (RTL)
//             left, once `done_o` rises. Sound and samples out: a 16-bit sample twice, or the sum of both channels.
// Throughput  one sample frame a clock; 16 bytes a clock of chunks that are skipped. Latency of the RTL 35 clocks to the
//             sound, 9 for each chunk that is skipped, 12 for an extension.
// Limits      16-bit PCM, mono and stereo, at a rate of SOUND_RATE; 64 chunks; at 16 kHz MAX_FRAMES frames of 160.
//             The header is WAVE_FORMAT_PCM, or WAVE_FORMAT_EXTENSIBLE with 16 valid bits and PCM's GUID.
// Bad input   NOT_WAV, TRUNCATED, CORRUPT_HEADER, SOUND_FORMAT, CHANNELS, RATE, TOO_LONG, before any
//             sample, with rate and count 0.
#pragma once

#include "headrace/sound_stream.hpp"

namespace headrace {

void wav(hls::stream<ap_uint<128>>& words, ap_uint<32> bytes, hls::stream<Sound>& sounds, hls::stream<Pcm>& pcm);

}  // namespace headrace
