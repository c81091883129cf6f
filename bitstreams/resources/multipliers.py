"""Move flip-flops into the multipliers of an ECP5 netlist, as the vendor's tools do and Yosys does not.

A MULT18X18D has registers at its inputs and behind its product. Where all bits of a product go to flip-flops with one
clock and one enable, and nowhere else, its output register takes their place. Otherwise, where all bits of both factors
come from such flip-flops or are constant, its input registers do. Flip-flops with a reset stay where they are.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Cell = dict[str, Any]
Bit = int | str  # a net, or a constant
FACTOR, PRODUCT = re.compile(r"[AB]\d+"), re.compile(r"P\d+")
USED = {"CLK": "CLK0", "CE": "CE0", "RST": "RST0"}


@dataclass(frozen=True, slots=True)
class Control:
    """The nets that move flip-flops: the clock, and the enable or a constant 1."""

    clock: Bit
    enable: Bit


@dataclass(slots=True)
class Nets:
    """The cells of a module by their nets."""

    driver: dict[Bit, str] = field(default_factory=dict)
    sinks: dict[Bit, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))  # cell and port
    outside: set[Bit] = field(default_factory=set)  # of the module's ports

    @classmethod
    def of(cls, module: dict[str, Any]) -> "Nets":
        nets = cls()
        for name, cell in module["cells"].items():
            for port, bits in cell["connections"].items():
                for bit in bits:
                    if cell["port_directions"][port] == "output":
                        nets.driver[bit] = name
                    else:
                        nets.sinks[bit].append((name, port))
        nets.outside = {bit for port in module["ports"].values() for bit in port["bits"]}
        return nets


def control_of(cell: Cell | None) -> Control | None:
    """Return what moves a flip-flop that is one word's bit and no more: without a reset, on the rising edge."""
    if cell is None or cell["type"] != "TRELLIS_FF":
        return None
    parameters, nets = cell["parameters"], cell["connections"]
    plain = nets.get("LSR", ["0"]) == ["0"] and parameters["REGSET"] == "RESET" and parameters["CLKMUX"] == "CLK"
    if not plain or parameters["CEMUX"].strip() not in ("1", "CE"):
        return None
    return Control(nets["CLK"][0], nets["CE"][0] if parameters["CEMUX"].strip() == "CE" else "1")


def pack(module: dict[str, Any]) -> int:
    """Move flip-flops of a module of Yosys's JSON into its multipliers, and return how many of these have some."""
    cells = module["cells"]
    names = [name for name, cell in cells.items() if cell["type"] == "MULT18X18D"]
    nets = Nets.of(module)
    after = {name for name in names if _pack_product(cells, nets, name)}
    return len(after) + sum(_pack_factors(cells, nets, name) for name in names if name not in after)


def _pack_product(cells: dict[str, Cell], nets: Nets, name: str) -> bool:
    registers: dict[str, str] = {}
    for port, (bit,) in cells[name]["connections"].items():
        if not PRODUCT.fullmatch(port):
            continue
        if bit in nets.outside or len(nets.sinks[bit]) > 1 or any(into != "DI" for _, into in nets.sinks[bit]):
            return False
        for register, _ in nets.sinks[bit]:
            registers[port] = register
    controls = {control_of(cells[register]) for register in registers.values()}
    if len(controls) != 1 or None in controls:
        return False
    for port, register in registers.items():
        (bit,) = cells.pop(register)["connections"]["Q"]
        cells[name]["connections"][port] = [bit]
        nets.driver[bit] = name
    _use(cells[name], ("REG_OUTPUT",), controls.pop())
    return True


def _pack_factors(cells: dict[str, Cell], nets: Nets, name: str) -> bool:
    factors = {port: bits[0] for port, bits in cells[name]["connections"].items() if FACTOR.fullmatch(port)}
    registers = {port: nets.driver.get(bit, "") for port, bit in factors.items() if isinstance(bit, int)}
    controls = {control_of(cells.get(register)) for register in registers.values()}
    if len(controls) != 1 or None in controls:
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
    _use(cells[name], ("REG_INPUTA", "REG_INPUTB"), controls.pop())
    return True


def _use(multiplier: Cell, registers: tuple[str, ...], control: Control | None) -> None:
    assert control is not None
    for register in registers:
        multiplier["parameters"] |= {f"{register}_{kind}": pin for kind, pin in USED.items()}
    for pin, bit in (("CLK0", control.clock), ("CE0", control.enable), ("RST0", "0")):
        multiplier["connections"][pin] = [bit]
        multiplier["port_directions"][pin] = "input"
