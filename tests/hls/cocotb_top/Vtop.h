// The model under the name by which cocotb's main function knows it.
#pragma once
#include HW_EMU_HEADER

using Vtop = HW_EMU_TOP;
