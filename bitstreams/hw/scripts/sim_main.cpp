// Resets a unit and lets it run with nothing asked of it; its assertions are on. The build names UNIT,
// CLOCK_PORT and RESET_PORT.
#include <cstdio>

#include "verilated.h"

#define TEXT(name) #name
#define HEADER(top) TEXT(top.h)
#include HEADER(UNIT)

int main() {
    constexpr int RESET_CLOCKS = 8, CLOCKS = 1000;
    VerilatedContext context;
    UNIT top{&context};
    for (int clock = 0; clock < CLOCKS && !context.gotFinish(); clock++) {
        top.RESET_PORT = clock >= RESET_CLOCKS;
        for (int level : {0, 1}) {
            top.CLOCK_PORT = level;
            top.eval();
            context.timeInc(1);
        }
    }
    top.final();
    std::printf("%d clocks\n", CLOCKS);
    return context.gotError();
}
