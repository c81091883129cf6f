"""The C++ driver of Verilated kernels, and the build of a library from it and a kernel."""
