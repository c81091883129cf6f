// C interface of a hw_emu library: one Verilated kernel with an AXI memory behind its masters and a host on its
// registers. host/xrt/hw_emu.py is its user and mirrors the structs.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Device memory that the kernel reaches. Whatever lies outside all ranges is answered with DECERR.
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
    double stall;              // chance, each clock and channel, AXI-Lite included, that the memory or host hangs back
    uint64_t seed;             // of the stalls
    uint64_t max_cycles;       // a run that takes longer has failed, or, if `renew`, one that writes nothing for so long
    uint64_t max_idle;         // so has one that moves no data on any master for so long; 0: no such limit
    uint32_t poll;             // read the control register instead of waiting for the interrupt
    uint32_t launch;           // clocks that pass before the start: what the host's software takes for it
    uint32_t renew;
    uint32_t reserved;
    const char* wave;          // a VCD file of this run, or null
};

struct hw_emu_traffic {
    uint64_t read_bursts, read_beats, write_bursts, write_beats;
};

struct hw_emu_results {
    uint64_t cycles;     // from the clock that takes ap_start to the one that shows ap_done
    uint64_t total;      // of the whole call, with the host's register accesses
    char message[1024];  // why it failed
};

// A model in reset state; `seed` sets what registers and memories hold before reset.
void* hw_emu_create(uint64_t seed);
void hw_emu_destroy(void* model);

// Ports in the order of kernel.xml; null beyond the last.
const char* hw_emu_port(size_t index);

// One run to its end: writes `writes`, starts, waits, reads the registers `reads`, acknowledges. The state of the model
// is that which the run before left, so runs follow each other as on a card. `traffic` has an entry a port.
// Returns 0, or 1 with results->message; then the next run begins with a reset of the kernel.
int hw_emu_run(void* model, const hw_emu_options* options, const hw_emu_range* ranges, size_t range_count,
               const hw_emu_register* writes, size_t write_count, hw_emu_register* reads, size_t read_count,
               hw_emu_traffic* traffic, hw_emu_results* results);

// Writes what the model's runs have covered so far. Returns 0, or 1 if the library was built without coverage.
int hw_emu_write_coverage(void* model, const char* path);

}  // extern "C"
