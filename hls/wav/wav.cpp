#include "wav/wav.hpp"

namespace headrace {
namespace {

constexpr uint32_t RIFF = 0x46464952, WAVE = 0x45564157, FMT = 0x20746D66, DATA = 0x61746164;  // first byte lowest
constexpr uint32_t CHUNK_HEADER = 8, FMT_BYTES = 16, EXTENSION_BYTES = 24;
constexpr uint32_t FORMAT_PCM = 1, FORMAT_EXTENSIBLE = 0xFFFE;
// The extension of 16-bit PCM: its length (22) and the valid bits, then KSDATAFORMAT_SUBTYPE_PCM, first byte lowest.
// Between them is the mask of speakers, which may be any.
constexpr uint32_t PCM_VALID_BITS = 16 << 16 | 22;
constexpr uint32_t PCM_GUID[4] = {0x00000001, 0x00100000, 0xAA000080, 0x719B3800};
constexpr unsigned MOST_CHUNKS = 64;  // before the samples
constexpr unsigned HALVES = 8;        // of 16 bits in a word

// The file at an even offset.
struct Reader {
    hls::stream<ap_uint<128>>& words;
    uint32_t words_left;
    ap_uint<128> word;
    unsigned at;  // the next half of `word`; HALVES: the word is used up

    void next_word() {
#pragma HLS INLINE
        word = words.read();
        words_left--;
        at = 0;
    }
    uint32_t half() {
#pragma HLS INLINE
        if (at == HALVES) next_word();
        const uint32_t value = word.range(16 * at + 15, 16 * at).to_uint();
        at++;
        return value;
    }
    uint32_t four_bytes() {
#pragma HLS INLINE
        const uint32_t low = half();
        return half() << 16 | low;
    }
    void skip(uint64_t halves) {
        uint64_t place = at + halves;
        for (; place > HALVES; place -= HALVES) {  // the word behind may not exist
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 268435456
            next_word();
        }
        at = static_cast<unsigned>(place);
    }
    void drain() {
        for (; words_left != 0; words_left--) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 268435456
            words.read();
        }
    }
};

struct Form {
    bool pcm;
    uint32_t channels, rate, block, bits;
};

struct Header {
    Status status;
    ap_uint<3> rate;
    bool stereo;
    uint32_t frames;
};

Header refused(StatusCode status) { return {Status(status), 0, false, 0}; }

// What a data chunk of `size` bytes, `left` being there, has in it.
Header judge(const Form& form, bool formed, uint32_t size, uint32_t left) {
    if (!formed) return refused(STATUS_CORRUPT_HEADER);
    if (!form.pcm || form.bits != 16) return refused(STATUS_SOUND_FORMAT);
    if (form.channels != 1 && form.channels != 2) return refused(STATUS_CHANNELS);
    unsigned rate = 0;
    while (rate < SOUND_RATES && SOUND_RATE[rate] != form.rate) rate++;
    if (rate == SOUND_RATES) return refused(STATUS_RATE);
    if (form.block != 2 * form.channels || size % form.block != 0) return refused(STATUS_CORRUPT_HEADER);
    if (size > left) return refused(STATUS_TRUNCATED);
    const uint32_t frames = size / form.block;
    const uint64_t most = (uint64_t(MAX_FRAMES) * 160 - 1) * SOUND_RATE[rate] / 16000;  // a constant of each rate
    if (frames > most) return refused(STATUS_TOO_LONG);
    return {STATUS_OK, rate, form.channels == 2, frames};
}

// Up to the first sample.
Header read_header(Reader& file, uint32_t bytes) {
    if (bytes < 12) return refused(STATUS_NOT_WAV);
    const uint32_t riff = file.four_bytes();
    file.four_bytes();  // the length, which files written to a pipe do not know
    if (riff != RIFF || file.four_bytes() != WAVE) return refused(STATUS_NOT_WAV);
    uint32_t left = bytes - 12;
    Form form{false, 0, 0, 0, 0};
    bool formed = false;
chunks:
    for (unsigned i = 0; i < MOST_CHUNKS; i++) {
        if (left < CHUNK_HEADER) return refused(STATUS_TRUNCATED);
        const uint32_t name = file.four_bytes(), size = file.four_bytes();
        left -= CHUNK_HEADER;
        if (name == DATA) return judge(form, formed, size, left);
        uint64_t rest = uint64_t(size) + size % 2;  // chunks begin at even places
        const bool beyond = rest > left;
        if (name == FMT) {
            if (formed || size < FMT_BYTES || left < FMT_BYTES) return refused(STATUS_CORRUPT_HEADER);
            const uint32_t code_channels = file.four_bytes(), code = code_channels & 0xFFFF;
            form.pcm = code == FORMAT_PCM;
            form.channels = code_channels >> 16;
            form.rate = file.four_bytes();
            file.four_bytes();  // bytes a second
            const uint32_t block_bits = file.four_bytes();
            form.block = block_bits & 0xFFFF;
            form.bits = block_bits >> 16;
            formed = true;
            rest -= FMT_BYTES;
            left -= FMT_BYTES;
            if (code == FORMAT_EXTENSIBLE && size >= FMT_BYTES + EXTENSION_BYTES && left >= EXTENSION_BYTES) {
                form.pcm = file.four_bytes() == PCM_VALID_BITS;
                file.four_bytes();  // speakers
                for (const uint32_t part : PCM_GUID) form.pcm &= file.four_bytes() == part;
                rest -= EXTENSION_BYTES;
                left -= EXTENSION_BYTES;
            }
        }
        if (i + 1 == MOST_CHUNKS) break;
        if (beyond) return refused(STATUS_TRUNCATED);
        file.skip(rest / 2);
        left -= static_cast<uint32_t>(rest);
    }
    return refused(STATUS_CORRUPT_HEADER);
}

}  // namespace

void wav(hls::stream<ap_uint<128>>& words, ap_uint<32> bytes, hls::stream<Sound>& sounds, hls::stream<Pcm>& pcm) {
    const uint32_t size = bytes;
    Reader file{words, size / 16 + (size % 16 != 0), 0, HALVES};
    const Header header = read_header(file, size);
    sounds.write(Sound{header.status, header.rate, header.frames});
frames:
    for (uint32_t i = 0; i < header.frames; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 31456797
        const int left = static_cast<int16_t>(file.half());
        const int right = header.stereo ? static_cast<int16_t>(file.half()) : left;
        pcm.write(Pcm(left + right));
    }
    file.drain();
}

}  // namespace headrace
