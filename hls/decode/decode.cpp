// The decode unit as a chain of processes; decode.hpp says what the chain does as a whole.
//
//   words -> parse -> entropy -> transform_columns -> transform_rows -> render -> frames, pixels
//
// Every stream between them ends on one beat that carries the final status, also after an error, so each process ends
// on that beat and on nothing else. Tables travel as single writes while the headers are read, like a configuration
// bus, and land in the process that uses them. Hot arithmetic is in native C++ types: they are the same bits in
// hardware and several times faster in C simulation, which is the emulated device.
#include "decode/decode.hpp"

#include <cstdint>

namespace headrace {
namespace {

constexpr int COMPONENTS = 3;
constexpr int TABLES = 4;  // of each kind: quantisation, DC, AC

enum Marker : uint8_t {
    TEM = 0x01,
    SOF0 = 0xC0, SOF1 = 0xC1, SOF2 = 0xC2, SOF3 = 0xC3, DHT = 0xC4, SOF5 = 0xC5, SOF7 = 0xC7, JPG = 0xC8, SOF9 = 0xC9,
    DAC = 0xCC, SOF15 = 0xCF, RST0 = 0xD0, RST7 = 0xD7, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DNL = 0xDC,
    DRI = 0xDD, DHP = 0xDE, APP0 = 0xE0, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE,
};

// ---- What travels between the processes ----

// The frame and scan headers, resolved. Sent once; status is not OK if the headers were not, and then nothing else is.
struct Scan {
    uint8_t status;
    uint16_t width, height;
    uint8_t components;          // 1 or 3
    uint8_t h_shift, v_shift;    // log2 of the luma sampling factors; chroma is 1x1; 0 for gray
    bool rgb;                    // the components are R, G, B
    uint16_t restart_interval;   // MCUs, 0 for none
    uint8_t quant[COMPONENTS], dc[COMPONENTS], ac[COMPONENTS];  // table numbers
};

// One write into a table. Code lengths are `index` + 1 in LIMIT and OFFSET; table 0..3 is DC and 4..7 AC.
enum TableField : uint8_t { LIMIT, OFFSET, SYMBOL, QUANT, GO };
struct TableWrite {
    uint8_t field;  // GO: the tables are as the scan uses them
    uint8_t table, index;
    uint16_t value;
};

// The entropy-coded segments with stuffing removed.
enum TokenKind : uint8_t {
    DATA,      // value: the byte
    RESTART,   // value: number of the RSTn marker
    SCAN_END,  // another marker, or no more bytes. value: the status if the image is not complete by then
    FILE_END,  // value: what the file looked like from there on to EOI
};
struct Token {
    uint8_t kind;
    uint8_t value;
};

// One Huffman symbol: the coefficient at `index` in zigzag order; those not sent are zero.
struct Coefficient {
    int16_t value;   // before dequantisation; in the end beat the status
    uint8_t index;
    uint8_t quant;   // table number
    bool last;       // of its block
    bool end;        // of the image
};

struct Column {
    int16_t value[8];  // top to bottom
    bool end;
    uint8_t status;
};

struct Samples {
    uint8_t value[8];  // left to right
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
        const ap_uint<128> word = words.read();
        file.low = word.range(63, 0).to_uint64();
        file.high = word.range(127, 64).to_uint64();
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

// A marker and the fill bytes before it. Anything else between segments is garbage, of which libjpeg warns.
unsigned next_marker(WordStream& words, FileBytes& file, uint8_t& marker) {
    if (next_byte(words, file) != 0xFF && !file.ended) return STATUS_CORRUPT_HEADER;
    marker = 0xFF;
    while (marker == 0xFF) {
#pragma HLS PIPELINE II = 1
        marker = next_byte(words, file);  // 0 at the end of the file
    }
    if (file.ended) return STATUS_TRUNCATED;
    return marker == 0 ? STATUS_CORRUPT_HEADER : STATUS_OK;
}

// The length of a segment without the length field itself, or -1.
int segment_length(WordStream& words, FileBytes& file) {
    return static_cast<int>(next_16(words, file)) - 2 < 0 ? -1 : 0;
}

}  // namespace
}  // namespace headrace
