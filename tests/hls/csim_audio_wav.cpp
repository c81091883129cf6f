// Test bench of wav in C++: a file through the unit. It must read every word of the file and no more.
#include "wav/wav.hpp"

using namespace headrace;

// `sound`: rate and count. Returns the status, or 255 if the unit broke the stream contract.
extern "C" int csim_wav(const uint8_t* file, uint32_t bytes, int32_t* out, uint64_t capacity, uint32_t* sound) {
    hls::stream<ap_uint<128>> words;
    hls::stream<Sound> sounds;
    hls::stream<Pcm> pcm;
    for (uint64_t at = 0; at < bytes; at += 16) {
        ap_uint<128> word = 0;
        for (unsigned i = 0; i < 16; i++) word.range(8 * i + 7, 8 * i) = file[at + i];
        words.write(word);
    }
    wav(words, bytes, sounds, pcm);
    const Sound said = sounds.read();
    sound[0] = said.rate;
    sound[1] = said.count;
    const uint64_t count = said.status == STATUS_OK ? said.count.to_uint64() : 0;
    if (!words.empty() || !sounds.empty() || pcm.size() != count || count > capacity) return 255;
    for (uint64_t i = 0; i < count; i++) out[i] = pcm.read();
    return said.status;
}
