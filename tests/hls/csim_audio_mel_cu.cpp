// Runs audio_mel_cu on a corpus under the sanitizers, each file in buffers of just its size, so that any access outside
// is found. Input: the bytes of the tables of each rate, little-endian, in the order of SOUND_RATE, their contents, then
// records of 6 little-endian words (file bytes, capacity, stage, mels, left_out, taps_rate), each followed by the file.
// Output: a line a record, status, count and source_count.
#include <cinttypes>
#include <cstdio>
#include <vector>

#include "audio_mel_cu/audio_mel_cu.hpp"

int main(int argc, char** argv) {
    std::FILE* corpus = argc == 2 ? std::fopen(argv[1], "rb") : nullptr;
    if (!corpus) return 2;
    uint32_t sizes[headrace::SOUND_RATES];
    if (std::fread(sizes, sizeof sizes, 1, corpus) != 1) return 3;
    std::vector<std::vector<ap_uint<128>>> tables;
    for (const uint32_t size : sizes) {
        tables.emplace_back(size / 16);
        if (std::fread(tables.back().data(), size, 1, corpus) != 1) return 3;
    }
    uint32_t record[6];
    while (std::fread(record, sizeof record, 1, corpus) == 1) {
        const uint32_t size = record[0], capacity = record[1];
        std::vector<ap_uint<128>> wav((size + 15ull) / 16), mel((capacity + 15ull) / 16), result(2);
        if (size && std::fread(wav.data(), size, 1, corpus) != 1) return 3;
        unsigned rate = headrace::RATE_16000;
        for (unsigned i = 0; i < headrace::SOUND_RATES; i++) {
            if (headrace::SOUND_RATE[i] == record[5]) rate = i;
        }
        audio_mel_cu(wav.data(), mel.data(), tables[rate].data(), result.data(), size, capacity, record[2], record[3],
                     254280, 65536, record[4], 0, 0, 65535 * 160 - 1, record[5]);
        const ap_uint<128> first = result[0], second = result[1];  // status, count; the source's count
        std::printf("%u %u %u\n", first.range(31, 0).to_uint(), first.range(63, 32).to_uint(),
                    second.range(31, 0).to_uint());
    }
    return 0;
}
