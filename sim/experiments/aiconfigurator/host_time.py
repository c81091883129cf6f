"""Find the host's time for each request of a step, on rows that its errors are not measured on.

A server's host samples, forms batches, makes text of tokens and streams it. No table has this time. Here it is one
number for a server, and it is chosen on some rows and tried on others:

1. The rows are those of one server, without Dynamo's, whose servers stand behind a router.
2. A rotation is by model, or by GPU. In each fold, the rows of one model (or one GPU) are held out.
3. The number is the one of GRID_US with the least mean error of the time per output token on all other rows of the
   fold. Of equal ones, the smallest is taken.
4. The rows that are held out are predicted with the number of their fold. Their errors are what counts.
5. The number is stable if no fold chooses 0 or the end of the grid, and the largest is at most SPREAD times the
   smallest.

The rule was written down before the folds were run. But an earlier study had already tried one number on SGLang's rows,
so its three models were not unseen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.sim.experiments.aiconfigurator.rows import Predicted

GRID_US: Final = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0)
SPREAD: Final = 2.0
ROTATIONS: Final[Mapping[str, Callable[[Predicted], str]]] = {
    "model": lambda row: row.model,
    "GPU": lambda row: row.gpu,
}


@dataclass(frozen=True, slots=True)
class Fold:
    """One fold of a rotation.

    Attributes:
        rotation: One of ROTATIONS.
        held_out: The model or the GPU whose rows are held out.
        chosen_us: The time that the other rows choose.
        held: The held-out rows, predicted with that time.
    """

    rotation: str
    held_out: str
    chosen_us: float
    held: tuple[Predicted, ...]


def folds(rows: Sequence[Predicted]) -> list[Fold]:
    """Return the folds of both rotations. `rows` has each measured row of one server with each number of GRID_US.

    A rotation with one model or GPU alone has no folds."""
    found = []
    for rotation, part_of in ROTATIONS.items():
        parts = sorted({part_of(row) for row in rows})
        for part in parts if len(parts) > 1 else ():
            chosen = least_us([row for row in rows if part_of(row) != part])
            held = tuple(row for row in rows if part_of(row) == part and row.host_request_us == chosen)
            found.append(Fold(rotation, part, chosen, held))
    return found


def least_us(rows: Sequence[Predicted]) -> float:
    """Return the number of GRID_US with the least mean error of the time per output token."""

    def mean_error(host_us: float) -> float:
        off = [abs(row.tpot_ratio - 1) for row in rows if row.host_request_us == host_us and not row.failure]
        return sum(off) / len(off)

    return min(GRID_US, key=mean_error)


def stable(numbers: Sequence[float]) -> bool:
    """Return whether the numbers of folds agree, by rule 5."""
    return GRID_US[0] < min(numbers) and max(numbers) < min(GRID_US[-1], SPREAD * min(numbers) + 1e-9)
