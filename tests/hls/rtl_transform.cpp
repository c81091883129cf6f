// Test bench of transform.sv: coefficients of files, or any, through the model; every sample against the C++.
#include <cstring>

#include "Vtransform.h"
#include "decode_reference.hpp"
#include "rtl_bench.hpp"

namespace {

constexpr int OK = 0, DIFFERENT = 1, TOO_LONG = 2, TOO_MUCH = 3;

struct Transform : Bench<Vtransform> {
    uint64_t reset_at = UINT64_MAX;  // the image in work is given up in this clock
    uint64_t first_block = 0, first_row = 0;  // clocks of the first block's last coefficient and of its first row

    // Also in mid-image: whatever was under way is lost.
    void reset() {
        model.coefficient_valid_i = 0;
        model.quant_we_i = model.quant_latch_i = model.by_component_i = 0;
        model.samples_ready_i = 0;
        Bench::reset();
    }

    // Of each 2 * `run` blocks the first `run` are not wanted; with 0 all are.
    int image(const reference::Image& image, reference::Pauses& in, reference::Pauses& out, uint32_t pairs = 0,
              size_t run = 0) {
        std::minstd_rand random(pairs + 1);
        const auto two = [&](size_t at) {  // whether this coefficient and the next one come together
            return at + 1 < image.coefficients.size() && !image.coefficients[at].last && !image.coefficients[at].end &&
                   !image.coefficients[at + 1].end && random() % 100 < pairs;
        };
        size_t together = 1;
        const auto unwanted = [run](size_t block) { return run != 0 && block / run % 2 == 0; };
        for (const auto& write : image.quant) {
            model.quant_we_i = 1;
            model.quant_table_i = write.table;
            model.quant_index_i = write.index;
            model.quant_value_i = write.value;
            settle();
            if (model.samples_valid_o) return TOO_MUCH;
            edge();
        }
        model.quant_we_i = 0;

        size_t sent = 0, got = 0, oldest = 0;  // block
        first_block = first_row = 0;
        bool offered = false;  // what was offered stays until it is taken
        const uint64_t bound = cycles + 1000 + 40 * (image.coefficients.size() + image.samples.size());
        while (got < image.samples.size()) {
            if (cycles > bound) return TOO_LONG;
            if (cycles >= reset_at) {
                reset_at = UINT64_MAX;
                reset();
                return OK;
            }
            if (!offered) {
                offered = sent < image.coefficients.size() && !in.next();
                together = offered && two(sent) ? 2 : 1;
            }
            model.coefficient_valid_i = offered;
            if (offered) {  // coefficient_t, its last field below
                const auto &c = image.coefficients[sent], &second = image.coefficients[sent + together - 1];
                const uint64_t status = c.end ? static_cast<uint8_t>(c.value) : 0;
                const uint64_t value = c.end ? 0 : static_cast<uint16_t>(c.value);
                const uint64_t high = uint64_t{static_cast<uint16_t>(second.value)} << 16;
                model.coefficient_i = uint64_t{c.end} << 56 | status << 48 | uint64_t{c.quant} << 46 |
                                      uint64_t{second.last} << 45 | uint64_t{together == 2} << 44 |
                                      (high | value) << 12 | uint64_t{second.index} << 6 | c.index;
            }
            model.samples_ready_i = !out.next();
            model.wanted_i = !unwanted(oldest);
            settle();
            oldest += model.next_o;
            if (model.samples_valid_o && model.samples_ready_i) {
                for (; got % 8 == 0 && !image.samples[got].end && unwanted(got / 8); got += 8) {}
                if (got == 0) first_row = cycles;
                const auto& expected = image.samples[got++];
                const unsigned done = model.samples_o[0] >> 8 & 1, status = model.samples_o[0] & 255;
                if (done != expected.end || status != (expected.end ? expected.status : 0)) return DIFFERENT;
                for (int i = 0; i < 8 && !done; i++) {
                    const int bit = 9 + 8 * i, word = bit / 32;
                    const uint64_t high = word < 2 ? model.samples_o[word + 1] : 0;
                    const uint64_t both = high << 32 | model.samples_o[word];
                    if ((both >> bit % 32 & 255) != expected.value[i]) return DIFFERENT;
                }
            }
            if (offered && model.coefficient_ready_o) {
                sent += together;
                if (image.coefficients[sent - 1].last && first_block == 0) first_block = cycles;
                offered = false;
            }
            edge();
        }
        model.coefficient_valid_i = 0;
        model.samples_ready_i = 1;
        for (int i = 0; i < 100; i++) {  // nothing after the end beat
            settle();
            if (model.samples_valid_o) return TOO_MUCH;
            edge();
        }
        cycles -= 100;  // not part of the image
        return OK;
    }
};

// One for all calls, in the state that the one before left, and reset.
Transform& ready() {
    static auto* const bench = new Transform;  // never ends: it outlives everything at exit
    bench->reset();
    return *bench;
}

}  // namespace

