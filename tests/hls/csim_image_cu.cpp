// Runs image_cu on a corpus under the sanitizers, each file in buffers of just its size, so that any access outside is
// found. Input: records of 7 little-endian words (jpeg bytes, capacity, stage, format, resize_short, crop size, crop
// offset for both axes), then the file. The workspace has the capacity of the tensor, in whole words. Output: a line a record, status and output bytes.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "image_cu/image_cu.hpp"

int main(int argc, char** argv) {
    std::FILE* corpus = argc == 2 ? std::fopen(argv[1], "rb") : nullptr;
    if (!corpus) return 2;
    uint32_t record[7];
    while (std::fread(record, sizeof record, 1, corpus) == 1) {
        const uint32_t size = record[0], capacity = record[1];
        std::vector<ap_uint<128>> jpeg(size / 16 + (size % 16 != 0)), tensor((capacity + 15ull) / 16), tables(192);
        std::vector<ap_uint<128>> result(2), workspace(capacity / 16);
        if (size && std::fread(jpeg.data(), size, 1, corpus) != 1) return 3;
        image_cu(jpeg.data(), size, tensor.data(), capacity, tables.data(), result.data(), record[2], record[3],
                 record[4], record[5], record[5], record[6], record[6], workspace.data(), capacity / 16 * 16, nullptr, 0, 0,
                 0, tables.data(), 0);
        const ap_uint<128> outcome = result[0];
        std::printf("%u %u %u\n", outcome.range(31, 0).to_uint(), outcome.range(63, 32).to_uint(),
                    outcome.range(95, 64).to_uint());
    }
    return 0;
}
