"""Flip-flops move into the multipliers of a netlist, and what the netlist does stays the same.

Netlists are simulated here clock by clock, as the data sheet of the ECP5 has flip-flops and multipliers."""

import copy
import random
from typing import Any

import pytest
from ecp5_netlists import ENABLE, flip_flop, module, simulate

from headrace.bitstreams.resources import multipliers
from headrace.bitstreams.resources.flip_flops import Bit

BITS = 3  # of a factor; the others are 0


def multiplier(a: list[Bit], b: list[Bit], product: list[int]) -> dict[str, Any]:
    nets = {f"P{i}": [bit] for i, bit in enumerate(product)}
    for side, bits in (("A", a), ("B", b)):
        nets |= {f"{side}{i}": [bits[i] if i < len(bits) else "0"] for i in range(18)}
    return {
        "type": "MULT18X18D",
        "parameters": {},
        "port_directions": {port: "output" if port[0] == "P" else "input" for port in nets},
        "connections": nets,
    }


def two_registers(*, factors=None, products=None) -> dict[str, Any]:
    """A product with registers at both factors (nets 20 to 25) and behind it (40 to 45)."""
    cells = {f"in_{i}": flip_flop(10 + i, 20 + i, **(factors or {})) for i in range(6)}
    cells["product"] = multiplier([20, 21, 22], [23, 24, 25], list(range(30, 36)))
    cells |= {f"out_{i}": flip_flop(30 + i, 40 + i, **(products or {})) for i in range(6)}
    return module(cells, list(range(40, 46)))


class Multiplier:
    """A MULT18X18D with registers at both factors, behind the product, or nowhere."""

    def shows(self, name, cell, bit, value, state):
        in_register = self._registered(cell, "REG_OUTPUT")
        whole = state.get((name, "P"), 0) if in_register else self._product(name, cell, value, state)
        (place,) = (int(p[1:]) for p, bits in cell["connections"].items() if p[0] == "P" and bits == [bit])
        return whole >> place & 1

    def after(self, name, cell, value, state):
        if not value(cell["connections"].get("CE0", ["1"])[0]):
            return {}
        factors = {(name, side): self._word(cell, side, value) for side in "AB"}
        return {(name, "P"): self._product(name, cell, value, state)} | factors

    def _product(self, name, cell, value, state):
        if self._registered(cell, "REG_INPUTA"):
            return state.get((name, "A"), 0) * state.get((name, "B"), 0)
        return self._word(cell, "A", value) * self._word(cell, "B", value)

    def _registered(self, cell, kind):
        return cell["parameters"].get(f"{kind}_CLK", "NONE") != "NONE"

    def _word(self, cell, side, value):
        return sum(value(cell["connections"][f"{side}{i}"][0]) << i for i in range(18))


def registers_of(design, name="product"):
    return sorted(key for key, value in design["cells"][name]["parameters"].items() if value == "CLK0")


def test_the_register_behind_a_product_becomes_that_of_the_multiplier():
    design = two_registers(products={"enable": True})
    assert multipliers.pack(design) == 1
    assert registers_of(design) == ["REG_OUTPUT_CLK"]
    assert design["cells"]["product"]["connections"]["CE0"] == [ENABLE]
    assert [design["cells"]["product"]["connections"][f"P{i}"][0] for i in range(6)] == list(range(40, 46))
    assert set(design["cells"]) == {"product", *(f"in_{i}" for i in range(6))}


def test_else_the_registers_of_both_factors_do():
    design = two_registers(products={"reset": True})
    assert multipliers.pack(design) == 1
    assert registers_of(design) == ["REG_INPUTA_CLK", "REG_INPUTB_CLK"]
    assert set(design["cells"]) == {"product", *(f"out_{i}" for i in range(6))}


@pytest.mark.parametrize("options", [{"reset": True}, {"enable": True}])
def test_registers_that_have_a_reset_or_do_not_move_together_stay(options):
    design = two_registers(factors={"reset": True}, products={"reset": True})
    if "enable" in options:
        for side in ("in", "out"):
            for i in range(6):
                cell = design["cells"][f"{side}_{i}"]
                design["cells"][f"{side}_{i}"] = flip_flop(
                    cell["connections"]["DI"][0], cell["connections"]["Q"][0], enable=i == 0
                )
    before = copy.deepcopy(design)
    assert multipliers.pack(design) == 0 and design == before


def test_a_register_that_something_else_reads_stays_beside_the_multiplier():
    design = two_registers(products={"reset": True})
    design["ports"]["out"]["bits"].append(20)
    assert multipliers.pack(design) == 1
    assert "in_0" in design["cells"] and "in_1" not in design["cells"]


@pytest.mark.parametrize("seed", range(60))
def test_a_netlist_does_the_same_as_before(seed):
    """Chains of two multipliers, which may share registers, with enables, resets and readers elsewhere by chance."""
    draw = random.Random(seed)
    options = [{}, {}, {"enable": True}, {"reset": True}]
    first, second, between = (draw.choice(options) for _ in range(3))
    cells = {f"in_{i}": flip_flop(10 + i, 20 + i, **first) for i in range(6)}
    cells["a"] = multiplier([20, 21, 22], [23, 24, "1" if draw.randrange(2) else 25], list(range(30, 36)))
    cells |= {f"between_{i}": flip_flop(30 + i, 40 + i, **between) for i in range(6)}
    shared = draw.choice([[20, 21, 22], [43, 44, 45], [10, 11, 12]])
    cells["b"] = multiplier([40, 41, 42], shared, list(range(50, 56)))
    cells |= {f"out_{i}": flip_flop(50 + i, 60 + i, **second) for i in range(6)}
    cells["again"] = flip_flop(draw.choice([30, 50, 20]), 70)
    outputs = [70, *range(60, 66), *draw.sample([20, 23, 30, 40, 45, 50], draw.randrange(3))]
    design = module(cells, outputs)
    before = simulate(copy.deepcopy(design), Multiplier(), 60, seed)
    multipliers.pack(design)
    assert simulate(design, Multiplier(), 60, seed) == before
