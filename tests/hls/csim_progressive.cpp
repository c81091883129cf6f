// Test bench of files of several scans, which decode takes with a workspace: a C entry point for ctypes and, as a program, a
// run over a corpus of files.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "decode_run.hpp"

using decode_run::Result, decode_run::Workspace;

namespace {

// What a workspace holds before must not matter.
Workspace left_over(uint32_t bytes) {
    Workspace workspace(bytes / 16);
    uint64_t random = 1;
    for (auto& word : workspace) {
        random = random * 6364136223846793005 + 1442695040888963407;
        word = (ap_uint<128>(random) << 64) | ap_uint<128>(random >> 32);
    }
    return workspace;
}

}  // namespace

// Status of the file. Up to `capacity` bytes of RGB go to `out`: of all rows, or, if the image's size is given, of those
// that a copy of `rows` rows from `first_row` on needs. `workspace` receives what is left in it, `needed` what is needed.
extern "C" int csim_progressive(const uint8_t* jpeg, uint32_t size, uint32_t wide, uint32_t high, uint32_t first_row,
                                uint32_t rows, uint8_t* workspace, uint32_t workspace_bytes, uint8_t* out,
                                uint64_t capacity, uint32_t* width, uint32_t* height, uint32_t* needed) {
    const headrace::Wanted wanted{std::min(wide, high), wide != 0, {wide, rows, 0, first_row}};
    const Result result = decode_run::run(jpeg, size, wanted, left_over(workspace_bytes));
    *width = result.width;
    *height = result.height;
    *needed = result.workspace_needed;
    for (uint64_t i = 0; i < result.rgb.size() && i < capacity; i++) out[i] = result.rgb[i];
    for (uint64_t i = 0; i < workspace_bytes / 16; i++) {
        const uint64_t half[2] = {result.workspace[i].range(63, 0).to_uint64(),
                                  result.workspace[i].range(127, 64).to_uint64()};
        std::memcpy(workspace + 16 * i, half, sizeof half);
    }
    return static_cast<int>(result.status);
}

// csim_progressive CORPUS WORKSPACE_BYTES: for each record (little-endian 32-bit length, file) one line: status, width,
// height, CRC-32 of the pixels, bytes of workspace needed. A file that takes longer than FILE_LIMIT_S ends the program by
// SIGALRM.
int main(int argc, char** argv) {
    constexpr unsigned FILE_LIMIT_S = 60;
    std::FILE* corpus = argc == 3 ? std::fopen(argv[1], "rb") : nullptr;
    if (corpus == nullptr) return 2;
    const uint32_t workspace_bytes = std::strtoul(argv[2], nullptr, 10);
    uint32_t size;
    while (std::fread(&size, sizeof size, 1, corpus) == 1) {
        std::vector<uint8_t> file(size);  // exactly as long as the file, so that the sanitizer sees a read beyond it
        if (std::fread(file.data(), 1, size, corpus) != size) return 2;
        alarm(FILE_LIMIT_S);
        const Result result = decode_run::run(file.data(), size, {}, left_over(workspace_bytes));
        std::printf("%u %u %u %u %u\n", result.status, result.width, result.height, decode_run::crc32(result.rgb),
                    result.workspace_needed);
    }
    std::fclose(corpus);
    return 0;
}
