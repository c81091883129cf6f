// Huffman codes and single bits out of entropy-coded data, for scans of every kind.
#pragma once

#include <cstdint>

#include "decode/stages.hpp"

namespace headrace {

// What a code says. Codes of up to SHORT_BITS bits are found by the next SHORT_BITS bits of the data, in distributed RAM
// and within the clock; longer ones, 0.3 to 2.5 % of those in photos, by comparison with the limits of all lengths, a
// clock later. Beside the symbol stands the number of bits to the next code, so that what the next look-up waits for is
// one read, one shift and no sum.
struct Code {
    uint8_t total;   // bits of the code and of what follows it; of a code in no table NO_CODE
    uint8_t symbol;
};
constexpr unsigned SHORT_BITS = 9;
constexpr uint8_t NO_CODE = 0xFF;
constexpr unsigned SPREAD = 8;  // neighbouring places that are written together

struct HuffmanTables {
    Code brief[2 * TABLES][1 << SHORT_BITS];
    uint16_t limit[2 * TABLES][16];
    uint8_t offset[2 * TABLES][16];
    uint8_t symbol[2 * TABLES][256];
};

// The length of the code at the top of a window of 16 bits, 17 if there is none.
inline unsigned code_length(unsigned window, const uint16_t limit[16]) {
#pragma HLS INLINE
    unsigned length = 1;
    for (int n = 0; n < 16; n++) {
#pragma HLS UNROLL
        length += window >= limit[n];
    }
    return length;
}

inline Code long_code(unsigned window, unsigned table, const HuffmanTables& tables) {
#pragma HLS INLINE
    const unsigned length = code_length(window, tables.limit[table]);
    if (length > 16) return {NO_CODE, 0};
    const unsigned place = (window >> (16 - length)) + tables.offset[table][length - 1];
    const uint8_t symbol = tables.symbol[table][place & 255];
    return {static_cast<uint8_t>(length + (symbol & 15)), symbol};
}

// A long code between the two steps of its look-up.
struct LongCode {
    Code code;
    bool found;
};

// The code that the 16 bits of `window` begin with; false in the first step of two.
inline bool look_up(unsigned window, unsigned table, const HuffmanTables& tables, LongCode& pending, Code& code) {
#pragma HLS INLINE
    const bool brief = window < tables.limit[table][SHORT_BITS - 1];
    if (!brief && !pending.found) {
        pending = {long_code(window, table, tables), true};
        return false;
    }
    code = brief ? tables.brief[table][window >> (16 - SHORT_BITS)] : pending.code;
    pending.found = false;
    return true;
}

// Up to GO. What a scan uses is written: parse_scan sees to it. A symbol with a short code of n bits stands at
// 2^(SHORT_BITS - n) places, behind those of the symbol before; they are written SPREAD at a time, in the clocks behind the
// symbol's own.
inline void load_tables(hls::stream<TableWrite>& writes, HuffmanTables& tables) {
    TableWrite write = {};
    Code code = {};                // of the symbol being spread,
    unsigned place = 0, end = 0;   // from here to before there
    while (write.field != GO) {
#pragma HLS PIPELINE II = 1
        if (place < end) {
            const unsigned group = place / SPREAD, behind = (group + 1) * SPREAD;
            for (unsigned i = 0; i < SPREAD; i++) {
#pragma HLS UNROLL
                const unsigned at = group * SPREAD + i;
                if (at >= place && at < end) tables.brief[write.table][at] = code;
            }
            place = behind < end ? behind : end;
        } else {
            write = writes.read();
            if (write.field == LIMIT) {
                tables.limit[write.table][write.index] = write.value;
                place = end = 0;  // the symbols follow
            } else if (write.field == OFFSET) {
                tables.offset[write.table][write.index] = write.value;
            } else if (write.field == SYMBOL) {
                tables.symbol[write.table][write.index] = write.value;
                const unsigned length = code_length(place << (16 - SHORT_BITS), tables.limit[write.table]);
                if (place >> SHORT_BITS == 0 && length <= SHORT_BITS) {
                    code = {static_cast<uint8_t>(length + (write.value & 15)), static_cast<uint8_t>(write.value)};
                    end = place + (1 << (SHORT_BITS - length));
                }
            }
        }
    }
}

struct BitReader {
    uint64_t window;  // next bit on top, zeros below the last
    int bits;
    bool stopped;     // at `stop`, a token that is not DATA
    Token stop;
};

// Takes a token if there is room for a whole one, below the bits that are there. The bits of the next code do not change
// by it, so it is no part of what the next look-up waits for.
inline void refill(hls::stream<Token>& tokens, BitReader& in) {
#pragma HLS INLINE
    if (in.stopped || in.bits > 32) return;
    const Token token = tokens.read();
    if (token.kind == DATA) {
        in.window |= static_cast<uint64_t>(token.value) << 32 >> in.bits;
        in.bits += 8 * token.bytes;
    } else {
        in.stopped = true;
        in.stop = token;
    }
}

// Why there are no more bits although the image goes on.
inline unsigned stop_status(const BitReader& in) {
    return in.stop.kind == RESTART ? static_cast<unsigned>(STATUS_RESTART_MISMATCH) : in.stop.value;
}

// T.81 F.2.2.1, EXTEND: the top `size` bits as a signed number; the first of them is the inverted sign.
inline int extend(uint32_t bits, unsigned size) {
#pragma HLS INLINE
    const int value = static_cast<int>(static_cast<uint64_t>(bits) << size >> 32);
    return (bits >> 31) != 0 || size == 0 ? value : value - (1 << size) + 1;
}

// The most bits of a value that 8-bit samples need.
constexpr unsigned DC_BITS = 11, AC_BITS = 10;

// What is wrong with a code and the bits of its value, which may be up to `largest`; OK if nothing is. Whatever the window
// holds, a valid symbol fits it or the data has stopped: what is found does not depend on how far ahead bytes were read.
inline unsigned code_status(const Code& code, unsigned largest, const BitReader& in) {
#pragma HLS INLINE
    if (code.total == NO_CODE) return in.bits >= 16 ? static_cast<unsigned>(STATUS_CORRUPT_HUFFMAN) : stop_status(in);
    const unsigned size = code.symbol & 15;
    if (static_cast<int>(code.total - size) > in.bits) return stop_status(in);
    if (size > largest) return STATUS_CORRUPT_HUFFMAN;
    if (code.total > in.bits) return stop_status(in);
    return STATUS_OK;
}

// Between two restart intervals: nothing but RSTn may be left.
inline unsigned restart(hls::stream<Token>& tokens, BitReader& in, unsigned number) {
#pragma HLS INLINE
    if (in.bits >= 8) return STATUS_RESTART_MISMATCH;
    if (!in.stopped) in.stop = tokens.read();
    in.stopped = true;
    if (in.stop.kind == SCAN_END) return in.stop.value;
    if (in.stop.kind != RESTART || in.stop.value != number) return STATUS_RESTART_MISMATCH;
    in.window = 0;
    in.bits = 0;
    in.stopped = false;
    return STATUS_OK;
}

}  // namespace headrace
