// Test bench of render.sv: samples of files through the model; every frame and beat against the C++.
#include <algorithm>
#include <cstring>

#include "Vrender.h"
#include "decode_reference.hpp"
#include "rtl_bench.hpp"

namespace {

constexpr int OK = 0, DIFFERENT_FRAME = 1, DIFFERENT_BEAT = 2, TOO_LONG = 3, TOO_MUCH = 4;

struct Counts {
    uint64_t cycles = 0, first_beat = 0, wait_rows = 0, wait_output = 0;
};

struct Render : Bench<Vrender> {
    uint64_t reset_at = UINT64_MAX;  // the image in work is given up in this clock

    // Also in mid-image: whatever was under way is lost.
    void reset() {
        model.scan_valid_i = model.samples_valid_i = model.frame_ready_i = model.beat_ready_i = 0;
        Bench::reset();
    }

    void offer(const reference::Samples& beat) {
        const uint64_t status = beat.end ? beat.status : 0;
        unsigned __int128 bits = 0;
        for (int i = 7; i >= 0; i--) bits = bits << 8 | beat.value[i];
        bits = bits << 9 | uint64_t{beat.end} << 8 | status;
        for (int i = 0; i < 3; i++) model.samples_i[i] = static_cast<uint32_t>(bits >> 32 * i);
    }

    // `rgb` takes the pixels if it is not null.
    int image(const reference::Image& image, reference::Pauses& in, reference::Pauses& out, uint8_t* rgb,
              Counts& counts) {
        const bool good_headers = image.scan.status == headrace::STATUS_OK;
        const uint64_t start = cycles;
        const uint64_t bound = start + 2000 + 40 * (image.samples.size() + image.pixels.size());
        const uint32_t width = image.frame.width;
        bool scan_taken = !good_headers, frame_taken = false, offered = false;
        size_t sent = 0, got = 0;
        while (!frame_taken || got < image.pixels.size() || sent < image.samples.size()) {
            if (cycles > bound) return TOO_LONG;
            if (cycles >= reset_at) {
                reset_at = UINT64_MAX;
                reset();
                return OK;
            }
            const auto& s = image.scan;
            model.scan_valid_i = !scan_taken;
            model.window_i = uint64_t{0xFFFF} << 21 | 0x7FF;  // all
            model.window_valid_i = !in.next();
            model.scan_i = uint64_t{s.width} << 30 | uint64_t{s.height} << 14 | (s.components == 3) << 13 |
                           s.h_shift << 11 | s.v_shift << 9 | s.h[2] << 7 | s.h[1] << 5 | s.v[2] << 3 | s.v[1] << 1 | s.rgb;
            if (!offered && scan_taken && sent < image.samples.size() && !in.next()) {
                offer(image.samples[sent]);
                offered = true;
            }
            model.samples_valid_i = offered;
            model.beat_ready_i = !out.next();
            model.frame_ready_i = !out.next();
            settle();
            if (model.scan_valid_i && model.scan_ready_o) scan_taken = true;
            counts.wait_rows += model.wait_rows_o;
            counts.wait_output += model.wait_output_o;
            if (model.frame_valid_o && model.frame_ready_i) {
                const auto& f = image.frame;
                const uint64_t expected = uint64_t{f.width.to_uint()} << 24 | f.height.to_uint() << 8 | f.status.to_uint();
                if (frame_taken || model.frame_o != expected) return DIFFERENT_FRAME;
                frame_taken = true;
            }
            if (model.beat_valid_o && model.beat_ready_i) {
                if (got == 0) counts.first_beat = cycles - start;
                if (got == image.pixels.size()) return TOO_MUCH;
                const Beat beat = beat_at(model.beat_o);
                // As many pixels as the row still has, or none with an error.
                const unsigned left = std::min<size_t>(lanes_of<decltype(model.beat_o)>, width - got % width);
                const unsigned count = image.pixels[got].status != 0 ? 0 : left;
                const auto& end = image.pixels[got + count - (count != 0)];
                if (beat.keep != (1u << count) - 1 || beat.last != end.last || beat.status != end.status) {
                    return DIFFERENT_BEAT;
                }
                for (unsigned i = 0; i < count; i++) {
                    const auto& pixel = image.pixels[got + i];
                    const uint32_t bits = beat.pixel[i];
                    if (bits != static_cast<uint32_t>(pixel.r << 16 | pixel.g << 8 | pixel.b)) {
                        return DIFFERENT_BEAT;
                    }
                    for (int c = 0; rgb != nullptr && c < 3; c++) rgb[3 * (got + i) + c] = bits >> (16 - 8 * c);
                }
                got += count == 0 ? 1 : count;
            }
            if (offered && model.samples_ready_o) {
                sent++;
                offered = false;
            }
            edge();
        }
        counts.cycles = cycles - start;
        return OK;
    }

    int silent() {
        model.scan_valid_i = model.samples_valid_i = 0;
        model.frame_ready_i = model.beat_ready_i = 1;
        for (int i = 0; i < 200; i++) {
            settle();
            if (model.frame_valid_o || model.beat_valid_o) return TOO_MUCH;
            edge();
        }
        return OK;
    }
};

// One for all calls, in the state that the one before left, and reset.
Render& ready() {
    static auto* const bench = new Render;  // never ends: it outlives everything at exit
    bench->reset();
    return *bench;
}

}  // namespace

// `files` one after the other through one model, each a little-endian 32-bit length and the bytes. Returns 0 if all
// frames and beats are equal. `counts`: 5 words a file: samples words, then clocks, clock of the first beat,
// clocks in which samples waited for rows, and in which pixels waited for the output. `rgb` takes the last file's pixels.
extern "C" int render_files(const uint8_t* files, uint64_t size, uint32_t seed, uint32_t pause_in, uint32_t pause_out,
                            uint64_t* counts, uint8_t* rgb, uint64_t capacity) {
    Render& bench = ready();
    reference::Pauses in(seed + 1, pause_in), out(seed + 2, pause_out);
    for (uint64_t at = 0; at < size;) {
        uint32_t length;
        std::memcpy(&length, files + at, 4);
        const reference::Image image = reference::of_file(files + at + 4, length);
        at += 4 + length;
        const bool fits = at >= size && 3 * image.pixels.size() <= capacity;
        Counts c;
        const int code = bench.image(image, in, out, fits ? rgb : nullptr, c);
        if (code != OK) return code;
        const uint64_t values[5] = {image.samples.size() - 1, c.cycles, c.first_beat, c.wait_rows, c.wait_output};
        for (const uint64_t value : values) *counts++ = value;
    }
    return bench.silent();
}

// The file again and again, given up by a reset after each multiple of `step` clocks and then taken whole.
extern "C" int render_resets(const uint8_t* file, uint32_t size, uint32_t step, uint32_t count) {
    Render& bench = ready();
    reference::Pauses in(1, 20), out(2, 20);
    const reference::Image image = reference::of_file(file, size);
    for (uint32_t i = 1; i <= count; i++) {
        bench.reset_at = bench.cycles + uint64_t{i} * step;
        Counts counts;
        int code = bench.image(image, in, out, nullptr, counts);
        bench.reset_at = UINT64_MAX;
        if (code == OK) code = bench.image(image, in, out, nullptr, counts);
        if (code != OK) return code;
    }
    return OK;
}
