// The simulation of the example: one pulse of `start_i`, and a picture of the pixels that come.
//
// Plus arguments: flash=FILE is the flash memory's content, picture=FILE (picture.ppm) the file that is written.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "Vbench.h"
#include "verilated.h"

int main(int argc, char** argv) {
    constexpr uint64_t BOUND = 100'000'000;  // clocks
    constexpr unsigned WIDTH = 64, HEIGHT = 64;  // of the crop, as register_script asks for it
    const auto context = std::make_unique<VerilatedContext>();
    context->commandArgs(argc, argv);
    const auto top = std::make_unique<Vbench>(context.get());
    std::string picture = context->commandArgsPlusMatch("picture=");
    picture = picture.empty() ? "picture.ppm" : picture.substr(picture.find('=') + 1);

    std::vector<uint8_t> pixels;
    uint64_t clocks = 0;
    top->tready_i = 1;
    top->address_i = 0;
    for (; clocks < BOUND && !top->done_o; clocks++) {
        top->rst_ni = clocks >= 4;
        top->start_i = clocks == 8;
        top->clk_i = 0;
        top->eval();
        if (top->tvalid_o) {
            for (int i = 0; i < 6; i++) {
                if (top->tkeep_o >> i & 1) pixels.push_back(top->tdata_o >> 8 * i & 0xFF);
            }
        }
        top->clk_i = 1;
        top->eval();
        context->timeInc(1);
    }
    top->final();
    if (!top->done_o) {
        std::fprintf(stderr, "no end after %llu clocks\n", static_cast<unsigned long long>(clocks));
        return 1;
    }
    std::printf("status %u, %zu bytes of pixels, %llu clocks\n", top->status_o, pixels.size(),
                static_cast<unsigned long long>(clocks));
    if (top->status_o != 0 || pixels.size() != 3 * WIDTH * HEIGHT) return 1;
    std::FILE* file = std::fopen(picture.c_str(), "wb");
    if (file == nullptr) return 1;
    std::fprintf(file, "P6\n%u %u\n255\n", WIDTH, HEIGHT);
    std::fwrite(pixels.data(), 1, pixels.size(), file);
    return std::fclose(file) == 0 ? 0 : 1;
}
