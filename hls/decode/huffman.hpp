// Huffman codes and single bits out of entropy-coded data, for scans of every kind.
#pragma once

#include <cstdint>

#include "decode/stages.hpp"

namespace headrace {

struct HuffmanTables {
    uint16_t limit[2 * TABLES][16];
    uint8_t offset[2 * TABLES][16];
    uint8_t symbol[2 * TABLES][256];
};

// Up to GO.
inline void load_tables(hls::stream<TableWrite>& writes, HuffmanTables& tables) {
    for (TableWrite write = writes.read(); write.field != GO; write = writes.read()) {
#pragma HLS PIPELINE II = 1
        if (write.field == LIMIT) tables.limit[write.table][write.index] = write.value;
        if (write.field == OFFSET) tables.offset[write.table][write.index] = write.value;
        if (write.field == SYMBOL) tables.symbol[write.table][write.index] = write.value;
    }
}

// Of the code that the 16 bits of `window` begin with; 17 if there is none.
inline unsigned code_length(const HuffmanTables& tables, unsigned table, unsigned window) {
#pragma HLS INLINE
    unsigned length = 1;
    for (int n = 0; n < 16; n++) {
#pragma HLS UNROLL
        length += window >= tables.limit[table][n];
    }
    return length;
}

inline uint8_t symbol_of(const HuffmanTables& tables, unsigned table, unsigned window, unsigned length) {
#pragma HLS INLINE
    const unsigned place = (window >> (16 - length)) + tables.offset[table][length - 1];
    return tables.symbol[table][place & 255];
}

struct BitReader {
    uint64_t window;  // next bit on top, zeros below the last; no more than 40 bits are held
    int bits;
    bool stopped;     // at `stop`, a token that is not DATA
    Token stop;
};

// Takes one byte if there is room, so that at most one token is read per clock.
inline void refill(hls::stream<Token>& tokens, BitReader& in) {
#pragma HLS INLINE
    if (in.stopped || in.bits > 32) return;
    const Token token = tokens.read();
    if (token.kind == DATA) {
        in.window |= static_cast<uint64_t>(token.value) << (56 - in.bits);
        in.bits += 8;
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

// Between two restart intervals: nothing but RSTn may be left.
inline unsigned restart(hls::stream<Token>& tokens, BitReader& in, unsigned number) {
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
