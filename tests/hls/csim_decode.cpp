// Test bench of the decode unit: a C entry point for ctypes and, as a program, a run over a corpus of files.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "decode/decode.hpp"

namespace {

struct Result {
    unsigned status = 0, width = 0, height = 0;
    std::vector<uint8_t> rgb;  // as many pixels as were sent before the end or an error
};

void require(bool holds, const char* contract) {
    if (holds) return;
    std::fprintf(stderr, "stream contract broken: %s\n", contract);
    std::abort();
}

Result run(const uint8_t* jpeg, uint32_t size, const headrace::Wanted& wanted = {}) {
    headrace::WordStream words("words");
    for (uint32_t at = 0; at < size; at += 16) {
        ap_uint<128> word = 0;
        for (uint32_t i = 0; i < 16 && at + i < size; i++) word.range(8 * i + 7, 8 * i) = jpeg[at + i];
        words.write(word);
    }
    hls::stream<headrace::Frame> frames("frames");
    hls::stream<headrace::Beat> pixels("pixels");
    headrace::decode(words, size, wanted, frames, pixels);

    require(words.empty(), "all words are drained");
    require(frames.size() == 1, "exactly one frame");
    const headrace::Frame frame = frames.read();
    Result result;
    result.status = frame.status.to_uint();
    result.width = frame.width.to_uint();
    result.height = frame.height.to_uint();
    if (result.status == headrace::STATUS_OK) {
        const uint32_t rows = wanted.crops ? wanted.crop.height : result.height;
        const uint64_t count = static_cast<uint64_t>(result.width) * rows;
        result.rgb.reserve(3 * std::min<uint64_t>(count, 8 * pixels.size()));
        bool last = false;
        while (!last) {
            const headrace::Beat beat = pixels.read();
            last = beat.last;
            result.status = beat.status;
            require(last || result.status == 0, "a status other than OK only with last");
            if (result.status != headrace::STATUS_OK) break;
            require(beat.begin == 0, "rows begin with a beat");
            const uint64_t left = result.width - result.rgb.size() / 3 % result.width;  // in the row
            require(beat.end == std::min<uint64_t>(left, headrace::BEAT), "beats are as full as rows allow");
            for (unsigned i = 0; i < beat.end; i++) {
                for (const auto& channel : beat.value) result.rgb.push_back(channel[i]);
            }
            require(result.rgb.size() <= 3 * count, "no more pixels than the frame has");
        }
        require(result.status != 0 || result.rgb.size() == 3 * count, "as many pixels as the frame has");
    }
    require(pixels.empty(), "nothing after last");
    return result;
}

uint32_t crc32(const std::vector<uint8_t>& bytes) {
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xEDB88320u : 0);
    }
    uint32_t crc = ~0u;
    for (const uint8_t byte : bytes) crc = crc >> 8 ^ table[(crc ^ byte) & 255];
    return ~crc;
}

}  // namespace

// Status of the file. Up to `capacity` bytes of RGB go to `out`: of all rows, or, if the image's size is given, of those
// that a copy of `rows` rows from `first_row` on needs, which is themselves.
extern "C" int csim_decode(const uint8_t* jpeg, uint32_t size, uint32_t wide, uint32_t high, uint32_t first_row,
                           uint32_t rows, uint8_t* out, uint64_t capacity, uint32_t* width, uint32_t* height) {
    const Result result = run(jpeg, size, {std::min(wide, high), wide != 0, {wide, rows, 0, first_row}});
    *width = result.width;
    *height = result.height;
    for (uint64_t i = 0; i < result.rgb.size() && i < capacity; i++) out[i] = result.rgb[i];
    return static_cast<int>(result.status);
}

// csim_decode CORPUS: for each record (little-endian 32-bit length, file) one line: status, width, height,
// CRC-32 of the pixels, microseconds. A file that takes longer than FILE_LIMIT_S ends the program by SIGALRM.
int main(int argc, char** argv) {
    constexpr unsigned FILE_LIMIT_S = 20;
    std::FILE* corpus = argc == 2 ? std::fopen(argv[1], "rb") : nullptr;
    if (corpus == nullptr) return 2;
    uint32_t size;
    while (std::fread(&size, sizeof size, 1, corpus) == 1) {
        // Exactly as long as the file, so that the sanitizer sees a read beyond it.
        std::vector<uint8_t> file(size);
        if (std::fread(file.data(), 1, size, corpus) != size) return 2;
        alarm(FILE_LIMIT_S);
        const auto start = std::chrono::steady_clock::now();
        const Result result = run(file.data(), size);
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        std::printf("%u %u %u %u %.0f\n", result.status, result.width, result.height, crc32(result.rgb),
                    spent.count());
    }
    std::fclose(corpus);
    return 0;
}
