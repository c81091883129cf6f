// What a model prints is kept, and what would end the process (a failed assertion, $fatal) fails the run instead.
// Included before everything else in every file of the library, Verilator's runtime as well.
#pragma once

int headrace_print(const char* format, ...) __attribute__((format(printf, 1, 2)));
#define VL_PRINTF headrace_print
#define VL_USER_FINISH
#define VL_USER_STOP
#define VL_USER_FATAL
