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

#include "headrace/word.hpp"

namespace headrace {
namespace {

constexpr int COMPONENTS = 3;
constexpr int TABLES = 4;  // of each kind: quantisation, DC, AC

enum Marker : uint8_t {
    TEM = 0x01,
    SOF0 = 0xC0, SOF1 = 0xC1, SOF3 = 0xC3, DHT = 0xC4, JPG = 0xC8, SOF9 = 0xC9, DAC = 0xCC, SOF15 = 0xCF,
    RST0 = 0xD0, RST7 = 0xD7, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DNL = 0xDC, DRI = 0xDD,
    DHP = 0xDE, APP0 = 0xE0, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE,
};

// ---- What travels between the processes ----

// The frame and scan headers, resolved. Sent once; if its status is not OK, no table and no data follow.
struct Scan {
    uint8_t status;
    uint16_t width, height;
    uint8_t components;          // 1 or 3
    uint8_t h_shift, v_shift;    // log2 of the luma sampling factors; chroma is 1x1; 0 for gray
    bool rgb;                    // the components are R, G, B
    uint16_t restart_interval;   // MCUs, 0 for none
    uint8_t quant[COMPONENTS], dc[COMPONENTS], ac[COMPONENTS];  // table numbers
};

// How the blocks of a scan lie in MCUs: luma row by row, then Cb, then Cr; gray is luma only.
struct Layout {
    int luma_blocks, blocks;     // in an MCU
    int mcus_across, mcus_down;
};

Layout layout_of(const Scan& scan) {
#pragma HLS INLINE
    Layout layout;
    layout.luma_blocks = 1 << (scan.h_shift + scan.v_shift);
    layout.blocks = scan.components == 1 ? 1 : layout.luma_blocks + 2;
    layout.mcus_across = (scan.width + (8 << scan.h_shift) - 1) >> (3 + scan.h_shift);
    layout.mcus_down = (scan.height + (8 << scan.v_shift) - 1) >> (3 + scan.v_shift);
    return layout;
}

// How chroma is brought to the size of luma: triangle filter in a direction ("fancy") or replication.
struct Upsampling {
    int width, height;  // chroma samples that are part of the image; beyond their rows the edge repeats
    bool fancy_h, fancy_v;
};

Upsampling choose_upsampling(const Scan& scan) {
    Upsampling up;
    up.width = (scan.width + (1 << scan.h_shift) - 1) >> scan.h_shift;
    up.height = (scan.height + (1 << scan.v_shift) - 1) >> scan.v_shift;
    // libjpeg replicates 4:1:1, and all of 4:2:2 and 4:2:0 if chroma is at most two columns wide.
    up.fancy_h = scan.h_shift == 1 && up.width > 2;
    up.fancy_v = scan.v_shift == 1 && (scan.h_shift == 0 || up.fancy_h);
    return up;
}

// How many MCU rows are decoded for it: the triangle filter between rows of chroma may want the row below.
int mcu_rows_for(const Scan& scan, const Window& window) {
#pragma HLS INLINE
    const uint32_t below = window.last_row + choose_upsampling(scan).fancy_v, bottom = scan.height - 1;
    return ((below < bottom ? below : bottom) >> (3 + scan.v_shift)) + 1;
}

// One write into a table. Code lengths are `index` + 1 in LIMIT and OFFSET; table 0..3 is DC and 4..7 AC.
enum TableField : uint8_t { LIMIT, OFFSET, SYMBOL, QUANT, GO };
struct TableWrite {
    uint8_t field;  // GO: the tables are as the scan uses them
    uint8_t table, index;
    uint16_t value;
};

// The entropy-coded segments with stuffing removed.
enum TokenKind : uint8_t {
    DATA,      // value: up to four bytes, the first one on top, zeros below the last
    RESTART,   // value: number of the RSTn marker
    SCAN_END,  // another marker, or no more bytes. value: the status if the image is not complete by then
    FILE_END,  // value: what the file looked like from there on to EOI
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
    uint8_t quant;   // table number
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

// ---- parse: file bytes -> headers, tables, entropy-coded data ----

struct FileBytes {
    uint32_t words_left, bytes_left;
    uint64_t low, high;  // what is left of the current word, next byte in bits 7..0
    unsigned in_word;
    bool ended;          // a byte beyond the end was asked for
};

// The next byte of the file, or 0 beyond its end.
uint8_t next_byte(WordStream& words, FileBytes& file) {
#pragma HLS INLINE
    if (file.bytes_left == 0) {
        file.ended = true;
        return 0;
    }
    if (file.in_word == 0) {
        const Halves word = halves_of(words.read());
        file.low = word.low;
        file.high = word.high;
        file.in_word = 16;
        file.words_left--;
    }
    const uint8_t byte = static_cast<uint8_t>(file.low);
    file.low = file.low >> 8 | file.high << 56;
    file.high >>= 8;
    file.in_word--;
    file.bytes_left--;
    return byte;
}

unsigned next_16(WordStream& words, FileBytes& file) {
#pragma HLS INLINE
    const unsigned high = next_byte(words, file);
    return high << 8 | next_byte(words, file);
}

// The next marker. Before it come fill bytes and what libjpeg skips with a warning: any bytes, and FF 00.
// `escaped`: the byte before was 0xFF.
unsigned next_marker(WordStream& words, FileBytes& file, bool escaped, uint8_t& marker) {
    while (!file.ended) {
#pragma HLS PIPELINE II = 1
        marker = next_byte(words, file);
        if (escaped && marker != 0 && marker != 0xFF) return STATUS_OK;  // it is 0 beyond the end of the file
        escaped = marker == 0xFF;
    }
    return STATUS_TRUNCATED;
}

void skip_bytes(WordStream& words, FileBytes& file, int count) {
    for (int i = 0; i < count && !file.ended; i++) {
#pragma HLS PIPELINE II = 1
        next_byte(words, file);
    }
}

bool parameterless(uint8_t marker) { return marker == TEM || (marker >= RST0 && marker <= RST7); }

// Markers of segments that are neither a frame nor a scan.
bool other_segment(uint8_t marker) {
    return (marker >= APP0 && marker <= APP15) || marker == COM || marker == DHT || marker == DQT ||
           marker == DRI || marker == DNL;
}

// What the segments before the scan say.
struct Header {
    bool frame_seen;
    uint8_t id[COMPONENTS];
    bool quant_defined[TABLES];
    bool huffman_defined[2 * TABLES];
    bool huffman_standard[2 * TABLES];  // used by the scan and not defined
    bool jfif, adobe;
    uint8_t adobe_transform;
    Scan scan;
};

// The status of a frame type that is not sequential Huffman; OK for SOF0 and SOF1.
unsigned frame_type_status(uint8_t marker) {
    if (marker <= SOF1) return STATUS_OK;
    if (marker == SOF3) return STATUS_LOSSLESS;
    if (marker >= SOF9) return STATUS_ARITHMETIC;
    return STATUS_PROGRESSIVE;  // SOF2; SOF5..SOF7 are frames of a hierarchy
}

unsigned parse_frame(WordStream& words, FileBytes& file, int length, Header& header) {
    if (header.frame_seen) return STATUS_CORRUPT_HEADER;
    header.frame_seen = true;
    Scan& scan = header.scan;
    const unsigned precision = next_byte(words, file);
    scan.height = next_16(words, file);
    scan.width = next_16(words, file);
    scan.components = next_byte(words, file);
    if (file.ended) return STATUS_TRUNCATED;
    if (precision != 8) return STATUS_PRECISION;
    if (scan.components != 1 && scan.components != COMPONENTS) return STATUS_COMPONENTS;
    if (length != 6 + 3 * scan.components || scan.width == 0) return STATUS_CORRUPT_HEADER;
    if (scan.height == 0 || scan.height > MAX_JPEG_HEIGHT || scan.width > MAX_WIDTH) return STATUS_TOO_LARGE;

    uint8_t factors[COMPONENTS];
    for (int c = 0; c < scan.components; c++) {
        header.id[c] = next_byte(words, file);
        factors[c] = next_byte(words, file);
        scan.quant[c] = next_byte(words, file);
    }
    if (file.ended) return STATUS_TRUNCATED;

    const unsigned h = factors[0] >> 4, v = factors[0] & 15;
    if (scan.components == 1) {  // a scan of one component has one block per MCU, whatever its factors
        scan.h_shift = scan.v_shift = 0;
        return h >= 1 && h <= 4 && v >= 1 && v <= 4 ? STATUS_OK : STATUS_SAMPLING;
    }
    const bool known = ((h == 1 || h == 2) && (v == 1 || v == 2)) || (h == 4 && v == 1);
    if (!known || factors[1] != 0x11 || factors[2] != 0x11) return STATUS_SAMPLING;
    scan.h_shift = h >> 1;  // 1, 2, 4 -> 0, 1, 2
    scan.v_shift = v >> 1;
    return STATUS_OK;
}

unsigned parse_quantisation(WordStream& words, FileBytes& file, int length, Header& header,
                            hls::stream<TableWrite>& quant_writes) {
    while (length > 0 && !file.ended) {
        const unsigned selector = next_byte(words, file);
        const bool wide = selector >> 4;
        const unsigned table = selector & 15;
        if (selector >> 4 > 1 || table >= TABLES) return STATUS_CORRUPT_HEADER;
        for (int i = 0; i < 64; i++) {
#pragma HLS PIPELINE II = 2
            const unsigned value = wide ? next_16(words, file) : next_byte(words, file);
            quant_writes.write({QUANT, static_cast<uint8_t>(table), static_cast<uint8_t>(i),
                                static_cast<uint16_t>(value)});
        }
        header.quant_defined[table] = true;
        length -= wide ? 129 : 65;
    }
    return length == 0 ? STATUS_OK : STATUS_CORRUPT_HEADER;
}

// The Huffman tables 0 (luma) and 1 (chroma) where the file has none, as in Motion JPEG: T.81 tables K.3 to K.6. Counts
// of codes of 1 to 16 bits by class and number; symbols of the AC tables, those of the DC tables being 0, 1, 2 and on.
constexpr int STANDARD_TABLES = 2;  // of each class
constexpr uint8_t STANDARD_COUNTS[2][STANDARD_TABLES][16] = {
    {{0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0},
     {0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0}},
    {{0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125},
     {0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119}},
};
constexpr uint8_t STANDARD_AC[STANDARD_TABLES][162] = {
    {0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07,
     0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xA1, 0x08, 0x23, 0x42, 0xB1, 0xC1, 0x15, 0x52, 0xD1, 0xF0,
     0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0A, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x25, 0x26, 0x27, 0x28,
     0x29, 0x2A, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49,
     0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69,
     0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89,
     0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7,
     0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3, 0xC4, 0xC5,
     0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA, 0xE1, 0xE2,
     0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8,
     0xF9, 0xFA},
    {0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71,
     0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xA1, 0xB1, 0xC1, 0x09, 0x23, 0x33, 0x52, 0xF0,
     0x15, 0x62, 0x72, 0xD1, 0x0A, 0x16, 0x24, 0x34, 0xE1, 0x25, 0xF1, 0x17, 0x18, 0x19, 0x1A, 0x26,
     0x27, 0x28, 0x29, 0x2A, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3A, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
     0x49, 0x4A, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5A, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
     0x69, 0x6A, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7A, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87,
     0x88, 0x89, 0x8A, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0xA2, 0xA3, 0xA4, 0xA5,
     0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, 0xB8, 0xB9, 0xBA, 0xC2, 0xC3,
     0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8, 0xD9, 0xDA,
     0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xF2, 0xF3, 0xF4, 0xF5, 0xF6, 0xF7, 0xF8,
     0xF9, 0xFA},
};

// Codes of a length are consecutive and start where those of the length before end, one bit longer. A window of 16 bits
// starts with a code of at most n bits if it is below limit[n]; the symbol stands at the code plus offset[n].
struct Codes {
    unsigned next, symbols;  // next free code; symbols so far
};

// The `count` codes of n bits; false if there are not so many.
bool write_codes(uint8_t table, int n, unsigned count, Codes& codes, hls::stream<TableWrite>& huffman_writes) {
#pragma HLS INLINE
    const unsigned offset = codes.symbols - codes.next;  // taken modulo 256, as the symbol number is
    codes.next += count;
    codes.symbols += count;
    // The code of all ones is never assigned, so the next free code still has n bits.
    if (count != 0 && codes.next >= 1u << n) return false;
    const uint8_t place = n - 1;
    huffman_writes.write({LIMIT, table, place, static_cast<uint16_t>(codes.next << (16 - n))});
    huffman_writes.write({OFFSET, table, place, static_cast<uint8_t>(offset)});
    codes.next <<= 1;
    return true;
}

void write_standard_table(uint8_t table, hls::stream<TableWrite>& huffman_writes) {
    const bool ac = table >= TABLES;
    const int number = table % TABLES;
    Codes codes = {};
    for (int n = 1; n <= 16; n++) {
#pragma HLS PIPELINE II = 2
        write_codes(table, n, STANDARD_COUNTS[ac][number][n - 1], codes, huffman_writes);
    }
    for (unsigned i = 0; i < codes.symbols; i++) {
#pragma HLS PIPELINE II = 1
        const uint8_t symbol = ac ? STANDARD_AC[number][i] : static_cast<uint8_t>(i);
        huffman_writes.write({SYMBOL, table, static_cast<uint8_t>(i), symbol});
    }
}

unsigned parse_huffman(WordStream& words, FileBytes& file, int length, Header& header,
                       hls::stream<TableWrite>& huffman_writes) {
    while (length > 0 && !file.ended) {
        const unsigned selector = next_byte(words, file);
        const bool ac = selector >> 4;
        const uint8_t table = (selector & 15) + (ac ? TABLES : 0);
        if (length < 17 || selector >> 4 > 1 || (selector & 15) >= TABLES) return STATUS_CORRUPT_HEADER;

        Codes codes = {};
        for (int n = 1; n <= 16; n++) {
#pragma HLS PIPELINE II = 2
            if (!write_codes(table, n, next_byte(words, file), codes, huffman_writes)) return STATUS_CORRUPT_HEADER;
        }
        const unsigned symbols = codes.symbols;
        length -= 17;
        if (symbols > 256 || static_cast<int>(symbols) > length) return STATUS_CORRUPT_HEADER;
        for (unsigned i = 0; i < symbols; i++) {
#pragma HLS PIPELINE II = 1
            const uint8_t symbol = next_byte(words, file);
            if (!ac && symbol > 15) return STATUS_CORRUPT_HEADER;  // libjpeg refuses the table
            huffman_writes.write({SYMBOL, table, static_cast<uint8_t>(i), symbol});
        }
        length -= symbols;
        header.huffman_defined[table] = true;
    }
    return length == 0 ? STATUS_OK : STATUS_CORRUPT_HEADER;
}

// APP0 and APP14 decide the colour space by their first 14 bytes. All others, COM and DNL are skipped.
void parse_application(WordStream& words, FileBytes& file, int length, uint8_t marker, Header& header) {
    uint8_t start[14] = {};
    const int known = length < 14 ? length : 14;
    for (int i = 0; i < known; i++) start[i] = next_byte(words, file);
    skip_bytes(words, file, length - known);

    bool jfif = true, adobe = true;
    for (int i = 0; i < 5; i++) {
#pragma HLS UNROLL
        jfif = jfif && start[i] == "JFIF"[i];  // with the 0 at its end
        adobe = adobe && start[i] == "Adobe"[i];
    }
    if (marker == APP0 && length >= 14 && jfif) header.jfif = true;  // of any version
    if (marker == APP14 && length >= 12 && adobe) {
        header.adobe = true;
        header.adobe_transform = start[11];
    }
}

unsigned parse_scan(WordStream& words, FileBytes& file, int length, Header& header) {
    if (!header.frame_seen) return STATUS_CORRUPT_HEADER;
    Scan& scan = header.scan;
    const int components = next_byte(words, file);
    if (components < 1 || components > 4 || length != 4 + 2 * components) return STATUS_CORRUPT_HEADER;
    if (components < scan.components) return STATUS_MULTIPLE_SCANS;
    if (components > scan.components) return STATUS_CORRUPT_HEADER;

    unsigned status = STATUS_OK;
    for (int c = 0; c < COMPONENTS; c++) {
        if (c >= components) break;
        const uint8_t id = next_byte(words, file);
        const uint8_t tables = next_byte(words, file);
        scan.dc[c] = tables >> 4;
        scan.ac[c] = tables & 15;
        // T.81 B.2.3: the components of a scan stand in the order of the frame header.
        if (id != header.id[c] || scan.dc[c] >= TABLES || scan.ac[c] >= TABLES || scan.quant[c] >= TABLES)
            return STATUS_CORRUPT_HEADER;
        const bool dc_defined = header.huffman_defined[scan.dc[c]];
        const bool ac_defined = header.huffman_defined[TABLES + scan.ac[c]];
        header.huffman_standard[scan.dc[c]] = !dc_defined;
        header.huffman_standard[TABLES + scan.ac[c]] = !ac_defined;
        const bool dc_known = dc_defined || scan.dc[c] < STANDARD_TABLES;
        const bool ac_known = ac_defined || scan.ac[c] < STANDARD_TABLES;
        if (!dc_known || !ac_known || !header.quant_defined[scan.quant[c]]) status = STATUS_MISSING_TABLE;
    }
    const bool whole_band = next_byte(words, file) == 0 && next_byte(words, file) == 63;
    const bool full_precision = next_byte(words, file) == 0;
    if (!whole_band || !full_precision) return STATUS_CORRUPT_HEADER;

    if (scan.components == 1 || header.jfif) {
        scan.rgb = false;
    } else if (header.adobe) {
        if (header.adobe_transform > 1) return STATUS_CORRUPT_HEADER;
        scan.rgb = header.adobe_transform == 0;
    } else {
        scan.rgb = header.id[0] == 'R' && header.id[1] == 'G' && header.id[2] == 'B';
    }
    return status;
}

// From the first marker to the end of the SOS segment.
unsigned parse_headers(WordStream& words, FileBytes& file, Header& header,
                       hls::stream<TableWrite>& quant_writes, hls::stream<TableWrite>& huffman_writes) {
    const uint8_t first = next_byte(words, file);
    if (next_byte(words, file) != SOI || first != 0xFF) return STATUS_NOT_JPEG;

    unsigned status = STATUS_OK;
    bool scan_seen = false;
    // OpenCV knows a JPEG file by FF D8 FF; from there on it skips what libjpeg skips.
    if (next_byte(words, file) != 0xFF) return file.ended ? STATUS_TRUNCATED : STATUS_CORRUPT_HEADER;
    bool escaped = true;  // the byte before was 0xFF
    while (status == STATUS_OK && !scan_seen) {
        uint8_t marker;
        status = next_marker(words, file, escaped, marker);
        escaped = false;
        if (status != STATUS_OK) return status;
        if (parameterless(marker)) continue;

        // A frame type is judged before its segment, which may be missing.
        if (marker == DAC) return STATUS_ARITHMETIC;
        if (marker == DHP) return STATUS_PROGRESSIVE;
        const bool frame = marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG;
        if (frame && frame_type_status(marker) != STATUS_OK) return frame_type_status(marker);
        // What is left: reserved markers, a second SOI, and EOI, before which there was no image.
        if (!frame && marker != SOS && !other_segment(marker)) return STATUS_CORRUPT_HEADER;

        const int length = static_cast<int>(next_16(words, file)) - 2;
        if (file.ended) return STATUS_TRUNCATED;
        if (length < 0) return STATUS_CORRUPT_HEADER;
        if (frame) {
            status = parse_frame(words, file, length, header);
        } else if (marker == DQT) {
            status = parse_quantisation(words, file, length, header, quant_writes);
        } else if (marker == DHT) {
            status = parse_huffman(words, file, length, header, huffman_writes);
        } else if (marker == DRI) {
            header.scan.restart_interval = next_16(words, file);
            if (length != 2) status = STATUS_CORRUPT_HEADER;
        } else if (marker == SOS) {
            status = parse_scan(words, file, length, header);
            for (uint8_t table = 0; status == STATUS_OK && table < 2 * TABLES; table++) {
                if (header.huffman_standard[table]) write_standard_table(table, huffman_writes);
            }
            scan_seen = true;
        } else {
            parse_application(words, file, length, marker, header);
        }
        if (file.ended) return STATUS_TRUNCATED;  // what was read beyond the end was no data
    }
    return status;
}

// Sends the entropy-coded data; returns the marker that ends it, or 0 if the file or the data ends without one: FF 00 is
// a byte of data and fill bytes come before markers (T.81 B.1.1.2 and B.1.1.5), so that FF FF 00 is neither.
uint8_t forward_scan(WordStream& words, FileBytes& file, hls::stream<Token>& tokens) {
    Token data = {DATA, 0, 0};
    bool escaped = false;  // the byte before was 0xFF
    bool filled = false;   // and so was the one before that
    Token marked = {RESTART, 0, 0};
    bool restarted = false;  // `marked` is to be sent: behind the data before it, as one token leaves in a clock
    uint8_t marker = 0;
    bool more = true;
    while (more) {
#pragma HLS PIPELINE II = 1
        const uint8_t byte = next_byte(words, file);
        const bool data_byte = !file.ended && (escaped ? byte == 0 && !filled : byte != 0xFF);
        const bool restart = !file.ended && escaped && byte >= RST0 && byte <= RST7;
        if (file.ended) {
            more = false;
        } else if (escaped && byte != 0xFF && !data_byte && !restart) {
            marker = byte;
            more = false;
        }
        if (data_byte) {  // of FF 00 it is the FF
            data.value |= static_cast<uint32_t>(escaped ? 0xFF : byte) << (24 - 8 * data.bytes);
            data.bytes++;
        }
        if (restarted) {  // just now, so there is no more than one byte of data, and no end
            tokens.write(marked);
        } else if (data.bytes == TOKEN_BYTES || (data.bytes != 0 && (restart || !more))) {
            tokens.write(data);
            data = {DATA, 0, 0};
        }
        restarted = restart;
        marked.value = byte - RST0;
        filled = escaped && byte == 0xFF;
        escaped = byte == 0xFF;
    }
    return marker;
}

// From the marker that ended the scan to EOI; segments in between say nothing about the image.
unsigned parse_trailer(WordStream& words, FileBytes& file, uint8_t marker) {
    while (marker != EOI) {
        if (marker == SOS) return STATUS_MULTIPLE_SCANS;
        if (other_segment(marker)) {
            const int length = static_cast<int>(next_16(words, file)) - 2;
            if (length < 0 && !file.ended) return STATUS_CORRUPT_HEADER;
            skip_bytes(words, file, length);
        } else if (!parameterless(marker)) {
            return STATUS_CORRUPT_HEADER;
        }
        if (file.ended) return STATUS_TRUNCATED;
        const unsigned status = next_marker(words, file, false, marker);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

void parse(WordStream& words, ap_uint<32> jpeg_bytes, hls::stream<TableWrite>& quant_writes,
           hls::stream<TableWrite>& huffman_writes, hls::stream<Scan>& scans, hls::stream<Token>& tokens) {
    FileBytes file = {};
    file.bytes_left = jpeg_bytes.to_uint();
    file.words_left = file.bytes_left / 16 + (file.bytes_left % 16 != 0);
    Header header = {};

    header.scan.status = parse_headers(words, file, header, quant_writes, huffman_writes);
    quant_writes.write({GO, 0, 0, 0});
    huffman_writes.write({GO, 0, 0, 0});
    scans.write(header.scan);

    if (header.scan.status == STATUS_OK) {
        const uint8_t marker = forward_scan(words, file, tokens);
        const bool early_end = file.ended || marker == EOI;
        const unsigned end_status = early_end ? STATUS_TRUNCATED : STATUS_CORRUPT_HUFFMAN;
        tokens.write({SCAN_END, 0, end_status});
        const unsigned status = marker == 0 ? end_status : parse_trailer(words, file, marker);
        tokens.write({FILE_END, 0, status});
    }
    for (; file.words_left > 0; file.words_left--) {  // whatever follows EOI or an error
#pragma HLS PIPELINE II = 1
        words.read();
    }
}

// ---- entropy: entropy-coded data -> coefficients ----

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
unsigned code_length(unsigned window, const uint16_t limit[16]) {
#pragma HLS INLINE
    unsigned length = 1;
    for (int n = 0; n < 16; n++) {
#pragma HLS UNROLL
        length += window >= limit[n];
    }
    return length;
}

Code long_code(unsigned window, unsigned table, const HuffmanTables& tables) {
#pragma HLS INLINE
    const unsigned length = code_length(window, tables.limit[table]);
    if (length > 16) return {NO_CODE, 0};
    const unsigned place = (window >> (16 - length)) + tables.offset[table][length - 1];
    const uint8_t symbol = tables.symbol[table][place & 255];
    return {static_cast<uint8_t>(length + (symbol & 15)), symbol};
}

// What a scan uses is written: parse_scan sees to it. A symbol with a short code of n bits stands at 2^(SHORT_BITS - n)
// places, behind those of the symbol before; they are written SPREAD at a time, in the clocks behind the symbol's own.
void take_tables(hls::stream<TableWrite>& writes, HuffmanTables& tables) {
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
void refill(hls::stream<Token>& tokens, BitReader& in) {
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
unsigned stop_status(const BitReader& in) {
    return in.stop.kind == RESTART ? static_cast<unsigned>(STATUS_RESTART_MISMATCH) : in.stop.value;
}

// T.81 F.2.2.1, EXTEND: the top `size` bits as a signed number; the first of them is the inverted sign.
int extend(uint32_t bits, unsigned size) {
#pragma HLS INLINE
    const int value = static_cast<int>(static_cast<uint64_t>(bits) << size >> 32);
    return (bits >> 31) != 0 || size == 0 ? value : value - (1 << size) + 1;
}

// What is wrong with a code and the bits behind it; OK if nothing is. Whatever the window holds, a valid symbol fits it
// or the data has stopped: what is found does not depend on how far ahead bytes were read.
unsigned code_status(const Code& code, bool dc, const BitReader& in) {
#pragma HLS INLINE
    if (code.total == NO_CODE) return in.bits >= 16 ? static_cast<unsigned>(STATUS_CORRUPT_HUFFMAN) : stop_status(in);
    const unsigned size = code.symbol & 15;
    if (static_cast<int>(code.total - size) > in.bits) return stop_status(in);
    if (size > (dc ? 11u : 10u)) return STATUS_CORRUPT_HUFFMAN;  // beyond what 8-bit samples need
    if (code.total > in.bits) return stop_status(in);
    return STATUS_OK;
}

// Between two restart intervals: nothing but RSTn may be left.
unsigned restart(hls::stream<Token>& tokens, BitReader& in, unsigned number) {
#pragma HLS INLINE
    if (in.bits >= 8) return STATUS_RESTART_MISMATCH;
    if (!in.stopped) in.stop = tokens.read();
    if (in.stop.kind == SCAN_END) return in.stop.value;
    if (in.stop.kind != RESTART || in.stop.value != number) return STATUS_RESTART_MISMATCH;
    in.window = 0;
    in.bits = 0;
    in.stopped = false;
    return STATUS_OK;
}

// The blocks of `mcus` MCUs in one loop, so that its pipeline is filled once an image and not once a block. From symbol to
// symbol goes only the window (look-up and shift), how many bits it holds, and the place in the block (a sum), which
// chooses the table; the value of a coefficient is worked out behind the loop, but for the sum with the one before it.
unsigned decode_blocks(hls::stream<Token>& tokens, BitReader& in, const HuffmanTables& tables, const Scan& scan,
                       const Layout& layout, int mcus, hls::stream<Coefficient>& coefficients) {
    constexpr int LONGEST = 16 + 11;         // a code and the bits of a DC difference
    int16_t predictor[COMPONENTS] = {};      // 16 bits wrap, as libjpeg's coefficients do
#pragma HLS ARRAY_PARTITION variable = predictor complete
    unsigned left_in_interval = scan.restart_interval;
    unsigned restart_number = 0;
    unsigned k = 0;                          // the next coefficient, in zigzag order
    int block = 0, component = 0;            // in the MCU
    Code found = {};                         // of the code at the top of the window, when it is a long one
    bool looked_up = false;                  // it is
    unsigned status = STATUS_OK;
    while (mcus > 0 && status == STATUS_OK) {
#pragma HLS PIPELINE II = 1
        const bool dc = k == 0;
        const bool due = dc && block == 0 && scan.restart_interval != 0 && left_in_interval == 0;
        const unsigned table = dc ? scan.dc[component] : TABLES + scan.ac[component];
        const unsigned code_bits = in.window >> 48;
        const bool brief = code_bits < tables.limit[table][SHORT_BITS - 1];
        if (due) {
            status = restart(tokens, in, restart_number);
            restart_number = (restart_number + 1) & 7;
            left_in_interval = scan.restart_interval;
            for (int c = 0; c < COMPONENTS; c++) predictor[c] = 0;
        } else if (in.bits < LONGEST && !in.stopped) {
            refill(tokens, in);
        } else if (!brief && !looked_up) {
            found = long_code(code_bits, table, tables);
            looked_up = true;
        } else {
            const Code code = brief ? tables.brief[table][code_bits >> (16 - SHORT_BITS)] : found;
            looked_up = false;
            status = code_status(code, dc, in);
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
                    component = block < layout.luma_blocks ? 0 : block - layout.luma_blocks + 1;
                }
            }
        }
    }
    return status;
}

void entropy(hls::stream<TableWrite>& writes, hls::stream<Scan>& scans, hls::stream<Token>& tokens,
             const Wanted& wanted, hls::stream<Scan>& scans_out, hls::stream<Coefficient>& coefficients) {
    HuffmanTables tables;
#pragma HLS AGGREGATE variable = tables.brief
#pragma HLS ARRAY_PARTITION variable = tables.brief dim = 2 cyclic factor = 8
#pragma HLS BIND_STORAGE variable = tables.brief type = ram_s2p impl = lutram
#pragma HLS BIND_STORAGE variable = tables.symbol type = ram_s2p impl = bram latency = 1
#pragma HLS ARRAY_PARTITION variable = tables.limit dim = 2 complete
#pragma HLS ARRAY_PARTITION variable = tables.offset dim = 2 complete
    take_tables(writes, tables);
    const Scan scan = scans.read();
    scans_out.write(scan);
    unsigned status = scan.status;
    if (status == STATUS_OK) {
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
    uint16_t quant[TABLES][64];  // in zigzag order, as in the file
    for (TableWrite write = writes.read(); write.field != GO; write = writes.read()) {
#pragma HLS PIPELINE II = 1
        quant[write.table][write.index] = write.value;
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

void take_block(const SampleBlock& samples, const Scan& scan, Fill& fill, RowBuffers& rows) {
#pragma HLS INLINE
    if (samples.end) {
        fill.ended = true;
        fill.status = samples.status;
        return;
    }
    const Layout layout = layout_of(scan);
    const bool luma = fill.block < layout.luma_blocks;
    int across = fill.mcu, down = fill.mcu_row;  // in blocks of the component
    if (luma) {
        across = (across << scan.h_shift) + (fill.block & ((1 << scan.h_shift) - 1));
        down = (down << scan.v_shift) + (fill.block >> scan.h_shift);
    }
    for (int y = 0; y < 8; y++) {
#pragma HLS UNROLL
        const int row = down * 8 + y;
        if (luma) {
            rows.luma[row % LUMA_ROWS][across] = samples.row[y];
        } else if (fill.block == layout.luma_blocks) {
            rows.cb[row % CHROMA_ROWS][across] = samples.row[y];
        } else {
            rows.cr[row % CHROMA_ROWS][across] = samples.row[y];
        }
    }
    if (++fill.block < layout.blocks) return;
    fill.block = 0;
    if (++fill.mcu < layout.mcus_across) return;
    fill.mcu = 0;
    fill.mcu_row++;
}

// Which samples of chroma a row of luma needs.
struct ChromaRows {
    int near_row, far_row;  // in the buffers
    int first, last;        // columns; beyond them the edge repeats
    bool odd;               // the row of luma
};

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
void upsample(const SampleRow plane[CHROMA_ROWS][ROW_WORDS], const Upsampling& up, int h_shift, const ChromaRows& chroma,
              int word, int out[8]) {
#pragma HLS INLINE
    const int begin = word * 8 >> h_shift, base = begin / 8;
    if (h_shift == 2) {  // replicated: two samples
        const SampleRow near = plane[chroma.near_row][base];
        for (int i = 0; i < 8; i++) out[i] = near.value[begin % 8 + i / 4];
        return;
    }
    const bool second_half = begin % 8 != 0;
    int side = second_half ? base + 1 : base - 1;
    side = side < chroma.first / 8 ? chroma.first / 8 : side > chroma.last / 8 ? chroma.last / 8 : side;
    // Two words of each of two rows, which are memories of their own: two reads of a port in the four clocks of a beat.
    Around sums = around(plane[chroma.near_row][base], plane[chroma.near_row][side], h_shift, second_half);
    if (up.fancy_v) {
        const Around far = around(plane[chroma.far_row][base], plane[chroma.far_row][side], h_shift, second_half);
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
            const int near = sums.value[1 + (i >> h_shift)];
            out[i] = up.fancy_v ? (near + (chroma.odd ? 2 : 1)) >> 2 : near;
        }
    }
}

uint8_t clamp_8(int value) {
#pragma HLS INLINE
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Sends row y and at the same time takes samples, as long as they are of MCU row `fill_row`.
void emit_row(const Scan& scan, const Upsampling& up, int y, const Window& window, int fill_row,
              hls::stream<SampleBlock>& samples, Fill& fill, RowBuffers& rows, hls::stream<Beat>& pixels) {
    const bool color = scan.components == COMPONENTS;
    const int chroma_y = y >> scan.v_shift;
    ChromaRows chroma;
    chroma.odd = y & 1;
    int far_y = chroma.odd ? chroma_y + 1 : chroma_y - 1;
    far_y = far_y < 0 ? 0 : far_y >= up.height ? up.height - 1 : far_y;
    chroma.near_row = chroma_y % CHROMA_ROWS;
    chroma.far_row = far_y % CHROMA_ROWS;
    chroma.first = window.first_column >> scan.h_shift;
    chroma.last = window.last_column >> scan.h_shift;
    const int first = window.first_column / 8, last = window.last_column / 8;
    for (int word = first; word <= last; word++) {
#pragma HLS PIPELINE II = 4
// No row that is sent is one being filled: they are of other MCU rows, see fill_from.
#pragma HLS DEPENDENCE variable = rows.luma type = inter dependent = false
#pragma HLS DEPENDENCE variable = rows.cb type = inter dependent = false
#pragma HLS DEPENDENCE variable = rows.cr type = inter dependent = false
        const SampleRow luma = rows.luma[y % LUMA_ROWS][word];
        int cb[8], cr[8];
        if (color) {
            upsample(rows.cb, up, scan.h_shift, chroma, word, cb);
            upsample(rows.cr, up, scan.h_shift, chroma, word, cr);
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
    const Upsampling up = choose_upsampling(scan);
    const bool sound = scan.status == STATUS_OK;
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
        } else if (up.fancy_v) {
            rows_ready--;  // the last row also needs the chroma row below it
        }
        if (!framed) frames.write({scan.width, scan.height, STATUS_OK});
        framed = true;
        // The first two rows may still use rows of the MCU row before, whose place the next one takes.
        const int fill_from = y + 2;
        for (; y < rows_ready; y++) {
            const bool fill_next = !last_mcu_row && y >= fill_from;
            emit_row(scan, up, y, window, fill_next ? mcu_row + 1 : -1, samples, fill, rows, pixels);
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

void decode(WordStream& words, ap_uint<32> jpeg_bytes, const Wanted& wanted, hls::stream<Frame>& frames,
            hls::stream<Beat>& pixels) {
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
    parse(words, jpeg_bytes, quant_writes, huffman_writes, parsed, tokens);
    entropy(huffman_writes, parsed, tokens, wanted, scans, coefficients);
    dequantise(quant_writes, coefficients, blocks);
    transform(blocks, samples);
    render(scans, samples, wanted, frames, pixels);
}

}  // namespace headrace
