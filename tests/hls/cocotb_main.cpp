// The program that runs cocotb's tests: cocotb's own main function around the model of hw_emu, which prints and ends by
// what this file defines (bitstreams/hw_emu/messages.hpp).
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "verilator.cpp"

int headrace_print(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vprintf(format, arguments);
    va_end(arguments);
    return length;
}

void vl_stop(const char* file, int line, const char*) { vl_fatal(file, line, "", "a check failed"); }

void vl_fatal(const char* file, int line, const char*, const char* message) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s:%d: %s\n", file, line, message);
    std::abort();
}

void vl_finish(const char*, int, const char*) { Verilated::threadContextp()->gotFinish(true); }