// `files` one after the other through one model, each a little-endian 32-bit length and the bytes. `pairs` per cent of
// the coefficients come together with the next one of their block. Returns 0 if all samples are equal. `cycles` and `latency`, from the last coefficient of the first block to its first row, are of the
// last file, without its table writes; so are `lengths`, the coefficients of each of its `blocks`, up to `capacity`.
extern "C" int transform_files(const uint8_t* files, uint64_t size, uint32_t seed, uint32_t pause_in,
                               uint32_t pause_out, uint32_t pairs, uint64_t* cycles, uint64_t* latency,
                               uint64_t* blocks, uint32_t* lengths, uint64_t capacity) {
    Transform& bench = ready();
    reference::Pauses in(seed + 1, pause_in), out(seed + 2, pause_out);
    for (uint64_t at = 0; at < size;) {
        uint32_t length;
        std::memcpy(&length, files + at, 4);
        const reference::Image image = reference::of_file(files + at + 4, length);
        at += 4 + length;
        const uint64_t start = bench.cycles + image.quant.size();
        const int code = bench.image(image, in, out, pairs);
        if (code != OK) return code;
        *cycles = bench.cycles - start;
        *latency = bench.first_row - bench.first_block;
        *blocks = 0;
        uint32_t count = 0;
        for (const auto& coefficient : image.coefficients) {
            count++;
            if (!coefficient.last) continue;
            if (*blocks < capacity) lengths[*blocks] = count;
            ++*blocks;
            count = 0;
        }
    }
    return OK;
}

// Blocks of arbitrary coefficients and tables, so that everything that can overflow does. Of the last ones only some are
// wanted.
extern "C" int transform_random(uint32_t seed, uint32_t blocks, uint32_t pause_in, uint32_t pause_out, uint32_t pairs) {
    Transform& bench = ready();
    reference::Pauses in(seed + 1, pause_in), out(seed + 2, pause_out);
    std::mt19937 random(seed);
    for (int round = 0; round < 4; round++) {
        reference::Image image;
        const uint32_t value_bits = 1 + random() % 16, quant_bits = 1 + random() % 16;
        for (unsigned i = 0; i < 256; i++) {
            const uint8_t table = i / 64, index = i % 64;
            const bool extreme = random() % 8 == 0;
            const uint16_t value = extreme ? 0xFFFF : random() & ((1u << quant_bits) - 1);
            image.quant.push_back({headrace::QUANT, table, index, value});
        }
        for (uint32_t block = 0; block < blocks; block++) {
            const uint8_t quant = random() % 4;
            const unsigned step = 1 + random() % 20, density = random() % 4;
            const bool first_row = random() % 6 == 0;  // places of the first row in zigzag order, and zeros
            static constexpr uint8_t FIRST_ROW[8] = {0, 1, 5, 6, 14, 15, 27, 28};
            for (unsigned k = 0; k < 64; k += 1 + random() % step) {
                int16_t value = random() % 4 <= density ? static_cast<int16_t>(random()) >> (16 - value_bits) : 0;
                if (random() % 16 == 0) value = random() % 2 ? 32767 : -32768;
                bool row_0 = false;
                for (const uint8_t place : FIRST_ROW) row_0 = row_0 || place == k;
                if (first_row && !row_0) value = 0;
                image.coefficients.push_back({value, static_cast<uint8_t>(k), quant, k == 63, false});
            }
            if (!image.coefficients.back().last) image.coefficients.push_back({0, 63, quant, true, false});
        }
        // Every other time the end cuts a block off.
        if (round % 2) image.coefficients.push_back({100, 0, 0, false, false});
        if (round % 2) image.coefficients.push_back({100, 20, 0, false, false});
        image.coefficients.push_back({static_cast<int16_t>(round), 0, 0, false, true});
        reference::transform(image);
        const int code = bench.image(image, in, out, pairs, round < 2 ? 0 : random() % 40);
        if (code != OK) return code;
    }
    return OK;
}

// The file again and again, given up by a reset after each multiple of `step` clocks and then taken whole.
extern "C" int transform_resets(const uint8_t* file, uint32_t size, uint32_t step, uint32_t count) {
    Transform& bench = ready();
    reference::Pauses in(1, 20), out(2, 20);
    const reference::Image image = reference::of_file(file, size);
    for (uint32_t i = 1; i <= count; i++) {
        bench.reset_at = bench.cycles + uint64_t{i} * step;
        int code = bench.image(image, in, out, 50);
        bench.reset_at = UINT64_MAX;
        if (code == OK) code = bench.image(image, in, out, 50);
        if (code != OK) return code;
    }
    return OK;
}
