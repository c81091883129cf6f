// The decode unit as a chain of processes; decode.hpp says what the chain does as a whole.
//
//   words -> parse -> entropy -> dequantise -> transform -> render -> frames, pixels
//
// Every stream between them ends on one beat that carries the final status, also after an error, so each
// process ends on that beat and on nothing else. Tables travel as single writes while the headers are read,
// as on a configuration bus, and land in the process that uses them. Hot arithmetic is in native C++ types:
// they are the same bits in hardware and several times faster in C simulation, which is the emulated device.
#include "decode/decode.hpp"

#include <cstdint>

#include "decode/entropy/huffman.hpp"
#include "decode/parse/jpeg_parser.hpp"
#include "decode/stages.hpp"
#include "decode/progressive/progressive.hpp"

namespace headrace {
namespace {

// ---- entropy: entropy-coded data -> coefficients ----

// The blocks of `mcus` MCUs in one loop, so that its pipeline is filled once an image and not once a block. From symbol to
// symbol goes only the window (look-up and shift), how many bits it holds, and the place in the block (a sum), which
// chooses the table; the value of a coefficient is worked out behind the loop, but for the sum with the one before it.
unsigned decode_blocks(hls::stream<Token>& tokens, BitReader& in, const HuffmanTables& tables, const Scan& scan,
                       const Layout& layout, int mcus, hls::stream<Coefficient>& coefficients) {
    constexpr int LONGEST = 16 + DC_BITS;    // a code and the bits of a DC difference
    int16_t predictor[COMPONENTS] = {};      // 16 bits wrap, as libjpeg's coefficients do
#pragma HLS ARRAY_PARTITION variable = predictor complete
    unsigned left_in_interval = scan.restart_interval;
    unsigned restart_number = 0;
    unsigned k = 0;                          // the next coefficient, in zigzag order
    int block = 0, component = 0;            // in the MCU
    LongCode pending = {};                   // at the top of the window
    unsigned status = STATUS_OK;
    while (mcus > 0 && status == STATUS_OK) {
#pragma HLS PIPELINE II = 1
        const bool dc = k == 0;
        const bool due = dc && block == 0 && scan.restart_interval != 0 && left_in_interval == 0;
        const unsigned table = dc ? scan.dc[component] : TABLES + scan.ac[component];
        Code code = {};
        if (due) {
            status = restart(tokens, in, restart_number);
            restart_number = (restart_number + 1) & 7;
            left_in_interval = scan.restart_interval;
            for (int c = 0; c < COMPONENTS; c++) predictor[c] = 0;
        } else if (in.bits < LONGEST && !in.stopped) {
            refill(tokens, in);
        } else if (look_up(in.window >> 48, table, tables, pending, code)) {
            status = code_status(code, dc ? DC_BITS : AC_BITS, in);
            const unsigned size = code.symbol & 15, run = code.symbol >> 4;
            const unsigned total = code.total & 31, length = (code.total - size) & 31;  // of a sound code they fit
            // Every symbol becomes one coefficient: ZRL a zero 15 places on, EOB a zero in the last place.
            const bool end_of_block = !dc && size == 0 && run != 15;
            const unsigned index = dc ? 0 : end_of_block ? 63 : k + run;
            if (status == STATUS_OK && index > 63) status = STATUS_CORRUPT_HUFFMAN;
            if (status == STATUS_OK) {
                int value = extend(static_cast<uint32_t>(in.window << length >> 32), size);
                if (dc) {
                    predictor[component] = static_cast<int16_t>(predictor[component] + value);
                    value = predictor[component];
                }
                const bool last = index == 63;
                coefficients.write(
                    {static_cast<int16_t>(value), static_cast<uint8_t>(index), scan.quant[component], last, false});
                in.window <<= total;
                in.bits -= static_cast<int>(total);
                refill(tokens, in);
                k = last ? 0 : index + 1;
                if (last) {
                    block++;
                    if (block == layout.blocks) {
                        block = 0;
                        mcus--;
                        left_in_interval--;
                    }
                    component = component_of(layout, block);
                }
            }
        }
    }
    return status;
}

void entropy(hls::stream<TableWrite>& writes, hls::stream<Scan>& scans, hls::stream<Token>& tokens,
             const Wanted& wanted, const ap_uint<128>* workspace_in, ap_uint<128>* workspace_out,
             hls::stream<Scan>& scans_out, hls::stream<Coefficient>& coefficients, uint32_t& workspace_needed) {
    HuffmanTables tables;
#pragma HLS AGGREGATE variable = tables.brief
#pragma HLS ARRAY_PARTITION variable = tables.brief dim = 2 cyclic factor = 8
#pragma HLS BIND_STORAGE variable = tables.brief type = ram_s2p impl = lutram
#pragma HLS BIND_STORAGE variable = tables.symbol type = ram_s2p impl = bram latency = 1
#pragma HLS ARRAY_PARTITION variable = tables.limit dim = 2 complete
#pragma HLS ARRAY_PARTITION variable = tables.offset dim = 2 complete
    load_tables(writes, tables);
    const Scan scan = scans.read();
    scans_out.write(scan);
    workspace_needed = scan.workspace_bytes;
    unsigned status = scan.status;
    if (PROGRESSIVE && status == STATUS_OK && scan.several) {
        status = decode_scans(writes, scans, tokens, scan, wanted, tables, workspace_in, workspace_out, coefficients);
    } else if (status == STATUS_OK) {
        const Layout layout = layout_of(scan);
        const int mcu_rows = mcu_rows_for(scan, plan_resize(wanted, scan.width, scan.height).source);
        const bool cut = mcu_rows < layout.mcus_down;  // what follows is not looked at
        BitReader in = {};
        status = decode_blocks(tokens, in, tables, scan, layout, layout.mcus_across * mcu_rows, coefficients);

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

void dequantise(hls::stream<TableWrite>& writes, hls::stream<Coefficient>& coefficients,
                hls::stream<CoefficientBlock>& blocks) {
    uint16_t quant[TABLES + COMPONENTS][64];  // in zigzag order, as in the file
    for (TableWrite write = writes.read(); write.field != GO; write = writes.read()) {
        if (write.field == QUANT) {
            quant[write.table][write.index] = write.value;
        } else {
            for (int k = 0; k < 64; k++) {
#pragma HLS PIPELINE II = 1
                quant[TABLES + write.index][k] = quant[write.table][k];
            }
        }
    }

    CoefficientBlock block = {};
#pragma HLS ARRAY_PARTITION variable = block.value complete dim = 0
    block.first_row_only = true;
    while (!block.end) {
#pragma HLS PIPELINE II = 1
        const Coefficient c = coefficients.read();
        if (c.end) {
            block.end = true;
            block.status = static_cast<uint8_t>(c.value);
        } else {
            const unsigned row = ZIGZAG[c.index] / 8, column = ZIGZAG[c.index] % 8;
            block.value[row][column] = static_cast<int16_t>(c.value * quant[c.quant][c.index]);  // keeps 16 bits
            if (row != 0 && c.value != 0) block.first_row_only = false;
        }
        if (c.last || c.end) blocks.write(block);
        if (c.last) {
            block = {};
            block.first_row_only = true;
        }
    }
}

// A block in eight clocks: a column and a row in each.
void transform(hls::stream<CoefficientBlock>& blocks, hls::stream<SampleBlock>& samples) {
    bool end = false;
    while (!end) {
#pragma HLS PIPELINE II = 8
        const CoefficientBlock in = blocks.read();
        SampleBlock out = {};
        end = out.end = in.end;
        out.status = in.status;
        int16_t half_done[8][8];  // [row][column]
        for (int x = 0; x < 8; x++) {
            int16_t column[8], result[8];
            for (int y = 0; y < 8; y++) column[y] = in.value[y][x];
            inverse_dct(column, 11, result);
            for (int y = 0; y < 8; y++) {
                // Of the first row alone the same numbers, except that what overflows wraps.
                const int16_t flat = static_cast<int16_t>(in.value[0][x] * 4);
                half_done[y][x] = in.first_row_only ? flat : result[y];
            }
        }
        for (int y = 0; y < 8; y++) {
            int16_t centred[8];
            inverse_dct(half_done[y], 18, centred);
            for (int x = 0; x < 8; x++) {
                const int value = centred[x] < -128 ? -128 : centred[x] > 127 ? 127 : centred[x];
                out.row[y].value[x] = static_cast<uint8_t>(value + 128);
            }
        }
        samples.write(out);
    }
}

// ---- render: samples -> pixels ----

// Row y of a component lies in row y modulo the size: two MCU rows, one being sent and the next filled in. Each row is a
// memory of its own, of words of eight samples with one port to read and one to write, so that a block goes in at once.
// Of a component that has more rows in two MCU rows two or four share a memory; its rows are as much shorter.
constexpr int LUMA_ROWS = 32;
constexpr int CHROMA_ROWS = 16;
constexpr int ROW_WORDS = MAX_WIDTH / 8;
struct RowBuffers {
    SampleRow luma[LUMA_ROWS][ROW_WORDS];
    SampleRow cb[CHROMA_ROWS][ROW_WORDS];
    SampleRow cr[CHROMA_ROWS][ROW_WORDS];
};

// Where the next block of samples goes.
struct Fill {
    int mcu_row, mcu, block;
    bool ended;       // the end beat has come,
    unsigned status;  // with this status
};

// Where a row begins in its memory; `v` is log2 of the component's rows of blocks in an MCU.
int luma_begin(int row, int v) {
#pragma HLS INLINE
    return v == 2 ? row / LUMA_ROWS % 2 * (ROW_WORDS / 2) : 0;
}

int chroma_begin(int row, int v) {
#pragma HLS INLINE
    return (row / CHROMA_ROWS & ((1 << v) - 1)) * (ROW_WORDS >> v);
}

void take_block(const SampleBlock& samples, const Scan& scan, Fill& fill, RowBuffers& rows) {
#pragma HLS INLINE
    if (samples.end) {
        fill.ended = true;
        fill.status = samples.status;
        return;
    }
    const Layout layout = layout_of(scan);
    const int component = component_of(layout, fill.block), block = fill.block - layout.first[component];
    const int h = scan.h[component], v = scan.v[component];
    const int across = (fill.mcu << h) + (block & ((1 << h) - 1));  // in blocks of the component
    const int down = (fill.mcu_row << v) + (block >> h);
    const int luma_word = luma_begin(down * 8, v) + across, chroma_word = chroma_begin(down * 8, v) + across;
    for (int y = 0; y < 8; y++) {
#pragma HLS UNROLL
        const int row = down * 8 + y;
        if (component == 0) {
            rows.luma[row % LUMA_ROWS][luma_word] = samples.row[y];
        } else if (component == 1) {
            rows.cb[row % CHROMA_ROWS][chroma_word] = samples.row[y];
        } else {
            rows.cr[row % CHROMA_ROWS][chroma_word] = samples.row[y];
        }
    }
    if (++fill.block < layout.blocks) return;
    fill.block = 0;
    if (++fill.mcu < layout.mcus_across) return;
    fill.mcu = 0;
    fill.mcu_row++;
}

// Which samples of a component of chroma a row of luma needs.
struct ChromaRows {
    int near_row, far_row;      // in the buffers
    int near_begin, far_begin;  // words of these
    int first, last;            // columns; beyond them the edge repeats
    bool odd;                   // the row of luma
};

ChromaRows chroma_rows(const Scan& scan, int component, const Upsampling& up, int y, const Window& window) {
#pragma HLS INLINE
    ChromaRows chroma;
    const int near = y >> up.v_shift;
    chroma.odd = y & 1;
    int far = chroma.odd ? near + 1 : near - 1;
    far = far < 0 ? 0 : far >= up.height ? up.height - 1 : far;
    chroma.near_row = near % CHROMA_ROWS;
    chroma.far_row = far % CHROMA_ROWS;
    chroma.near_begin = chroma_begin(near, scan.v[component]);
    chroma.far_begin = chroma_begin(far, scan.v[component]);
    chroma.first = window.first_column >> up.h_shift;
    chroma.last = window.last_column >> up.h_shift;
    return chroma;
}

// What eight pixels need of a row of chroma: those beside them, and one on either side in case of the triangle filter.
constexpr int AROUND = 10;
struct Around {
    int value[AROUND];
};

// `base` is the word of the first sample that is beside the pixels, `side` the one that has the outermost.
Around around(const SampleRow& base, const SampleRow& side, int h_shift, bool second_half) {
#pragma HLS INLINE
    Around out = {};
    if (h_shift == 0) {
        for (int i = 0; i < 8; i++) out.value[1 + i] = base.value[i];
    } else if (h_shift == 1) {
        for (int i = 0; i < 4; i++) out.value[1 + i] = second_half ? base.value[4 + i] : base.value[i];
        out.value[0] = second_half ? base.value[3] : side.value[7];
        out.value[5] = second_half ? side.value[0] : base.value[4];
    }
    return out;
}

// The chroma of eight pixels, those of word `word` of luma. Three parts of the near sample and one of the next, in each
// fancy direction. The rounding term alternates, so that halves do not all go up: 8, 7 along a 4:2:0 row, 1, 2 along a
// 4:2:2 row, 1, 2 down a 4:4:0 column.
void upsample(const SampleRow plane[CHROMA_ROWS][ROW_WORDS], const Upsampling& up, const ChromaRows& chroma, int word,
              int out[8]) {
#pragma HLS INLINE
    const int begin = word * 8 >> up.h_shift, base = begin / 8;
    const SampleRow* const near_row = &plane[chroma.near_row][chroma.near_begin];
    const SampleRow* const far_row = &plane[chroma.far_row][chroma.far_begin];
    if (up.h_shift == 2) {  // replicated: two samples
        const SampleRow near = near_row[base];
        for (int i = 0; i < 8; i++) out[i] = near.value[begin % 8 + i / 4];
        return;
    }
    const bool second_half = begin % 8 != 0;
    int side = second_half ? base + 1 : base - 1;
    side = side < chroma.first / 8 ? chroma.first / 8 : side > chroma.last / 8 ? chroma.last / 8 : side;
    // Two words of each of two rows, which are memories of their own: two reads of a port in the four clocks of a beat.
    Around sums = around(near_row[base], near_row[side], up.h_shift, second_half);
    if (up.fancy_v) {
        const Around far = around(far_row[base], far_row[side], up.h_shift, second_half);
        for (int i = 0; i < AROUND; i++) sums.value[i] = 3 * sums.value[i] + far.value[i];
    }
    if (up.fancy_h) {
        if (begin == chroma.first) sums.value[0] = sums.value[1];
        for (int i = 2; i < 6; i++) {
            if (begin - 1 + i == chroma.last + 1) sums.value[i] = sums.value[i - 1];
        }
        for (int i = 0; i < 8; i++) {
#pragma HLS UNROLL
            const bool odd = i & 1;
            const int sum = 3 * sums.value[1 + i / 2] + sums.value[odd ? 2 + i / 2 : i / 2];
            out[i] = up.fancy_v ? (sum + (odd ? 7 : 8)) >> 4 : (sum + (odd ? 2 : 1)) >> 2;
        }
    } else {
        for (int i = 0; i < 8; i++) {
#pragma HLS UNROLL
            const int near = sums.value[1 + (i >> up.h_shift)];
            out[i] = up.fancy_v ? (near + (chroma.odd ? 2 : 1)) >> 2 : near;
        }
    }
}

uint8_t clamp_8(int value) {
#pragma HLS INLINE
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Sends row y and at the same time takes samples, as long as they are of MCU row `fill_row`.
void emit_row(const Scan& scan, const Upsampling& up_cb, const Upsampling& up_cr, int y, const Window& window, int fill_row,
              hls::stream<SampleBlock>& samples, Fill& fill, RowBuffers& rows, hls::stream<Beat>& pixels) {
    const bool color = scan.components == COMPONENTS;
    const ChromaRows chroma_cb = chroma_rows(scan, 1, up_cb, y, window), chroma_cr = chroma_rows(scan, 2, up_cr, y, window);
    const int first = window.first_column / 8, last = window.last_column / 8;
    for (int word = first; word <= last; word++) {
#pragma HLS PIPELINE II = 4
// No row that is sent is one being filled: they are of other MCU rows, see fill_from.
#pragma HLS DEPENDENCE variable = rows.luma type = inter dependent = false
#pragma HLS DEPENDENCE variable = rows.cb type = inter dependent = false
#pragma HLS DEPENDENCE variable = rows.cr type = inter dependent = false
        const SampleRow luma = rows.luma[y % LUMA_ROWS][luma_begin(y, scan.v[0]) + word];
        int cb[8], cr[8];
        if (color) {
            upsample(rows.cb, up_cb, chroma_cb, word, cb);
            upsample(rows.cr, up_cr, chroma_cr, word, cr);
        }
        Beat beat = {};
        for (int i = 0; i < 8; i++) {
            int red, green, blue;
            red = green = blue = luma.value[i];
            if (color && scan.rgb) {
                green = cb[i];
                blue = cr[i];
            } else if (color) {  // 1.402, 0.344136, 0.714136, 1.772 in Q1.16; green is rounded once, on the sum
                constexpr int HALF = 1 << 15;
                red += (91881 * (cr[i] - 128) + HALF) >> 16;
                green += (-22554 * (cb[i] - 128) - 46802 * (cr[i] - 128) + HALF) >> 16;
                blue += (116130 * (cb[i] - 128) + HALF) >> 16;
            }
            beat.value[0][i] = clamp_8(red);
            beat.value[1][i] = clamp_8(green);
            beat.value[2][i] = clamp_8(blue);
        }
        beat.end = word == last ? window.last_column % 8 + 1 : 8;
        beat.last = y == static_cast<int>(window.last_row) && word == last;
        pixels.write(beat);

        SampleBlock block;
        if (fill.mcu_row == fill_row && !fill.ended && samples.read_nb(block)) {
            take_block(block, scan, fill, rows);
        }
    }
}

void render(hls::stream<Scan>& scans, hls::stream<SampleBlock>& samples, const Wanted& wanted,
            hls::stream<Frame>& frames, hls::stream<Beat>& pixels) {
    RowBuffers rows;
#pragma HLS ARRAY_PARTITION variable = rows.luma dim = 1 complete
#pragma HLS ARRAY_PARTITION variable = rows.cb dim = 1 complete
#pragma HLS ARRAY_PARTITION variable = rows.cr dim = 1 complete
#pragma HLS AGGREGATE variable = rows.luma
#pragma HLS AGGREGATE variable = rows.cb
#pragma HLS AGGREGATE variable = rows.cr
    const Scan scan = scans.read();
    const bool sound = scan.status == STATUS_OK;
    const Upsampling up_cb = sound ? choose_upsampling(scan, 1) : Upsampling{};
    const Upsampling up_cr = sound ? choose_upsampling(scan, 2) : Upsampling{};
    const Window window = sound ? plan_resize(wanted, scan.width, scan.height).source : Window{};
    const int mcu_rows = sound ? mcu_rows_for(scan, window) : 0;
    Fill fill = {};
    bool framed = false;
    int y = window.first_row;  // the next row to send
    for (int mcu_row = 0; mcu_row < mcu_rows; mcu_row++) {
        const bool last_mcu_row = mcu_row == mcu_rows - 1;
        while (!fill.ended && (fill.mcu_row == mcu_row || last_mcu_row)) {
#pragma HLS PIPELINE II = 1
            take_block(samples.read(), scan, fill, rows);
        }
        // The last MCU row also waits for the end beat: was the file sound to its end?
        if (fill.mcu_row == mcu_row || (last_mcu_row && fill.status != STATUS_OK)) break;

        int rows_ready = (mcu_row + 1) * (8 << scan.v_shift);
        if (last_mcu_row) {
            rows_ready = window.last_row + 1;
        } else if (up_cb.fancy_v || up_cr.fancy_v) {
            rows_ready--;  // the last row also needs the chroma row below it
        }
        if (!framed) frames.write({scan.width, scan.height, STATUS_OK});
        framed = true;
        // The first two rows may still use rows of the MCU row before, whose place the next one takes.
        const int fill_from = y + 2;
        for (; y < rows_ready; y++) {
            const bool fill_next = !last_mcu_row && y >= fill_from;
            emit_row(scan, up_cb, up_cr, y, window, fill_next ? mcu_row + 1 : -1, samples, fill, rows, pixels);
        }
    }
    if (!fill.ended) fill.status = samples.read().status;  // the headers were bad: only the end beat comes
    if (fill.status != STATUS_OK) {
        if (framed) {
            pixels.write(end_of_frame(static_cast<uint8_t>(fill.status)));
        } else {
            frames.write({0, 0, fill.status});
        }
    }
}

}  // namespace

void decode(WordStream& words, ap_uint<32> jpeg_bytes, const Wanted& wanted, const ap_uint<128>* workspace_in,
            ap_uint<128>* workspace_out, uint32_t workspace_bytes, hls::stream<Frame>& frames,
            hls::stream<Beat>& pixels, uint32_t& workspace_needed) {
#pragma HLS DATAFLOW
    hls::stream<TableWrite> quant_writes("decode quantisation tables");
    hls::stream<TableWrite> huffman_writes("decode Huffman tables");
    hls::stream<Scan> parsed("decode scan");
    hls::stream<Scan> scans("decode scan at render");
    hls::stream<Token> tokens("decode tokens");
    hls::stream<Coefficient> coefficients("decode coefficients");
    hls::stream<CoefficientBlock> blocks("decode blocks of coefficients");
    hls::stream<SampleBlock> samples("decode blocks of samples");
#pragma HLS STREAM variable = tokens depth = 64
#pragma HLS STREAM variable = coefficients depth = 128
#pragma HLS STREAM variable = blocks depth = 4
#pragma HLS STREAM variable = samples depth = 16
    parse(words, jpeg_bytes, workspace_bytes, quant_writes, huffman_writes, parsed, tokens);
    entropy(huffman_writes, parsed, tokens, wanted, workspace_in, workspace_out, scans, coefficients, workspace_needed);
    dequantise(quant_writes, coefficients, blocks);
    transform(blocks, samples);
    render(scans, samples, wanted, frames, pixels);
}

}  // namespace headrace
