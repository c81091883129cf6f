"""This module has the delays of the cells of an UltraScale+ card (speed grade -2) in picoseconds, each as a range.

AMD publishes few delays of UltraScale+ cells. So each delay is a pair:

- fast: a published value of a 16 nm or 7 nm device of AMD, where there is one. Setup is taken as 0.
- slow: Artix-7, the 28 nm family, speed grade -1, from Project X-Ray. Yosys has these values in its
  `techlibs/xilinx/cells_sim.v`.

Delays of LUTs, carry chains and multiplexers are those of Artix-7 at both ends. Each wire takes `WIRE`, the value that
`synth_xilinx` gives to abc9. Nothing is placed, so an estimate of a path is no bound of a card's path.

| what | fast | source of fast |
| --- | --- | --- |
| register, clock to output | 150 | FloPoCo, `VirtexUltrascalePlus.hpp`, of an xcvu3p-2. AMD publishes none. |
| block RAM, clock to output | 901 | DS958 (Versal, 0.80 V, -2), "Block RAM Switching Characteristics", T_RCKO_DO |
| the same, output register on | 262 | the same table, T_RCKO_DO_REG |
| Ultra RAM, clock to output | as block RAM | none; AMD publishes its greatest frequencies only |
| LUT RAM, shift register, clock to output | 792 | none; a register and the slowest input of a LUT |
| multiplier without registers | 1838 | DS923, "DSP48 Slice Switching Characteristics", F_MAX_MULT_NOMREG, 544 MHz |
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Range:
    """A delay at the fast and at the slow end, in ps."""

    fast: int
    slow: int

    def plus(self, other: "Range") -> "Range":
        return Range(self.fast + other.fast, self.slow + other.slow)


def same(delay: int) -> Range:
    """Return a delay that is equal at both ends."""
    return Range(delay, delay)


NONE: Final = same(0)
WIRE: Final = same(300)

REGISTER: Final = Range(150, 303)
BLOCK_RAM: Final = Range(901, 2454)
BLOCK_RAM_REGISTERED: Final = Range(262, 882)
LUT_RAM: Final = Range(792, 1190)
SHIFT_REGISTER: Final = Range(792, 1472)
DSP: Final = Range(1838, 2823)
DSP_REGISTERED: Final = Range(150, 329)  # its P register; fast as any register
DSP_ADDER: Final = same(1325)  # from C or PCIN to P

LUT_PINS: Final = (642, 631, 472, 407, 238, 127)  # a LUT6 from its slowest input I0; a smaller LUT has the last ones
MUX_DATA: Final = {"MUXF7": 223, "MUXF8": 104, "MUXF9": 104}
MUX_SELECT: Final = {"MUXF7": 296, "MUXF8": 273, "MUXF9": 273}

# CARRY4, by output bit, then by input bit where there are several.
CARRY_S_TO_O: Final = ((223,), (400, 205), (523, 558, 226), (582, 618, 330, 227))
CARRY_S_TO_CO: Final = ((340,), (433, 469), (512, 548, 292), (508, 528, 378, 380))
CARRY_DI_TO_O: Final = ((), (407,), (556, 537), (615, 596, 438))
CARRY_DI_TO_CO: Final = ((379,), (465, 445), (540, 520, 356), (526, 507, 398, 385))
CARRY_CI: Final = {"O": (222, 334, 239, 313), "CO": (271, 157, 228, 114)}
CARRY_START: Final = {"O": (482, 598, 584, 642), "CO": (536, 494, 592, 580)}

_SETUP: Final = (  # cell, pin, setup at the slow end
    (r"FD[RSCP]E", r"CE", 109),
    (r"FD[RSCP]E", r"[RS]|CLR|PRE", 404),
    (r"RAMB.*|URAM288", r"ADDR.*", 566),
    (r"RAMB.*|URAM288", r"WE.*|EN.*|BWE.*|RDB.*", 532),
    (r"RAMB.*|URAM288", r"D.*", 737),
    (r"RAM\d.*", r"WE", 654),
    (r"RAM\d.*", r"A.*", 245),
    (r"RAM\d.*", r"D.*", 461),
    (r"SRL.*", r"D", 173),
    (r"SRL.*", r"CE", 109),
)


def clock_to_output(kind: str, *, registered: bool = False) -> Range:
    """Return the time from the clock to the output of a cell.

    A port counts as a register of the neighbouring unit. `registered` says that a memory has its output register on."""
    if kind.startswith("RAMB") or kind == "URAM288":
        return BLOCK_RAM_REGISTERED if registered else BLOCK_RAM
    if kind.startswith("RAM"):
        return LUT_RAM
    if kind.startswith("SRL"):
        return SHIFT_REGISTER
    return DSP_REGISTERED if kind == "DSP48E2" else REGISTER


def setup(kind: str, pin: str) -> Range:
    """Return the setup time of an input of a cell. Inputs without a value, such as those of a DSP, have 0."""
    found = (slow for cell, name, slow in _SETUP if re.fullmatch(cell, kind) and re.fullmatch(name, pin))
    return Range(0, next(found, 0))


def lut(inputs: int, index: int) -> int:
    """Return the delay from input `index` of a LUT with so many inputs."""
    return LUT_PINS[6 - inputs + index]
