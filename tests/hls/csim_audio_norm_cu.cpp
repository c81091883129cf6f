// Runs audio_norm_cu on a corpus under the sanitizers, each record in buffers of just its size, so that any access outside
// is found. Input: records of 10 little-endian words (bytes of `mel`, frames, counted, mels, capacity, format,
// std_floor, least, mean, scale), then `mel`. Output: a line a record, its status.
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "audio_norm_cu/audio_norm_cu.hpp"

int main(int argc, char** argv) {
    std::FILE* corpus = argc == 2 ? std::fopen(argv[1], "rb") : nullptr;
    if (!corpus) return 2;
    uint32_t record[10];
    while (std::fread(record, sizeof record, 1, corpus) == 1) {
        const uint32_t size = record[0], capacity = record[4];
        std::vector<ap_uint<128>> mel(size / 16), tensor((capacity + 15ull) / 16), result(2);
        if (std::fread(mel.data(), size, 1, corpus) != 1) return 3;
        audio_norm_cu(mel.data(), tensor.data(), result.data(), record[1], record[2], record[3], capacity,
                      record[5], record[6], record[7], record[8], record[9]);
        const ap_uint<128> outcome = result[0];
        std::printf("%u\n", outcome.range(31, 0).to_uint());
    }
    return 0;
}
