// Keeps the prints of a model. An event that would end the process (a failed assertion, $fatal) fails the run instead.
// Every file of the library includes this first, Verilator's runtime as well.
#pragma once

int headrace_print(const char* format, ...) __attribute__((format(printf, 1, 2)));
#define VL_PRINTF headrace_print
#define VL_USER_FINISH
#define VL_USER_STOP
#define VL_USER_FATAL
