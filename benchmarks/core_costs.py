"""Keep the measured times of a core where `headrace simulate --processor` finds them (sim/system/processors.py)."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.host.workers.profiling.batches import machine
from headrace.sim.system.processors import COSTS

COLUMNS = ("processor", "library", "size", "ms", "machine")


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of a core for an input. `size` is such as 500x375 for an image, and seconds for a sound."""

    processor: str
    library: str
    size: str
    ms: float


def write_costs(costs: Iterable[Cost]) -> None:
    """Write the times to the file. Other processors keep those that they have there."""
    measured, cpu = list(costs), machine()["cpu"]
    processors = {each.processor for each in measured}
    with COSTS.open(newline="") as file:
        rows = [[row[name] for name in COLUMNS] for row in csv.DictReader(file) if row["processor"] not in processors]
    rows += [[each.processor, each.library, each.size, f"{each.ms:.3g}", cpu] for each in measured]
    with COSTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
