// Image CU: a JPEG file in device memory to an image or a model's input tensor in device memory, in one pass.
//
// Reference   decode, resize, crop and normalize, each as its unit says; `stage` is the last one that runs.
// Interface   AXI4 masters of 128 bits, one reads and one writes; AXI4-Lite registers, ap_ctrl_chain; the map is in
//             kernel.xml.
//             Output: interleaved 8-bit RGB (HWC) up to crop; planar (CHW) float32, float16 or int8 after normalize.
//             `tables` holds 3 x 256 32-bit words (R, G, B) and is read with stage = NORMALIZE only.
//             `result` receives the output registers, too: 8 words, status, out_width, out_height, src_width,
//             src_height, output bytes (low, high), 0.
// Throughput  that of decode; nothing after it takes more than a clock per pixel.
// Latency     the units run side by side, coupled by FIFOs; no image is ever whole inside.
// Bad input   ends in a status code, see hls/README.md. STATUS_BUFFER_TOO_SMALL comes with the sizes needed. Nothing is
//             written beyond tensor_capacity, which must be that of a buffer of whole 16-byte words.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

enum Stage : unsigned { STAGE_DECODE = 0, STAGE_RESIZE = 1, STAGE_CROP = 2, STAGE_NORMALIZE = 3 };
enum Format : unsigned { FORMAT_FLOAT32 = 0, FORMAT_FLOAT16 = 1, FORMAT_INT8 = 2 };

}  // namespace headrace

extern "C" void image_cu(const ap_uint<128>* jpeg, uint32_t jpeg_bytes, ap_uint<128>* tensor, uint32_t tensor_capacity,
                         const ap_uint<128>* tables, ap_uint<128>* result, uint32_t stage, uint32_t format,
                         uint32_t resize_short, uint32_t crop_width, uint32_t crop_height, uint32_t crop_x,
                         uint32_t crop_y, uint32_t* status, uint32_t* out_width, uint32_t* out_height,
                         uint32_t* src_width, uint32_t* src_height);
