// Memory that a CU shares with a host that works on it at the same time.
//
// In hardware a CU's reads and its writes each go in their order; as software, where host and CU are threads of one process,
// compiler and processor are told to keep it.
#pragma once

#ifndef __SYNTHESIS__
#include <atomic>
#include <chrono>
#include <thread>
#endif

namespace headrace {

// What comes before it in the program is read and written before what comes behind.
inline void in_order() {
#ifndef __SYNTHESIS__
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// In hardware a look takes memory's latency; as software it leaves the processor to others.
inline void pause_between_looks() {
#ifndef __SYNTHESIS__
    std::this_thread::sleep_for(std::chrono::microseconds(20));
#endif
}

}  // namespace headrace
