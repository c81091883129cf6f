"""The flip-flops of an ECP5 netlist, by the nets that they read and drive: what may move into a block next to them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Cell = dict[str, Any]
Bit = int | str  # a net, or a constant


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


def common_control(registers: Iterable[Cell | None]) -> Control | None:
    """Return what moves all these cells. None if they differ in it, or if one is no such flip-flop."""
    controls = {control_of(register) for register in registers}
    return controls.pop() if len(controls) == 1 else None


def registers_after(
    nets: Nets, cells: dict[str, Cell], outputs: dict[str, Bit]
) -> tuple[dict[str, str], Control] | None:
    """Return the flip-flop behind each output of a cell that is used, by port, and what moves them all.

    None if an output goes elsewhere, too, or if the flip-flops have different clocks or enables."""
    registers: dict[str, str] = {}
    for port, bit in outputs.items():
        if bit in nets.outside or len(nets.sinks[bit]) > 1 or any(into != "DI" for _, into in nets.sinks[bit]):
            return None
        for register, _ in nets.sinks[bit]:
            registers[port] = register
    control = common_control(cells[register] for register in registers.values())
    return (registers, control) if control is not None else None


def replace_flip_flops(nets: Nets, cells: dict[str, Cell], name: str, registers: dict[str, str]) -> None:
    """Let the cell drive what the flip-flops behind its outputs drive, and take these away."""
    for port, register in registers.items():
        (bit,) = cells.pop(register)["connections"]["Q"]
        cells[name]["connections"][port] = [bit]
        nets.driver[bit] = name
