#include "decode/parse/jpeg_parser.hpp"

#include "decode/stages.hpp"
#include "headrace/word.hpp"
#include "decode/progressive/progressive.hpp"

namespace headrace {
namespace {

enum Marker : uint8_t {
    TEM = 0x01,
    SOF0 = 0xC0, SOF1 = 0xC1, SOF2 = 0xC2, SOF3 = 0xC3, DHT = 0xC4, JPG = 0xC8, SOF9 = 0xC9, DAC = 0xCC, SOF15 = 0xCF,
    RST0 = 0xD0, RST7 = 0xD7, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DNL = 0xDC, DRI = 0xDD,
    DHP = 0xDE, APP0 = 0xE0, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE,
};

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

constexpr unsigned MAX_MCU_BLOCKS = 10;  // T.81 B.2.3

constexpr uint8_t UNSENT = 15;  // no bit of a coefficient is known; bits are 0 to 13

// What the segments up to a scan say.
struct Header {
    uint32_t workspace_bytes;    // what there is; 0: files of several scans are not taken
    bool frame_seen;
    unsigned scans;
    uint8_t lowest_bit[COMPONENTS][64];  // of each coefficient, in zigzag order, that the scans so far have sent
    bool latched[COMPONENTS];    // the quantisation table is chosen
    uint8_t id[COMPONENTS];
    bool quant_defined[TABLES];
    bool huffman_defined[2 * TABLES];
    bool huffman_standard[2 * TABLES];  // used by the scan and not defined
    bool jfif, adobe;
    uint8_t adobe_transform;
    Scan scan;
};

// The status of a frame type that is not Huffman with DCT; OK for SOF0 and SOF1, and with a workspace SOF2.
unsigned frame_type_status(uint8_t marker, bool workspace) {
    if (marker <= SOF1 || (marker == SOF2 && workspace)) return STATUS_OK;
    if (marker == SOF3) return STATUS_LOSSLESS;
    if (marker >= SOF9) return STATUS_ARITHMETIC;
    return STATUS_PROGRESSIVE;  // SOF2 without a workspace; SOF5..SOF7 are frames of a hierarchy
}

// Factors are 1, 2 and 4, and luma has the greatest: then each divides it, as libjpeg asks. Two MCU rows must fit the row
// buffers, which are made for two rows of blocks of luma and one of chroma as wide as it.
unsigned sampling_status(const uint8_t factors[COMPONENTS], Scan& scan) {
    if (scan.components == 1) {  // a scan of one component has one block per MCU, whatever its factors
        const unsigned h = factors[0] >> 4, v = factors[0] & 15;
        return h >= 1 && h <= 4 && v >= 1 && v <= 4 ? STATUS_OK : STATUS_SAMPLING;
    }
    bool known = true;
    unsigned blocks = 0;
    for (int c = 0; c < COMPONENTS; c++) {
#pragma HLS UNROLL
        const unsigned h = factors[c] >> 4, v = factors[c] & 15;
        if ((h != 1 && h != 2 && h != 4) || (v != 1 && v != 2 && v != 4)) known = false;
        if (!SAMPLINGS && (h > 2 || v > 2 || (c > 0 && h * v != 1))) known = false;
        blocks += h * v;
        scan.h[c] = h >> 1;  // 1, 2, 4 -> 0, 1, 2
        scan.v[c] = v >> 1;
        if (scan.h[c] > scan.h[0] || scan.v[c] > scan.v[0]) known = false;
        if (scan.h[c] == scan.h[0] && scan.width * v > (c == 0 ? 2 : 1) * MAX_WIDTH) known = false;
    }
    scan.h_shift = scan.h[0];
    scan.v_shift = scan.v[0];
    return known && blocks <= MAX_MCU_BLOCKS ? STATUS_OK : STATUS_SAMPLING;
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

    return sampling_status(factors, scan);
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
        jfif = jfif && start[i] == static_cast<uint8_t>("JFIF"[i]);  // with the 0 at its end
        adobe = adobe && start[i] == static_cast<uint8_t>("Adobe"[i]);
    }
    if (marker == APP0 && length >= 14 && jfif) header.jfif = true;  // of any version
    if (marker == APP14 && length >= 12 && adobe) {
        header.adobe = true;
        header.adobe_transform = start[11];
    }
}

// Whether every coefficient of the scan's band is sent for the first time or by one bit more than before, and no AC
// coefficient before the DC coefficient of its component. Notes the band as sent.
bool extend_progression(const Scan& scan, Header& header) {
    bool sound = true;
    for (int i = 0; i < scan.members; i++) {
        uint8_t* const lowest_bit = header.lowest_bit[scan.member[i]];
        if (scan.first > 0 && lowest_bit[0] == UNSENT) sound = false;
        for (int k = scan.first; k <= scan.last; k++) {
#pragma HLS PIPELINE II = 1
            if (lowest_bit[k] != (scan.high == 0 ? UNSENT : scan.high)) sound = false;
            lowest_bit[k] = scan.low;
        }
    }
    return sound;
}

// Whether the band and the bits are those of some scan; if they go on from what was sent before is another matter.
bool band_exists(const Scan& scan) {
    if (!scan.progressive) return scan.first == 0 && scan.last == 63 && scan.high == 0 && scan.low == 0;
    if (scan.first == 0 ? scan.last != 0 : scan.last < scan.first || scan.last > 63 || scan.members != 1) return false;
    return scan.low <= 13 && (scan.high == 0 || scan.high == scan.low + 1);
}

// The tables of each component, and the status of one that is not there.
unsigned resolve_tables(const Scan& scan, Header& header) {
    const bool needs_dc = scan.first == 0 && scan.high == 0;
    const bool needs_ac = scan.last > 0;
    unsigned status = STATUS_OK;
    for (int table = 0; table < 2 * TABLES; table++) header.huffman_standard[table] = false;
    for (int i = 0; i < scan.members; i++) {
        const int c = scan.member[i];
        const bool dc_exists = scan.dc[c] < TABLES || !needs_dc, ac_exists = scan.ac[c] < TABLES || !needs_ac;
        if (!dc_exists || !ac_exists || scan.quant[c] >= TABLES) return STATUS_CORRUPT_HEADER;
        if (!header.quant_defined[scan.quant[c]]) status = STATUS_MISSING_TABLE;
        for (int ac = 0; ac < 2; ac++) {
            if (ac ? !needs_ac : !needs_dc) continue;
            const int number = ac ? scan.ac[c] : scan.dc[c], table = ac ? TABLES + number : number;
            if (header.huffman_defined[table]) continue;
            header.huffman_standard[table] = true;
            // libjpeg-turbo knows the standard's for sequential frames only.
            if (number >= STANDARD_TABLES || scan.progressive) status = STATUS_MISSING_TABLE;
        }
    }
    return status;
}

unsigned parse_scan(WordStream& words, FileBytes& file, int length, Header& header,
                    hls::stream<TableWrite>& quant_writes) {
    if (!header.frame_seen) return STATUS_CORRUPT_HEADER;
    Scan& scan = header.scan;
    const int components = next_byte(words, file);
    if (components < 1 || components > 4 || length != 4 + 2 * components) return STATUS_CORRUPT_HEADER;
    if (header.scans == 0) scan.several = scan.progressive || components < scan.components;
    if (scan.several && header.workspace_bytes == 0) return STATUS_MULTIPLE_SCANS;
    if (header.scans == MAX_SCANS) return STATUS_MULTIPLE_SCANS;
    if (components > scan.components) return STATUS_CORRUPT_HEADER;
    header.scans++;

    scan.members = components;
    int c = 0;
    for (int i = 0; i < components; i++) {
        const uint8_t id = next_byte(words, file);
        const uint8_t tables = next_byte(words, file);
        // T.81 B.2.3: the components of a scan stand in the order of the frame header.
        while (c < COMPONENTS && c < scan.components && header.id[c] != id) c++;
        if (c >= COMPONENTS || c >= scan.components) return STATUS_CORRUPT_HEADER;
        scan.member[i] = c;
        scan.dc[c] = tables >> 4;
        scan.ac[c] = tables & 15;
        c++;
    }
    scan.first = next_byte(words, file);
    scan.last = next_byte(words, file);
    const uint8_t bits = next_byte(words, file);
    scan.high = bits >> 4;
    scan.low = bits & 15;
    if (file.ended) return STATUS_TRUNCATED;
    if (!band_exists(scan)) return STATUS_CORRUPT_HEADER;
    const unsigned status = resolve_tables(scan, header);
    if (status == STATUS_CORRUPT_HEADER || !extend_progression(scan, header)) return STATUS_CORRUPT_HEADER;

    if (header.scans > 1) {
        // the colours are known
    } else if (scan.components == 1 || header.jfif) {
        scan.rgb = false;
    } else if (header.adobe) {
        if (header.adobe_transform > 1) return STATUS_CORRUPT_HEADER;
        scan.rgb = header.adobe_transform == 0;
    } else {
        scan.rgb = header.id[0] == 'R' && header.id[1] == 'G' && header.id[2] == 'B';
    }
    if (status != STATUS_OK || !scan.several) return status;

    // libjpeg takes the quantisation table that a component has at its first scan.
    for (int i = 0; i < scan.members; i++) {
        const uint8_t c = scan.member[i];
        if (!header.latched[c]) quant_writes.write({LATCH, scan.quant[c], c, 0});
        header.latched[c] = true;
    }
    scan.workspace_bytes = workspace_bytes_of(scan);
    return scan.workspace_bytes > header.workspace_bytes ? STATUS_BUFFER_TOO_SMALL : STATUS_OK;
}

// EOI behind several scans. libjpeg guesses ("block smoothing") if an AC coefficient among the first nine is not known to
// its last bit; those behind them, and the last bits of DC coefficients, may be missing.
unsigned complete_status(const Header& header) {
    constexpr int GUESSED = 10;
    bool complete = true;
    for (int c = 0; c < header.scan.components; c++) {
        if (header.lowest_bit[c][0] == UNSENT) complete = false;
        for (int k = 1; k < GUESSED; k++) {
#pragma HLS PIPELINE II = 1
            if (header.lowest_bit[c][k] != 0) complete = false;
        }
    }
    return complete ? STATUS_OK : STATUS_TRUNCATED;
}

// From a marker to the end of the next SOS segment, or, behind a scan, to EOI.
unsigned parse_to_scan(WordStream& words, FileBytes& file, Header& header, uint8_t marker,
                       hls::stream<TableWrite>& quant_writes, hls::stream<TableWrite>& huffman_writes) {
    while (true) {
        if (marker == EOI && header.scans > 0) {
            header.scan.file_end = true;
            return complete_status(header);
        }
        unsigned status = STATUS_OK;
        if (!parameterless(marker)) {
            // A frame type is judged before its segment, which may be missing.
            if (marker == DAC) return STATUS_ARITHMETIC;
            if (marker == DHP) return STATUS_PROGRESSIVE;
            const bool frame = marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG;
            const unsigned type_status = frame ? frame_type_status(marker, header.workspace_bytes > 0) : STATUS_OK;
            if (type_status != STATUS_OK) return type_status;
            // What is left: reserved markers, a second SOI, and EOI, before which there was no image.
            if (!frame && marker != SOS && !other_segment(marker)) return STATUS_CORRUPT_HEADER;

            const int length = static_cast<int>(next_16(words, file)) - 2;
            if (file.ended) return STATUS_TRUNCATED;
            if (length < 0) return STATUS_CORRUPT_HEADER;
            if (frame) {
                header.scan.progressive = marker == SOF2;
                status = parse_frame(words, file, length, header);
            } else if (marker == DQT) {
                status = parse_quantisation(words, file, length, header, quant_writes);
            } else if (marker == DHT) {
                status = parse_huffman(words, file, length, header, huffman_writes);
            } else if (marker == DRI) {
                header.scan.restart_interval = next_16(words, file);
                if (length != 2) status = STATUS_CORRUPT_HEADER;
            } else if (marker == SOS) {
                status = parse_scan(words, file, length, header, quant_writes);
                for (uint8_t table = 0; status == STATUS_OK && table < 2 * TABLES; table++) {
                    if (header.huffman_standard[table]) write_standard_table(table, huffman_writes);
                }
            } else {
                parse_application(words, file, length, marker, header);
            }
            if (file.ended) return STATUS_TRUNCATED;  // what was read beyond the end was no data
            if (marker == SOS) return status;
        }
        if (status == STATUS_OK) status = next_marker(words, file, false, marker);
        if (status != STATUS_OK) return status;
    }
}

// From the first byte to the end of the first SOS segment.
unsigned parse_headers(WordStream& words, FileBytes& file, Header& header,
                       hls::stream<TableWrite>& quant_writes, hls::stream<TableWrite>& huffman_writes) {
    const uint8_t first = next_byte(words, file);
    if (next_byte(words, file) != SOI || first != 0xFF) return STATUS_NOT_JPEG;

    // OpenCV knows a JPEG file by FF D8 FF; from there on it skips what libjpeg skips.
    if (next_byte(words, file) != 0xFF) return file.ended ? STATUS_TRUNCATED : STATUS_CORRUPT_HEADER;
    uint8_t marker;
    const unsigned status = next_marker(words, file, true, marker);
    if (status != STATUS_OK) return status;
    return parse_to_scan(words, file, header, marker, quant_writes, huffman_writes);
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

}  // namespace

void parse(WordStream& words, ap_uint<32> jpeg_bytes, uint32_t workspace_bytes, hls::stream<TableWrite>& quant_writes,
           hls::stream<TableWrite>& huffman_writes, hls::stream<Scan>& scans, hls::stream<Token>& tokens) {
    FileBytes file = {};
    file.bytes_left = jpeg_bytes.to_uint();
    file.words_left = file.bytes_left / 16 + (file.bytes_left % 16 != 0);
    Header header = {};
    header.workspace_bytes = PROGRESSIVE ? workspace_bytes : 0;
    for (int c = 0; c < COMPONENTS; c++) {
        for (int k = 0; k < 64; k++) header.lowest_bit[c][k] = UNSENT;
    }

    Scan& scan = header.scan;
    scan.status = parse_headers(words, file, header, quant_writes, huffman_writes);
    if (!scan.several) quant_writes.write({GO, 0, 0, 0});
    huffman_writes.write({GO, 0, 0, 0});
    scans.write(scan);

    while (scan.status == STATUS_OK && !scan.file_end) {  // a scan each time
        const uint8_t marker = forward_scan(words, file, tokens);
        const bool early_end = file.ended || marker == EOI;
        const unsigned end_status = early_end ? STATUS_TRUNCATED : STATUS_CORRUPT_HUFFMAN;
        tokens.write({SCAN_END, 0, end_status});
        if (!scan.several) {
            const unsigned status = marker == 0 ? end_status : parse_trailer(words, file, marker);
            tokens.write({FILE_END, 0, status});
            break;
        }
        scan.status = marker == 0 ? end_status
                                  : parse_to_scan(words, file, header, marker, quant_writes, huffman_writes);
        huffman_writes.write({GO, 0, 0, 0});
        scans.write(scan);
    }
    if (scan.several) quant_writes.write({GO, 0, 0, 0});  // the transform begins behind the last scan
    for (; file.words_left > 0; file.words_left--) {  // whatever follows EOI or an error
#pragma HLS PIPELINE II = 1
        words.read();
    }
}

}  // namespace headrace
