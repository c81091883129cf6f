"""What Perfetto traces of live runs share: the tracks of units whose work may overlap, and what a task is called."""

from headrace.host.live.results import Execution


class Lanes:
    """Slices of one track must not overlap: a CU does one request at a time and needs one track, the CPU's threads,
    which go by one name, need several. To be asked in the order of the starts."""

    def __init__(self) -> None:
        self._ends: dict[str, list[float]] = {}  # by unit: when the last slice of each of its lanes ends

    def of(self, unit: str, started: float, finished: float) -> str:
        """The first track of `unit` that is free then."""
        ends = self._ends.setdefault(unit, [])
        lane = next((lane for lane, end in enumerate(ends) if end <= started), len(ends))
        ends[lane : lane + 1] = [finished]
        return unit if lane == 0 else f"{unit} ({lane + 1})"


def name_of(execution: Execution, several: bool) -> str:
    """Of a task; `several` says that it might be of another model."""
    name = f"batch of {execution.task.batch_size}, {execution.task.reason}"
    if several:
        name = f"{execution.task.model}: {name}"
    return f"{name}: {execution.error}" if execution.error else name
