"""Netlists with flip-flops of an ECP5, as Yosys writes them."""

from typing import Any

from headrace.bitstreams.resources.flip_flops import Bit

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
