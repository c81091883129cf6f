// Passes a value through the module.
#include "Vnarrow.h"

extern "C" int passed() {
  Vnarrow top;
  top.a = VALUE;
  top.eval();
  return top.b;
}
