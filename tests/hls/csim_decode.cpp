// Test bench of the decode unit: a C entry point for ctypes and, as a program, a run over a corpus of files.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "decode_run.hpp"

using decode_run::crc32, decode_run::Result, decode_run::run;

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
