"""Move a register of a wide product into the ECP5's multipliers, where two registers follow the product.

A multiplier takes factors of 18 bits. So a factor of 26 bits takes two of them and an adder, in one clock. Where a
product goes to a register, and from there to a second one and nowhere else, the products of both parts get the first
register, and their sum gets the second one. So the adder stands between the two. Registers with a reset, an enable or
an initial value stay where they are. A DSP of an AMD card takes a factor of 27 bits and has both registers inside.
"""

from collections import defaultdict
from typing import Any, NamedTuple

FACTOR_BITS = 18  # of a multiplier


class Sink(NamedTuple):
    """A bit of a cell's input."""

    cell: Any
    port: str
    place: int


class Chain(NamedTuple):
    """Two registers behind a bit of a product."""

    first: Any  # the bit of the first register
    second: Sink | None  # nothing where no second one reads it
    clock: Any
    rising: bool


def split(design: Any) -> int:
    """Split the wide products of the top module of Yosys's `design`, and return how many were split.

    The module must be flat and made of word-level cells. It must be cleaned, so that each bit has one name."""
    from pyosys import libyosys

    module = design.top_module()
    cells = [module.cells_[name] for name in list(module.cells_)]
    sinks: dict[Any, list[Sink]] = defaultdict(list)
    for cell in cells:
        for port in list(cell.connections_):
            if cell.input(port):
                for place, bit in enumerate(_bits(cell.getPort(port))):
                    sinks[bit].append(Sink(cell, port.str(), place))
    outside = _outside(module)
    return sum(_split(libyosys, module, cell, sinks, outside) for cell in cells if cell.type.str() == "$mul")


def _outside(module: Any) -> set[Any]:
    """Return the bits that leave the module, by their own name or by an output's."""
    pairs = [pair for output, net in module.connections_ for pair in zip(_bits(output), _bits(net), strict=True)]
    own = {bit for cell in module.cells_.values() for signal in cell.connections_.values() for bit in _bits(signal)}
    return {net for output, net in pairs if output.wire.port_output} | {
        bit for bit in own if bit.is_wire() and bit.wire.port_output
    }


def _bits(signal: Any) -> list[Any]:
    return [signal.extract(place, 1).as_bit() for place in range(signal.size())]


def _split(yosys: Any, module: Any, cell: Any, sinks: dict[Any, list[Sink]], outside: set[Any]) -> bool:
    """Split the product of this cell if it can be. Its old registers stay, and nothing reads them any more."""

    def port(name: str, of: Any = cell) -> Any:
        return of.getPort(yosys.IdString(f"\\{name}"))

    signed = cell.getParam(yosys.IdString("\\A_SIGNED")).as_bool()
    factor, wide = sorted((port("A"), port("B")), key=lambda signal: signal.size())
    low_bits, width = FACTOR_BITS - signed, port("Y").size()
    if factor.size() > FACTOR_BITS or not FACTOR_BITS < wide.size() <= low_bits + FACTOR_BITS or width <= low_bits:
        return False

    def chain(bit: Any) -> Chain | None:
        (sink,) = sinks[bit] if len(sinks[bit]) == 1 else (None,)
        if sink is None or not _is_register(sink) or bit in outside:
            return None
        first = _bits(port("Q", sink.cell))[sink.place]
        after = sinks[first]
        if first in outside or first.wire.has_attribute(yosys.IdString("\\init")) or len(after) > 1:
            return None
        clocks = [_clock(yosys, each) for each in (sink, *after) if _is_register(each)]
        if len(clocks) != 1 + len(after) or len(set(clocks)) > 1:
            return None
        return Chain(first, after[0] if after else None, *clocks[0])

    product = [bit for bit in _bits(port("Y")) if sinks[bit] or bit in outside]
    chains = [found for found in map(chain, product) if found]
    if len(chains) < len(product) or len({(found.clock, found.rising) for found in chains}) != 1:
        return False
    clock, rising, name = chains[0].clock, chains[0].rising, chains[0].first.wire.name.str()

    def registered(kind: str, part: Any) -> Any:
        """Return a register after the product with this part, as wide as `width`."""
        own = min(width, factor.size() + part.size())
        inside, after = (module.addWire(module.uniquify(yosys.IdString(f"{name}_{kind}{each}")), own) for each in "dq")
        module.addMul(_new(yosys, module), factor, part, yosys.SigSpec(inside), signed)
        clock_signal = yosys.SigSpec(clock, 1)
        module.addDff(_new(yosys, module), clock_signal, yosys.SigSpec(inside), yosys.SigSpec(after), rising)
        signal = yosys.SigSpec(after)
        signal.extend_u0(width, signed)
        return signal

    low_part = wide.extract(0, low_bits)
    low_part.extend_u0(low_bits + signed, False)
    low = registered("low", low_part)
    high = registered("high", wide.extract(low_bits, wide.size() - low_bits))
    upper = module.Add(
        _new(yosys, module), low.extract(low_bits, width - low_bits), high.extract(0, width - low_bits), signed
    )
    whole = [*_bits(low.extract(0, low_bits)), *_bits(upper.extract(0, width - low_bits))]
    places = {bit: place for place, bit in enumerate(_bits(port("Y")))}
    for bit, each in zip(product, chains, strict=True):
        if each.second:
            data = port("D", each.second.cell)
            data.replace(each.second.place, yosys.SigSpec(whole[places[bit]], 1))
            each.second.cell.setPort(yosys.IdString("\\D"), data)
    return True


def _is_register(sink: Sink) -> bool:
    return sink.cell.type.str() == "$dff" and sink.port == "\\D"


def _clock(yosys: Any, sink: Sink) -> tuple[Any, bool]:
    edge = sink.cell.getParam(yosys.IdString("\\CLK_POLARITY")).as_bool()
    return sink.cell.getPort(yosys.IdString("\\CLK")).as_bit(), edge


def _new(yosys: Any, module: Any) -> Any:
    return module.uniquify(yosys.IdString("$wide_product"))
