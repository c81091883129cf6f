// Drives one Verilated kernel as the host and the memory of a card would. What it needs to know of the kernel comes as
// macros: HW_EMU_TOP (the model's class), HW_EMU_HEADER (where it is declared) and HW_EMU_PORTS(X), an X(name, bits) for
// each AXI4 master. Which channels a master has is seen from the pins that exist.
//
// Every clock has two evaluations: with the clock low the kernel's combinational outputs settle on the pins' new values
// and both sides of every channel see which transfers happen; then the rising edge.
#include <cinttypes>
#include <cstdarg>
#include <memory>
#include <string>
#include <vector>

#include HW_EMU_HEADER
#include "axi_memory.hpp"
#include "hw_emu.h"
#include "verilated.h"
#if VM_TRACE_SAIF
#include "verilated_saif_c.h"
using TraceFile = VerilatedSaifC;
#else
#include "verilated_vcd_c.h"
using TraceFile = VerilatedVcdC;
#endif
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

namespace {

thread_local std::string printed;  // by the model, in this thread's run

}  // namespace

int headrace_print(const char* format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (printed.size() < 4096) printed += text;
    return length;
}

namespace {

// From within an evaluation, which leaves the model in pieces.
struct Stopped : hw_emu::KernelError {
    Stopped(const char* file, int line, const std::string& why)
        : KernelError("the kernel stopped itself at " + std::string(file) + ":" + std::to_string(line) + ": " + why) {}
};

}  // namespace

void vl_stop(const char* file, int line, const char*) { throw Stopped(file, line, printed); }

void vl_fatal(const char* file, int line, const char*, const char* message) {
    throw Stopped(file, line, message + (" " + printed));
}

void vl_finish(const char* file, int line, const char*) { throw Stopped(file, line, "$finish"); }

