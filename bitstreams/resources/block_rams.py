"""Move flip-flops into the block RAMs of an ECP5 netlist, as the vendor's tools do and Yosys does not.

Each of the two ports of a DP16KD can have a register at its output. Where all bits that a port reads go to flip-flops
with the port's clock and with one enable, and nowhere else, this register takes their place. Its data then come 0.7 ns
after the clock, and not 4.3 ns. Flip-flops with a reset stay where they are, and so do those of a port that does not
read in every clock.
"""

import re
from typing import Any

from headrace.bitstreams.resources.flip_flops import Cell, Nets, registers_after, replace_flip_flops

SIDES = ("A", "B")


def pack(module: dict[str, Any]) -> int:
    """Move flip-flops of a module of Yosys's JSON into its block RAMs, and return how many ports have some."""
    cells = module["cells"]
    nets = Nets.of(module)
    names = [name for name, cell in cells.items() if cell["type"] == "DP16KD"]
    return sum(_pack_port(cells, nets, name, side) for name in names for side in SIDES)


def _pack_port(cells: dict[str, Cell], nets: Nets, name: str, side: str) -> bool:
    ram = cells[name]
    parameters, pins = ram["parameters"], ram["connections"]
    data = {port: bits[0] for port, bits in pins.items() if re.fullmatch(rf"DO{side}\d+", port)}
    plain = parameters[f"REGMODE_{side}"] == "NOREG" and parameters[f"CLK{side}MUX"] == f"CLK{side}"
    if not plain or pins[f"CE{side}"] != ["1"] or pins[f"RST{side}"] != ["0"]:
        return False
    found = registers_after(nets, cells, data)
    if found is None or [found[1].clock] != pins[f"CLK{side}"]:
        return False
    registers, control = found
    replace_flip_flops(nets, cells, name, registers)
    parameters[f"REGMODE_{side}"] = "OUTREG"
    pins[f"OCE{side}"] = [control.enable]
    return True
