#include "audio_norm_cu/audio_norm_cu.hpp"

#include "headrace/sound_stream.hpp"
#include "mel_normalize/mel_normalize.hpp"

namespace headrace {
namespace {

using Words = hls::stream<ap_uint<128>>;

// The statistics, which lie behind the values, then the values.
void load(const ap_uint<128>* mel, uint32_t frames, uint32_t mels, Words& words) {
    const uint32_t values = frames * (mels / 4);
    for (uint32_t i = 0; i < mels; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 128
        words.write(mel[values + i]);
    }
    for (uint32_t i = 0; i < values; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 2097120
        words.write(mel[i]);
    }
}

// Words come in their order.
void store_in_order(Words& words, uint32_t count, ap_uint<128>* tensor) {
    for (uint32_t i = 0; i < count; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 2097120
        tensor[i] = words.read();
    }
}

// Words come by tiles, in each of them by bands; rows of the tensor are bands.
void store(Words& words, uint32_t frames, uint32_t mels, uint32_t in_a_word, uint32_t pitch_words,
           ap_uint<128>* tensor) {
    for (uint32_t first = 0; first < frames; first += TILE_FRAMES) {
#pragma HLS LOOP_TRIPCOUNT max = 512
        const uint32_t count = frames - first < TILE_FRAMES ? frames - first : TILE_FRAMES;
        for (uint32_t band = 0; band < mels; band++) {
#pragma HLS LOOP_TRIPCOUNT max = 128
            for (uint32_t i = 0; i < (count + in_a_word - 1) / in_a_word; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 32
                tensor[band * pitch_words + first / in_a_word + i] = words.read();
            }
        }
    }
}

void run(const ap_uint<128>* mel, uint32_t frames, uint32_t counted, uint32_t mels, uint32_t format, uint32_t rows,
         const NormRule& rule, uint32_t in_a_word, uint32_t pitch_words, ap_uint<128>* tensor) {
#pragma HLS DATAFLOW
    Words words("words"), normalised("normalised");
#pragma HLS STREAM variable = words depth = 512
#pragma HLS STREAM variable = normalised depth = 64
    load(mel, frames, mels, words);
    mel_normalize(words, frames, counted, mels, format, rows, rule, normalised);
    if (rows == ROWS_OF_FRAMES) {
        store_in_order(normalised, frames * pitch_words, tensor);
    } else {
        store(normalised, frames, mels, in_a_word, pitch_words, tensor);
    }
}

}  // namespace
}  // namespace headrace

extern "C" void audio_norm_cu(const ap_uint<128>* mel, ap_uint<128>* tensor, ap_uint<128>* result, uint32_t frames,
                              uint32_t counted, uint32_t mels, uint32_t tensor_capacity, uint32_t format,
                              uint32_t std_floor, uint32_t least, uint32_t mean, uint32_t scale) {
#pragma HLS INTERFACE m_axi port = mel bundle = gmem0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE m_axi port = tensor bundle = gmem1 channel = 0 offset = slave max_write_burst_length = 64
#pragma HLS INTERFACE m_axi port = result bundle = gmem1 channel = 1 offset = slave max_write_burst_length = 2
#pragma HLS INTERFACE s_axilite port = mel bundle = control offset = 0x10
#pragma HLS INTERFACE s_axilite port = tensor bundle = control offset = 0x1C
#pragma HLS INTERFACE s_axilite port = result bundle = control offset = 0x28
#pragma HLS INTERFACE s_axilite port = frames bundle = control offset = 0x34
#pragma HLS INTERFACE s_axilite port = counted bundle = control offset = 0x3C
#pragma HLS INTERFACE s_axilite port = mels bundle = control offset = 0x44
#pragma HLS INTERFACE s_axilite port = tensor_capacity bundle = control offset = 0x4C
#pragma HLS INTERFACE s_axilite port = format bundle = control offset = 0x54
#pragma HLS INTERFACE s_axilite port = std_floor bundle = control offset = 0x5C
#pragma HLS INTERFACE s_axilite port = least bundle = control offset = 0x64
#pragma HLS INTERFACE s_axilite port = mean bundle = control offset = 0x6C
#pragma HLS INTERFACE s_axilite port = scale bundle = control offset = 0x74
#pragma HLS INTERFACE ap_ctrl_chain port = return
#pragma HLS INTERFACE s_axilite port = return bundle = control
    using namespace headrace;
    uint32_t outcome = STATUS_BAD_ARGUMENT, pitch_words = 0, row_count = 0;
    const NormRule rule{std_floor, static_cast<int32_t>(least), static_cast<int32_t>(mean), scale};
    const bool has_place = least < 0x800000 || least >= 0xFF800000;  // in 24 bits
    const bool scales = scale == 0 || ((scale >> 23 & 1) && scale >> 24 >= 1 && scale >> 24 <= 47);
    const bool sound = frames >= 1 && frames <= MAX_FRAMES && counted >= 1 && counted <= frames && mels >= 4 &&
                       mels <= MAX_MELS && mels % 4 == 0 && format <= 3 && has_place && scales;
    if (sound) {
        const uint32_t type = format & 1, rows = format >> 1, in_a_word = type == TENSOR_FLOAT16 ? 8 : 4;
        const bool by_frames = rows == ROWS_OF_FRAMES;
        pitch_words = ((by_frames ? mels : frames) + in_a_word - 1) / in_a_word;
        row_count = by_frames ? frames : mels;
        if (16 * pitch_words * row_count > tensor_capacity) {
            outcome = STATUS_BUFFER_TOO_SMALL;
        } else {
            run(mel, frames, counted, mels, type, rows, rule, in_a_word, pitch_words, tensor);
            outcome = STATUS_OK;
        }
    }
    ap_uint<128> first = 0, second = 0;
    first.range(31, 0) = outcome;
    if (sound) {
        first.range(63, 32) = frames;
        first.range(95, 64) = mels;
        first.range(127, 96) = 16 * pitch_words;
        second.range(31, 0) = 16 * pitch_words * row_count;  // below 2^26
    }
    result[0] = first;
    result[1] = second;
}
