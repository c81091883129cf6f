// Test bench of Verilated resize, scaler, crop and normalize: an image through one unit, clock by clock.
//
// The model lives as long as the library and is reset once, so that each call is also a request after another one.
// Seed 0: input always there, output always taken. Other seeds: every stream pauses at random, by a rate of its own, and
// with odd ones an early end comes in the last beat of pixels instead of in a beat of its own.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "rtl_bench.hpp"

namespace {

// The beats of an image that ends after `given` pixels, or as many more as fill the last beat in mid-row.
class Source {
    const uint8_t* image;
    uint64_t width, given, at = 0;
    uint32_t end_status;
    bool merged;
    unsigned lanes;  // pixels in a beat

    uint32_t pixel(uint64_t i) const { return image[3 * i] << 16 | image[3 * i + 1] << 8 | image[3 * i + 2]; }
    uint64_t size() const { return std::min<uint64_t>(lanes, width - at % width); }

public:
    bool done = false;

    Source(const uint8_t* image, uint64_t width, uint64_t given, uint32_t end_status, bool merged, unsigned lanes = 2)
        : image(image), width(width), given(given), end_status(end_status), merged(merged), lanes(lanes) {}

    Beat beat() const {
        if (at >= given) return {.last = 1, .status = end_status};
        const bool last = at + size() >= given && (end_status == 0 || merged);
        Beat beat{.keep = (1u << size()) - 1, .last = last, .status = last ? end_status : 0};
        for (unsigned i = 0; i < lanes; i++) beat.pixel[i] = i < size() ? pixel(at + i) : 0xA5A5A5;
        return beat;
    }
    void taken() {
        if (beat().last) done = true;
        else at += size();
    }
};

// What the unit says, checked against the stream contract.
struct Sink {
    uint64_t width = 0, height = 0, x = 0, count = 0;
    uint32_t status = 0;
    bool framed = false, done = false, broken = false;
    const uint64_t whole;  // pixels that an image without an error has
    uint64_t columns;      // in a row; 0: as the frame says

    explicit Sink(uint64_t whole, uint64_t columns = 0) : whole(whole), columns(columns) {}
    void frame(uint64_t bits) {
        broken |= framed;
        framed = true;
        width = bits >> 24 & 0xFFFF;
        if (columns == 0) columns = width;
        height = bits >> 8 & 0xFFFF;
        status = bits & 0xFF;
        done = status != 0;
    }
    // The number of pixels in it.
    uint64_t beat(uint32_t keep, bool last, uint32_t end) {
        broken |= !framed || done || (!last && end != 0) || (keep != 3 && keep != 1 && !(keep == 0 && last));
        const uint64_t pixels = keep == 3 ? 2 : keep;
        // A row starts with a new beat, and only there a beat is not full.
        broken |= x + pixels > columns || (keep == 1 && x + 1 != columns);
        x = x + pixels == columns ? 0 : x + pixels;
        count += pixels;
        if (last) {
            done = true;
            status = end;
            broken |= end == 0 && count != whole;
        }
        return pixels;
    }
};

struct Numbers {
    uint64_t cycles;  // from the first input to the last output
    uint64_t held;    // of them, clocks in which a beat was there and was not taken
};

// A unit without an input besides frames and beats.
struct NoMore {
    void offer() {}
    void settled() {}
    void edge() {}
    bool done() const { return true; }
    uint64_t clocks() const { return 0; }
};

// Resize, scaler and crop have the same streams.
template <class Model, class More = NoMore>
int run(Bench<Model>& bench, uint32_t width, uint32_t height, uint32_t frame_status, Source source, uint8_t* out,
        uint64_t capacity, uint32_t columns, uint32_t* out_width, uint32_t* out_height, uint32_t seed, Numbers* numbers,
        More more = {}) {
    Model& m = bench.model;
    Random random(seed);
    const bool stalls = seed != 0;
    Pace frame_in(random, stalls), beat_in(random, stalls), frame_out(random, stalls), beat_out(random, stalls);
    Sink sink(capacity / 3, columns);
    bool frame_sent = false;
    if (frame_status != 0) source.done = true;
    m.frame_i = uint64_t(width) << 24 | uint64_t(height) << 8 | frame_status;
    m.frame_valid_i = 0;
    m.beat_valid_i = 0;
    const uint64_t limit =
        20000 + (stalls ? 100 : 4) * (uint64_t(width) * height + capacity / 3 + 1000 + more.clocks());
    uint64_t first = 0;
    *numbers = Numbers{0, 0};
    for (uint64_t now = 1; now < limit; now++) {
        if (!m.frame_valid_i) m.frame_valid_i = !frame_sent && frame_in();
        if (!m.beat_valid_i && frame_sent && !source.done && beat_in()) {
            m.beat_valid_i = 1;
            put_beat(m.beat_i, source.beat());
        }
        m.frame_ready_i = frame_out();
        m.beat_ready_i = beat_out();
        more.offer();
        bench.settle();
        more.settled();
        const bool frame_taken = m.frame_valid_i && m.frame_ready_o;
        const bool beat_taken = m.beat_valid_i && m.beat_ready_o;
        numbers->held += m.beat_valid_i && !m.beat_ready_o;
        if (m.frame_valid_o && m.frame_ready_i) {
            sink.frame(m.frame_o);
            numbers->cycles = now - first + 1;
        }
        if (m.beat_valid_o && m.beat_ready_i) {
            const Beat beat = beat_at(m.beat_o);
            const uint64_t before = sink.count;
            const uint64_t pixels = sink.beat(beat.keep, beat.last, beat.status);
            if (3 * sink.count > capacity) sink.broken = true;
            for (uint64_t i = 0; i < pixels && !sink.broken; i++) {
                const uint32_t value = beat.pixel[i];
                uint8_t* to = out + 3 * (before + i);
                to[0] = value >> 16;
                to[1] = value >> 8;
                to[2] = value;
            }
            numbers->cycles = now - first + 1;
        }
        // Back to idle: the request is over, and nothing else came out.
        const bool idle = frame_sent && sink.done && source.done && m.frame_ready_o && !m.beat_valid_i && more.done();
        bench.edge();
        more.edge();
        if (frame_taken) {
            frame_sent = true;
            first = now;
            m.frame_valid_i = 0;
        }
        if (beat_taken) {
            source.taken();
            m.beat_valid_i = 0;
        }
        if (sink.broken) break;
        if (idle) {
            *out_width = sink.width;
            *out_height = sink.height;
            return sink.status;
        }
    }
    m.frame_valid_i = 0;
    m.beat_valid_i = 0;
    bench.reset();
    return sink.broken ? BROKEN : TIMEOUT;
}

}  // namespace

