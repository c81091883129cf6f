// Compiled into the benches that measure coverage, see rtlsim.py: each has one context for all that it clocks.
#include <verilated.h>
#include <verilated_cov.h>

extern "C" void write_coverage(const char* path) { Verilated::threadContextp()->coveragep()->write(path); }
