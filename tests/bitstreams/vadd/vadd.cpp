// A small kernel for tests of containers and of the emulated device: out[i] = a[i] + b[i] + scalar, after `sleep_ms`.
#include <chrono>
#include <cstdint>
#include <thread>

extern "C" void vadd(const int32_t* a, const int32_t* b, int32_t* out, uint32_t count, uint32_t scalar,
                     uint32_t sleep_ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms));
    for (uint32_t i = 0; i < count; i++) out[i] = a[i] + b[i] + static_cast<int32_t>(scalar);
}
