"""PREBA's Table 1 with the cells of this project's own units, as Yosys reports them.

The cells are those that `headrace build --report` has for this project's RTL (sim/system/yosys_cells.csv). Nothing is
placed, and Yosys counts rather too many LUTs and flip-flops (bitstreams/resources/report.py). The paper does not say
how many compute units its numbers have. Its audio has two kinds of them, and "total" has one of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.sim.experiments.preba.conditions import DPU
from headrace.sim.system.card import U55C, reported_cells

# The columns of the paper's table, and the names of the same cells in the report.
KINDS: Final = {"lut": "LUT", "ff": "REG", "bram36": "BRAM", "uram": "URAM", "dsp": "DSP"}
# Per cent of the card, as printed, in the order of KINDS.
TABLE_1: Final[Mapping[str, Mapping[str, Sequence[float]]]] = {
    "image": {
        "decode": (19.7, 8.6, 0.7, 22.5, 6.2),
        "resize": (7.1, 2.3, 0.0, 0.0, 8.6),
        "crop": (0.6, 0.4, 0.0, 0.0, 0.0),
        "normalize": (13.0, 3.3, 11.2, 0.0, 3.0),
        "total": (44.5, 16.5, 19.3, 22.5, 17.8),
    },
    "audio": {
        "resample": (0.2, 0.1, 1.0, 0.0, 0.0),
        "mel": (41.5, 24.6, 18.2, 37.5, 34.2),
        "normalize": (3.1, 1.7, 1.7, 7.5, 1.3),
        "total": (45.9, 26.9, 23.3, 45.0, 35.5),
    },
}
# This project's units for each of the paper's.
OWN: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "image": {
        "decode": ("decode",),
        "resize": ("resize",),
        "crop": ("crop",),
        "normalize": ("normalize",),
        "total": ("image_cu",),
    },
    "audio": {
        "resample": ("resample",),
        "mel": ("mel",),
        "normalize": ("mel_normalize",),
        "total": ("audio_mel_cu", "audio_norm_cu"),
    },
}
UNITS: Final = int(DPU.removeprefix("dpu:"))


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a unit in per cent of a U55C: the paper's, one of this project's, and as many as DPU has."""

    kind: str
    unit: str
    resource: str
    paper: float
    own: float
    own_of_dpu: float


def own_percent(kind: str, unit: str, resource: str) -> float:
    """Return the share of a U55C (%) that one of this project's units takes. `resource` is a key of KINDS."""
    return sum(100 * reported_cells()[own][resource] / U55C[resource] for own in OWN[kind][unit])


def cells() -> list[Cells]:
    """Return the table, by kind of input, unit and resource."""
    return [
        Cells(kind, unit, shown, paper, own, UNITS * own)
        for kind, units in TABLE_1.items()
        for unit, numbers in units.items()
        for (resource, shown), paper in zip(KINDS.items(), numbers, strict=True)
        for own in [own_percent(kind, unit, resource)]
    ]


def table() -> str:
    """Return the table in Markdown: the paper's per cent of a card / one own unit / as many as DPU has."""
    found = {(one.kind, one.unit, one.resource): one for one in cells()}
    lines = [
        f"Per cent of a U55C: PREBA's Table 1 / one compute unit of this project by Yosys / the units of `{DPU}`.",
        "",
        f"| inputs | unit | {' | '.join(KINDS.values())} |",
        f"| --- | --- |{' --- |' * len(KINDS)}",
    ]
    for kind, units in TABLE_1.items():
        for unit in units:
            each = [found[kind, unit, shown] for shown in KINDS.values()]
            numbers = " | ".join(f"{one.paper:g} / {one.own:.2g} / {one.own_of_dpu:.2g}" for one in each)
            lines.append(f"| {kind} | {unit} | {numbers} |")
    return "\n".join(lines) + "\n"
