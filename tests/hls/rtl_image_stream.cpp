// Bench of image_stream: one file through the Verilated model, its registers over AXI4-Lite, with random pauses of both
// streams.
//
// One model instance serves all calls, so every file meets the state that the one before it left behind.
#include <cstdint>
#include <cstring>
#include <memory>

#include "Vimage_stream.h"
#include "rtl_bench.hpp"

namespace {

constexpr int TOO_LONG = -1, BROKEN_CONTRACT = -2;
constexpr uint32_t CONTROL = 0, START = 1, DONE = 2, CONTINUE = 16;
constexpr uint32_t ARGUMENTS = 0x10, STATUS = 0x50, OUTPUTS = 0x58, CYCLES = 0x140;
constexpr unsigned BEAT_BYTES = 4;

struct Wanted {
    uint32_t stage, resize_short, crop_width, crop_height, crop_x, crop_y, options;
};

struct Told {
    uint32_t out_width, out_height, src_width, src_height, cycles;
    uint64_t bytes;  // of pixels
    uint32_t beats_in;
};

// Clocks of the stream's two ends, beside which registers are written and read.
class Run {
public:
    Run(Bench<Vimage_stream>& bench, const uint8_t* jpeg, uint32_t size, uint32_t seed, bool padded, uint8_t* out,
        uint64_t capacity)
        : bench(bench), top(bench.model), random(seed + 1), in(random, seed != 0), taken(random, seed != 0), jpeg(jpeg),
          size(size), padded(padded), out(out), capacity(capacity) {
        top.s_axis_jpeg_tvalid = 0;
        top.s_axi_control_awvalid = top.s_axi_control_wvalid = top.s_axi_control_arvalid = 0;
        top.s_axi_control_bready = top.s_axi_control_rready = 1;
    }

    void clock() {
        if (!top.s_axis_jpeg_tvalid && !all_sent && in()) offer();
        top.m_axis_pixels_tready = taken();
        bench.settle();
        const bool sent = top.s_axis_jpeg_tvalid && top.s_axis_jpeg_tready;
        if (top.m_axis_pixels_tvalid && top.m_axis_pixels_tready) take();
        bench.edge();
        if (sent) {
            all_sent = top.s_axis_jpeg_tlast;
            top.s_axis_jpeg_tvalid = 0;
        }
        clocks++;
    }

    void write(uint32_t address, uint32_t value) {
        top.s_axi_control_awaddr = address;
        top.s_axi_control_wdata = value;
        top.s_axi_control_wstrb = 15;
        top.s_axi_control_awvalid = top.s_axi_control_wvalid = 1;
        bool address_taken = false, data_taken = false, answered = false;
        while (!answered) {
            bench.settle();
            address_taken |= top.s_axi_control_awvalid && top.s_axi_control_awready;
            data_taken |= top.s_axi_control_wvalid && top.s_axi_control_wready;
            answered = top.s_axi_control_bvalid;
            clock();
            if (address_taken) top.s_axi_control_awvalid = 0;
            if (data_taken) top.s_axi_control_wvalid = 0;
        }
    }

    uint32_t read(uint32_t address) {
        top.s_axi_control_araddr = address;
        top.s_axi_control_arvalid = 1;
        for (;;) {
            bench.settle();
            const bool address_taken = top.s_axi_control_arvalid && top.s_axi_control_arready;
            const bool answered = top.s_axi_control_rvalid;
            const uint32_t value = top.s_axi_control_rdata;
            clock();
            if (address_taken) top.s_axi_control_arvalid = 0;
            if (answered) return value;
        }
    }

    uint64_t clocks = 0, bytes = 0;
    uint32_t beats_in = 0;
    bool all_sent = false, broken = false, ended = false, ended_badly = false;
    uint32_t rows_ended = 0;
    bool rows = false;

private:
    Bench<Vimage_stream>& bench;
    Vimage_stream& top;
    Random random;
    Pace in, taken;
    const uint8_t* jpeg;
    uint32_t size, sent = 0;
    bool padded;  // the file ends with a beat without bytes
    uint8_t* out;
    uint64_t capacity;
    bool first = true;

    void offer() {
        const uint32_t left = size - sent, bytes = left < BEAT_BYTES ? left : BEAT_BYTES;
        uint32_t data = 0xDBDBDBDB;
        std::memcpy(&data, jpeg + sent, bytes);
        sent += bytes;
        top.s_axis_jpeg_tdata = data;
        top.s_axis_jpeg_tkeep = (1u << bytes) - 1;
        top.s_axis_jpeg_tlast = sent == size && (!padded || bytes == 0);
        top.s_axis_jpeg_tvalid = 1;
        beats_in++;
    }

    void take() {
        const uint64_t data = top.m_axis_pixels_tdata;
        const uint32_t keep = top.m_axis_pixels_tkeep, user = top.m_axis_pixels_tuser;
        const bool last = top.m_axis_pixels_tlast, bad = user & 2;
        if (ended || (keep != 0 && keep != 7 && keep != 63) || (bad && (!last || keep != 0))) broken = true;
        if (keep == 0 && !bad) broken = true;
        if (keep != 0 && first != ((user & 1) != 0)) broken = true;
        for (unsigned i = 0; i < 6; i++) {
            if (!(keep >> i & 1)) continue;
            if (bytes < capacity) out[bytes] = data >> 8 * i;
            bytes++;
        }
        first = first && keep == 0;
        if (last && rows && !bad) rows_ended++;
        ended_badly = bad;
        ended = last && (bad || !rows);
    }
};

}  // namespace

// The status register at the end, or a negative number. The bytes of the pixels go to `out`.
extern "C" int rtl_image_stream(const uint8_t* jpeg, uint32_t size, uint32_t seed, uint32_t padded, const Wanted* wanted,
                                uint64_t bound, uint8_t* out, uint64_t capacity, Told* told) {
    static const auto bench = std::make_unique<Bench<Vimage_stream>>();
    Run run(*bench, jpeg, size, seed, padded, out, capacity);
    run.rows = wanted->options == 1;
    const uint32_t arguments[] = {wanted->stage,  wanted->resize_short, wanted->crop_width, wanted->crop_height,
                                  wanted->crop_x, wanted->crop_y,       wanted->options};
    for (unsigned i = 0; i < 7; i++) run.write(ARGUMENTS + 8 * i, arguments[i]);
    run.write(CONTROL, START);
    while (!(run.read(CONTROL) & DONE)) {
        for (int i = 0; i < 50; i++) run.clock();
        if (run.clocks > bound) return TOO_LONG;
        if (run.broken) return BROKEN_CONTRACT;
    }
    const uint32_t status = run.read(STATUS);
    told->out_width = run.read(OUTPUTS);
    told->out_height = run.read(OUTPUTS + 8);
    told->src_width = run.read(OUTPUTS + 16);
    told->src_height = run.read(OUTPUTS + 24);
    told->cycles = run.read(CYCLES);
    told->bytes = run.bytes;
    told->beats_in = run.beats_in;
    if (run.rows && !run.ended_badly) run.ended = run.rows_ended == told->out_height;
    if (run.broken || !run.ended || !run.all_sent || run.ended_badly != (status != 0)) return BROKEN_CONTRACT;
    if (status == 0 && run.bytes != 3ull * told->out_width * told->out_height) return BROKEN_CONTRACT;
    run.write(CONTROL, CONTINUE);
    return static_cast<int>(status);
}
