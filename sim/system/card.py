"""Whether a number of compute units fits an Alveo U55C, by the cells that Yosys reports for each and by its memory
ports.
"""

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from headrace.sim.preprocessing import Preprocessor

# the cells of the card, by data sheet DS978
U55C: Final = {"lut": 1_303_680, "ff": 2_607_360, "dsp": 9_024, "bram36": 2_016, "uram": 960}
# What `headrace build --report --json` says of each module. scripts/yosys_cells.py writes the file. LUTs and flip-flops
# are rather too many (docs/reference/units.md). DELAY is abc9's estimate of the LUTs and wires of the longest path.
# PATH are the fast and the slow end of the estimate of the whole path, with clock-to-output and setup. None is a timing
# of a card.
REPORT: Final = Path(__file__).with_name("yosys_cells.csv")
DELAY: Final = "delay_ps"
PATH: Final = ("fast_ps", "slow_ps")


@cache
def reported_cells() -> Mapping[str, Mapping[str, float]]:
    """Return the cells and the delays (ps) by module, from REPORT."""
    with REPORT.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["module"]: {name: float(row[name]) for name in (*U55C, DELAY, *PATH)} for row in rows}


_MODULES: Final = {"image cu": "image_cu", "mel cu": "audio_mel_cu", "norm cu": "audio_norm_cu"}
_REPORTED: Final = {name: reported_cells()[module] for name, module in _MODULES.items()}
CUS: Final[Mapping[str, Mapping[str, float]]] = {
    name: {kind: reported[kind] for kind in U55C} for name, reported in _REPORTED.items()
}
DELAY_PS: Final[Mapping[str, int]] = {name: int(reported[DELAY]) for name, reported in _REPORTED.items()}
HBM_PORTS: Final = 32  # AMD PG276
MASTERS: Final[Mapping[str, int]] = {"image cu": 2, "mel cu": 2, "norm cu": 2}  # AXI masters, each at a port of its own
# An assumption. The rest is for the platform's shell, the interconnect between CUs and memory, and the space that
# routing needs. Nothing here has been placed on a card.
USABLE: Final = 0.7


def estimated_mhz(*names: str) -> int:
    """Return the clock that the estimates support for CUs of these names, in whole MHz as the report has it."""
    return round(1e6 / max(DELAY_PS[name] for name in names))


def share_of_card(cus: Mapping[str, int]) -> tuple[str, float]:
    """Return the resource of which these CUs, by their names in CUS, take the greatest share, and that share."""
    used = {kind: sum(count * CUS[name][kind] for name, count in cus.items()) / have for kind, have in U55C.items()}
    scarcest = max(used, key=lambda kind: used[kind])
    return scarcest, used[scarcest]


def cus_of(preprocessor: Preprocessor) -> dict[str, int]:
    return {step.name: step.servers for step in preprocessor.steps if step.name in CUS}


def too_many(preprocessor: Preprocessor) -> str | None:
    """Return in words what does not fit, of ports and cells the scarcer one; None if all fits."""
    cus = cus_of(preprocessor)
    kind, share = share_of_card(cus)
    ports = sum(count * MASTERS[name] for name, count in cus.items())
    if ports / HBM_PORTS > max(1.0, share / USABLE):
        return (
            f"its compute units have {ports} AXI masters, and the HBM of a U55C {HBM_PORTS} ports: more masters than "
            "ports share their bandwidth, which is not modelled"
        )
    if share <= USABLE:
        return None
    return (
        f"its compute units take {100 * share:.0f} % of a U55C's {kind.upper()}, of which {100 * USABLE:.0f} % are "
        "taken to be usable"
    )
