// Test bench of resize, crop and normalize: an image through one unit.
//
// The input ends after `given` pixels with `end_status`, so that early ends can be tested; bytes are HWC RGB.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "crop/crop.hpp"
#include "normalize/normalize.hpp"
#include "resize/resize.hpp"

using namespace headrace;

namespace {

struct Streams {
    hls::stream<Frame> frames, out_frames;
    hls::stream<Pixel> pixels, out_pixels;
};

void feed(Streams& s, const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
          uint32_t end_status) {
    s.frames.write(Frame{width, height, frame_status});
    if (frame_status != STATUS_OK) return;
    for (uint64_t i = 0; i < given; i++) {
        const bool last = i + 1 == given;
        s.pixels.write(Pixel{image[3 * i], image[3 * i + 1], image[3 * i + 2], last, last ? end_status : 0u});
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
        const Pixel p = s.out_pixels.read();
        last = p.last;
        status = p.status;
        if (!last && p.status != STATUS_OK) return 255;
        if (3 * count + 3 > capacity) return 255;
        out[3 * count] = p.r;
        out[3 * count + 1] = p.g;
        out[3 * count + 2] = p.b;
        count++;
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
    feed(s, part.data(), width, height, std::min<uint64_t>(given, part.size() / 3), frame_status, end_status);
    resize(s.frames, s.pixels, wanted, s.out_frames, s.out_pixels);
    return collect(s, out, capacity, out_width, out_height);
}

extern "C" int csim_crop(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                         uint32_t end_status, uint32_t crop_width, uint32_t crop_height, uint32_t crop_x,
                         uint32_t crop_y, uint32_t columns, uint8_t* out, uint64_t capacity, uint32_t* out_width,
                         uint32_t* out_height) {
    Streams s;
    const Crop window{crop_width, crop_height, crop_x, crop_y};
    feed(s, image, width, height, given, frame_status, end_status);
    crop(s.frames, s.pixels, window, columns != 0, s.out_frames, s.out_pixels);
    return collect(s, out, capacity, out_width, out_height);
}

extern "C" int csim_normalize(const uint8_t* image, uint64_t given, uint32_t end_status, const uint32_t* tables,
                              uint32_t* out) {
    Streams s;
    feed(s, image, given, 1, given, STATUS_OK, end_status);
    hls::stream<Sample> samples;
    normalize(s.pixels, reinterpret_cast<const uint32_t(*)[256]>(tables), samples);
    uint64_t count = 0;
    Sample sample{};
    do {
        sample = samples.read();
        if (count < given) {
            for (int c = 0; c < 3; c++) out[3 * count + c] = sample.channel[c];
        }
        count++;
    } while (!sample.last);
    if (count != given || !samples.empty() || !s.pixels.empty()) return 255;
    return sample.status;
}
