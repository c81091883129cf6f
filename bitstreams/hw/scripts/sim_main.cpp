// Resets a unit and lets it run with nothing asked of it; its assertions are on. The build names TOP, CLOCK and RESET.
#include <cstdio>

#include "verilated.h"

#define TEXT(name) #name
#define HEADER(top) TEXT(top.h)
#include HEADER(TOP)

int main() {
    constexpr int RESET_CLOCKS = 8, CLOCKS = 1000;
    VerilatedContext context;
    TOP top{&context};
    for (int clock = 0; clock < CLOCKS && !context.gotFinish(); clock++) {
        top.RESET = clock >= RESET_CLOCKS;
        for (int level : {0, 1}) {
            top.CLOCK = level;
            top.eval();
            context.timeInc(1);
        }
    }
    top.final();
    std::printf("%d clocks\n", CLOCKS);
    return context.gotError();
}
