// C interface of a hw_emu library: one Verilated kernel, whose masters reach an AXI memory and whose registers are
// driven by a host. host/xrt/hw_emu.py uses it and mirrors the structs.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Device memory that the kernel reaches. An access outside all ranges gets DECERR.
struct hw_emu_range {
    uint64_t base;
    uint64_t size;
    uint8_t* host;
};

struct hw_emu_register {
    uint32_t offset;
    uint32_t value;
};

struct hw_emu_options {
    uint32_t latency;          // clocks from an address to its first data, and from the last data to the response
    uint32_t max_outstanding;  // bursts of a port in flight in each direction, 1 to 64; an address beyond that waits
    double bandwidth;          // data beats a clock of a port in each direction, above 0 to 1
    double stall;              // chance, for each clock and channel, AXI-Lite included, that the memory or host stalls
    double errors;             // chance, for each beat of a read and each response to a write, of SLVERR or DECERR
    uint64_t seed;             // for the stalls and errors
    uint64_t max_cycles;       // limit of a run; if `renew`, limit of the time in which a run writes nothing
    uint64_t max_idle;         // limit of the time in which a run moves no data on any master; 0: no limit
    uint32_t poll;             // read the control register instead of waiting for the interrupt
    uint32_t launch;           // clocks before the start, which stand for the time of the host's software
    uint32_t renew;
    uint32_t reserved;
    const char* wave;          // a VCD file of this run, or SAIF if the library was built for it, or null
};

struct hw_emu_traffic {
    uint64_t read_bursts, read_beats, read_errors;  // errors: beats with one
    uint64_t write_bursts, write_beats, write_errors;  // errors: responses with one
};

struct hw_emu_results {
    uint64_t cycles;     // from the clock that takes ap_start to the one that shows ap_done
    uint64_t total;      // clocks of the whole call, with the host's register accesses
    char message[1024];  // why the run failed
};

// Returns a model in reset state. `seed` sets the content of registers and memories before reset.
void* hw_emu_create(uint64_t seed);
void hw_emu_destroy(void* model);

// Returns the name of a port, in the order of kernel.xml, or null after the last.
const char* hw_emu_port(size_t index);

// Does one run to its end: writes `writes`, starts, waits, reads the registers `reads`, acknowledges. The model keeps its
// state from the run before, so runs follow each other as on a card. `traffic` has an entry for each port.
// Returns 0, or 1 with results->message. After 1 the next run begins with a reset of the kernel.
int hw_emu_run(void* model, const hw_emu_options* options, const hw_emu_range* ranges, size_t range_count,
               const hw_emu_register* writes, size_t write_count, hw_emu_register* reads, size_t read_count,
               hw_emu_traffic* traffic, hw_emu_results* results);

// Writes the coverage of the model's runs so far. Returns 0, or 1 if the library was built without coverage.
int hw_emu_write_coverage(void* model, const char* path);

}  // extern "C"
