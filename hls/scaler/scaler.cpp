// Two passes in either order, as in the RTL. Each is one piece of hardware, which ALLOCATION says to the tool.
#include "scaler/scaler.hpp"

#include "headrace/drain.hpp"
#include "headrace/word.hpp"

namespace headrace {
namespace {

constexpr unsigned WIDE_LANES = 4;

using Weight = ap_int<24>;

struct Pixel {
    uint8_t value[CHANNELS];
};

// An entry of a list.
struct Entry {
    int32_t weight[SCALER_LANES];
    uint8_t flags;
};

struct Sums {
    int32_t value[CHANNELS];
};

bool takes(const Entry& entry, unsigned step) { return entry.flags >> (2 * step) & 1; }
bool gives(const Entry& entry, unsigned step) { return entry.flags >> (2 * step) & 2; }

Entry read_entry(hls::stream<ap_uint<128>>& table) {
#pragma HLS INLINE
    const Halves first = halves_of(table.read()), second = halves_of(table.read());
    const uint64_t bits[4] = {first.low, first.high, second.low, second.high};
    Entry entry;
    for (unsigned lane = 0; lane < SCALER_LANES; lane++) {
#pragma HLS UNROLL
        const unsigned at = 24 * lane, inside = at % 64;
        uint64_t value = bits[at / 64] >> inside;
        if (inside > 40) value |= bits[at / 64 + 1] << (64 - inside);
        entry.weight[lane] = static_cast<int32_t>(static_cast<uint32_t>(value) << 8) >> 8;
    }
    entry.flags = bits[3] & 0xF;
    return entry;
}

// A product and sums wrap in 32 bits, as adders do.
int32_t add(int32_t a, int32_t b) { return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); }

uint8_t rounded(int32_t sum, unsigned bits) {
#pragma HLS INLINE
    const int32_t value = add(sum, int32_t{1} << (bits - 1)) >> bits;
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Pixels of the input, one after the other, whatever the beats.
class Taken {
    hls::stream<Beat>& pixels;
    Beat beat{};
    unsigned at = 0;

public:
    bool ended = false;  // the last beat has come,
    uint8_t status = STATUS_OK;  // with this status

    explicit Taken(hls::stream<Beat>& pixels) : pixels(pixels) {}

    // False if there is none any more.
    bool next(Pixel& pixel) {
#pragma HLS INLINE
        while (at == beat.end && !ended) read();
        if (at == beat.end || (ended && status != STATUS_OK)) return false;
        for (unsigned c = 0; c < CHANNELS; c++) pixel.value[c] = beat.value[c][at];
        at++;
        return true;
    }
    // Read what is left; returns the status of the input's end.
    uint8_t drained() {
        while (!ended) read();
        return status;
    }

private:
    void read() {
#pragma HLS INLINE
        beat = pixels.read();
        at = beat.begin;
        ended = beat.last;
        status = beat.status;
    }
};

// Beats of the output. The last one waits for `end`.
class Given {
    hls::stream<Beat>& pixels;
    const uint32_t width;
    Beat beat{};
    uint32_t column = 0;
    bool full = false;

public:
    Given(hls::stream<Beat>& pixels, uint32_t width) : pixels(pixels), width(width) {}

    void put(const Pixel& pixel) {
#pragma HLS INLINE
        if (full) {
            pixels.write(beat);
            beat.end = 0;
        }
        for (unsigned c = 0; c < CHANNELS; c++) beat.value[c][beat.end] = pixel.value[c];
        beat.end++;
        column = column + 1 == width ? 0 : column + 1;
        full = beat.end == BEAT || column == 0;
    }
    void end(uint8_t status) {
        if (status == STATUS_OK) {
            beat.last = true;
            pixels.write(beat);
        } else {
            pixels.write(end_of_frame(status));
        }
    }
};

// The pass along rows: `height` times the list of entries.
void along_rows(hls::stream<Beat>& pixels, const Entry* entries, const ScalerPass& pass, bool wide, uint32_t height,
                uint32_t out_width, hls::stream<Beat>& out_pixels) {
    Taken in(pixels);
    Given out(out_pixels, out_width);
    Sums open[SCALER_LANES];       // outputs of a scatter
    Pixel window[SCALER_LANES]{};  // elements of a gather, the newest first
#pragma HLS ARRAY_PARTITION variable = open complete dim = 0
#pragma HLS ARRAY_PARTITION variable = window complete dim = 0
    const unsigned lanes = wide ? WIDE_LANES : SCALER_LANES;
    bool there = true;
rows:
    for (uint32_t y = 0; y < height && there; y++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        for (auto& sums : open) sums = {};
    entries:
        for (uint32_t i = 0; i < pass.entries && there; i++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 4096
            const Entry entry = entries[i];
            for (unsigned step = 0; step < (wide ? 2 : 1); step++) {
                Pixel pixel{};
                const bool taken = takes(entry, step);
                if (taken) {
                    if (!in.next(pixel)) {
                        there = false;
                        break;
                    }
                    if (pass.gather) {
                        for (unsigned l = SCALER_LANES - 1; l > 0; l--) window[l] = window[l - 1];
                        window[0] = pixel;
                    }
                }
                Sums sums{};
                for (unsigned l = 0; l < lanes; l++) {
#pragma HLS UNROLL
                    const int32_t weight = entry.weight[WIDE_LANES * step + l];
                    for (unsigned c = 0; c < CHANNELS; c++) {
                        if (pass.gather) {
                            sums.value[c] = add(sums.value[c], weight * window[l].value[c]);
                        } else {
                            open[l].value[c] = add(open[l].value[c], weight * pixel.value[c]);
                        }
                    }
                }
                if (gives(entry, step)) {
                    if (!pass.gather) {
                        sums = open[0];
                        for (unsigned l = 0; l + 1 < SCALER_LANES; l++) open[l] = open[l + 1];
                        open[lanes - 1] = {};
                    }
                    Pixel made;
                    for (unsigned c = 0; c < CHANNELS; c++) made.value[c] = rounded(sums.value[c], pass.bits);
                    out.put(made);
                }
            }
        }
    }
    const uint8_t status = in.drained();
    out.end(there || status != STATUS_OK ? status : static_cast<uint8_t>(STATUS_BAD_ARGUMENT));
}

// The pass along columns: the list of entries once, each over a row of `width` pixels. `height` rows come, and
// `out_height` leave.
void along_columns(hls::stream<Beat>& pixels, hls::stream<ap_uint<128>>& table, const ScalerPass& pass, bool wide,
                   uint32_t width, uint32_t height, uint32_t out_height, hls::stream<Beat>& out_pixels) {
    Sums held[SCALER_WORDS][SCALER_LANES];  // sums of a scatter, or pixels of a gather, by slots of a ring
#pragma HLS ARRAY_PARTITION variable = held complete dim = 2
#pragma HLS BIND_STORAGE variable = held type = ram_2p impl = uram
    Taken in(pixels);
    Given out(out_pixels, width);
    const unsigned lanes = wide ? WIDE_LANES : SCALER_LANES;
    unsigned base = 0;         // slot of the first open output, or of the newest row
    bool fresh[SCALER_LANES];  // slots that hold 0, whatever the memory has
    for (bool& slot : fresh) slot = true;
    uint32_t taken = 0, given = 0, used = 0;
    bool fits = true;
entries:
    for (; used < pass.entries && fits; used++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        const Entry entry = read_entry(table);
        const bool take = takes(entry, 0), give = gives(entry, 0);
        taken += take;
        given += give;
        if (taken > height || given > out_height) {
            fits = false;
            continue;
        }
        if (pass.gather && take) base = (base + 1) % lanes;
    columns:
        for (uint32_t x = 0; x < width && fits; x++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 8192
            Pixel pixel{};
            if (take && !in.next(pixel)) {
                fits = false;
                break;
            }
            Sums* word = wide ? held[x / 2] + WIDE_LANES * (x % 2) : held[x];
            Sums sums{};
            for (unsigned slot = 0; slot < lanes; slot++) {
#pragma HLS UNROLL
                const unsigned lane = (pass.gather ? base - slot : slot - base) % lanes;
                const int32_t weight = entry.weight[lane];
                for (unsigned c = 0; c < CHANNELS; c++) {
                    int32_t& value = word[slot].value[c];
                    const int32_t before = fresh[slot] ? 0 : value;
                    if (pass.gather) {
                        value = take && slot == base ? pixel.value[c] : before;
                        sums.value[c] = add(sums.value[c], weight * value);
                    } else {
                        value = add(before, weight * pixel.value[c]);
                        if (slot == base) sums.value[c] = value;
                    }
                }
            }
            if (give) {
                Pixel made;
                for (unsigned c = 0; c < CHANNELS; c++) made.value[c] = rounded(sums.value[c], pass.bits);
                out.put(made);
            }
        }
        for (unsigned slot = 0; slot < lanes; slot++) fresh[slot] = !pass.gather && give && slot == base;
        if (!pass.gather && give) base = (base + 1) % lanes;
    }
    for (; used < pass.entries; used++) {
        table.read();
        table.read();
    }
    const uint8_t status = in.drained();
    const bool complete = fits && taken == height && given == out_height;
    out.end(complete || status != STATUS_OK ? status : static_cast<uint8_t>(STATUS_BAD_ARGUMENT));
}

// An image of `width` columns and `height` rows on a canvas.
void place(hls::stream<Beat>& pixels, uint32_t width, uint32_t height, const Canvas& canvas,
           hls::stream<Beat>& out_pixels) {
    Taken in(pixels);
    Given out(out_pixels, canvas.width);
    bool there = true;
canvas_rows:
    for (uint32_t y = 0; y < canvas.height && there; y++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        const bool in_row = y >= canvas.top && y < canvas.top + height;
    canvas_columns:
        for (uint32_t x = 0; x < canvas.width && there; x++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 8192
            Pixel pixel;
            for (unsigned c = 0; c < CHANNELS; c++) pixel.value[c] = canvas.colour[c];
            if (in_row && x >= canvas.left && x < canvas.left + width) there = in.next(pixel);
            if (there) out.put(pixel);
        }
    }
    out.end(in.drained());
}

// The list along rows into the memory. True if it takes `width` pixels and gives `out_width`.
bool load_rows(hls::stream<ap_uint<128>>& table, const ScalerPass& pass, bool wide, uint32_t width, uint32_t out_width,
               Entry* entries) {
    uint64_t taken = 0, given = 0;
    for (uint32_t i = 0; i < pass.entries; i++) {
#pragma HLS PIPELINE II = 2
#pragma HLS LOOP_TRIPCOUNT max = 4096
        const Entry entry = read_entry(table);
        if (i < SCALER_ENTRIES) entries[i] = entry;
        taken += takes(entry, 0) + (wide && takes(entry, 1));
        given += gives(entry, 0) + (wide && gives(entry, 1));
    }
    return pass.entries <= SCALER_ENTRIES && taken == width && given == out_width;
}

bool sound(const ScalerPass& pass) { return pass.bits >= 1 && pass.bits <= 31; }

bool sound(const ScalerSetup& setup) {
    const Canvas& canvas = setup.canvas;
    return sound(setup.rows) && sound(setup.columns) && setup.out_height != 0 &&
           uint64_t{canvas.left} + setup.out_width <= canvas.width &&
           uint64_t{canvas.top} + setup.out_height <= canvas.height;
}

}  // namespace

void scaler(hls::stream<Frame>& frames, hls::stream<Beat>& pixels, hls::stream<ap_uint<128>>& table,
            const ScalerSetup& setup, hls::stream<Frame>& out_frames, hls::stream<Beat>& out_pixels) {
#pragma HLS ALLOCATION function instances = along_rows limit = 1
#pragma HLS ALLOCATION function instances = along_columns limit = 1
    Entry entries[SCALER_ENTRIES];
#pragma HLS AGGREGATE variable = entries
#pragma HLS BIND_STORAGE variable = entries type = ram_2p impl = uram
    const Frame frame = frames.read();
    const uint32_t width = frame.width, height = frame.height;
    const bool loaded = load_rows(table, setup.rows, setup.wide, width, setup.out_width, entries);
    Status status = frame.status;
    if (status == STATUS_OK && !(loaded && sound(setup))) status = STATUS_BAD_ARGUMENT;
    if (status != STATUS_OK) {
        out_frames.write(Frame{0, 0, status});
        if (frame.status == STATUS_OK) drain(pixels);
        for (uint32_t i = 0; i < 2 * setup.columns.entries; i++) table.read();
        return;
    }
    out_frames.write(Frame{setup.canvas.width, setup.canvas.height, STATUS_OK});
    hls::stream<Beat> between("between"), scaled("scaled");
#pragma HLS STREAM variable = between depth = 64
#pragma HLS STREAM variable = scaled depth = 64
    if (setup.columns_first) {
        along_columns(pixels, table, setup.columns, setup.wide, width, height, setup.out_height, between);
        along_rows(between, entries, setup.rows, setup.wide, setup.out_height, setup.out_width, scaled);
    } else {
        along_rows(pixels, entries, setup.rows, setup.wide, height, setup.out_width, between);
        along_columns(between, table, setup.columns, setup.wide, setup.out_width, height, setup.out_height, scaled);
    }
    place(scaled, setup.out_width, setup.out_height, setup.canvas, out_pixels);
}

}  // namespace headrace