#if __has_include("Vresize.h")
#include "Vresize.h"

extern "C" int rtl_resize(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                          uint32_t end_status, uint32_t resize_short, uint32_t crops, uint32_t crop_width,
                          uint32_t crop_height, uint32_t crop_x, uint32_t crop_y, uint32_t columns, uint8_t* out,
                          uint64_t capacity,
                          uint32_t* out_width, uint32_t* out_height, uint32_t seed, Numbers* numbers) {
    static Bench<Vresize> bench;
    Vresize& m = bench.model;
    m.resize_short_i = resize_short;
    m.crops_i = crops;
    m.crop_width_i = crop_width;
    m.crop_height_i = crop_height;
    m.crop_x_i = crop_x;
    m.crop_y_i = crop_y;
    m.width_i = width;
    m.height_i = height;
    m.sized_i = 0;
    bench.clock();
    m.sized_i = 1;
    // An error may come before the window is known.
    const uint32_t limit = frame_status != 0 ? seed % 500 : 1000 + 65536;
    uint32_t waited = 0;
    for (bench.settle(); !m.window_valid_o && waited < limit; waited++) {
        bench.edge();
        bench.settle();
    }
    if (frame_status == 0 && waited == limit) return TIMEOUT;
    const uint64_t window = m.window_o;  // rows, then words of eight pixels
    const uint32_t first_row = window >> 37, last_row = std::min<uint32_t>(window >> 21 & 0xFFFF, height - 1);
    const uint32_t left = (window >> 11 & 0x3FF) * 8;
    const uint32_t wide = std::min<uint32_t>((window & 0x7FF) * 8 + 8, width) - left;
    std::vector<uint8_t> part;
    for (uint64_t y = first_row; frame_status == 0 && y <= last_row; y++) {
        const uint8_t* row = image + 3 * (y * width + left);
        part.insert(part.end(), row, row + 3 * wide);
    }
    const Source source(part.data(), wide, std::min<uint64_t>(given, part.size() / 3), end_status, seed & 1,
                        lanes_of<decltype(m.beat_i)>);
    return run(bench, width, height, frame_status, source, out, capacity, columns, out_width, out_height, seed,
               numbers);
}
#endif

#if __has_include("Vscaler.h")
#include "Vscaler.h"

namespace {

// The words of the lists.
struct Lists {
    Vscaler& m;
    const uint64_t* words;
    uint64_t left, between;
    Pace pace;
    bool taken = false;

    void offer() {
        if (!m.word_valid_i && left != 0 && pace()) {
            m.word_valid_i = 1;
            for (unsigned i = 0; i < 4; i++) m.word_i[i] = words[i / 2] >> (32 * (i % 2));
        }
    }
    void settled() { taken = m.word_valid_i && m.word_ready_o; }
    void edge() {
        if (!taken) return;
        m.word_valid_i = 0;
        words += 2;
        left--;
    }
    bool done() const { return left == 0; }
    // That the words take, and rows between the passes.
    uint64_t clocks() const { return left + between; }
};

}  // namespace

