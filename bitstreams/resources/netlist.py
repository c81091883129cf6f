"""Count the cells in a netlist of Xilinx UltraScale+ cells as a card counts them, and find its longest paths.

The netlist is one flat module of Yosys's `write_json`. Yosys's own `ltp -noff` connects every input of a cell with
every output, so that a path enters an adder at its highest bit and leaves at its lowest. It does not know Xilinx's
flip-flops either. This module connects only those pins that a signal passes within a clock.

The delay of a path is an estimate with a fast and a slow end. It has the clock-to-output of the cell where the path
starts, the cells and wires on it, and the setup of the cell where it ends (delays.py). A wire within a slice has no
delay: from a LUT to a multiplexer or a carry chain, within a carry chain, and from these to a register's data.

How cells count
- LUT: each LUT1 to LUT6 counts one, although two small ones may share a place on the card. Each inverter counts one.
  LUT RAM and shift registers count the LUTs that they occupy (RAM32M16: 8, SRL16E: 1). A carry chain takes its sums
  from LUTs only, so each bit that Yosys connects to something else counts one more.
- BRAM36: a RAMB18 counts half. CARRY8: Yosys makes chains of CARRY4, and two of a chain fit one CARRY8.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headrace.bitstreams.resources import delays
from headrace.bitstreams.resources.delays import NONE, WIRE, Range, same

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

CLOCKS: Final = ("C", "CLK", "CLKARDCLK", "CLKBWRCLK", "WCLK")
IN_SLICE: Final = re.compile(r"LUT[1-6]|INV|CARRY4|MUXF[789]|RAM\d.*|SRL.*")  # cells whose output may stay in a slice

Bit = int | str  # a bit of a connection; strings are constants


class Arc(NamedTuple):
    """A way to a bit within a clock: from which bit, by which kind of cell, and the delay of wire and cell."""

    source: int
    kind: str  # lut, lutram, inverter, carry, carry_on, mux, dsp; clock: from the clock of a LUT RAM
    delay: Range


class Start(NamedTuple):
    """The name of the cell or port that launches a bit, and its clock-to-output."""

    name: str
    delay: Range


class End(NamedTuple):
    """A bit that a register, memory or port takes, its name, and the delay of wire and setup."""

    bit: int
    name: str
    delay: Range


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
    fast_ps: int  # the two ends of the estimated delay
    slow_ps: int
    via: tuple[str, ...] = ()


@dataclass(slots=True)
class _Graph:
    arcs: dict[int, list[Arc]] = field(default_factory=dict)  # the arcs that drive a bit within a clock
    starts: dict[int, Start] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timing:
    """The longest paths of a module: the slowest into each of some signals, slowest first.

    `max_luts` is the largest number of LUTs on any path. `fast_ps` and `slow_ps` are the greatest delays of any path,
    at either end of the estimate."""

    paths: list[Path]
    max_luts: int
    fast_ps: int
    slow_ps: int


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


def longest_paths(module: Mapping[str, Any], count: int = 8) -> Timing:
    """Return the slowest path into each of the `count` worst signals. Raises LoopError."""
    names = _names(module)
    graph = _graph(module, names)
    slow, back = _latest(graph, lambda delay: delay.slow, names)
    fast, _ = _latest(graph, lambda delay: delay.fast, names)
    levels = _levels(graph, slow)
    ends = [end for end in graph.ends if end.bit in slow]
    paths: list[Path] = []
    seen: set[str] = set()
    for end in sorted(ends, key=lambda end: (-slow[end.bit] - end.delay.slow, end.name)):
        group = group_name(end.name.partition(" (")[0])
        if group in seen:
            continue
        seen.add(group)
        paths.append(_walk(end, graph, back, names))
        if len(paths) == count:
            break
    return Timing(
        paths,
        max((levels[end.bit] for end in ends), default=0),
        max((fast[end.bit] + end.delay.fast for end in ends), default=0),
        max((slow[end.bit] + end.delay.slow for end in ends), default=0),
    )


def _walk(end: End, graph: _Graph, back: Mapping[int, Arc], names: Mapping[Bit, str]) -> Path:
    kinds: Counter[str] = Counter()
    via: list[str] = []
    bit, delay = end.bit, end.delay
    while bit in back:
        name = names.get(bit, "$")
        if bit != end.bit and not name.startswith("$"):
            via.append(name)
        arc = back[bit]
        kinds[arc.kind] += 1
        bit, delay = arc.source, delay.plus(arc.delay)
    start = graph.starts.get(bit, Start(names.get(bit, "?"), NONE))
    delay = delay.plus(start.delay)
    return Path(
        start=start.name,
        end=end.name,
        luts=kinds["lut"] + kinds["lutram"],
        carries=kinds["carry"],
        carry_cells=kinds["carry"] + kinds["carry_on"],
        muxes=kinds["mux"],
        dsps=kinds["dsp"],
        fast_ps=delay.fast,
        slow_ps=delay.slow,
        via=tuple(reversed(via)),
    )


def _latest(
    graph: _Graph, side: Callable[[Range], int], names: Mapping[Bit, str]
) -> tuple[dict[int, int], dict[int, Arc]]:
    """Return when each bit has its value at one side of the delays, and the last step of the path that decides it.

    The keys of the first result are in an order in which each bit comes after its sources. Raises LoopError."""
    times = {bit: side(start.delay) for bit, start in graph.starts.items()}
    back: dict[int, Arc] = {}
    open_bits: set[int] = set()
    for goal in (end.bit for end in graph.ends):
        stack = [goal]
        while stack:
            bit = stack[-1]
            if bit in times:
                stack.pop()
                continue
            arcs = graph.arcs.get(bit)
            if arcs is None:  # the bit has no driver
                times[bit] = 0
                continue
            missing = [arc.source for arc in arcs if arc.source not in times]
            if not missing:
                best = max(arcs, key=lambda arc: times[arc.source] + side(arc.delay), default=None)
                if best is not None:
                    back[bit] = best
                times[bit] = times[best.source] + side(best.delay) if best else 0
                open_bits.discard(bit)
                continue
            if bit in open_bits:  # reached again before the times of its sources were known
                raise LoopError(f"combinational loop through {_on_loop(bit, graph, names)}")
            open_bits.add(bit)
            stack.extend(missing)
    return times, back


def _levels(graph: _Graph, order: Mapping[int, int]) -> dict[int, int]:
    """Return the largest number of LUTs on a path to each bit. In `order`, each bit comes after its sources."""
    levels: dict[int, int] = {}
    for bit in order:
        arcs = graph.arcs.get(bit, ()) if bit not in graph.starts else ()
        levels[bit] = max((levels[arc.source] + (arc.kind in ("lut", "lutram")) for arc in arcs), default=0)
    return levels


def _on_loop(bit: int, graph: _Graph, names: Mapping[Bit, str]) -> str:
    """Return a public name on a loop through or near `bit`."""
    seen: set[int] = set()
    queue = [bit]
    for source in queue:
        name = names.get(source, "$")
        if not name.startswith("$"):
            return name
        for arc in graph.arcs.get(source, ()):
            if arc.source not in seen:
                seen.add(arc.source)
                queue.append(arc.source)
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
    in_slice = {
        bit
        for cell in module["cells"].values()
        if IN_SLICE.fullmatch(cell["type"])
        for pin, bits in cell["connections"].items()
        if cell["port_directions"][pin] == "output"
        for bit in bits
    }
    for name, port in module["ports"].items():
        for index, bit in enumerate(port["bits"]):
            if isinstance(bit, int):
                label = f"{name}[{index}]" if len(port["bits"]) > 1 else name
                if port["direction"] == "input":
                    graph.starts[bit] = Start(f"{label} (input)", delays.clock_to_output("port"))
                else:
                    graph.ends.append(End(bit, f"{label} (output)", NONE))
    for number, (name, cell) in enumerate(module["cells"].items()):
        _add_cell(graph, number, name, cell, names, in_slice)
    return graph


def _add_cell(
    graph: _Graph, number: int, name: str, cell: Mapping[str, Any], names: Mapping[Bit, str], in_slice: set[Bit]
) -> None:
    kind, pins, directions = cell["type"], cell["connections"], cell["port_directions"]
    if kind == "$scopeinfo":
        return
    if kind in FLIP_FLOPS:
        own = names.get(pins["Q"][0], f"${name}")
    else:
        own = _cell_name(name) if not name.startswith("$") else f"{kind} {name}"
    start = Start(own, delays.clock_to_output(kind, registered=_output_registered(cell)))
    arcs: dict[int, list[Arc]] = defaultdict(list)
    for out, source, step, delay in _steps(cell, in_slice):
        arcs[out]  # makes an entry: the bit has a driver, even if that is a constant
        if isinstance(source, int):
            arcs[out].append(Arc(source, step, delay))
    through = {arc.source for ways in arcs.values() for arc in ways}
    if kind in MEMORY_LUTS:  # what is written appears at the output, too
        clock = -1 - number  # a bit of its own for the clock of this cell
        graph.starts[clock] = start
        for ways in arcs.values():
            ways.append(Arc(clock, "clock", NONE))
    graph.arcs.update(arcs)
    for pin, bits in pins.items():
        for bit in bits:
            if not isinstance(bit, int):
                continue
            if directions[pin] == "output" and bit not in arcs:
                graph.starts[bit] = start
            elif directions[pin] == "input" and bit not in through and pin not in CLOCKS:
                wire = NONE if pin == "D" and bit in in_slice else WIRE
                graph.ends.append(End(bit, _end_name(own, kind, pin), wire.plus(delays.setup(kind, pin))))


def _output_registered(cell: Mapping[str, Any]) -> bool:
    """Return whether a memory has its output register on. A memory of two read ports counts by the one without."""
    values = [
        cell["parameters"][name]
        for name in ("DOA_REG", "DOB_REG", "OREG_A", "OREG_B")
        if name in cell.get("parameters", {})
    ]
    return bool(values) and all(value == "TRUE" or value.endswith("1") for value in values)


def _end_name(own: str, kind: str, pin: str) -> str:
    if kind in FLIP_FLOPS:
        role = {"D": "", "CE": " (enable)", "R": " (reset)", "S": " (reset)"}.get(pin, f" ({pin})")
        return own + role
    return f"{own} ({kind} {pin})"


Step = tuple[int, Bit, str, Range]  # output, input, kind of Arc, delay


def _steps(cell: Mapping[str, Any], in_slice: set[Bit]) -> Iterator[Step]:
    """Yield a step for each pair of pins of a cell that a signal passes within a clock."""
    kind, pins = cell["type"], cell["connections"]
    if kind in SYNCHRONOUS:
        return
    if kind == "CARRY4":
        yield from _carry_steps(pins, in_slice)
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
                for index, source in enumerate(pins.get(in_pin, ())):
                    yield out, source, step, _through(kind, in_pin, index)


def _through(kind: str, pin: str, index: int) -> Range:
    """Return the delay of a LUT, LUT RAM or multiplexer from bit `index` of an input, with the wire to it."""
    if kind == "INV":  # becomes a part of the LUTs that follow
        return NONE
    if kind in MUXES:
        return WIRE.plus(same(delays.MUX_SELECT[kind])) if pin == "S" else same(delays.MUX_DATA[kind])
    if kind in MEMORY_LUTS:
        digit = re.search(r"\d+$", pin)
        address = int(digit[0]) if digit else index
        return WIRE.plus(same(delays.LUT_PINS[min(address, 5)]))
    return WIRE.plus(same(delays.lut(int(kind[-1]), int(pin[-1]))))


def _reads(address: str, data: str) -> bool:
    """Return whether an address pin of a LUT RAM selects the value of a data pin (ADDRB: DOB; DPRA: DPO; A: the
    others)."""
    if address.startswith("ADDR"):
        return not data.startswith("DO") or address[4:] == data[2:]
    return address.startswith("DPRA") == (data == "DPO")


def _carry_steps(pins: Mapping[str, list[Bit]], in_slice: set[Bit]) -> Iterator[Step]:
    for pin, by_s, by_di in (
        ("O", delays.CARRY_S_TO_O, delays.CARRY_DI_TO_O),
        ("CO", delays.CARRY_S_TO_CO, delays.CARRY_DI_TO_CO),
    ):
        for index, out in enumerate(pins.get(pin, ())):
            if not isinstance(out, int):
                continue
            yield out, pins["CI"][0], "carry_on", same(delays.CARRY_CI[pin][index])
            yield out, pins["CYINIT"][0], "carry", WIRE.plus(same(delays.CARRY_START[pin][index]))
            for sources, times in ((pins["S"], by_s[index]), (pins["DI"], by_di[index])):
                for source, delay in zip(sources, times, strict=False):
                    yield out, source, "carry", same(delay) if source in in_slice else WIRE.plus(same(delay))


def _dsp_steps(cell: Mapping[str, Any]) -> Iterator[Step]:
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
                delay = delays.DSP if in_pin in "AB" else delays.DSP_ADDER
                for source in pins.get(in_pin, ()):
                    yield out, source, "dsp", WIRE.plus(delay)
