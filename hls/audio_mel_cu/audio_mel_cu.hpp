// Audio CU A: a WAV file in device memory to log-mel bands with their sums in device memory, in one pass.
//
// Reference   wav, resample and mel, each as its unit says; `stage` is the last one that runs.
// Interface   AXI4 masters of 128 bits, one reads and one writes; AXI4-Lite registers, ap_ctrl_chain; the map is in
//             kernel.xml.
//             Output after stage MEL: [frames][mels] float32, each a multiple q of 2^-18, then a word of 16 bytes for
//             each band: low 8 bytes the sum of its q (int64), high 8 bytes that of its q^2 (uint64). Both leave out
//             the last `left_out` frames, 0 or 1. After stage RESAMPLE: float32 samples, zeros behind them in the last
//             word.
//             `tables` holds the filterbank's program and the window in its first TABLES_TAPS bytes, read with stage =
//             MEL only, and behind them the taps for files of `taps_rate` Hz, which is one of SOUND_RATE; those of 16000 Hz are
//             none. (host/dpu/units/audio_tables.py). `result` receives 8 words: status, count, mels, source_rate,
//             source_count, output bytes (low, high), and the greatest value as int32, LSB 2^-18, or 0 without one.
//             `count` is of frames, or of samples at 16 kHz; `source_count` of samples in each of the file's channels.
// Throughput  that of its units: a sample of the file a clock, half of one at 8 and 11.025 kHz.
// Latency     the units run side by side, coupled by FIFOs; no sound is ever whole inside.
// Bad input   ends in a status code, see docs/reference/registers.md. A file that is neither of 16 kHz nor of `taps_rate`:
//             STATUS_BAD_ARGUMENT, and so is a sound without a frame. STATUS_BUFFER_TOO_SMALL comes with the sizes needed. Nothing is written beyond
//             mel_capacity, which must be that of a buffer of whole 16-byte words.
#pragma once

#include "headrace/sound_stream.hpp"

namespace headrace {

enum SoundStage : unsigned { SOUND_RESAMPLE = 0, SOUND_MEL = 1 };

constexpr unsigned TABLES_TAPS = 6144;  // bytes
constexpr uint32_t MAX_SAMPLES = 65535 * 160 - 1;  // at 16 kHz, of the longest sound

}  // namespace headrace

extern "C" void audio_mel_cu(const ap_uint<128>* wav, ap_uint<128>* mel, const ap_uint<128>* tables,
                             ap_uint<128>* result, uint32_t wav_bytes, uint32_t mel_capacity, uint32_t stage,
                             uint32_t mels, uint32_t preemphasis, uint32_t log_floor, uint32_t left_out,
                             uint32_t plan, uint32_t min_samples, uint32_t max_samples, uint32_t taps_rate);
