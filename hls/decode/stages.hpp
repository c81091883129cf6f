// What travels between the processes of decode: the frame and scan headers, tables, data, coefficients and samples.
#pragma once

#include <cstdint>

#include "headrace/image_stream.hpp"
#include "hls_stream.h"
#include "resize/plan.hpp"

namespace headrace {

constexpr int COMPONENTS = 3;
constexpr int TABLES = 4;  // of each kind: quantisation, DC, AC

// The frame and scan headers, resolved. Sent once; if its status is not OK, no table and no data follow. A file whose
// coefficients come in several scans has one for each, and one that ends the file: `file_end`, or a status.
struct Scan {
    uint8_t status;
    uint16_t width, height;
    uint8_t components;          // 1 or 3
    uint8_t h_shift, v_shift;    // log2 of the greatest sampling factors, which luma has
    uint8_t h[COMPONENTS], v[COMPONENTS];  // of each component's; all 0 for gray
    bool rgb;                    // the components are R, G, B
    uint16_t restart_interval;   // MCUs, 0 for none
    uint8_t quant[COMPONENTS], dc[COMPONENTS], ac[COMPONENTS];  // table numbers
    bool several;                // the frame is progressive, or the first scan lacks a component
    bool progressive;
    bool file_end;               // no scan: EOI, behind a complete image
    uint8_t members;             // components of the scan,
    uint8_t member[COMPONENTS];  // and which they are, ascending
    uint8_t first, last;         // band of coefficients, in zigzag order
    uint8_t high, low;           // successive approximation: lowest bit before the scan (0: none) and behind it
    uint32_t workspace_bytes;    // that its coefficients need, if `several`
};

// How the blocks of a scan lie in MCUs: those of each component row by row, luma, then Cb, then Cr; gray is luma only.
struct Layout {
    int first[COMPONENTS];       // block of each component in an MCU
    int blocks;                  // in an MCU
    int mcus_across, mcus_down;
};

inline Layout layout_of(const Scan& scan) {
#pragma HLS INLINE
    Layout layout;
    layout.blocks = 0;
    for (int c = 0; c < COMPONENTS; c++) {
#pragma HLS UNROLL
        layout.first[c] = layout.blocks;
        if (c < scan.components) layout.blocks += 1 << (scan.h[c] + scan.v[c]);
    }
    layout.mcus_across = (scan.width + (8 << scan.h_shift) - 1) >> (3 + scan.h_shift);
    layout.mcus_down = (scan.height + (8 << scan.v_shift) - 1) >> (3 + scan.v_shift);
    return layout;
}

// Of which component a block of an MCU is.
inline int component_of(const Layout& layout, int block) {
#pragma HLS INLINE
    return (block >= layout.first[1]) + (block >= layout.first[2]);
}

// How a component of chroma is brought to the size of luma: triangle filter in a direction ("fancy") or replication.
struct Upsampling {
    int h_shift, v_shift;  // log2 of how many samples of luma stand beside one of chroma
    int height;            // rows of chroma that are part of the image; beyond them the edge repeats
    bool fancy_h, fancy_v;
};

inline Upsampling choose_upsampling(const Scan& scan, int component) {
#pragma HLS INLINE
    Upsampling up;
    up.h_shift = scan.h_shift - scan.h[component];
    up.v_shift = scan.v_shift - scan.v[component];
    up.height = (scan.height + (1 << up.v_shift) - 1) >> up.v_shift;
    // libjpeg replicates where there is one sample of four either way, as in 4:1:1 and 4:1:0, and where one of two across
    // leaves at most two columns.
    up.fancy_h = up.h_shift == 1 && up.v_shift <= 1 && scan.width > 4;
    up.fancy_v = up.v_shift == 1 && (up.h_shift == 0 || up.fancy_h);
    return up;
}

// Whether the last row of an MCU row needs chroma of the row below.
inline bool needs_row_below(const Scan& scan) {
#pragma HLS INLINE
    return choose_upsampling(scan, 1).fancy_v || choose_upsampling(scan, 2).fancy_v;
}

// How many MCU rows are decoded for it: the triangle filter between rows of chroma may want the row below.
inline int mcu_rows_for(const Scan& scan, const Window& window) {
#pragma HLS INLINE
    const uint32_t below = window.last_row + needs_row_below(scan), bottom = scan.height - 1;
    return ((below < bottom ? below : bottom) >> (3 + scan.v_shift)) + 1;
}

// One write into a table. Code lengths are `index` + 1 in LIMIT and OFFSET; table 0..3 is DC and 4..7 AC.
enum TableField : uint8_t { LIMIT, OFFSET, SYMBOL, QUANT, LATCH, GO };
struct TableWrite {
    uint8_t field;  // LATCH: table TABLES + `index` becomes what `table` is now. GO: the tables are as the scan uses them
    uint8_t table, index;
    uint16_t value;
};

// The entropy-coded segments with stuffing removed.
enum TokenKind : uint8_t {
    DATA,      // value: up to four bytes, the first one on top, zeros below the last
    RESTART,   // value: number of the RSTn marker
    SCAN_END,  // another marker, or no more bytes. value: the status if the scan is not complete by then
    FILE_END,  // value: what the file looked like from there on to EOI. Not if there are several scans: a Scan says it
};
struct Token {
    uint8_t kind;
    uint8_t bytes;  // of DATA
    uint32_t value;
};
constexpr unsigned TOKEN_BYTES = 4;

// One Huffman symbol: the coefficient at `index` in zigzag order; those not sent are zero.
struct Coefficient {
    int16_t value;   // before dequantisation; in the end beat the status
    uint8_t index;
    uint8_t quant;   // table number; TABLES and on are those of the components, where there are several scans
    bool last;       // of its block
    bool end;        // of the image
};

// Dequantised.
struct CoefficientBlock {
    int16_t value[8][8];  // [row][column]
    bool first_row_only;  // all others are zero
    bool end;             // instead of a block: the image ends, with `status`
    uint8_t status;
};

// Eight samples of a row, left to right: a word of the row buffers.
struct SampleRow {
    uint8_t value[8];
};

struct SampleBlock {
    SampleRow row[8];
    bool end;
    uint8_t status;
};

}  // namespace headrace
