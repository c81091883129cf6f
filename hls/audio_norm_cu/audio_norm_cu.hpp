// Audio CU B: log-mel bands with their sums, as audio_mel_cu leaves them in device memory, to a model's input tensor.
//
// Reference   mel_normalize, for every band of the whole input, over its first `counted` frames.
// Interface   AXI4 masters of 128 bits, one reads and one writes; AXI4-Lite registers, ap_ctrl_chain; the map is in
//             kernel.xml.
//             `mel` holds [frames][mels] float32, then a word of statistics for each band, of the frames that count, see
//             mel_normalize.hpp; the statistics are read first, then the values, once. `tensor` receives [mels] rows of
//             `frames` values, float32 or float16, the row pitch rounded up to whole 16-byte words, with zeros behind
//             the last frame that counts. `least`, `mean` and `scale` as in mel_normalize.hpp.
//             `result` receives 8 words: status, frames, mels, row pitch in bytes, output bytes (low, high), 0, 0.
// Throughput  four values a clock; 6 clocks a band before.
// Bad input   any contents of `mel` are taken. frames of 0 or above 65535, counted of 0 or above frames,
//             mels of 0, above 128 or no multiple of 4, an unknown format, or a
//             least or scale out of range: STATUS_BAD_ARGUMENT. Output that does not
//             fit: STATUS_BUFFER_TOO_SMALL with the sizes needed, and nothing is written.
#pragma once

#include <cstdint>

#include "ap_int.h"

extern "C" void audio_norm_cu(const ap_uint<128>* mel, ap_uint<128>* tensor, ap_uint<128>* result, uint32_t frames,
                              uint32_t counted, uint32_t mels, uint32_t tensor_capacity, uint32_t format,
                              uint32_t std_floor, uint32_t least, uint32_t mean, uint32_t scale);
