// A program for the sanitizers: the WAV files of a corpus through wav and resample. Prints a line for each: the status,
// the number of samples at 16 kHz and a sum of them.
//
// Corpus: for each file its size in four bytes, and the file.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "resample/resample.hpp"
#include "wav/wav.hpp"

using namespace headrace;

int main(int, char** arguments) {
    std::FILE* corpus = std::fopen(arguments[1], "rb");
    if (corpus == nullptr) return 1;
    auto* taps = new Tap[TAP_WORDS][TAP_LANES];
    uint32_t size;
    while (std::fread(&size, 4, 1, corpus) == 1) {
        std::vector<uint8_t> file(size);
        if (std::fread(file.data(), 1, size, corpus) != size) return 1;
        hls::stream<ap_uint<128>> words, table;
        hls::stream<Sound> sounds, out_sounds;
        hls::stream<Pcm> pcm;
        hls::stream<Sample16k> samples;
        for (uint64_t at = 0; at < size; at += 16) {
            ap_uint<128> word = 0;
            for (unsigned i = 0; i < 16 && at + i < size; i++) word.range(8 * i + 7, 8 * i) = file[at + i];
            words.write(word);
        }
        wav(words, size, sounds, pcm);
        const Sound sound = sounds.read();
        if (sound.status == STATUS_OK) {
            for (unsigned i = 0; i < TAP_WORDS * TAP_LANES / 4; i++) table.write(ap_uint<128>(i % 4 == 0));
            load_taps(table, sound.rate, taps);
        }
        sounds.write(sound);
        resample(sounds, pcm, taps, out_sounds, samples);
        const Sound out = out_sounds.read();
        int64_t sum = 0;
        const std::size_t count = samples.size();
        while (!samples.empty()) sum += samples.read().to_int();
        if (!words.empty() || !pcm.empty()) return 1;
        std::printf("%u %zu %lld\n", out.status.to_uint(), count, static_cast<long long>(sum));
    }
    delete[] taps;
    return 0;
}
