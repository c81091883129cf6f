// Test bench of resize, scaler, crop and normalize: an image through one unit.
//
// The input ends after `given` pixels with `end_status`, so that early ends can be tested; bytes are HWC RGB.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "crop/crop.hpp"
#include "headrace/word.hpp"
#include "normalize/normalize.hpp"
#include "patches/patches.hpp"
#include "resize/resize.hpp"
#include "scaler/scaler.hpp"

using namespace headrace;

namespace {

struct Streams {
    hls::stream<Frame> frames, out_frames;
    hls::stream<Beat> pixels, out_pixels;
};

// `columns`: pixels in a row of what comes.
void feed(Streams& s, const uint8_t* image, uint32_t width, uint32_t height, uint64_t columns, uint64_t given,
          uint32_t frame_status, uint32_t end_status) {
    s.frames.write(Frame{width, height, frame_status});
    if (frame_status != STATUS_OK) return;
    for (uint64_t at = 0; at < given;) {
        Beat beat;
        std::memset(&beat, 0xDB, sizeof beat);  // what does not count may be anything
        beat.begin = 0;
        beat.end = static_cast<uint8_t>(std::min({uint64_t{BEAT}, columns - at % columns, given - at}));
        for (unsigned i = 0; i < beat.end; i++, at++) {
            for (unsigned c = 0; c < CHANNELS; c++) beat.value[c][i] = image[3 * at + c];
        }
        beat.last = at == given;
        beat.status = static_cast<uint8_t>(beat.last ? end_status : 0u);
        s.pixels.write(beat);
    }
}

// The status that the unit ended with; 255 if it broke the stream contract.
int collect(Streams& s, uint8_t* out, uint64_t capacity, uint32_t* width, uint32_t* height) {
    const Frame frame = s.out_frames.read();
    *width = frame.width;
    *height = frame.height;
    int status = frame.status;
    uint64_t count = 0;
    bool last = frame.status != STATUS_OK;
    while (!last) {
        const Beat beat = s.out_pixels.read();
        last = beat.last;
        status = beat.status;
        if (!last && (beat.status != STATUS_OK || beat.begin >= beat.end)) return 255;
        if (beat.end > BEAT) return 255;
        for (unsigned i = beat.begin; i < beat.end; i++, count++) {
            if (3 * count + 3 > capacity) return 255;
            for (unsigned c = 0; c < CHANNELS; c++) out[3 * count + c] = beat.value[c][i];
        }
    }
    const bool drained = s.frames.empty() && s.pixels.empty() && s.out_frames.empty() && s.out_pixels.empty();
    if (!drained || (status == STATUS_OK && 3 * count != capacity)) return 255;
    return status;
}

}  // namespace

extern "C" int csim_resize(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                           uint32_t end_status, uint32_t resize_short, uint32_t crops, uint32_t crop_width, uint32_t crop_height,
                           uint32_t crop_x, uint32_t crop_y, uint32_t, uint8_t* out, uint64_t capacity,
                           uint32_t* out_width, uint32_t* out_height) {
    Streams s;
    const Wanted wanted{resize_short, crops != 0, {crop_width, crop_height, crop_x, crop_y}};
    const Plan plan = plan_resize(wanted, width, height);
    const auto& window = plan.source;
    const uint64_t wide = window.last_column - window.first_column + 1;
    std::vector<uint8_t> part;
    for (uint64_t y = window.first_row; y <= window.last_row; y++) {
        const uint8_t* row = image + 3 * (y * width + window.first_column);
        part.insert(part.end(), row, row + 3 * wide);
    }
    feed(s, part.data(), width, height, wide, std::min<uint64_t>(given, part.size() / 3), frame_status, end_status);
    resize(s.frames, s.pixels, wanted, s.out_frames, s.out_pixels);
    return collect(s, out, capacity, out_width, out_height);
}