// `setup`: as in csim_scaler.
extern "C" int rtl_scaler(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                          uint32_t end_status, const uint32_t* setup, const uint64_t* table, uint8_t* out,
                          uint64_t capacity, uint32_t* out_width, uint32_t* out_height, uint32_t seed,
                          Numbers* numbers) {
    static Bench<Vscaler> bench;
    Vscaler& m = bench.model;
    // As setup_t, the last field lowest.
    const unsigned sizes[15] = {16, 16, 32, 5, 1, 32, 5, 1, 1, 1, 16, 16, 16, 16, 24};
    std::fill(m.setup_i.data(), m.setup_i.data() + 7, 0);
    for (unsigned i = 15, at = 0; i-- > 0; at += sizes[i]) {
        const uint64_t bits = uint64_t(setup[i]) << (at % 32);
        m.setup_i[at / 32] |= static_cast<uint32_t>(bits);
        m.setup_i[at / 32 + 1] |= static_cast<uint32_t>(bits >> 32);
    }
    m.word_valid_i = 0;
    Random random(seed + 1);
    const uint64_t between = uint64_t(setup[0] + 16) * height + uint64_t(width + 16) * setup[1] +
                             uint64_t(setup[10]) * setup[11];
    const Lists lists{m, table, 2 * (uint64_t{setup[2]} + setup[5]), between, Pace(random, seed != 0)};
    const Source source(image, width, given, end_status, seed & 1);
    return run(bench, width, height, frame_status, source, out, capacity, 0, out_width, out_height, seed, numbers, lists);
}
#endif

constexpr unsigned CROP_WORDS = 4;  // of crop_t

#if __has_include("Vcrop_window.h")
#include "Vcrop_window.h"

extern "C" void rtl_crop_window(uint32_t width, uint32_t height, uint32_t crop_width, uint32_t crop_height,
                                uint32_t crop_x, uint32_t crop_y, uint32_t* place) {
    static Vcrop_window model;
    model.width_i = width;
    model.height_i = height;
    model.crop_width_i = crop_width;
    model.crop_height_i = crop_height;
    model.crop_x_i = crop_x;
    model.crop_y_i = crop_y;
    for (int edge = 0; edge < 6; edge++) {
        model.clk_i = edge & 1;
        model.eval();
    }
    std::copy(model.crop_o.data(), model.crop_o.data() + CROP_WORDS, place);
}
#endif

#if __has_include("Vcrop.h")
#include "Vcrop.h"

extern "C" int rtl_crop(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                        uint32_t end_status, const uint32_t* place, uint32_t columns, uint8_t* out,
                        uint64_t capacity, uint32_t* out_width, uint32_t* out_height, uint32_t seed,
                        Numbers* numbers) {
    static Bench<Vcrop> bench;
    std::copy(place, place + CROP_WORDS, bench.model.crop_i.data());
    bench.model.cut_i = columns != 0;
    const Source source(image, columns != 0 ? columns : width, given, end_status, seed & 1);
    return run(bench, width, height, frame_status, source, out, capacity, 0, out_width, out_height, seed, numbers);
}
#endif

#if __has_include("Vnormalize.h")
#include "Vnormalize.h"

extern "C" int rtl_normalize(const uint8_t* image, uint32_t width, uint64_t given, uint32_t end_status,
                             const uint32_t* tables, uint32_t* out, uint32_t seed, Numbers* numbers) {
    static Bench<Vnormalize> bench;
    Vnormalize& m = bench.model;
    m.beat_valid_i = 0;
    for (int i = 0; i < 3 * 256; i++) {
        m.table_we_i = 1;
        m.table_channel_i = i / 256;
        m.table_index_i = i % 256;
        m.table_value_i = tables[i];
        bench.clock();
    }
    m.table_we_i = 0;
    Random random(seed);
    Pace in(random, seed != 0), taken(random, seed != 0);
    Source source(image, width, given, end_status, seed & 1);
    Sink sink(given);
    sink.frame(uint64_t(width) << 24 | (given / width) << 8);
    *numbers = Numbers{0, 0};
    uint64_t first = 0;
    const uint64_t limit = 1000 + 100 * given;
    for (uint64_t now = 1; now < limit && !sink.done; now++) {
        if (!m.beat_valid_i && !source.done && in()) {
            m.beat_valid_i = 1;
            put_beat(m.beat_i, source.beat());
        }
        m.sample_ready_i = taken();
        bench.settle();
        const bool beat_taken = m.beat_valid_i && m.beat_ready_o;
        numbers->held += m.beat_valid_i && !m.beat_ready_o;
        if (m.sample_valid_o && m.sample_ready_i) {
            const uint64_t before = sink.count;
            const uint32_t tail = m.sample_o[0];  // keep, last, status: 11 bits below the values
            const uint64_t pixels = sink.beat(tail >> 9 & 3, tail >> 8 & 1, tail & 0xFF);
            if (sink.count > given + 1) sink.broken = true;
            for (uint64_t i = 0; i < 3 * pixels && 3 * before + i < 3 * given; i++) {
                out[3 * before + i] = m.sample_o[i] >> 11 | m.sample_o[i + 1] << 21;
            }
            numbers->cycles = now - first + 1;
        }
        bench.edge();
        if (beat_taken) {
            if (first == 0) first = now;
            source.taken();
            m.beat_valid_i = 0;
        }
    }
    bench.settle();
    if (sink.done && source.done && !sink.broken && !m.sample_valid_o && sink.count >= given) return sink.status;
    m.beat_valid_i = 0;
    bench.reset();
    return sink.done ? BROKEN : TIMEOUT;
}
#endif

