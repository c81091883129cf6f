#include "patches/patches.hpp"

#include "headrace/drain.hpp"
#include "headrace/word.hpp"

namespace headrace {
namespace {

// Eight pixels of a row of a patch.
struct EightPixels {
    uint8_t value[CHANNELS][BEAT];
};

// Samples to words.
class Packer {
    hls::stream<ap_uint<128>>& words;
    const unsigned sample_bytes;
    Halves word{0, 0};
    unsigned fill = 0;  // bytes

public:
    Packer(hls::stream<ap_uint<128>>& words, unsigned sample_bytes) : words(words), sample_bytes(sample_bytes) {}

    void put(uint32_t value, unsigned bytes) {
#pragma HLS INLINE
        const uint64_t kept = bytes == 4 ? value : value & ((1u << (8 * bytes)) - 1);
        (fill < 8 ? word.low : word.high) |= kept << (8 * (fill % 8));
        fill += bytes;
        if (fill == 16) send();
    }
    void put(uint32_t value) { put(value, sample_bytes); }
    void end() {
        if (fill != 0) send();
    }

private:
    void send() {
        words.write(word_of(word));
        word = {0, 0};
        fill = 0;
    }
};

}  // namespace

void patches(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, const uint32_t table[CHANNELS][256],
             const PatchLayout& layout, unsigned sample_bytes, uint64_t capacity, hls::stream<ap_uint<128>>& words,
             PatchesEnd& end) {
    EightPixels band[PATCH_WORDS];
#pragma HLS AGGREGATE variable = band
#pragma HLS BIND_STORAGE variable = band type = ram_2p impl = uram
    const Frame frame = frames.read();
    end = {frame.status, 0, 0, 0};
    if (frame.status != STATUS_OK) return;
    end.width = frame.width;
    end.height = frame.height;
    const uint64_t samples = uint64_t{CHANNELS} * end.width * end.height * layout.frames;
    end.bytes = samples * sample_bytes + layout.fill;
    const uint64_t square_width = uint64_t{layout.side_width} * layout.merge;
    const uint64_t square_height = uint64_t{layout.side_height} * layout.merge;
    Status refusal = STATUS_OK;
    if (square_width == 0 || square_height == 0 || layout.frames == 0 || end.width % square_width != 0 ||
        end.height % square_height != 0) {
        refusal = STATUS_BAD_ARGUMENT;
    }
    const uint32_t patch_words = refusal == STATUS_OK ? (layout.side_width + BEAT - 1) / BEAT : 1;  // of a row
    const uint32_t across = refusal == STATUS_OK ? end.width / layout.side_width : 1;
    const uint64_t row_words = uint64_t{patch_words} * across;
    if (row_words * square_height > PATCH_WORDS || (layout.side_width % 2 != 0 && across > 1)) {
        refusal = STATUS_BAD_ARGUMENT;
    }
    if (refusal == STATUS_OK && end.bytes > capacity) refusal = STATUS_BUFFER_TOO_SMALL;
    if (refusal != STATUS_OK) {
        const uint8_t status = drain(pixels);
        end.status = status != STATUS_OK ? Status(status) : refusal;
        return;
    }

    Packer packer(words, sample_bytes);
    uint32_t x = 0, row = 0;
    bool last = false;
    while (!last) {
        const Beat beat = pixels.read();
        last = beat.last;
        end.status = beat.status;
    pixels_of_beat:
        for (unsigned i = beat.begin; i < beat.end; i++) {
#pragma HLS PIPELINE II = 1
            const uint32_t patch = x / layout.side_width, in_patch = x % layout.side_width;
            EightPixels& word = band[row * row_words + patch * patch_words + in_patch / BEAT];
            for (unsigned c = 0; c < CHANNELS; c++) word.value[c][in_patch % BEAT] = beat.value[c][i];
            if (++x == end.width) {
                x = 0;
                row++;
            }
        }
        if (row < square_height || (last && beat.status != STATUS_OK)) continue;
        row = 0;
    squares:
        for (uint32_t square = 0; square < across; square += layout.merge) {
            for (uint32_t y = 0; y < square_height; y += layout.side_height) {
                for (uint32_t patch = square; patch < square + layout.merge; patch++) {
                    const uint32_t outer = layout.channels_last ? 1 : CHANNELS * layout.frames;
                    for (uint32_t plane = 0; plane < outer; plane++) {
                        for (uint32_t r = y; r < y + layout.side_height; r++) {
                            for (uint32_t p = 0; p < layout.side_width; p++) {
#pragma HLS PIPELINE II = 1
                                const EightPixels& word = band[r * row_words + patch * patch_words + p / BEAT];
                                for (unsigned c = 0; c < CHANNELS; c++) {
                                    if (!layout.channels_last && c != plane / layout.frames) continue;
                                    packer.put(table[c][word.value[c][p % BEAT]]);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    if (end.status == STATUS_OK) {
        for (uint32_t i = 0; i < layout.fill; i++) packer.put(0, 1);
    }
    packer.end();
}

}  // namespace headrace
