"""Helpers for Perfetto traces of live runs: the tracks of units whose work overlaps, and the labels of tasks.

Rule: slices of one Perfetto track must not overlap. A compute unit does one request at a time and needs one track. The
threads of the CPU share one name and need several tracks.
"""

from headrace.host.live.results import Execution


class Lanes:
    """The tracks of each unit. Ask for the tracks of slices in the order in which the slices start.

    Example: slices of unit `cpu` from 0 to 2, from 1 to 3 and from 2 to 4 get the tracks `cpu`, `cpu (2)` and `cpu`.
    """

    def __init__(self) -> None:
        self._ends: dict[str, list[float]] = {}  # by unit: the end of the last slice of each of its tracks

    def of(self, unit: str, started: float, finished: float) -> str:
        """Return the first track of `unit` that is free at `started`, and take it until `finished`."""
        ends = self._ends.setdefault(unit, [])
        lane = next((lane for lane, end in enumerate(ends) if end <= started), len(ends))
        ends[lane : lane + 1] = [finished]
        return unit if lane == 0 else f"{unit} ({lane + 1})"


def name_of(execution: Execution, several: bool) -> str:
    """Return the label of a task. It names the model only if there are `several` models."""
    name = f"batch of {execution.task.batch_size}, {execution.task.reason}"
    if several:
        name = f"{execution.task.model}: {name}"
    return f"{name}: {execution.error}" if execution.error else name
