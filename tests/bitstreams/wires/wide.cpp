// Passes a value through the module.
#include "Vwide.h"

extern "C" int passed() {
  Vwide top;
  top.a = VALUE;
  top.eval();
  return top.b;
}
