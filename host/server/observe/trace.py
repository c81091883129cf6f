"""`--trace`: a trace of the server's run for Perfetto. CUs and workers are tracks, and a flow connects the slices of a
request."""

from collections import deque
from pathlib import Path

from headrace.bitstreams.whole_file import replacing
from headrace.host.live.results import Execution
from headrace.host.live.trace import Lanes, name_of
from headrace.host.server.observe.watch import RequestTrace
from headrace.sim.trace import Slice, write

EVENTS = 200_000  # slices and flows that are kept, some 40 MB; a longer run keeps its last ones


class Trace:
    """Collect the slices of a run and write them to `path` at the end. A watcher, used as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._slices: deque[Slice] = deque()
        self._events = 0

    def __enter__(self) -> "Trace":
        return self

    def __exit__(self, *_: object) -> None:
        lanes = Lanes()
        slices = sorted(self._slices, key=lambda each: each.start)
        laid = (self._on_lane(each, lanes) if each.track[0] == "preprocessing" else each for each in slices)
        with replacing(self._path) as partial:
            write(partial, laid)

    def _on_lane(self, each: Slice, lanes: Lanes) -> Slice:
        return Slice(
            (each.track[0], lanes.of(each.track[1], each.start, each.end)), each.start, each.end, each.name, each.flows
        )

    def answered(self, trace: RequestTrace) -> None:
        """Keep the preprocessing slices of a request."""
        for row in trace.rows:
            if (made := row.preprocessed) is not None:
                flows = [] if row.inference is None else [_flow(row.origin, row.inference.request_id)]
                name = f"photo for {trace.model}" + (
                    f" ({made.dpu_status})" if made.dpu_status not in (None, "OK") else ""
                )
                name += ", damaged" if made.damage else ""
                name += ", no CU in service" if made.out_of_service else ""
                self._keep(Slice(("preprocessing", made.unit), made.started, made.finished, name, flows))

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """Keep the slice of a task."""
        flows = [_flow(origin, request.id) for request in execution.task.requests]
        name = name_of(execution, several=True)
        self._keep(Slice(("workers", worker), origin + execution.started, origin + execution.ended, name, flows))

    def _keep(self, each: Slice) -> None:
        self._slices.append(each)
        self._events += 1 + len(each.flows)
        while self._events > EVENTS:
            self._events -= 1 + len(self._slices.popleft().flows)


def _flow(origin: float, request: int) -> int:
    """Return the number of a request's flow. Requests of different runtimes have different flows."""
    return hash((origin, request)) & (1 << 62) - 1