#if __has_include("Vpatches.h")
#include "Vpatches.h"

// `setup`, `sizes`: as in csim_patches.
extern "C" int rtl_patches(const uint8_t* image, uint32_t width, uint32_t height, uint64_t given, uint32_t frame_status,
                           uint32_t end_status, const uint32_t* setup, const uint32_t* tables, uint64_t* words,
                           uint64_t room, uint64_t* sizes, uint32_t seed, Numbers* numbers) {
    static Bench<Vpatches> bench;
    Vpatches& m = bench.model;
    m.frame_valid_i = m.beat_valid_i = m.start_i = 0;
    // As layout_t, the last field lowest.
    const unsigned fields[6] = {16, 16, 8, 4, 1, 32};
    std::fill(m.layout_i.data(), m.layout_i.data() + 3, 0);
    for (unsigned i = 6, at = 0; i-- > 0; at += fields[i]) {
        const uint64_t bits = uint64_t(setup[i]) << (at % 32);
        m.layout_i[at / 32] |= static_cast<uint32_t>(bits);
        if (at / 32 < 2) m.layout_i[at / 32 + 1] |= static_cast<uint32_t>(bits >> 32);
    }
    m.shift_i = setup[6];
    m.capacity_i = setup[7];
    for (int i = 0; i < 3 * 256; i++) {
        m.table_we_i = 1;
        m.table_channel_i = i / 256;
        m.table_index_i = i % 256;
        m.table_value_i = tables[i];
        bench.clock();
    }
    m.table_we_i = 0;
    m.start_i = 1;
    bench.clock();
    m.start_i = 0;
    Random random(seed);
    const bool stalls = seed != 0;
    Pace frame_in(random, stalls), beat_in(random, stalls), word_out(random, stalls);
    Source source(image, width, given, end_status, seed & 1);
    bool frame_sent = false, broken = false;
    if (frame_status != 0) source.done = true;
    m.frame_i = uint64_t(width) << 24 | uint64_t(height) << 8 | frame_status;
    uint64_t count = 0, first = 0;
    *numbers = Numbers{0, 0};
    const uint64_t limit = 20000 + (stalls ? 100 : 4) * (given + room + 1000);
    for (uint64_t now = 1; now < limit && !broken; now++) {
        if (!m.frame_valid_i) m.frame_valid_i = !frame_sent && frame_in();
        if (!m.beat_valid_i && frame_sent && !source.done && beat_in()) {
            m.beat_valid_i = 1;
            put_beat(m.beat_i, source.beat());
        }
        m.word_ready_i = word_out();
        bench.settle();
        const bool frame_taken = m.frame_valid_i && m.frame_ready_o;
        const bool beat_taken = m.beat_valid_i && m.beat_ready_o;
        numbers->held += m.beat_valid_i && !m.beat_ready_o;
        if (m.word_valid_o && m.word_ready_i) {
            broken = count == room;
            for (unsigned i = 0; i < 2 && !broken; i++) {
                words[2 * count + i] = uint64_t(m.word_o[2 * i + 1]) << 32 | m.word_o[2 * i];
            }
            count++;
            numbers->cycles = now - first + 1;
        }
        const bool idle = frame_sent && source.done && !m.beat_valid_i && m.idle_o;
        bench.edge();
        if (frame_taken) {
            frame_sent = true;
            first = now;
            m.frame_valid_i = 0;
        }
        if (beat_taken) {
            source.taken();
            m.beat_valid_i = 0;
        }
        if (idle) {
            const uint64_t ends[] = {m.width_o, m.height_o, m.bytes_o, count};
            std::copy(ends, ends + 4, sizes);
            return m.status_o;
        }
    }
    m.frame_valid_i = m.beat_valid_i = 0;
    bench.reset();
    return broken ? BROKEN : TIMEOUT;
}
#endif
