// The processes of decode.cpp one by one, for benches of the RTL units between them: what each sends for a JPEG file.
//
// decode.cpp is included whole, because its processes are in an anonymous namespace.
#pragma once

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "decode/decode.cpp"
#include "decode/parse/jpeg_parser.cpp"
#include "decode/progressive/progressive.cpp"

namespace reference {

struct Samples {
    uint8_t value[8];  // left to right
    bool end;
    uint8_t status;
};

struct Pixel {
    uint8_t r, g, b;
    bool last;
    uint8_t status;  // other than OK: no pixel
};

struct Image {
    headrace::Scan scan;
    std::vector<headrace::TableWrite> quant;        // without GO
    std::vector<headrace::Coefficient> coefficients;
    std::vector<headrace::SampleBlock> blocks;
    std::vector<Samples> samples;                   // the blocks row by row; all three with their end beat
    headrace::Frame frame;
    std::vector<Pixel> pixels;
};

template <typename T, int N>
std::vector<T> drain(hls::stream<T, N>& stream) {
    std::vector<T> all;
    all.reserve(stream.size());
    while (!stream.empty()) all.push_back(stream.read());
    return all;
}

inline void transform(Image& image) {
    hls::stream<headrace::TableWrite> quant;
    hls::stream<headrace::Coefficient> coefficients;
    hls::stream<headrace::CoefficientBlock> blocks;
    hls::stream<headrace::SampleBlock> samples;
    for (const auto& write : image.quant) quant.write(write);
    quant.write({headrace::GO, 0, 0, 0});
    for (const auto& coefficient : image.coefficients) coefficients.write(coefficient);
    headrace::dequantise(quant, coefficients, blocks);
    headrace::transform(blocks, samples);
    image.blocks = drain(samples);
    image.samples.clear();
    for (const auto& block : image.blocks) {
        for (int y = 0; y < (block.end ? 1 : 8); y++) {
            Samples beat = {{}, block.end, block.status};
            for (int x = 0; x < 8; x++) beat.value[x] = block.row[y].value[x];
            image.samples.push_back(beat);
        }
    }
}

inline void render(Image& image, const headrace::Wanted& wanted) {
    hls::stream<headrace::Scan> scans;
    hls::stream<headrace::SampleBlock> samples;
    hls::stream<headrace::Frame> frames;
    hls::stream<headrace::Beat> beats;
    scans.write(image.scan);
    for (const auto& block : image.blocks) samples.write(block);
    headrace::render(scans, samples, wanted, frames, beats);
    image.frame = frames.read();
    image.pixels.clear();
    for (const auto& beat : drain(beats)) {
        for (int i = beat.begin; i < beat.end; i++) {
            const auto& [red, green, blue] = beat.value;
            image.pixels.push_back({red[i], green[i], blue[i], beat.last && i == beat.end - 1, beat.status});
        }
        if (beat.begin == beat.end) image.pixels.push_back({0, 0, 0, beat.last, beat.status});
    }
}

constexpr headrace::Wanted WHOLE{};

inline Image of_file(const uint8_t* jpeg, uint32_t size, const headrace::Wanted& wanted = WHOLE) {
    headrace::WordStream words;
    for (uint32_t at = 0; at < size; at += 16) {
        ap_uint<128> word = 0;
        for (uint32_t i = 0; i < 16 && at + i < size; i++) word.range(8 * i + 7, 8 * i) = jpeg[at + i];
        words.write(word);
    }
    hls::stream<headrace::TableWrite> quant, huffman;
    hls::stream<headrace::Scan> scans, scans_out;
    hls::stream<headrace::Token> tokens;
    hls::stream<headrace::Coefficient> coefficients;
    headrace::parse(words, size, 0, quant, huffman, scans, tokens);
    uint32_t workspace_needed;
    headrace::entropy(huffman, scans, tokens, wanted, nullptr, nullptr, scans_out, coefficients, workspace_needed);

    Image image;
    image.scan = scans_out.read();
    image.quant = drain(quant);
    image.quant.pop_back();
    image.coefficients = drain(coefficients);
    transform(image);
    render(image, wanted);
    return image;
}

// Whether a stream pauses in a clock: in bursts, so that queues run both full and empty.
class Pauses {
  public:
    Pauses(uint32_t seed, uint32_t percent) : random_(seed), percent_(percent) {}
    bool next() {
        if (percent_ == 0) return false;
        if (left_ == 0) {
            pausing_ = random_() % 100 < percent_;
            left_ = 1 + (random_() % 4 == 0 ? random_() % 100 : random_() % 4);
        }
        left_--;
        return pausing_;
    }

  private:
    std::minstd_rand random_;
    uint32_t percent_, left_ = 0;
    bool pausing_ = false;
};

}  // namespace reference
