#include "mel_normalize/mel_normalize.hpp"

namespace headrace {
namespace {

// What a band's values are normalised with.
struct Band {
    int64_t mean;         // 33 bits, LSB 2^-26: 2^-8 of a value's
    uint32_t reciprocal;  // 2^23 to 2^24 - 1; 0 makes zeros of all values
    uint32_t shift;       // 1 to 47: a result is (value - mean) * reciprocal * 2^(shift - 57), value and mean in 2^-26
};

// The largest integer whose square is at most `square`.
ap_uint<48> root_of(ap_uint<96> square) {
    ap_uint<48> root = 0;
    ap_uint<50> rest = 0;
    for (int i = 47; i >= 0; i--) {
#pragma HLS PIPELINE II = 1
        rest = ap_uint<50>(rest << 2) | ap_uint<50>(square.range(2 * i + 1, 2 * i));
        const ap_uint<50> trial = (ap_uint<50>(root) << 2) | ap_uint<50>(1);
        const bool digit = rest >= trial;
        if (digit) rest -= trial;
        root = ap_uint<48>(root << 1) | ap_uint<48>(digit);
    }
    return root;
}

Band band_of(ap_uint<128> statistics, uint32_t counted, uint32_t std_floor, uint32_t variance_rule) {
    const uint64_t low = statistics.range(63, 0).to_uint64(), high = statistics.range(127, 64).to_uint64();
    const bool negative = low >> 63;
    const uint64_t magnitude = negative ? 0 - low : low;
    // What `counted` values of 24 bits can add up to.
    const uint64_t most_sum = static_cast<uint64_t>(counted) << 23, most_squares = static_cast<uint64_t>(counted) << 46;
    const uint64_t sum = magnitude > most_sum ? most_sum : magnitude;
    const uint64_t squares = high > most_squares ? most_squares : high;

    const int64_t mean = static_cast<int64_t>(((sum << 8) + counted / 2) / counted);
    Band band{negative ? -mean : mean, 0, 1};
    if (counted == 1) return band;

    // pairs * variance, with what is added
    const ap_uint<80> all = ap_uint<80>(squares) * ap_uint<80>(counted), square = ap_uint<80>(sum) * ap_uint<80>(sum);
    const uint32_t pairs = counted * (variance_rule & WHOLE_VARIANCE ? counted : counted - 1);
    const ap_uint<80> added = ap_uint<80>(pairs) * (variance_rule & VARIANCE_FLOOR);
    const ap_uint<80> spread = (all > square ? ap_uint<80>(all - square) : ap_uint<80>(0)) + added;
    const ap_uint<128> variance = (ap_uint<128>(spread) << 44) / ap_uint<128>(pairs);
    uint64_t divisor = root_of(ap_uint<96>(variance)).to_uint64() + std_floor;  // LSB 2^-40; 47 bits
    if (divisor == 0) return band;

    uint32_t shift = 0;
    while (!(divisor >> 47)) {
        divisor <<= 1;
        shift++;
    }
    band.reciprocal = static_cast<uint32_t>(((1ull << 47) - 1) / (divisor >> 24));
    band.shift = shift;
    return band;
}

// A float32's bits to a multiple of 2^-18 in 24 bits.
int32_t fixed_point(uint32_t bits) {
    const uint32_t exponent = bits >> 23 & 0xFF, mantissa = (bits & 0x7FFFFF) | 0x800000;
    const bool negative = bits >> 31;
    if (exponent >= 132) return negative ? -0x800000 : 0x7FFFFF;  // from 32 on
    if (exponent < 132 - 23) return 0;
    const int32_t magnitude = static_cast<int32_t>(mantissa >> (132 - exponent));
    return negative ? -magnitude : magnitude;
}

// The bits of a normalised value.
uint32_t normalised(int32_t value, const Band& band, uint32_t format) {
#pragma HLS INLINE
    const int64_t change = static_cast<int64_t>(value) * 256 - band.mean;
    const bool negative = change < 0;
    uint64_t product = static_cast<uint64_t>(negative ? -change : change) * band.reciprocal;  // up to 2^56
    if (product == 0) return 0;
    // Bit 56 is worth 2^(shift - 1). It is moved down to the highest bit that is set, but in float16 not below 2^-14.
    uint32_t moved = 0;
    while (!(product >> 56) && !(format == TENSOR_FLOAT16 && moved == band.shift + 13)) {
        product <<= 1;
        moved++;
    }
    const uint32_t mantissa_bits = format == TENSOR_FLOAT16 ? 10 : 23, bias = format == TENSOR_FLOAT16 ? 15 : 127;
    const uint32_t cut = 56 - mantissa_bits;
    const uint64_t kept = product >> cut, rest = product & ((1ull << cut) - 1), half = 1ull << (cut - 1);
    const bool up = rest > half || (rest == half && (kept & 1));
    // The mantissa's first bit, if it is set, adds the missing 1 to the exponent, as a carry of rounding may.
    uint32_t bits = ((bias + band.shift - 2 - moved) << mantissa_bits) + static_cast<uint32_t>(kept) + up;
    if (format == TENSOR_FLOAT16) {
        if (bits > 0x7C00) bits = 0x7C00;
        return bits | (negative ? 0x8000u : 0u);
    }
    return bits | (negative ? 0x80000000u : 0u);
}

}  // namespace

void mel_normalize(hls::stream<ap_uint<128>>& words, uint32_t frames, uint32_t counted, uint32_t mels, uint32_t format,
                   uint32_t rows, const NormRule& rule, hls::stream<ap_uint<128>>& out) {
    Band bands[MAX_MELS];
    int32_t tile[TILE_FRAMES][MAX_MELS];
#pragma HLS ARRAY_PARTITION variable = tile cyclic factor = 8 dim = 1
#pragma HLS ARRAY_PARTITION variable = tile cyclic factor = 4 dim = 2
    for (uint32_t band = 0; band < mels; band++) {
#pragma HLS LOOP_TRIPCOUNT max = 128
        const Band own = band_of(words.read(), counted, rule.std_floor, static_cast<uint32_t>(rule.mean));
        bands[band] = rule.scale ? Band{rule.mean, rule.scale & 0xFFFFFF, rule.scale >> 24} : own;
    }
    const uint32_t in_a_word = format == TENSOR_FLOAT16 ? 8 : 4, width = 128 / in_a_word;
    for (uint32_t first = 0; first < frames; first += TILE_FRAMES) {
#pragma HLS LOOP_TRIPCOUNT max = 512
        const uint32_t count = frames - first < TILE_FRAMES ? frames - first : TILE_FRAMES;
        for (uint32_t i = 0; i < count * (mels / 4); i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 4096
            const ap_uint<128> word = words.read();
            for (uint32_t k = 0; k < 4; k++) {
#pragma HLS UNROLL
                const int32_t value = fixed_point(word.range(32 * k + 31, 32 * k).to_uint());
                tile[i / (mels / 4)][4 * (i % (mels / 4)) + k] = value < rule.least ? rule.least : value;
            }
        }
        const bool by_frames = rows == ROWS_OF_FRAMES;
        const uint32_t outer_count = by_frames ? count : mels, inner_count = by_frames ? mels : count;
        for (uint32_t outer = 0; outer < outer_count; outer++) {
#pragma HLS LOOP_TRIPCOUNT max = 128
            for (uint32_t inner = 0; inner < inner_count; inner += in_a_word) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 32
                ap_uint<128> word = 0;
                for (uint32_t k = 0; k < 8; k++) {
#pragma HLS UNROLL
                    const uint32_t frame = by_frames ? outer : inner + k, band = by_frames ? inner + k : outer;
                    if (k < in_a_word && inner + k < inner_count && first + frame < counted) {
                        word.range(width * k + width - 1, width * k) =
                            normalised(tile[frame][band], bands[band], format);
                    }
                }
                out.write(word);
            }
        }
    }
}

}  // namespace headrace
