"""Flip-flops move into the block RAMs of a netlist, and what the netlist does stays the same.

Netlists are simulated here clock by clock, as the data sheet of the ECP5 has flip-flops and block RAMs."""

import copy
import random
from typing import Any

import pytest
from ecp5_netlists import CLOCK, ENABLE, RESET, flip_flop, module, simulate

from headrace.bitstreams.resources import block_rams

BITS = 3  # of a word
ADDRESS, WRITE, DATA = [10, 11], 12, [13, 14, 15]  # the module's inputs


def ram(first: int, *, reads: str = "1", clock: int = CLOCK) -> dict[str, Any]:
    """A RAM that is written at port A and read at port B. Its words are the nets from `first` on."""
    nets = {f"ADA{i}": [bit] for i, bit in enumerate(ADDRESS)} | {f"ADB{i}": [bit] for i, bit in enumerate(ADDRESS)}
    nets |= {f"DIA{i}": [bit] for i, bit in enumerate(DATA)} | {"WEA": [WRITE]}
    nets |= {f"DO{side}{i}": [first + 10 * (side == "A") + i] for side in "AB" for i in range(BITS)}
    nets |= {"CLKA": [CLOCK], "CLKB": [clock], "CEA": ["1"], "CEB": [reads], "RSTA": ["0"], "RSTB": ["0"]}
    nets |= {"OCEA": ["1"], "OCEB": ["1"]}
    parameters = {f"{name}_{side}": value for name, value in (("REGMODE", "NOREG"),) for side in "AB"}
    return {
        "type": "DP16KD",
        "parameters": parameters | {"CLKAMUX": "CLKA", "CLKBMUX": "CLKB"},
        "port_directions": {port: "output" if port.startswith("DO") else "input" for port in nets},
        "connections": nets,
    }


def with_register(**options: bool) -> dict[str, Any]:
    """A RAM with flip-flops (nets 40 to 42) behind all that it reads (nets 20 to 22)."""
    cells = {"ram": ram(20)} | {f"out_{i}": flip_flop(20 + i, 40 + i, **options) for i in range(BITS)}
    return module(cells, [40, 41, 42])


class BlockRam:
    """A DP16KD with a register at port B, or without. Its words are written at the end of a clock."""

    def __init__(self):
        self._memory: dict[int, int] = {}

    def shows(self, name, cell, bit, value, state):
        shown = "register" if cell["parameters"]["REGMODE_B"] == "OUTREG" else "read"
        (place,) = (int(p[3:]) for p, bits in cell["connections"].items() if p[:3] == "DOB" and bits == [bit])
        return state.get((name, shown), 0) >> place & 1

    def after(self, name, cell, value, state):
        nets, found = cell["connections"], {}
        at, data = (sum(value(bit) << i for i, bit in enumerate(bits)) for bits in (ADDRESS, DATA))
        if value(nets["CEB"][0]):
            found[name, "read"] = self._memory.get(at, 0)
        if value(nets["OCEB"][0]):
            found[name, "register"] = state.get((name, "read"), 0)
        if value(WRITE):
            self._memory[at] = data
        return found


@pytest.mark.parametrize(("options", "enable"), [({}, "1"), ({"enable": True}, ENABLE)])
def test_the_register_behind_a_memory_becomes_that_of_the_block_ram(options, enable):
    design = with_register(**options)
    assert block_rams.pack(design) == 1
    block = design["cells"]["ram"]
    assert (block["parameters"]["REGMODE_A"], block["parameters"]["REGMODE_B"]) == ("NOREG", "OUTREG")
    assert block["connections"]["OCEB"] == [enable]
    assert [block["connections"][f"DOB{i}"][0] for i in range(BITS)] == [40, 41, 42]
    assert set(design["cells"]) == {"ram"}


def stays(design: dict[str, Any]) -> bool:
    before = copy.deepcopy(design)
    return block_rams.pack(design) == 0 and design == before


def test_a_register_with_a_reset_stays():
    assert stays(with_register(reset=True))


def test_registers_that_do_not_move_together_stay():
    design = with_register()
    design["cells"]["out_1"] = flip_flop(21, 41, enable=True)
    assert stays(design)


@pytest.mark.parametrize("bit", [20, 22])
def test_a_memory_that_something_else_reads_keeps_its_register_beside_it(bit):
    design = with_register()
    design["ports"]["out"]["bits"].append(bit)
    assert stays(design)
    design = with_register()
    design["cells"]["again"] = flip_flop(bit, 60)
    assert stays(design)


@pytest.mark.parametrize("block", [ram(20, reads=WRITE), ram(20, clock=RESET)], ids=["enable", "clock"])
def test_a_port_with_an_enable_or_another_clock_keeps_its_register_beside_it(block):
    design = with_register()
    design["cells"]["ram"] = block
    assert stays(design)


@pytest.mark.parametrize(("parameter", "value"), [("REGMODE_B", "OUTREG"), ("CLKBMUX", "INV")])
def test_a_port_that_has_a_register_or_the_other_edge_stays_as_it_is(parameter, value):
    design = with_register()
    design["cells"]["ram"]["parameters"][parameter] = value
    assert stays(design)


@pytest.mark.parametrize("seed", range(40))
def test_a_netlist_does_the_same_as_before(seed):
    """A RAM with one or two registers behind it, with enables, resets and readers elsewhere by chance."""
    draw = random.Random(seed)
    options: list[dict[str, bool]] = [{}, {}, {"enable": True}, {"reset": True}]
    first, second = draw.choice(options), draw.choice(options)
    cells = {"ram": ram(20, reads=draw.choice(["1", "1", WRITE]))}
    cells |= {f"first_{i}": flip_flop(20 + i, 40 + i, **first) for i in range(BITS)}
    cells |= {f"second_{i}": flip_flop(40 + i, 50 + i, **second) for i in range(BITS)}
    outputs = [*range(50, 53), *draw.sample([20, 21, 40, 42], draw.choice([0, 0, 1]))]
    design = module(cells, outputs)
    before = simulate(copy.deepcopy(design), BlockRam(), 60, seed)
    block_rams.pack(design)
    assert simulate(design, BlockRam(), 60, seed) == before
