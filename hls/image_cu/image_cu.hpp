// Image CU: a JPEG file in device memory to an image or a model's input tensor in device memory, in one pass.
//
// Reference   decode, resize, crop and normalize, each as its unit says; `stage` is the last one that runs. With stage =
//             PROGRAM: decode, scaler, and normalize or patches, as image processors of Hugging Face want it.
// Interface   AXI4 masters of 128 bits, one reads and one writes; AXI4-Lite registers, ap_ctrl_chain; the map is in
//             kernel.xml.
//             Output: interleaved 8-bit RGB (HWC) up to crop; planar (CHW) float32, float16 or int8 after normalize.
//             `tables` holds 3 x 256 32-bit words (R, G, B) and is read with stage = NORMALIZE or PROGRAM only.
// Program     `program_bytes` bytes, read with stage = PROGRAM only: passes, one behind the other. A pass resizes an image
//             and puts the result on a canvas. The first pass takes the image from decode; the others take a part of an
//             image that an earlier pass kept in the workspace. A pass is 16 words of 32 bits, and then the scaler's
//             lists, 32 bytes an entry. The words: out_width | out_height << 16, row_entries, column_entries, flags,
//             canvas_width | canvas_height << 16, left | top << 16, colour (0xRRGGBB), side_width | side_height << 16,
//             merge | frames << 8, fill, source, source_width | source_height << 16, source_pitch, place, two zeros.
//             Those before `source` are the words of ScalerSetup and PatchLayout.
//             Flags: row bits (0 to 4), rows gather (5), column bits (8 to 12), columns gather (13), wide (16), columns
//             first (17), patches (24), channels last (25), keeps (26), more (27). With `keeps` the result goes to the
//             workspace, and it is an image that later passes read. Otherwise it goes to the tensor, planar (CHW) without
//             patches. All passes but the last one have `more`. The last one does not keep its result.
//             `place`: where the result begins, in bytes, a multiple of 16, in the workspace or in the tensor. `source`
//             (bytes, a multiple of 16), the width and the height say which part of the workspace a pass reads, and
//             `source_pitch` how many words of 16 bytes lie between the beginnings of two rows. The first pass ignores
//             them. An image in the workspace has four bytes a pixel, R, G, B and 0; its rows begin with a word.
//             The record has the size of the last pass's result, and the bytes of the tensor up to its end. A pass that
//             fails is the last one.
//             `workspace`, 128-byte aligned, is for images between passes, and from its beginning on for the coefficients of
//             files of several scans, progressive ones among them, while the first pass runs. With 0 `workspace_bytes`
//             such files and passes are refused, and it counts for nothing. What lies there is lost.
//             `result` receives the output registers, too: 8 words, status, out_width, out_height, src_width,
//             src_height, output bytes (low, high), 0.
// Queue       with `ring_entries`, a power of two up to 65536, not 0, a run takes jobs from a ring of descriptors until one
//             says stop or `polls` looks in a row, at least one, find none. `ring`, 64-byte aligned, has 64 bytes a job, 16
//             words: jpeg, jpeg_bytes, tensor, tensor_capacity, stage, format, resize_short, crop_width, crop_height,
//             crop_x, crop_y, command (0: a job, 1: stop), program, program_bytes, a zero, number. `jpeg`, `tensor` and
//             `program` are offsets in bytes, multiples of 16, from the run's arguments of that name, whose `jpeg_bytes`,
//             `tensor_capacity` and `program_bytes` are the sizes of what lies there; `tables` and the workspace are the run's. Job n lies in slot n mod ring_entries; the run begins
//             with job `ring_first` and numbers wrap around behind 2^32 - 1. The host writes a descriptor's number last,
//             into a slot whose job is done; before the first run no slot may have the number of its first job.
//             `result` has room for ring_entries + 1 records. That of job n goes to place n mod ring_entries when its tensor is
//             written, its second half last, with n in place of the 0. The last place is the run's own, written at its
//             end: status, jobs done, number of the first job not taken, 1 if one said stop or else 0, zeros.
// Throughput  that of decode or of resize, whichever takes longer; crop, normalize and store take two pixels a clock.
// Latency     the units run side by side, coupled by FIFOs; no image is ever whole inside.
// Bad input   ends in a status code, see docs/reference/registers.md. A program whose words and bytes do not fit each
//             other or the image: STATUS_BAD_ARGUMENT. STATUS_BUFFER_TOO_SMALL comes with the sizes needed: if
//             out_width is 0, it is the workspace that is too small, and the bytes are those that it needs. Nothing is
//             written beyond tensor_capacity, which must be that of a buffer of whole 16-byte words, nor beyond
//             workspace_bytes.
//             A bad job, by its command, its zeros, its ranges or what a single request is refused for, ends in
//             STATUS_BAD_ARGUMENT of its own, a bad ring in that of the run.
#pragma once

#include "headrace/image_stream.hpp"

namespace headrace {

enum Stage : unsigned { STAGE_DECODE = 0, STAGE_RESIZE = 1, STAGE_CROP = 2, STAGE_NORMALIZE = 3, STAGE_PROGRAM = 4 };
enum Format : unsigned { FORMAT_FLOAT32 = 0, FORMAT_FLOAT16 = 1, FORMAT_INT8 = 2 };
enum Command : unsigned { COMMAND_JOB = 0, COMMAND_STOP = 1 };

constexpr uint32_t MOST_RING_ENTRIES = 65536;

}  // namespace headrace

extern "C" void image_cu(const ap_uint<128>* jpeg, uint32_t jpeg_bytes, ap_uint<128>* tensor, uint32_t tensor_capacity,
                         const ap_uint<128>* tables, ap_uint<128>* result, uint32_t stage, uint32_t format,
                         uint32_t resize_short, uint32_t crop_width, uint32_t crop_height, uint32_t crop_x,
                         uint32_t crop_y, ap_uint<128>* workspace, uint32_t workspace_bytes,
                         const volatile ap_uint<128>* ring, uint32_t ring_entries, uint32_t ring_first, uint32_t polls,
                         const ap_uint<128>* program, uint32_t program_bytes);
