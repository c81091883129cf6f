#define HEADRACE_WRITES
#include "rtl_axi_share.cpp"
