"""Move flip-flops into the multipliers of an ECP5 netlist, as the vendor's tools do and Yosys does not.

A MULT18X18D has registers at its inputs and behind its product. Where all bits of a product go to flip-flops with one
clock and one enable, and nowhere else, its output register takes their place. Otherwise, where all bits of both factors
come from such flip-flops or are constant, its input registers do. Flip-flops with a reset stay where they are.
"""

import re
from typing import Any

from headrace.bitstreams.resources.flip_flops import (
    Cell,
    Control,
    Nets,
    common_control,
    registers_after,
    replace_flip_flops,
)

FACTOR, PRODUCT = re.compile(r"[AB]\d+"), re.compile(r"P\d+")
USED = {"CLK": "CLK0", "CE": "CE0", "RST": "RST0"}


def pack(module: dict[str, Any]) -> int:
    """Move flip-flops of a module of Yosys's JSON into its multipliers, and return how many of these have some."""
    cells = module["cells"]
    names = [name for name, cell in cells.items() if cell["type"] == "MULT18X18D"]
    nets = Nets.of(module)
    after = {name for name in names if _pack_product(cells, nets, name)}
    return len(after) + sum(_pack_factors(cells, nets, name) for name in names if name not in after)


def _pack_product(cells: dict[str, Cell], nets: Nets, name: str) -> bool:
    product = {port: bits[0] for port, bits in cells[name]["connections"].items() if PRODUCT.fullmatch(port)}
    if (found := registers_after(nets, cells, product)) is None:
        return False
    registers, control = found
    replace_flip_flops(nets, cells, name, registers)
    _use(cells[name], ("REG_OUTPUT",), control)
    return True


def _pack_factors(cells: dict[str, Cell], nets: Nets, name: str) -> bool:
    factors = {port: bits[0] for port, bits in cells[name]["connections"].items() if FACTOR.fullmatch(port)}
    registers = {port: nets.driver.get(bit, "") for port, bit in factors.items() if isinstance(bit, int)}
    control = common_control(cells.get(register) for register in registers.values())
    if control is None:
        return False
    for port, register in registers.items():
        (bit,) = cells[register]["connections"]["DI"]
        cells[name]["connections"][port] = [bit]
        nets.sinks[bit].append((name, port))
        nets.sinks[factors[port]].remove((name, port))
    for register in set(registers.values()):
        (bit,) = cells[register]["connections"]["Q"]
        if bit not in nets.outside and not nets.sinks[bit]:
            del cells[register]
    _use(cells[name], ("REG_INPUTA", "REG_INPUTB"), control)
    return True


def _use(multiplier: Cell, registers: tuple[str, ...], control: Control) -> None:
    for register in registers:
        multiplier["parameters"] |= {f"{register}_{kind}": pin for kind, pin in USED.items()}
    for pin, bit in (("CLK0", control.clock), ("CE0", control.enable), ("RST0", "0")):
        multiplier["connections"][pin] = [bit]
        multiplier["port_directions"][pin] = "input"
