// Files of several scans: progressive frames, and sequential ones whose components come one by one. The entropy process
// of decode hands over to this when the first scan shows that the file is one.
//
// Reference   ITU-T T.81 annexes F and G; the coefficients are those of libjpeg-turbo after the last scan, and the pixels
//             so those of cv2.imdecode.
// Takes       SOF2: spectral selection, successive approximation, EOB runs, refinement; SOF0 and SOF1 with each component
//             in one scan of any. Interleaved or not, restart intervals, other tables for each scan. Sizes,
//             colours and sampling are those of decode. A quantisation table counts as it is at the first scan of a
//             component.
// Workspace   The coefficients lie in device memory, 16 bits each, 8 in a word of 16 bytes, coefficient 8w + i in bits
//             16i + 15 to 16i of word w, 64 in a block, in zigzag order. Blocks of a component lie row by row, as many
//             across and down as its whole MCUs have; components one behind the other. `workspace_bytes_of` says how many
//             bytes that is: at most 3.22 GB, for 4:4:4 of the greatest size. What it holds before does not matter.
// Accesses    The scan that is a component's first, of its DC coefficients or of all, writes all words of each of its
//             blocks, with zeros for what it does not send, and reads none. Any other reads and writes the words of its
//             band, first / 8 to last / 8; both in the order of the blocks in the scan. Blocks that only whole MCUs have
//             are in interleaved scans, not in those of one component; nothing visible comes of them, and the last pass
//             takes them for zero without reading. That pass reads the blocks in the order of MCUs, down to the last MCU
//             row that `wanted` needs, and feeds the transform.
// Throughput  Targets, read off the loops: a step a clock, in which a symbol is decoded (two steps for a code of more than 9
//             bits), or its coefficient placed, or a coefficient of the scans before corrected, beside a word read, one
//             written and a token of the file; the words are fetched ahead and written behind. Beside the last pass the
//             pixels are made.
// Limits      MAX_SCANS scans bound the work: each has at most three steps for a coefficient of its band and one for a word.
// Bad input   As decode's, in the order of the file: the first fault counts, and nothing behind it is decoded. A status
//             where libjpeg-turbo warns of the progression (T.81 G.1.1.1: an AC scan before the DC scan, bits that do not
//             follow those before: CORRUPT_HEADER) and also where it does not: coefficients sent a second time, a scan
//             beyond MAX_SCANS (MULTIPLE_SCANS), a run beyond the band, a file that ends without a component or while one
//             of the first nine AC coefficients lacks bits (TRUNCATED), for which libjpeg-turbo invents values by
//             smoothing. Silently taken, as there: an EOB run that goes on beyond a restart or the scan, files without
//             the AC coefficients from the tenth on or without the last bits of these and of DC.
#pragma once

#include "ap_int.h"
#include "decode/entropy/huffman.hpp"
#include "decode/stages.hpp"

namespace headrace {

constexpr unsigned MAX_SCANS = 128;

inline uint32_t workspace_bytes_of(const Scan& scan) {
#pragma HLS INLINE
    const Layout layout = layout_of(scan);
    return 128u * layout.mcus_across * layout.mcus_down * layout.blocks;
}

// Decodes the scans, the first of which is given, and sends the coefficients. Returns the status; the end beat is not sent.
unsigned decode_scans(hls::stream<TableWrite>& writes, hls::stream<Scan>& scans, hls::stream<Token>& tokens,
                      const Scan& first, const Wanted& wanted, HuffmanTables& tables,
                      const ap_uint<128>* workspace_in, ap_uint<128>* workspace_out,
                      hls::stream<Coefficient>& coefficients);

}  // namespace headrace
