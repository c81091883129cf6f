"""One simulated run: a policy, arrivals and hardware in, the result keys of every Headrace run out."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.policy import Policy
from headrace.batching.request import Request
from headrace.batching.results import ServedTimes, summarize
from headrace.sim.engine import Arrivals, Outcome, Tally, run, run_stream, run_until
from headrace.sim.preprocessing import Preprocessor, Sizes, Stage, input_lengths

BLOCK = 1 << 10  # requests, between looks at whether a run may stop


@dataclass(frozen=True, slots=True)
class Simulation:
    """`result` has the result keys; `outcome` the requests' times and, if recorded, every task, by their number in
    `arrivals`. These are in order of arrival, or of when each was ready where it was preprocessed. Of a run whose
    arrivals were streamed there are no requests, neither in `arrivals` nor in `outcome`. `stopped` tells that more were
    late for certain than `most_late` of `simulate`, which ended the run or, of its last requests, came too late to."""

    result: dict[str, object]
    arrivals: Arrivals
    outcome: Outcome
    stopped: bool = False

    def latencies(self) -> NDArray[np.float64]:
        """Seconds from arrival to end of each request that was served, in the order of `arrivals`."""
        finished = np.array(self.outcome.finished)
        latencies: NDArray[np.float64] = (finished - self.arrivals.arrays()[0])[finished >= 0.0]
        return latencies


def simulate(
    policy: Policy,
    arrivals: Arrivals | Iterator[Arrivals],
    times: Mapping[str, NodeTimes] | Sequence[Mapping[str, NodeTimes]],
    workers: int,
    *,
    seed: int | None = None,
    record: bool = False,
    busy_power_w: float | None = None,
    cell_models: Mapping[str, CellModel] | None = None,
    drop_late: bool = False,
    preprocessor: Preprocessor | None = None,
    sizes: Sizes = input_lengths,
    most_late: int | None = None,
) -> Simulation:
    """Serve all arrivals, together or in blocks that are forgotten (then memory is bounded, see `engine.run_stream`,
    and nothing can be recorded), with `workers` workers, whose node latencies of each model are `times`: of all if they
    are equal, else of each. With a `preprocessor`, requests pass its steps first; `sizes` gives what these go by.

    `record` keeps every task in `Simulation.outcome.ran`. `seed` is only reported. With `busy_power_w`, what a busy
    worker draws, the result has the energy of all of them. `cell_models` are for a policy with tasks of cells. With
    `drop_late`, a request that has not begun by `Policy.latest_start` is dropped then.

    With `most_late`, arrivals (which are no blocks then) end once it is certain that more than so many are past their
    deadlines, whoever else comes after them: `Simulation.arrivals` are those that came."""
    began = time.perf_counter()
    stopped = False
    collecting = gc.isenabled()
    gc.disable()  # the engine makes no cycles, and searching millions of requests for them costs an eighth of the time
    try:
        opens = open_from(cell_models)
        known = dict(times) if isinstance(times, Mapping) else [dict(own) for own in times]
        stage = None if preprocessor is None else Stage(preprocessor, sizes)
        if isinstance(arrivals, Arrivals):
            arrivals = arrivals if stage is None else stage.whole(arrivals)
            if most_late is None:
                outcome = run(policy, arrivals, known, workers, record, opens, drop_late)
            else:
                watched = _Watched(arrivals, most_late)
                count = len(arrivals.arrival)
                outcome = run_until(policy, watched.blocks, count, known, workers, opens, drop_late)
                arrivals, stopped = watched.came(outcome), watched.stopped
        else:
            blocks = arrivals if stage is None else stage.blocks(arrivals)
            outcome = run_stream(policy, blocks, known, workers, opens, drop_late)
    finally:
        if collecting:
            gc.enable()
    outcome.ledger.check()
    kept = arrivals if isinstance(arrivals, Arrivals) else Arrivals([], [], [], [], [])
    totals = outcome.totals() if isinstance(outcome, Tally) else _served(kept, outcome).totals()
    result = summarize(
        totals,
        outcome.ledger,
        batch_size_mean=outcome.request_node_runs / outcome.node_runs if outcome.node_runs else None,
        busy_s=outcome.busy_s,
        workers=workers,
        wall_s=time.perf_counter() - began,
        seed=seed,
        energy_j=None if busy_power_w is None else busy_power_w * outcome.busy_s,
        preprocess=None if stage is None else stage.totals(kept, totals.span_s),
    )
    return Simulation(result, kept, outcome, stopped)


class _Watched:
    """Arrivals that end once more than `most_late` of them are late."""

    def __init__(self, arrivals: Arrivals, most_late: int) -> None:
        self._arrivals, self._max_late = arrivals, most_late
        self._count = len(arrivals.arrival)
        self.stopped = False

    def blocks(self, outcome: Outcome) -> Iterator[Arrivals]:
        arrival, ready, deadline = self._arrivals.arrays()
        deadline = deadline + 1e-9  # latencies are compared with the SLO after a rounding of their own
        last = float(arrival.max(initial=0.0))
        late = told = 0  # of the first so many it is known whether they are late
        for start in range(0, len(arrival), BLOCK):
            yield _part(self._arrivals, start, start + BLOCK)
            came = min(start + BLOCK, len(arrival))
            now = min(float(ready[came - 1]), last)  # whoever came after the last one would change nothing before it
            open_at = np.flatnonzero(deadline[told:came] >= now)
            until = told + int(open_at[0]) if len(open_at) else came
            finished = np.array(outcome.finished[told:until])
            late += int(np.sum((finished < 0.0) | (finished > deadline[told:until])))
            told = until
            if late > self._max_late:
                self.stopped, self._count = True, came
                return

    def came(self, outcome: Outcome) -> Arrivals:
        """Who came; `outcome` is left with these."""
        if self._count == len(self._arrivals.arrival):
            return self._arrivals
        del outcome.started[self._count :], outcome.finished[self._count :]
        return _part(self._arrivals, 0, self._count)


def _part(whole: Arrivals, start: int, end: int) -> Arrivals:
    ready = whole.ready[start:end] if whole.preprocessed else None
    return Arrivals(
        whole.models[start:end],
        whole.arrival[start:end],
        whole.deadline[start:end],
        whole.input_len[start:end],
        whole.output_len[start:end],
        ready,
    )


def _served(arrivals: Arrivals, outcome: Outcome) -> ServedTimes:
    arrival, ready, deadline = arrivals.arrays()
    started, finished = np.array(outcome.started), np.array(outcome.finished)
    if outcome.ledger.dropped:
        served = finished >= 0.0
        arrival, ready, deadline = arrival[served], ready[served], deadline[served]
        started, finished = started[served], finished[served]
    return ServedTimes(arrival, ready, started, finished, deadline)


def open_from(models: Mapping[str, CellModel] | None) -> Callable[[Request], int] | None:
    if models is None:
        return None
    return lambda request: models[request.model].unfold(request).open_from