namespace hw_emu {
namespace {

constexpr uint32_t CONTROL = 0x00, GLOBAL_INTERRUPT = 0x04, INTERRUPT_ENABLE = 0x08, INTERRUPT_STATUS = 0x0C;
constexpr uint32_t AP_START = 1, AP_DONE = 2, AP_CONTINUE = 16;
constexpr uint64_t RESET_CLOCKS = 16;
constexpr uint64_t LITE_LIMIT = 10'000;     // clocks for one register access
constexpr uint64_t POLL_EVERY = 64;         // clocks between two looks at the control register
constexpr uint64_t WATCH_EVERY = 256;       // clocks between two looks at the limits
constexpr uint64_t HALF_CLOCK_PS = 1667;    // 300 MHz

template <typename Top>
inline constexpr bool has_interrupt_pin = requires(Top& pins) { pins.__SYM__interrupt; };  // renamed by Verilator

template <typename Pin>
uint8_t* bytes_of(Pin& pin) {
    return reinterpret_cast<uint8_t*>(&pin);
}

// Lambdas on `auto& pins` so that `requires` asks which pins the model has.
#define HW_EMU_ADDRESS(NAME, CHANNEL)                                                                   \
    AddressPins {                                                                                       \
        &pins.m_axi_##NAME##_##CHANNEL##valid, &pins.m_axi_##NAME##_##CHANNEL##addr,                    \
            &pins.m_axi_##NAME##_##CHANNEL##len, &pins.m_axi_##NAME##_##CHANNEL##size,                  \
            &pins.m_axi_##NAME##_##CHANNEL##burst, &pins.m_axi_##NAME##_##CHANNEL##cache,               \
            &pins.m_axi_##NAME##_##CHANNEL##prot, &pins.m_axi_##NAME##_##CHANNEL##ready                 \
    }
#define HW_EMU_CONNECT(NAME, BITS)                                                                      \
    [&](auto& pins) {                                                                                   \
        static_assert(BITS % 8 == 0 && BITS <= 512, "data width of m_axi_" #NAME " in kernel.xml");     \
        if constexpr (requires { pins.m_axi_##NAME##_arvalid; }) {                                      \
            static_assert(sizeof(pins.m_axi_##NAME##_rdata) == BITS / 8, "width of m_axi_" #NAME);      \
            ReadPins read;                                                                              \
            read.address = HW_EMU_ADDRESS(NAME, ar);                                                    \
            read.data = bytes_of(pins.m_axi_##NAME##_rdata);                                            \
            read.resp = &pins.m_axi_##NAME##_rresp;                                                     \
            read.last = &pins.m_axi_##NAME##_rlast;                                                     \
            read.valid = &pins.m_axi_##NAME##_rvalid;                                                   \
            read.ready = &pins.m_axi_##NAME##_rready;                                                   \
            if constexpr (requires { pins.m_axi_##NAME##_arid; }) {                                     \
                read.address.id = &pins.m_axi_##NAME##_arid;                                            \
                read.id = &pins.m_axi_##NAME##_rid;                                                     \
            }                                                                                           \
            reads_.push_back({ports, ReadPort(read, "m_axi_" #NAME, BITS / 8)});                        \
        }                                                                                               \
        if constexpr (requires { pins.m_axi_##NAME##_awvalid; }) {                                      \
            static_assert(sizeof(pins.m_axi_##NAME##_wdata) == BITS / 8, "width of m_axi_" #NAME);      \
            WritePins write;                                                                            \
            write.address = HW_EMU_ADDRESS(NAME, aw);                                                   \
            write.data = bytes_of(pins.m_axi_##NAME##_wdata);                                           \
            write.strobe = bytes_of(pins.m_axi_##NAME##_wstrb);                                         \
            write.last = &pins.m_axi_##NAME##_wlast;                                                    \
            write.valid = &pins.m_axi_##NAME##_wvalid;                                                  \
            write.ready = &pins.m_axi_##NAME##_wready;                                                  \
            write.resp = &pins.m_axi_##NAME##_bresp;                                                    \
            write.resp_valid = &pins.m_axi_##NAME##_bvalid;                                             \
            write.resp_ready = &pins.m_axi_##NAME##_bready;                                             \
            if constexpr (requires { pins.m_axi_##NAME##_awid; }) {                                     \
                write.address.id = &pins.m_axi_##NAME##_awid;                                           \
                write.id = &pins.m_axi_##NAME##_bid;                                                    \
            }                                                                                           \
            writes_.push_back({ports, WritePort(write, "m_axi_" #NAME, BITS / 8)});                     \
        }                                                                                               \
        ports++;                                                                                        \
    }(*top_);

#define HW_EMU_NAME(NAME, BITS) "m_axi_" #NAME,
constexpr const char* PORTS[] = {HW_EMU_PORTS(HW_EMU_NAME) nullptr};
constexpr size_t PORT_COUNT = std::size(PORTS) - 1;

template <typename Port>
struct Numbered {
    size_t number;  // among the ports of kernel.xml
    Port port;
};

class Model {
  public:
    explicit Model(uint64_t seed) : seed_(seed) { build(); }

    ~Model() {
        if (top_) top_->final();
        forget();
    }

    void run(const hw_emu_options& options, const hw_emu_range* ranges, size_t range_count,
             const hw_emu_register* writes, size_t write_count, hw_emu_register* reads, size_t read_count,
             hw_emu_traffic* traffic, hw_emu_results& results) {
        printed.clear();
        Verilated::threadContextp(context_.get());
        traffic_ = traffic;
        memory_.ranges.assign(ranges, ranges + range_count);
        configure(options);
        const uint64_t begun = now_;
        try {
            const WaveOfRun wave(*this, options.wave);
            if (!ready_) reset();
            for (uint64_t i = 0; i < options.launch; i++) clock();
            for (size_t i = 0; i < write_count; i++) write(writes[i].offset, writes[i].value);
            write(CONTROL, AP_START);
            const uint64_t started = lite_taken_;
            const uint64_t ended = options.poll || !has_interrupt() ? poll(options, started) : wait(options, started);
            results.cycles = ended - started;
            for (WriteEntry& entry : writes_) {
                if (entry.port.outstanding()) {
                    fail("%s: the kernel was done with %u writes that memory had not confirmed", PORTS[entry.number],
                         entry.port.outstanding());
                }
            }
            for (size_t i = 0; i < read_count; i++) reads[i].value = read(reads[i].offset);
            write(CONTROL, AP_CONTINUE);
        } catch (const KernelError& error) {
            results.total = now_ - begun;
            ready_ = false;  // the next run resets the kernel in the state that it is in
            if (dynamic_cast<const Stopped*>(&error)) build();
            fail("%s (clock %" PRIu64 " of the run)", error.what(), results.total);
        }
        results.total = now_ - begun;
    }

    bool write_coverage(const char* path) const {
#if VM_COVERAGE
        context_->coveragep()->write(path);
        return true;
#else
        return static_cast<void>(path), false;
#endif
    }

  private:
    using ReadEntry = Numbered<ReadPort>;
    using WriteEntry = Numbered<WritePort>;

    // A waveform file open as long as this lives.
    class WaveOfRun {
      public:
        WaveOfRun(Model& model, const char* path) : model_(model) {
            if (!path) return;
            model.wave_ = std::make_unique<TraceFile>();
            model.wave_->set_time_unit("ps");
            model.wave_->set_time_resolution("ps");
            model.top_->trace(model.wave_.get(), 99);
            model.wave_->open(path);
            if (!model.wave_->isOpen()) {
                model.wave_.reset();
                fail("the waveform %s cannot be written", path);
            }
        }
        ~WaveOfRun() {
            if (model_.wave_) model_.wave_->close();
            model_.wave_.reset();
        }
        WaveOfRun(const WaveOfRun&) = delete;
        WaveOfRun& operator=(const WaveOfRun&) = delete;

      private:
        Model& model_;
    };

    // Destroys the model. Scopes, which a model for VPI has, look for their context where the thread's pointer is.
    void forget() {
        if (!top_) return;
        Verilated::threadContextp(context_.get());
        top_.reset();
    }

    void build() {
        reads_.clear();
        writes_.clear();
        forget();
        context_ = std::make_unique<VerilatedContext>();
        context_->randReset(2);
        context_->randSeed(static_cast<int>(seed_ % 0x7FFFFFFF) + 1);
        context_->traceEverOn(true);
        top_ = std::make_unique<HW_EMU_TOP>(context_.get(), "kernel");
        size_t ports = 0;
        HW_EMU_PORTS(HW_EMU_CONNECT)
        ready_ = false;
    }

    void configure(const hw_emu_options& options) {
        for (ReadEntry& entry : reads_) entry.port.configure(options, options.seed * 64 + 2 * entry.number + 1);
        for (WriteEntry& entry : writes_) entry.port.configure(options, options.seed * 64 + 2 * entry.number + 2);
        lite_stalls_.configure(options.stall, options.seed * 64);
    }

    void reset() {
        auto& pins = *top_;
        lite_busy_ = false;
        for (ReadEntry& entry : reads_) entry.port.reset();
        for (WriteEntry& entry : writes_) entry.port.reset();
        pins.s_axi_control_awvalid = pins.s_axi_control_wvalid = pins.s_axi_control_arvalid = 0;
        pins.s_axi_control_bready = pins.s_axi_control_rready = 0;
        pins.ap_rst_n = 0;
        in_reset_ = true;
        context_->assertOn(false);  // until reset has reached all registers, some of which pass it on
        for (uint64_t i = 0; i < RESET_CLOCKS; i++) clock();
        context_->assertOn(true);
        in_reset_ = false;
        pins.ap_rst_n = 1;
        clock();
        ready_ = true;
        if (has_interrupt()) {
            write(INTERRUPT_ENABLE, 1);  // of ap_done
            write(GLOBAL_INTERRUPT, 1);
        }
    }

    static constexpr bool has_interrupt() { return has_interrupt_pin<HW_EMU_TOP>; }

    template <typename Top>
    static bool interrupt(const Top& pins) {
        if constexpr (has_interrupt_pin<Top>) return pins.__SYM__interrupt;
        return false;
    }

    void clock() {
        for (ReadEntry& entry : reads_) entry.port.drive(now_);
        for (WriteEntry& entry : writes_) entry.port.drive(now_);
        top_->ap_clk = 0;
        evaluate();
        if (!in_reset_) {
            bool moved = false;
            for (ReadEntry& entry : reads_) moved |= entry.port.sample(now_, memory_, traffic_[entry.number]);
            for (WriteEntry& entry : writes_) {
                if (!entry.port.sample(now_, memory_, traffic_[entry.number])) continue;
                moved = true;
                last_written_ = now_;
            }
            if (moved) last_moved_ = now_;
        }
        if (lite_busy_) sample_lite();
        top_->ap_clk = 1;
        evaluate();
        now_++;
    }

    void evaluate() {
        context_->timeInc(HALF_CLOCK_PS);
        top_->eval();
        if (wave_) wave_->dump(context_->time());
    }

    // ---- Waiting for the end ----

    uint64_t wait(const hw_emu_options& options, uint64_t started) {
        last_moved_ = now_;
        while (!interrupt(*top_)) {
            watch(options, started);
            const uint64_t pause = std::min(now_ + WATCH_EVERY, begun(options, started) + options.max_cycles + 1);
            while (now_ < pause && !interrupt(*top_)) clock();
        }
        const uint64_t ended = now_;
        write(INTERRUPT_STATUS, 1);
        if (!(read(CONTROL) & AP_DONE)) fail("the kernel raised its interrupt, but ap_done is not set");
        if (interrupt(*top_)) fail("the interrupt stays after its status bit was cleared");
        return ended;
    }

    uint64_t poll(const hw_emu_options& options, uint64_t started) {
        last_moved_ = now_;
        while (!(read(CONTROL) & AP_DONE)) {
            for (uint64_t i = 0; i < POLL_EVERY; i++) clock();
            watch(options, started);
        }
        const uint64_t ended = now_;
        if constexpr (has_interrupt()) write(INTERRUPT_STATUS, 1);
        return ended;
    }

    // From when max_cycles are counted.
    uint64_t begun(const hw_emu_options& options, uint64_t started) const {
        return options.renew ? std::max(started, last_written_) : started;
    }

    void watch(const hw_emu_options& options, uint64_t started) const {
        if (now_ - begun(options, started) > options.max_cycles) too_long(options);
        if (options.max_idle && now_ - last_moved_ > options.max_idle) {
            fail("the kernel did not finish: nothing has moved on its memory ports for %" PRIu64 " clocks",
                 options.max_idle);
        }
    }

    [[noreturn]] static void too_long(const hw_emu_options& options) {
        fail("the kernel did not finish within %" PRIu64 " clocks", options.max_cycles);
    }

    // ---- Registers, through AXI4-Lite ----

    // What the kernel's side of AXI-Lite shows in the clock that is about to end.
    struct Lite {
        bool awready, wready, bvalid, arready, rvalid;
        uint8_t bresp, rresp;
        uint32_t rdata;
    };

    void sample_lite() {
        const auto& pins = *top_;
        lite_ = Lite{pins.s_axi_control_awready != 0, pins.s_axi_control_wready != 0, pins.s_axi_control_bvalid != 0,
                     pins.s_axi_control_arready != 0, pins.s_axi_control_rvalid != 0, pins.s_axi_control_bresp,
                     pins.s_axi_control_rresp,        pins.s_axi_control_rdata};
    }

    void write(uint32_t offset, uint32_t value) {
        auto& pins = *top_;
        pins.s_axi_control_awaddr = static_cast<std::decay_t<decltype(pins.s_axi_control_awaddr)>>(offset);
        pins.s_axi_control_wdata = value;
        pins.s_axi_control_wstrb = 0xF;
        pins.s_axi_control_bready = 0;
        bool address = true, data = true;  // still to be sent
        lite_busy_ = true;
        for (uint64_t end = now_ + LITE_LIMIT; now_ < end;) {
            // A valid that was shown stays; a new one may hang back.
            pins.s_axi_control_awvalid = address && (pins.s_axi_control_awvalid || !lite_stalls_());
            pins.s_axi_control_wvalid = data && (pins.s_axi_control_wvalid || !lite_stalls_());
            pins.s_axi_control_bready = !address && !data && !lite_stalls_();
            clock();
            if (pins.s_axi_control_bready && lite_.bvalid) {
                pins.s_axi_control_bready = 0;
                lite_busy_ = false;
                if (lite_.bresp) fail("writing register 0x%x was answered with an error", offset);
                return;
            }
            const bool open = address || data;
            if (pins.s_axi_control_awvalid && lite_.awready) address = false;
            if (pins.s_axi_control_wvalid && lite_.wready) data = false;
            if (open && !address && !data) lite_taken_ = now_;
        }
        fail("writing register 0x%x was not answered", offset);
    }

    uint32_t read(uint32_t offset) {
        auto& pins = *top_;
        pins.s_axi_control_araddr = static_cast<std::decay_t<decltype(pins.s_axi_control_araddr)>>(offset);
        bool address = true;
        lite_busy_ = true;
        for (uint64_t end = now_ + LITE_LIMIT; now_ < end;) {
            pins.s_axi_control_arvalid = address && (pins.s_axi_control_arvalid || !lite_stalls_());
            pins.s_axi_control_rready = !address && !lite_stalls_();
            clock();
            if (pins.s_axi_control_rready && lite_.rvalid) {
                pins.s_axi_control_rready = 0;
                lite_busy_ = false;
                if (lite_.rresp) fail("reading register 0x%x was answered with an error", offset);
                return lite_.rdata;
            }
            if (pins.s_axi_control_arvalid && lite_.arready) address = false;
        }
        fail("reading register 0x%x was not answered", offset);
    }

    uint64_t seed_;
    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<HW_EMU_TOP> top_;
    std::unique_ptr<TraceFile> wave_;
    std::vector<ReadEntry> reads_;
    std::vector<WriteEntry> writes_;
    Memory memory_;
    hw_emu_traffic* traffic_ = nullptr;
    uint64_t now_ = 0, last_moved_ = 0, last_written_ = 0;
    bool ready_ = false, in_reset_ = false, lite_busy_ = false;
    uint64_t lite_taken_ = 0;  // clock after that in which the last register write was taken
    Lite lite_{};
    Stalls lite_stalls_;
};

}  // namespace
}  // namespace hw_emu

#define HW_EMU_API extern "C" __attribute__((visibility("default")))

HW_EMU_API void* hw_emu_create(uint64_t seed) { return new hw_emu::Model(seed); }

HW_EMU_API void hw_emu_destroy(void* model) { delete static_cast<hw_emu::Model*>(model); }

HW_EMU_API const char* hw_emu_port(size_t index) {
    return index < hw_emu::PORT_COUNT ? hw_emu::PORTS[index] : nullptr;
}

HW_EMU_API int hw_emu_run(void* model, const hw_emu_options* options, const hw_emu_range* ranges, size_t range_count,
                          const hw_emu_register* writes, size_t write_count, hw_emu_register* reads,
                          size_t read_count, hw_emu_traffic* traffic, hw_emu_results* results) {
    *results = hw_emu_results{};
    try {
        static_cast<hw_emu::Model*>(model)->run(*options, ranges, range_count, writes, write_count, reads, read_count,
                                                traffic, *results);
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(results->message, sizeof results->message, "%s", error.what());
        return 1;
    }
}

HW_EMU_API int hw_emu_write_coverage(void* model, const char* path) {
    return static_cast<hw_emu::Model*>(model)->write_coverage(path) ? 0 : 1;
}
