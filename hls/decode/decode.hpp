// Decode: one baseline JPEG file to RGB pixels, bit-exact to OpenCV.
//
// Reference   ITU-T T.81 for the format; for every pixel value libjpeg-turbo 3 as OpenCV uses it (ISLOW
//             inverse DCT in its AVX2 form, fancy upsampling, YCbCr to RGB in Q1.16), that is
//             cv2.imdecode(file, IMREAD_COLOR | IMREAD_IGNORE_ORIENTATION) with channels in RGB order.
// Interface   `words` holds the ceil(jpeg_bytes / 16) words of the file, byte 0 in bits 7..0; all are read,
//             whatever the file holds. Out come exactly one Frame and its pixels, see
//             headrace/image_stream.hpp. The Frame leaves with the first pixel, so an error in the first MCU
//             row is still reported in it. Pixels are those of the rows that `wanted` needs.
// Takes       SOF0 and SOF1 with 8-bit samples in one scan; with a workspace SOF2 and several scans, too. Gray with
//             any sampling factors; three components with factors of 1, 2 and 4, each its own, luma with the
//             greatest across and down, and at most ten blocks in an MCU: 4:4:4, 4:2:2, 4:4:0, 4:2:0, 4:1:1, 4:1:0, 4:4:1 and others. YCbCr or RGB, decided
//             as libjpeg does (JFIF, then Adobe, then component ids). JFIF of any version. Restart intervals,
//             16-bit DQT, tables defined again, any APPn. A file without DHT, as a frame of Motion JPEG, has the
//             standard's Huffman tables 0 and 1, each where it is used and not defined. Skipped without a status:
//             bytes before a marker that are none, FF 00 too, and bytes 0 between the last MCU and the marker behind.
// Limits      MAX_WIDTH pixels wide, less for some factors (sampling_status in jpeg_parser.cpp); 65500 high, which is
//             libjpeg's limit: beyond it OpenCV has no pixels either.
// Throughput  Design targets, read off the loops; nobody has synthesised this. Per clock: one byte of the
//             file, one Huffman symbol (two clocks for a code of more than 9 bits), a column and a row of a block
//             in the transform, two pixels. The processes run side by side, and an MCU row fills in while the
//             one before is sent. So a frame takes half a clock per pixel, unless its symbols are more: in a
//             500x375 photo at quality 90 they are 0.47 per pixel; a block takes eight clocks at least. What
//             limits the clock is the symbol loop: from one symbol to the next a read of 512 places of
//             distributed RAM and a shift of 64 bits, with the sum that says which table it is beside them. If a
//             tool cannot fit that read into the clock of the shift, the loop takes two clocks a symbol.
// Latency     The first pixel follows the headers and the first MCU row. The last MCU row is held back until the
//             end of the file has been checked.
// Memory      512 KiB of row buffers (32 luma rows and twice 16 chroma rows of 8192), of words of eight samples;
//             tables: 4096 short codes of 13 bits in distributed RAM, and 3 KiB.
// Bad input   Ends in one of the status codes 1 to 14 and never in a hang: every loop is bounded by
//             jpeg_bytes, by the 16 bits of a segment length or by the number of MCUs, and each MCU takes at
//             least two bits of the file. Where libjpeg warns and goes on with pixels that it invents or
//             guesses (data missing, a code in no table, restart markers out of order, data left over behind
//             the last MCU, an unknown transform in Adobe's segment), this unit returns a status; also for
//             coefficients beyond T.81's range for 8-bit samples. Faults behind the last MCU row that is
//             needed are not seen, if it is not the image's last. Garbage directly behind SOI is refused, as by
//             OpenCV, which knows a JPEG file by FF D8 FF. A frame type that is not supported is reported at its
//             marker, before what follows is looked at.
#pragma once

#include "ap_int.h"
#include "hls_stream.h"
#include "headrace/image_stream.hpp"
#include "resize/plan.hpp"

namespace headrace {

constexpr int WORD_FIFO_DEPTH = 64;          // 1 KiB of the file: a memory burst
constexpr unsigned MAX_JPEG_HEIGHT = 65500;  // JPEG_MAX_DIMENSION of libjpeg

using WordStream = hls::stream<ap_uint<128>, WORD_FIFO_DEPTH>;

// With a workspace for coefficients it also takes files of several scans, progressive ones among them: see
// decode/progressive/progressive.hpp. Both pointers are its address, one for the process that reads it and one for that which
// writes it. `workspace_needed` is 0 for other files and for those with an error before the first scan.
void decode(WordStream& words, ap_uint<32> jpeg_bytes, const Wanted& wanted, const ap_uint<128>* workspace_in,
            ap_uint<128>* workspace_out, uint32_t workspace_bytes, hls::stream<Frame>& frames,
            hls::stream<Beat>& pixels, uint32_t& workspace_needed);

}  // namespace headrace
