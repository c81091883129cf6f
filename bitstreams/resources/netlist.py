"""Count the cells in a netlist of Xilinx UltraScale+ cells as a card counts them, and find its longest paths.

The netlist is one flat module of Yosys's `write_json`. Yosys's own `ltp -noff` connects every input of a cell with
every output, so that a path enters an adder at its highest bit and leaves at its lowest. It does not know Xilinx's
flip-flops either. This module connects only those pins that a signal passes within a clock.

How cells count
- LUT: each LUT1 to LUT6 counts one, although two small ones may share a place on the card. Each inverter counts one.
  LUT RAM and shift registers count the LUTs that they occupy (RAM32M16: 8, SRL16E: 1). A carry chain takes its sums
  from LUTs only, so each bit that Yosys connects to something else counts one more.
- BRAM36: a RAMB18 counts half. CARRY8: Yosys makes chains of CARRY4, and two of a chain fit one CARRY8.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# LUTs (all in SLICEM) of each distributed RAM and shift register: UG574, chapter 2, tables of RAM and SRL.
MEMORY_LUTS = {
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM128X1S": 2,
    "RAM256X1S": 4,
    "RAM512X1S": 8,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM32X16DR8": 8,
    "RAM64X8SW": 8,
    "SRL16E": 1,
    "SRLC16E": 1,
    "SRLC32E": 1,
}
FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE")
BLOCK_RAMS = {"RAMB36E2": 1.0, "RAMB18E2": 0.5}
SYNCHRONOUS = (*FLIP_FLOPS, *BLOCK_RAMS, "URAM288")  # no path passes them within a clock
MUXES = ("MUXF7", "MUXF8", "MUXF9")

# Weight of each kind of step: roughly how many LUTs with their wires take as long. The weights only put paths in order;
# the report has the counts.
WEIGHTS = {"lut": 1.0, "lutram": 1.0, "inverter": 0.0, "carry": 0.5, "carry_on": 0.1, "mux": 0.3, "dsp": 4.0}
START_WEIGHTS = {"RAMB36E2": 2.0, "RAMB18E2": 2.0, "URAM288": 3.0}  # clock to output without an output register

Bit = int | str  # a bit of a connection; strings are constants
Arc = tuple[int, str]  # the bit that an arc comes from, and its kind of step in WEIGHTS


class LoopError(Exception):
    """Logic feeds itself within a clock. The message names a signal on the loop."""


@dataclass(frozen=True, slots=True)
class Path:
    """A path from a register, memory or port to the next one, with its number of steps of each kind.

    `via` holds the public names on the way."""

    start: str
    end: str
    luts: int  # including reads of LUT RAM and shift registers
    carries: int  # adder chains that the path enters
    carry_cells: int  # all CARRY4 on the path
    muxes: int  # MUXF7 to MUXF9
    dsps: int  # multipliers without a register inside
    weight: float
    via: tuple[str, ...] = ()


@dataclass(slots=True)
class _Graph:
    arcs: dict[int, list[Arc]] = field(default_factory=dict)  # the arcs that drive a bit within a clock
    starts: dict[int, tuple[str, str]] = field(default_factory=dict)  # name and type of the cell that launches a bit
    ends: list[tuple[int, str]] = field(default_factory=list)


def count_cells(module: Mapping[str, Any]) -> dict[str, float]:
    """Return the number of cells of each kind on a card. `lutram` and `srl` are LUTs that `lut` includes."""
    cells = Counter(cell["type"] for cell in module["cells"].values())
    logic = sum(count for kind, count in cells.items() if re.fullmatch(r"LUT[1-6]|INV", kind))
    in_memory = {kind: cells[kind] * luts for kind, luts in MEMORY_LUTS.items()}
    return {
        "lut": logic + sum(in_memory.values()) + _carry_feeds(module),
        "lutram": sum(luts for kind, luts in in_memory.items() if kind.startswith("RAM")),
        "srl": sum(luts for kind, luts in in_memory.items() if kind.startswith("SRL")),
        "ff": sum(cells[kind] for kind in FLIP_FLOPS),
        "dsp": cells["DSP48E2"],
        "bram36": sum(cells[kind] * size for kind, size in BLOCK_RAMS.items()),
        "uram": cells["URAM288"],
        "carry8": _carry8(module),
        "muxf": sum(cells[kind] for kind in MUXES),
    }


def _carry_feeds(module: Mapping[str, Any]) -> int:
    cells = module["cells"].values()
    counted = {cell["connections"]["O"][0] for cell in cells if re.fullmatch(r"LUT[1-6]|INV", cell["type"])}
    sums = (bit for cell in cells if cell["type"] == "CARRY4" for bit in cell["connections"]["S"])
    return sum(isinstance(bit, int) and bit not in counted for bit in sums)


def _carry8(module: Mapping[str, Any]) -> int:
    chain_of: dict[Bit, int] = {}  # length of the chain so far, by the carry out of its last cell
    waiting = [cell["connections"] for cell in module["cells"].values() if cell["type"] == "CARRY4"]
    outs = {pins["CO"][3] for pins in waiting}
    followed = {pins["CI"][0] for pins in waiting}
    total = 0
    while waiting:
        later = []
        for pins in waiting:
            carry_in = pins["CI"][0]
            if carry_in in outs and carry_in not in chain_of:
                later.append(pins)
                continue
            length = chain_of.get(carry_in, 0) + 1
            chain_of[pins["CO"][3]] = length
            if pins["CO"][3] not in followed:
                total += math.ceil(length / 2)
        if len(later) == len(waiting):
            raise LoopError("a carry chain feeds itself")
        waiting = later
    return total


def unmapped_cells(module: Mapping[str, Any]) -> dict[str, int]:
    """Count the cells of types that the card does not have: latches, or cells that synthesis could not map."""
    known = re.compile(r"LUT[1-6]|INV|CARRY4|DSP48E2|GND|VCC|\$scopeinfo")
    named = {*MEMORY_LUTS, *SYNCHRONOUS, *MUXES}
    kinds = Counter(cell["type"] for cell in module["cells"].values())
    return {kind: count for kind, count in kinds.items() if kind not in named and not known.fullmatch(kind)}


def flip_flops_by_name(module: Mapping[str, Any]) -> Counter[str]:
    """Count the flip-flops of each signal. All elements and fields of an array count together."""
    names = _names(module)
    outputs = (cell["connections"]["Q"][0] for cell in module["cells"].values() if cell["type"] in FLIP_FLOPS)
    return Counter(group_name(names[bit]) for bit in outputs)


def group_name(name: str) -> str:
    return re.sub(r"(\[\d+\])+.*$", "", name) if not name.startswith("$") else name


def longest_paths(module: Mapping[str, Any], count: int = 8) -> tuple[list[Path], int]:
    """Return the heaviest path into each of the `count` worst signals, heaviest first, and the largest number of LUTs
    on a path.

    Raises LoopError."""
    names = _names(module)
    graph = _graph(module, names)
    weights, back = _heaviest(graph, WEIGHTS, START_WEIGHTS, names)
    levels, _ = _heaviest(graph, {"lut": 1.0, "lutram": 1.0}, {}, names)
    max_luts = max((levels[bit] for bit, _ in graph.ends if bit in levels), default=0.0)
    paths: list[Path] = []
    seen: set[str] = set()
    for bit, end in sorted(graph.ends, key=lambda one: (-weights.get(one[0], 0.0), one[1])):
        group = group_name(end.partition(" (")[0])
        if group in seen or bit not in weights:
            continue
        seen.add(group)
        paths.append(_walk(bit, end, graph, weights, back, names))
        if len(paths) == count:
            break
    return paths, int(max_luts)


def _walk(
    bit: int,
    end: str,
    graph: _Graph,
    weights: Mapping[int, float],
    back: Mapping[int, Arc],
    names: Mapping[Bit, str],
) -> Path:
    kinds: Counter[str] = Counter()
    via: list[str] = []
    weight, goal = weights[bit], bit
    while bit in back:
        name = names.get(bit, "$")
        if bit != goal and not name.startswith("$"):
            via.append(name)
        bit, kind = back[bit]
        kinds[kind] += 1
    start = graph.starts.get(bit, (names.get(bit, "?"), ""))[0]
    return Path(
        start=start,
        end=end,
        luts=kinds["lut"] + kinds["lutram"],
        carries=kinds["carry"],
        carry_cells=kinds["carry"] + kinds["carry_on"],
        muxes=kinds["mux"],
        dsps=kinds["dsp"],
        weight=round(weight, 1),
        via=tuple(reversed(via)),
    )


def _heaviest(
    graph: _Graph,
    step: Mapping[str, float],
    start: Mapping[str, float],
    names: Mapping[Bit, str],
) -> tuple[dict[int, float], dict[int, Arc]]:
    """Return the weight of the heaviest path to each bit, and the last step of that path."""
    weights = {bit: start.get(kind, 0.0) for bit, (_, kind) in graph.starts.items()}
    back: dict[int, Arc] = {}
    open_bits: set[int] = set()
    for goal in (bit for bit, _ in graph.ends):
        stack = [goal]
        while stack:
            bit = stack[-1]
            if bit in weights:
                stack.pop()
                continue
            arcs = graph.arcs.get(bit)
            if arcs is None:  # the bit has no driver
                weights[bit] = 0.0
                continue
            missing = [source for source, _ in arcs if source not in weights]
            if not missing:
                best = max(arcs, key=lambda arc: weights[arc[0]] + step.get(arc[1], 0.0), default=None)
                if best is not None:
                    back[bit] = best
                weights[bit] = weights[best[0]] + step.get(best[1], 0.0) if best else 0.0
                open_bits.discard(bit)
                continue
            if bit in open_bits:  # reached again before the weights of its sources were known
                raise LoopError(f"combinational loop through {_on_loop(bit, graph, names)}")
            open_bits.add(bit)
            stack.extend(missing)
    return weights, back


def _on_loop(bit: int, graph: _Graph, names: Mapping[Bit, str]) -> str:
    """Return a public name on a loop through or near `bit`."""
    seen: set[int] = set()
    queue = [bit]
    for source in queue:
        name = names.get(source, "$")
        if not name.startswith("$"):
            return name
        for other, _ in graph.arcs.get(source, ()):
            if other not in seen:
                seen.add(other)
                queue.append(other)
    return names.get(bit, str(bit))


def _names(module: Mapping[str, Any]) -> dict[Bit, str]:
    """Return the best name of each bit.

    A name from the source goes before one that synthesis made. A register's name goes before other names of the same
    bit, and a short name before a long one. A register that synthesis made or renamed gets the name of the memory or
    multiplier that it feeds, else its line in the source."""
    names: dict[Bit, str] = {}
    ranks: dict[Bit, tuple[bool, bool, int]] = {}
    for name, net in module["netnames"].items():
        rank = (bool(net["hide_name"]) or "$" in name, re.search(r"_q\d*(\[|\.|$)", name) is None, len(name))
        bits = net["bits"]
        for index, bit in enumerate(bits):
            if bit not in ranks or rank < ranks[bit]:
                ranks[bit] = rank
                names[bit] = (f"{name}[{index}]" if len(bits) > 1 else name) if not rank[0] else f"${name}"
    fed = {
        bit: _cell_name(name)
        for name, cell in module["cells"].items()
        if not name.startswith("$")
        for bits in cell["connections"].values()
        for bit in bits
    }
    for cell in module["cells"].values():
        bit = cell["connections"]["Q"][0] if cell["type"] in FLIP_FLOPS else None
        if bit is not None and ranks.get(bit, (True,))[0]:
            line = cell["attributes"].get("src", "").split("|")[0].rpartition("/")[2].partition("-")[0]
            names[bit] = f"register of {fed[bit]}" if bit in fed else f"register of {line}" if line else names[bit]
    return names


def _cell_name(name: str) -> str:
    return re.sub(r"(\.\d+)+$", "", name)


def _graph(module: Mapping[str, Any], names: Mapping[Bit, str]) -> _Graph:
    graph = _Graph()
    for name, port in module["ports"].items():
        for index, bit in enumerate(port["bits"]):
            if isinstance(bit, int):
                label = f"{name}[{index}]" if len(port["bits"]) > 1 else name
                if port["direction"] == "input":
                    graph.starts[bit] = (f"{label} (input)", "port")
                else:
                    graph.ends.append((bit, f"{label} (output)"))
    for name, cell in module["cells"].items():
        _add_cell(graph, name, cell, names)
    return graph


def _add_cell(graph: _Graph, name: str, cell: Mapping[str, Any], names: Mapping[Bit, str]) -> None:
    kind, pins, directions = cell["type"], cell["connections"], cell["port_directions"]
    if kind == "$scopeinfo":
        return
    arcs: dict[int, list[Arc]] = defaultdict(list)
    for out, source, step in _steps(cell):
        arcs[out]  # makes an entry: the bit has a driver, even if that is a constant
        if isinstance(source, int):
            arcs[out].append((source, step))
    graph.arcs.update(arcs)
    through = {source for sources in arcs.values() for source, _ in sources}
    if kind in FLIP_FLOPS:
        own = names.get(pins["Q"][0], f"${name}")
    else:
        own = _cell_name(name) if not name.startswith("$") else f"{kind} {name}"
    for pin, bits in pins.items():
        for bit in bits:
            if not isinstance(bit, int):
                continue
            if directions[pin] == "output" and bit not in arcs:
                graph.starts[bit] = (own, kind)
            elif directions[pin] == "input" and bit not in through and pin not in ("C", "CLK", "CLKARDCLK", "WCLK"):
                graph.ends.append((bit, _end_name(own, kind, pin)))


def _end_name(own: str, kind: str, pin: str) -> str:
    if kind in FLIP_FLOPS:
        role = {"D": "", "CE": " (enable)", "R": " (reset)", "S": " (reset)"}.get(pin, f" ({pin})")
        return own + role
    return f"{own} ({kind} {pin})"


def _steps(cell: Mapping[str, Any]) -> Iterator[tuple[int, Bit, str]]:
    """Yield (output, input, kind of step) for each pair of pins of a cell that a signal passes within a clock."""
    kind, pins = cell["type"], cell["connections"]
    if kind in SYNCHRONOUS:
        return
    if kind == "CARRY4":
        yield from _carry_steps(pins)
        return
    if kind == "DSP48E2":
        yield from _dsp_steps(cell)
        return
    inputs = [pin for pin, direction in cell["port_directions"].items() if direction == "input"]
    outputs = [pin for pin, direction in cell["port_directions"].items() if direction == "output"]
    if kind in MEMORY_LUTS:
        inputs = [pin for pin in inputs if re.match(r"A|DPRA|CE$", pin) and (kind.startswith("RAM") or pin != "CE")]
    step = "lutram" if kind in MEMORY_LUTS else "mux" if kind in MUXES else "inverter" if kind == "INV" else "lut"
    for out_pin in outputs:
        if out_pin.startswith("Q") and out_pin != "Q":  # the end of a shift register changes with the clock
            continue
        for in_pin in inputs:
            if kind in MEMORY_LUTS and not _reads(in_pin, out_pin):
                continue
            for out in pins.get(out_pin, ()):
                for source in pins.get(in_pin, ()):
                    yield out, source, step


def _reads(address: str, data: str) -> bool:
    """Return whether an address pin of a LUT RAM selects the value of a data pin (ADDRB: DOB; DPRA: DPO; A: the
    others)."""
    if address.startswith("ADDR"):
        return not data.startswith("DO") or address[4:] == data[2:]
    return address.startswith("DPRA") == (data == "DPO")


def _carry_steps(pins: Mapping[str, list[Bit]]) -> Iterator[tuple[int, Bit, str]]:
    for index in range(4):
        for pin, data_up_to in (("O", index), ("CO", index + 1)):
            out = pins[pin][index] if index < len(pins.get(pin, ())) else None
            if not isinstance(out, int):
                continue
            yield out, pins["CI"][0], "carry_on"
            yield out, pins["CYINIT"][0], "carry"
            for source in (*pins["S"][: index + 1], *pins["DI"][:data_up_to]):
                yield out, source, "carry"


def _dsp_steps(cell: Mapping[str, Any]) -> Iterator[tuple[int, Bit, str]]:
    pins, parameters = cell["connections"], cell["parameters"]

    def registered(name: str) -> bool:
        return bool(int(parameters.get(name, "1"), 2))

    if registered("PREG"):
        return
    open_pins = [pin for pin, register in (("A", "AREG"), ("B", "BREG")) if not registered(register)]
    open_pins = [] if registered("MREG") else open_pins
    open_pins += ["C"] * (not registered("CREG")) + ["PCIN"]
    for out_pin, direction in cell["port_directions"].items():
        if direction != "output":
            continue
        for out in pins.get(out_pin, ()):
            for in_pin in open_pins:
                for source in pins.get(in_pin, ()):
                    yield out, source, "dsp"
