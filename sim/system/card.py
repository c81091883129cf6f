"""Whether a number of compute units fits an Alveo U55C, by the cells that Yosys reports for each and by its memory
ports.
"""

from collections.abc import Mapping
from typing import Final

from headrace.sim.preprocessing import Preprocessor

# the cells of the card, by data sheet DS978
U55C: Final = {"lut": 1_303_680, "ff": 2_607_360, "dsp": 9_024, "bram36": 2_016, "uram": 960}
# The cells of one CU by `headrace build --report --json`. Its LUTs and flip-flops are rather too many (hls/README.md).
CUS: Final[Mapping[str, Mapping[str, float]]] = {
    "image cu": {"lut": 26_292, "ff": 22_074, "dsp": 47, "bram36": 16, "uram": 20},
    "mel cu": {"lut": 21_258, "ff": 22_749, "dsp": 183, "bram36": 18.5, "uram": 30},
    "norm cu": {"lut": 9_859, "ff": 8_449, "dsp": 13, "bram36": 3, "uram": 8},
}
# abc9's estimate of the longest path of one CU, by the same report. It is no timing of a card.
DELAY_PS: Final[Mapping[str, int]] = {"image cu": 3969, "mel cu": 3879, "norm cu": 3932}
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
