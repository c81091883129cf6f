// Decode: one baseline JPEG file to RGB pixels, bit-exact to OpenCV.
//
// Reference   ITU-T T.81 for the format; libjpeg-turbo 3 as OpenCV uses it (ISLOW inverse DCT in its AVX2 form, fancy
//             upsampling, 16-bit fixed-point YCbCr to RGB) for every pixel value:
//             cv2.imdecode(file, IMREAD_COLOR | IMREAD_IGNORE_ORIENTATION), channels in RGB order.
// Interface   `words` holds the ceil(jpeg_bytes / 16) words of the file, byte 0 in bits 7..0; all are read, whatever
//             the file holds. Out come exactly one Frame and its pixels, see headrace/image_stream.hpp. The Frame leaves
//             together with the first pixel, so that an error in the first MCU row is still reported in it.
// Takes       SOF0 and SOF1 with 8-bit samples in one scan. Gray with any sampling factors; three components as
//             4:4:4, 4:2:2, 4:4:0, 4:2:0 or 4:1:1 with chroma 1x1. YCbCr or RGB, decided as libjpeg does (JFIF, then
//             Adobe, then component ids). Restart intervals, 16-bit DQT, tables defined again, any APPn and COM.
// Limits      4096 pixels wide, 65500 high (libjpeg's own limit, beyond it OpenCV has no pixels to be equal to).
// Throughput  Design targets, from the loops and not from a synthesis report: one byte of the file, one Huffman symbol
//             and one pixel per clock; 8 samples per clock between inverse DCT and row buffer. The stages run side by
//             side. Row buffer fill and row output alternate, so a frame takes about
//             pixels * (1 + samples per pixel / 8) clocks: 1.19 per pixel for 4:2:0, 1.375 for 4:4:4; files with more
//             symbols than that (above roughly 5 bits per pixel) are bound by the Huffman stage. The recurrence of the
//             symbol loop (16 comparisons, one table read, one shift) sets the clock.
// Latency     First pixel after the first MCU row: its entropy-coded bytes plus 8 to 16 rows' worth of samples / 8.
// Memory      Row buffers of 256 KiB (32 luma rows, twice 16 chroma rows of 4096), tables of 3 KiB.
// Bad input   Ends in one of status codes 1 to 14 and never in a hang: every loop is bounded by jpeg_bytes, by a 16-bit
//             segment length or by the number of MCUs, and each MCU takes at least two bits of the file. Where libjpeg
//             warns and invents pixels (data missing, a code that is in no table, garbage before a marker, restart
//             markers out of order), this unit returns a status. A frame type that is not supported is reported when
//             its marker is read, before anything that follows is looked at. The last MCU row is held back until the
//             end of the file has been checked, so there is always a pixel left to carry `last` and the status.
#pragma once

#include "ap_int.h"
#include "hls_stream.h"
#include "headrace/image_stream.hpp"

namespace headrace {

constexpr int WORD_FIFO_DEPTH = 64;            // 1 KiB of the file: covers one memory burst
constexpr unsigned MAX_JPEG_HEIGHT = 65500;    // JPEG_MAX_DIMENSION of libjpeg

using WordStream = hls::stream<ap_uint<128>, WORD_FIFO_DEPTH>;

void decode(WordStream& words, ap_uint<32> jpeg_bytes, hls::stream<Frame>& frames, hls::stream<Pixel>& pixels);

}  // namespace headrace
