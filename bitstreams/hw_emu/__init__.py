"""The driver of Verilated kernels in C++, and how it and a kernel become a library."""
