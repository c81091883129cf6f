// The decode unit as a chain of processes; decode.hpp says what the chain does as a whole.
//
//   words -> parse -> entropy -> transform_columns -> transform_rows -> render -> frames, pixels
//
// Every stream between them ends on one beat that carries the final status, also after an error, so each
// process ends on that beat and on nothing else. Tables travel as single writes while the headers are read,
// as on a configuration bus, and land in the process that uses them. Hot arithmetic is in native C++ types:
// they are the same bits in hardware and several times faster in C simulation, which is the emulated device.
#include "decode/decode.hpp"

#include <cstdint>

#include "decode/huffman.hpp"
#include "decode/jpeg_parser.hpp"
#include "decode/stages.hpp"
#include "progressive/progressive.hpp"

namespace headrace {
namespace {

// ---- entropy: entropy-coded data -> coefficients ----

unsigned decode_block(hls::stream<Token>& tokens, BitReader& in, const HuffmanTables& tables,
                      unsigned dc_table, unsigned ac_table, uint8_t quant, int16_t& predictor,
                      hls::stream<Coefficient>& coefficients) {
    constexpr int LONGEST = 16 + 11;  // a code and the bits of a DC difference
    unsigned k = 0;                   // the next coefficient, in zigzag order
    while (k < 64) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT min = 2 max = 64
        refill(tokens, in);
        if (in.bits < LONGEST && !in.stopped) continue;

        const unsigned table = k == 0 ? dc_table : TABLES + ac_table;
        const unsigned code = in.window >> 48;
        const unsigned length = code_length(tables, table, code);
        if (length > 16 && in.bits >= 16) return STATUS_CORRUPT_HUFFMAN;
        if (length > 16) return stop_status(in);
        const uint8_t symbol = symbol_of(tables, table, code, length);
        const unsigned size = symbol & 15;
        const unsigned run = symbol >> 4;
        const int used = length + size;
        // Whatever the window holds, a valid symbol fits it or the data has stopped: what is found does not depend on
        // how far ahead bytes were read.
        if (static_cast<int>(length) > in.bits) return stop_status(in);
        if (size > (k == 0 ? 11u : 10u)) return STATUS_CORRUPT_HUFFMAN;  // beyond what 8-bit samples need
        if (used > in.bits) return stop_status(in);

        int value = extend(static_cast<uint32_t>(in.window << length >> 32), size);
        in.window <<= used;
        in.bits -= used;

        // Every symbol becomes one coefficient: ZRL a zero 15 places on, EOB a zero in the last place.
        if (k == 0) {
            predictor = static_cast<int16_t>(predictor + value);
            value = predictor;
        } else if (size == 0 && run != 15) {
            k = 63;
        } else {
            k += run;
        }
        if (k > 63) return STATUS_CORRUPT_HUFFMAN;
        coefficients.write({static_cast<int16_t>(value), static_cast<uint8_t>(k), quant, k == 63, false});
        k++;
    }
    return STATUS_OK;
}

void entropy(hls::stream<TableWrite>& writes, hls::stream<Scan>& scans, hls::stream<Token>& tokens,
             const Wanted& wanted, const ap_uint<128>* workspace_in, ap_uint<128>* workspace_out,
             hls::stream<Scan>& scans_out, hls::stream<Coefficient>& coefficients, uint32_t& workspace_needed) {
    HuffmanTables tables;  // what a scan uses has been written: parse_scan sees to it
#pragma HLS ARRAY_PARTITION variable = tables.limit dim = 2 complete
#pragma HLS ARRAY_PARTITION variable = tables.offset dim = 2 complete
    load_tables(writes, tables);
    const Scan scan = scans.read();
    scans_out.write(scan);
    workspace_needed = scan.workspace_bytes;
    unsigned status = scan.status;
    if (status == STATUS_OK && scan.several) {
        status = decode_scans(writes, scans, tokens, scan, wanted, tables, workspace_in, workspace_out, coefficients);
    } else if (status == STATUS_OK) {
        const Layout layout = layout_of(scan);
        const int mcu_rows = mcu_rows_for(scan, plan_resize(wanted, scan.width, scan.height).source);
        const int mcus = layout.mcus_across * mcu_rows;
        const bool cut = mcu_rows < layout.mcus_down;  // what follows is not looked at
        BitReader in = {};
        int16_t predictor[COMPONENTS] = {};  // 16 bits wrap, as libjpeg's coefficients do
        unsigned left_in_interval = scan.restart_interval;
        unsigned restart_number = 0;
        for (int mcu = 0; mcu < mcus && status == STATUS_OK; mcu++) {
            if (scan.restart_interval != 0 && left_in_interval == 0) {
                status = restart(tokens, in, restart_number);
                restart_number = (restart_number + 1) & 7;
                left_in_interval = scan.restart_interval;
                for (int c = 0; c < COMPONENTS; c++) predictor[c] = 0;
            }
            left_in_interval--;
            for (int block = 0; block < layout.blocks && status == STATUS_OK; block++) {
                const int c = block < layout.luma_blocks ? 0 : block - layout.luma_blocks + 1;
                status = decode_block(tokens, in, tables, scan.dc[c], scan.ac[c], scan.quant[c], predictor[c],
                                      coefficients);
            }
        }

        // The rest of the data: padding of less than a byte, perhaps bytes 0 and restart markers, the end of the scan.
        // libjpeg skips anything here, but data that was not used tells of damage before it.
        if (status == STATUS_OK && !cut && in.window << in.bits % 8 != 0) status = STATUS_CORRUPT_HUFFMAN;
        Token token = in.stopped ? in.stop : tokens.read();
        while (token.kind != FILE_END) {
#pragma HLS PIPELINE II = 1
            if (token.kind == DATA && token.value != 0 && status == STATUS_OK && !cut) status = STATUS_CORRUPT_HUFFMAN;
            token = tokens.read();
        }
        if (status == STATUS_OK && !cut) status = token.value;
    }
    coefficients.write({static_cast<int16_t>(status), 0, 0, false, true});
}

// ---- transform: coefficients -> samples ----

constexpr uint8_t ZIGZAG[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

int16_t saturate_16(int value) {
#pragma HLS INLINE
    return static_cast<int16_t>(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
}

// One dimension of the inverse DCT of Loeffler, Ligtenberg and Moschytz, constants in Q2.13, the result
// divided by 2^shift and rounded. Factorisation and word widths are those of libjpeg-turbo's AVX2 code: sums
// before a multiplication wrap in 16 bits, products and what follows fit 32 bits for any input, results
// saturate to 16 bits. That differs from exact arithmetic only for coefficients that no encoder writes.
void inverse_dct(const int16_t in[8], int shift, int16_t out[8]) {
#pragma HLS INLINE
    const int tmp2 = in[2] * 4433 + in[6] * (4433 - 15137);
    const int tmp3 = in[2] * (4433 + 6270) + in[6] * 4433;
    const int tmp0 = static_cast<int16_t>(in[0] + in[4]) * 8192;
    const int tmp1 = static_cast<int16_t>(in[0] - in[4]) * 8192;
    const int even[4] = {tmp0 + tmp3, tmp1 + tmp2, tmp1 - tmp2, tmp0 - tmp3};

    const int z3 = static_cast<int16_t>(in[7] + in[3]);
    const int z4 = static_cast<int16_t>(in[5] + in[1]);
    const int z3_sum = z3 * (9633 - 16069) + z4 * 9633;
    const int z4_sum = z3 * 9633 + z4 * (9633 - 3196);
    const int odd[4] = {
        in[1] * (12299 - 7373) - in[7] * 7373 + z4_sum,
        in[3] * (25172 - 20995) - in[5] * 20995 + z3_sum,
        in[5] * (16819 - 20995) - in[3] * 20995 + z4_sum,
        in[7] * (2446 - 7373) - in[1] * 7373 + z3_sum,
    };
    const int half = 1 << (shift - 1);
    for (int i = 0; i < 4; i++) {
#pragma HLS UNROLL
        out[i] = saturate_16((even[i] + odd[i] + half) >> shift);
        out[7 - i] = saturate_16((even[i] - odd[i] + half) >> shift);
    }
}

void transform_columns(hls::stream<TableWrite>& writes, hls::stream<Coefficient>& coefficients,
                       hls::stream<Column>& columns) {
    uint16_t quant[TABLES + COMPONENTS][64];  // in zigzag order, as in the file
    for (TableWrite write = writes.read(); write.field != GO; write = writes.read()) {
#pragma HLS PIPELINE
        if (write.field == QUANT) quant[write.table][write.index] = write.value;
        for (int k = 0; write.field == LATCH && k < 64; k++) quant[TABLES + write.index][k] = quant[write.table][k];
    }

    int16_t block[8][8] = {};  // [column][row]
#pragma HLS ARRAY_PARTITION variable = block complete
    while (true) {
        bool first_row_only = true;
        bool last = false;
        while (!last) {
#pragma HLS PIPELINE II = 1
            const Coefficient c = coefficients.read();
            if (c.end) {
                columns.write({{}, true, static_cast<uint8_t>(c.value)});
                return;
            }
            const unsigned row = ZIGZAG[c.index] / 8;
            const unsigned column = ZIGZAG[c.index] % 8;
            block[column][row] = static_cast<int16_t>(c.value * quant[c.quant][c.index]);  // keeps 16 bits
            if (row != 0 && c.value != 0) first_row_only = false;
            last = c.last;
        }
        for (int x = 0; x < 8; x++) {
#pragma HLS PIPELINE II = 1
            Column out = {};
            if (first_row_only) {  // the same numbers as below, except that what overflows wraps
                for (int y = 0; y < 8; y++) out.value[y] = static_cast<int16_t>(block[x][0] * 4);
            } else {
                inverse_dct(block[x], 11, out.value);
            }
            columns.write(out);
            for (int y = 0; y < 8; y++) block[x][y] = 0;
        }
    }
}

void transform_rows(hls::stream<Column>& columns, hls::stream<Samples>& samples) {
    int16_t block[8][8];  // [row][column]
#pragma HLS ARRAY_PARTITION variable = block complete
    while (true) {
        for (int x = 0; x < 8; x++) {
#pragma HLS PIPELINE II = 1
            const Column column = columns.read();
            if (column.end) {
                samples.write({{}, true, column.status});
                return;
            }
            for (int y = 0; y < 8; y++) block[y][x] = column.value[y];
        }
        for (int y = 0; y < 8; y++) {
#pragma HLS PIPELINE II = 1
            int16_t centred[8];
            inverse_dct(block[y], 18, centred);
            Samples out = {};
            for (int x = 0; x < 8; x++) {
#pragma HLS UNROLL
                const int value = centred[x] < -128 ? -128 : centred[x] > 127 ? 127 : centred[x];
                out.value[x] = static_cast<uint8_t>(value + 128);
            }
            samples.write(out);
        }
    }
}

// ---- render: samples -> pixels ----

// Row y of a component lies in row y modulo the size: two MCU rows, one being sent and the next filled in.
constexpr int LUMA_ROWS = 32;
constexpr int CHROMA_ROWS = 16;
struct RowBuffers {
    uint8_t luma[LUMA_ROWS][MAX_WIDTH];
    uint8_t cb[CHROMA_ROWS][MAX_WIDTH];
    uint8_t cr[CHROMA_ROWS][MAX_WIDTH];
};

// Where the next beat of samples goes.
struct Fill {
    int mcu_row, mcu, block, y;
    bool ended;       // the end beat has come,
    unsigned status;  // with this status
};

void take_beat(const Samples& beat, const Scan& scan, Fill& fill, RowBuffers& rows) {
#pragma HLS INLINE
    if (beat.end) {
        fill.ended = true;
        fill.status = beat.status;
        return;
    }
    const Layout layout = layout_of(scan);
    const bool luma = fill.block < layout.luma_blocks;
    int across = fill.mcu, down = fill.mcu_row;  // in blocks of the component
    if (luma) {
        across = (across << scan.h_shift) + (fill.block & ((1 << scan.h_shift) - 1));
        down = (down << scan.v_shift) + (fill.block >> scan.h_shift);
    }
    const int row = down * 8 + fill.y;
    for (int i = 0; i < 8; i++) {
#pragma HLS UNROLL
        const int x = across * 8 + i;
        if (luma) {
            rows.luma[row % LUMA_ROWS][x] = beat.value[i];
        } else if (fill.block == layout.luma_blocks) {
            rows.cb[row % CHROMA_ROWS][x] = beat.value[i];
        } else {
            rows.cr[row % CHROMA_ROWS][x] = beat.value[i];
        }
    }
    if (++fill.y < 8) return;
    fill.y = 0;
    if (++fill.block < layout.blocks) return;
    fill.block = 0;
    if (++fill.mcu < layout.mcus_across) return;
    fill.mcu = 0;
    fill.mcu_row++;
}

// Three parts of the near sample and one of the next, in each fancy direction. The rounding term alternates,
// so that halves do not all go up: 8, 7 along a 4:2:0 row, 1, 2 along a 4:2:2 row, 1, 2 down a 4:4:0 column.
int upsample(const uint8_t plane[CHROMA_ROWS][MAX_WIDTH], const Upsampling& up, int near_y, int far_y,
             int near_x, int far_x, bool odd_x, bool odd_y) {
#pragma HLS INLINE
    int near = plane[near_y][near_x];
    if (up.fancy_v) near = 3 * near + plane[far_y][near_x];
    if (!up.fancy_h) return up.fancy_v ? (near + (odd_y ? 2 : 1)) >> 2 : near;
    int far = plane[near_y][far_x];
    if (up.fancy_v) far = 3 * far + plane[far_y][far_x];
    const int sum = 3 * near + far;
    return up.fancy_v ? (sum + (odd_x ? 7 : 8)) >> 4 : (sum + (odd_x ? 2 : 1)) >> 2;
}

uint8_t clamp_8(int value) {
#pragma HLS INLINE
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Sends row y, unless it is one before the window, and at the same time takes samples, as long as they are of MCU row
// `fill_row`.
void emit_row(const Scan& scan, const Upsampling& up, int y, const Window& window, int fill_row,
              hls::stream<Samples>& samples, Fill& fill, RowBuffers& rows, hls::stream<Pixel>& pixels) {
    const int chroma_y = y >> scan.v_shift;
    const bool odd_y = y & 1;
    int far_y = odd_y ? chroma_y + 1 : chroma_y - 1;
    far_y = far_y < 0 ? 0 : far_y >= up.height ? up.height - 1 : far_y;
    const int near_row = chroma_y % CHROMA_ROWS;
    const int far_row = far_y % CHROMA_ROWS;
    const int first = window.first_column, last = window.last_column;
    const int first_near = first >> scan.h_shift, last_near = last >> scan.h_shift;
    for (int x = first; x <= last; x++) {
#pragma HLS PIPELINE II = 1
        int red, green, blue;
        red = green = blue = rows.luma[y % LUMA_ROWS][x];
        if (scan.components == COMPONENTS) {
            const int near_x = x >> scan.h_shift;
            const bool odd_x = x & 1;
            int far_x = odd_x ? near_x + 1 : near_x - 1;
            far_x = far_x < first_near ? first_near : far_x > last_near ? last_near : far_x;
            const int cb = upsample(rows.cb, up, near_row, far_row, near_x, far_x, odd_x, odd_y);
            const int cr = upsample(rows.cr, up, near_row, far_row, near_x, far_x, odd_x, odd_y);
            if (scan.rgb) {
                green = cb;
                blue = cr;
            } else {  // 1.402, 0.344136, 0.714136, 1.772 in Q1.16; green is rounded once, on the sum
                constexpr int HALF = 1 << 15;
                red += (91881 * (cr - 128) + HALF) >> 16;
                green += (-22554 * (cb - 128) - 46802 * (cr - 128) + HALF) >> 16;
                blue += (116130 * (cb - 128) + HALF) >> 16;
            }
        }
        Pixel pixel;
        pixel.r = clamp_8(red);
        pixel.g = clamp_8(green);
        pixel.b = clamp_8(blue);
        pixel.last = y == static_cast<int>(window.last_row) && x == last;
        pixel.status = STATUS_OK;
        if (y >= static_cast<int>(window.first_row)) pixels.write(pixel);

        Samples beat;
        if (fill.mcu_row == fill_row && !fill.ended && samples.read_nb(beat)) {
            take_beat(beat, scan, fill, rows);
        }
    }
}

void render(hls::stream<Scan>& scans, hls::stream<Samples>& samples, const Wanted& wanted,
            hls::stream<Frame>& frames, hls::stream<Pixel>& pixels) {
    RowBuffers rows;
#pragma HLS ARRAY_PARTITION variable = rows.luma dim = 1 complete
#pragma HLS ARRAY_PARTITION variable = rows.cb dim = 1 complete
#pragma HLS ARRAY_PARTITION variable = rows.cr dim = 1 complete
#pragma HLS ARRAY_RESHAPE variable = rows.luma dim = 2 cyclic factor = 8
#pragma HLS ARRAY_RESHAPE variable = rows.cb dim = 2 cyclic factor = 8
#pragma HLS ARRAY_RESHAPE variable = rows.cr dim = 2 cyclic factor = 8
    const Scan scan = scans.read();
    const Upsampling up = choose_upsampling(scan);
    const bool sound = scan.status == STATUS_OK;
    const Window window = sound ? plan_resize(wanted, scan.width, scan.height).source : Window{};
    const int mcu_rows = sound ? mcu_rows_for(scan, window) : 0;
    Fill fill = {};
    int y = 0;  // the next row to send
    for (int mcu_row = 0; mcu_row < mcu_rows; mcu_row++) {
        const bool last_mcu_row = mcu_row == mcu_rows - 1;
        while (!fill.ended && (fill.mcu_row == mcu_row || last_mcu_row)) {
#pragma HLS PIPELINE II = 1
            take_beat(samples.read(), scan, fill, rows);
        }
        // The last MCU row also waits for the end beat: was the file sound to its end?
        if (fill.mcu_row == mcu_row || (last_mcu_row && fill.status != STATUS_OK)) break;

        int rows_ready = (mcu_row + 1) * (8 << scan.v_shift);
        if (last_mcu_row) {
            rows_ready = window.last_row + 1;
        } else if (up.fancy_v) {
            rows_ready--;  // the last row also needs the chroma row below it
        }
        if (y == 0) frames.write({scan.width, scan.height, STATUS_OK});
        // The first two rows may still use rows of the MCU row before, whose place the next one takes.
        const int fill_from = y + 2;
        for (; y < rows_ready; y++) {
            const bool fill_next = !last_mcu_row && y >= fill_from;
            emit_row(scan, up, y, window, fill_next ? mcu_row + 1 : -1, samples, fill, rows, pixels);
        }
    }
    if (!fill.ended) fill.status = samples.read().status;  // the headers were bad: only the end beat comes
    if (fill.status != STATUS_OK) {
        if (y == 0) {
            frames.write({0, 0, fill.status});
        } else {
            pixels.write({0, 0, 0, 1, fill.status});
        }
    }
}

}  // namespace

void decode(WordStream& words, ap_uint<32> jpeg_bytes, const Wanted& wanted, const ap_uint<128>* workspace_in,
            ap_uint<128>* workspace_out, uint32_t workspace_bytes, hls::stream<Frame>& frames,
            hls::stream<Pixel>& pixels, uint32_t& workspace_needed) {
#pragma HLS DATAFLOW
    hls::stream<TableWrite> quant_writes("decode quantisation tables");
    hls::stream<TableWrite> huffman_writes("decode Huffman tables");
    hls::stream<Scan> parsed("decode scan");
    hls::stream<Scan> scans("decode scan at render");
    hls::stream<Token> tokens("decode tokens");
    hls::stream<Coefficient> coefficients("decode coefficients");
    hls::stream<Column> columns("decode columns");
    hls::stream<Samples> samples("decode samples");
#pragma HLS STREAM variable = tokens depth = 64
#pragma HLS STREAM variable = coefficients depth = 128
#pragma HLS STREAM variable = columns depth = 16
#pragma HLS STREAM variable = samples depth = 64
    parse(words, jpeg_bytes, workspace_bytes, quant_writes, huffman_writes, parsed, tokens);
    entropy(huffman_writes, parsed, tokens, wanted, workspace_in, workspace_out, scans, coefficients, workspace_needed);
    transform_columns(quant_writes, coefficients, columns);
    transform_rows(columns, samples);
    render(scans, samples, wanted, frames, pixels);
}

void decode(WordStream& words, ap_uint<32> jpeg_bytes, const Wanted& wanted, hls::stream<Frame>& frames,
            hls::stream<Pixel>& pixels) {
    uint32_t workspace_needed;
    decode(words, jpeg_bytes, wanted, nullptr, nullptr, 0, frames, pixels, workspace_needed);
}

}  // namespace headrace
