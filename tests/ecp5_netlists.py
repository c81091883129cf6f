"""Netlists with flip-flops of an ECP5, as Yosys writes them, and their simulation clock by clock."""

import random
from collections.abc import Callable
from typing import Any, Protocol

from headrace.bitstreams.resources.flip_flops import Bit, Cell, Nets

State = dict[tuple[str, str], int]  # of a cell's name and its register
Value = Callable[[Bit], int]  # of a net in this clock

CLOCK, ENABLE, RESET = 1, 2, 3


def flip_flop(data: Bit, q: int, *, enable: bool = False, reset: bool = False) -> dict[str, Any]:
    nets = {"CLK": [CLOCK], "DI": [data], "LSR": [RESET if reset else "0"], "Q": [q]}
    if enable:
        nets["CE"] = [ENABLE]
    return {
        "type": "TRELLIS_FF",
        "parameters": {"CEMUX": "CE" if enable else "1 ", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET"},
        "port_directions": {port: "output" if port == "Q" else "input" for port in nets},
        "connections": nets,
    }


def module(cells: dict[str, Any], outputs: list[int]) -> dict[str, Any]:
    """A module with the inputs 10 to 15, and these nets as outputs."""
    ports = {"clk": [CLOCK], "en": [ENABLE], "rst": [RESET], "in": list(range(10, 16)), "out": outputs}
    return {"ports": {name: {"bits": bits} for name, bits in ports.items()}, "cells": cells}


class Block(Protocol):
    """A cell with registers of its own, as the data sheet of the ECP5 has it."""

    def shows(self, name: str, cell: Cell, bit: Bit, value: Value, state: State) -> int:
        """Return the value of the net `bit`, which the cell drives."""
        ...

    def after(self, name: str, cell: Cell, value: Value, state: State) -> State:
        """Return the registers of the cell behind this clock, as far as they change."""
        ...


def simulate(design: dict[str, Any], block: Block, clocks: int, seed: int) -> list[list[int]]:
    """Return the outputs of each clock, for random inputs. All cells but flip-flops are blocks."""
    stimuli = random.Random(seed)
    state: State = {}
    seen = []
    driver = Nets.of(design).driver
    for _ in range(clocks):
        inputs = {bit: stimuli.randrange(2) for bit in range(10, 16)}
        inputs |= {ENABLE: int(stimuli.randrange(4) > 0), RESET: int(stimuli.randrange(6) == 0)}

        def value(bit: Bit, inputs: dict[int, int] = inputs) -> int:
            if isinstance(bit, str):
                return int(bit)
            if bit in inputs:
                return inputs[bit]
            name = driver[bit]
            cell = design["cells"][name]
            if cell["type"] == "TRELLIS_FF":
                return state.get((name, "Q"), 0)
            return block.shows(name, cell, bit, value, state)

        seen.append([value(bit) for bit in design["ports"]["out"]["bits"]])
        after: State = {}
        for name, cell in design["cells"].items():
            nets = cell["connections"]
            if cell["type"] != "TRELLIS_FF":
                after |= block.after(name, cell, value, state)
            elif value(nets["LSR"][0]):
                after[name, "Q"] = 0
            elif value(nets.get("CE", ["1"])[0]):
                after[name, "Q"] = value(nets["DI"][0])
        state.update(after)
    return seen