// `setup`: as in ScalerSetup, a word each.
extern "C" int csim_scaler(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                           uint32_t end_status, const uint32_t* setup, const uint64_t* table, uint8_t* out,
                           uint64_t capacity, uint32_t* out_width, uint32_t* out_height) {
    Streams s;
    ScalerSetup asked{setup[0], setup[1], {setup[2], static_cast<uint8_t>(setup[3]), setup[4] != 0},
                            {setup[5], static_cast<uint8_t>(setup[6]), setup[7] != 0}, setup[8] != 0, setup[9] != 0,
                            {setup[10], setup[11], setup[12], setup[13], {0, 0, 0}}};
    for (unsigned c = 0; c < CHANNELS; c++) asked.canvas.colour[c] = static_cast<uint8_t>(setup[14] >> (16 - 8 * c));
    hls::stream<ap_uint<128>> words;
    for (uint64_t i = 0; i < 2 * (uint64_t{setup[2]} + setup[5]); i++) {
        words.write(word_of({table[2 * i], table[2 * i + 1]}));
    }
    feed(s, image, width, height, width, given, frame_status, end_status);
    scaler(s.frames, s.pixels, words, asked, s.out_frames, s.out_pixels);
    const int status = collect(s, out, capacity, out_width, out_height);
    return words.empty() ? status : 255;
}

extern "C" int csim_crop(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                         uint32_t end_status, uint32_t crop_width, uint32_t crop_height, uint32_t crop_x,
                         uint32_t crop_y, uint32_t columns, uint8_t* out, uint64_t capacity, uint32_t* out_width,
                         uint32_t* out_height) {
    Streams s;
    const Crop window{crop_width, crop_height, crop_x, crop_y};
    feed(s, image, width, height, columns != 0 ? columns : width, given, frame_status, end_status);
    crop(s.frames, s.pixels, window, columns != 0, s.out_frames, s.out_pixels);
    return collect(s, out, capacity, out_width, out_height);
}

extern "C" int csim_normalize(const uint8_t* image, uint64_t given, uint32_t end_status, const uint32_t* tables,
                              uint32_t* out) {
    Streams s;
    feed(s, image, given, 1, given, given, STATUS_OK, end_status);
    hls::stream<SampleBeat> samples;
    normalize(s.pixels, reinterpret_cast<const uint32_t(*)[256]>(tables), samples);
    uint64_t count = 0;
    SampleBeat beat{};
    do {
        beat = samples.read();
        for (unsigned i = beat.begin; i < beat.end; i++, count++) {
            if (count == given) return 255;
            for (unsigned c = 0; c < CHANNELS; c++) out[3 * count + c] = beat.value[c][i];
        }
    } while (!beat.last);
    if (count != given || !samples.empty() || !s.pixels.empty()) return 255;
    return beat.status;
}

// `setup`: the fields of PatchLayout, log2 of the bytes of a sample, the capacity. `sizes` receives width, height, bytes
// and the number of words that came.
extern "C" int csim_patches(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                            uint32_t end_status, const uint32_t* setup, const uint32_t* tables, uint64_t* words,
                            uint64_t room, uint64_t* sizes) {
    Streams s;
    feed(s, image, width, height, width, given, frame_status, end_status);
    const PatchLayout layout{setup[0], setup[1], setup[2], setup[3], setup[4] != 0, setup[5]};
    hls::stream<ap_uint<128>> out;
    PatchesEnd end;
    patches(s.frames, s.pixels, reinterpret_cast<const uint32_t(*)[256]>(tables), layout, 1u << setup[6], setup[7], out,
            end);
    uint64_t count = 0;
    for (; !out.empty(); count++) {
        const Halves word = halves_of(out.read());
        if (count == room) return 255;
        words[2 * count] = word.low;
        words[2 * count + 1] = word.high;
    }
    const uint64_t ends[] = {end.width, end.height, end.bytes, count};
    std::copy(ends, ends + 4, sizes);
    return s.frames.empty() && s.pixels.empty() ? static_cast<int>(end.status) : 255;
}
