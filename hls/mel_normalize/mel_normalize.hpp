// Mel normalize: each mel band over the first `counted` frames, (x - mean) / (std + std_floor), where std is the root of
// the variance over counted - 1, or over counted, and what is added to it.
// The frames behind them become 0. (NeMo does not count the last frame of a sound.) Or each value by one mean and factor,
// (max(x, least) - mean) * factor.
//
// Reference   exact arithmetic on the same values. The mean is rounded to 2^-8 of a value's last place; the standard
//             deviation is the root of the exact variance, cut to 2^-22 of a place; 1 / (std + std_floor) is cut to 24
//             bits. So a float32 is within 5 * 2^-24 of itself, plus 2^-27 / (std + std_floor), plus what the root's
//             last place makes where both std and std_floor are next to 0; a float16 besides within half its last place.
// Interface   words in: a word of statistics for each band (low 8 bytes: sum q, int64; high 8 bytes: sum q^2, uint64,
//             of the frames that count), then the values of all frames, frame after frame, `mels` of them each, four
//             in a word, float32, multiples of 2^-18; q = value * 2^18. Words out, with ROWS_OF_FRAMES: frame after frame,
//             each in whole words, zeros behind its last band. With ROWS_OF_BANDS: frames go in tiles of TILE_FRAMES,
//             the last one shorter; of each tile the bands in turn, each with its frames in whole words, zeros behind
//             the last frame that counts; float32 or float16, rounded to nearest even.
// Throughput  a band's statistics in six clocks, then four values a clock.
// Latency     a tile is filled while the one before is given out.
// Settings    `least`: values below are taken as this one, LSB 2^-18; -2^23 leaves all as they are. `scale`: 0 for mean
//             and deviation of each band; else bits 23 to 0 a reciprocal, of which bit 23 is set, and bits 29 to 24 a
//             shift: the factor is reciprocal * 2^(shift - 31), and `mean`, LSB 2^-26, is that of all bands. With scale 0
//             `mean` has VARIANCE_FLOOR and WHOLE_VARIANCE.
// Limits      frames 1 to 65535, counted 1 to frames, mels 4 to MAX_MELS, a multiple of 4; std_floor has LSB 2^-40; shift 1 to 47.
// Bad input   any bits are taken. Values are cut to multiples of 2^-18 towards 0 and saturate at -32 and just below 32,
//             infinity and NaN, too. Sums that such values cannot have are cut to what they can, a negative variance is 0.
//             One frame that counts, and a band with std + std_floor = 0, give zeros.
#pragma once

#include <cstdint>

#include "ap_int.h"
#include "hls_stream.h"

namespace headrace {

enum TensorFormat : unsigned { TENSOR_FLOAT32 = 0, TENSOR_FLOAT16 = 1 };
enum TensorRows : unsigned { ROWS_OF_BANDS = 0, ROWS_OF_FRAMES = 1 };

constexpr unsigned MAX_MELS = 128;
constexpr unsigned TILE_FRAMES = 128;

struct NormRule {
    uint32_t std_floor;
    int32_t least, mean;
    uint32_t scale;
};

// Of `mean` where `scale` is 0: what is added to the variance, LSB 2^-36, and whether the variance is over all frames that
// count in place of all but one.
constexpr uint32_t VARIANCE_FLOOR = 0xFFFF, WHOLE_VARIANCE = 1 << 16;

void mel_normalize(hls::stream<ap_uint<128>>& words, uint32_t frames, uint32_t counted, uint32_t mels, uint32_t format,
                   uint32_t rows, const NormRule& rule, hls::stream<ap_uint<128>>& out);

}  // namespace headrace
