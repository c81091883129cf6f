"""Run one simulation: take a policy, arrivals and hardware, and return the result keys of every Headrace run."""

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

BLOCK = 1 << 10  # the requests between two checks whether a run may stop


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result of one simulated run.

    Attributes:
        result: The result keys.
        arrivals: The requests, in order of arrival, or of readiness where they were preprocessed. It is empty for a run
            whose arrivals came in blocks.
        outcome: The times of each request by its number in `arrivals` and, if recorded, every task. A run in blocks has
            a `Tally` here, which knows no single request.
        stopped: More requests are late for certain than `max_late` of `simulate` allows. The run ended early, unless
            this became certain only with its last requests.
    """

    result: dict[str, object]
    arrivals: Arrivals
    outcome: Outcome
    stopped: bool = False

    def latencies(self) -> NDArray[np.float64]:
        """Return the seconds from arrival to end of each request that was served, in the order of `arrivals`."""
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
    max_late: int | None = None,
) -> Simulation:
    """Serve all arrivals in virtual time.

    Args:
        policy: The policy that is driven. It must be new, because it keeps state.
        arrivals: All requests together, or blocks of them. Blocks are forgotten, so that memory is bounded (see
            `engine.run_stream`); nothing can be recorded then.
        times: The node latencies by model: one mapping if all workers are equal, else one mapping for each worker.
        workers: The number of workers.
        seed: The seed that the result reports. Nothing here draws from it.
        record: Keep every task in `Simulation.outcome.ran`.
        busy_power_w: The power of a busy worker. With it, the result has the energy of all workers.
        cell_models: The networks of cells by model, for a policy whose tasks are of cells.
        drop_late: Drop a request that has not begun by `Policy.latest_start`.
        preprocessor: The steps that requests pass before they come to the policy.
        sizes: Returns the size of each request, by which the steps take their time.
        max_late: End the run once it is certain that more requests than this miss their deadlines, whoever comes later.
            The arrivals must come together, and `Simulation.arrivals` has only those that came.
    """
    began = time.perf_counter()
    stopped = False
    collecting = gc.isenabled()
    gc.disable()  # the engine makes no reference cycles; a search of millions of requests takes an eighth of the time
    try:
        opens = open_from(cell_models)
        known = dict(times) if isinstance(times, Mapping) else [dict(own) for own in times]
        stage = None if preprocessor is None else Stage(preprocessor, sizes)
        if isinstance(arrivals, Arrivals):
            arrivals = arrivals if stage is None else stage.whole(arrivals)
            if max_late is None:
                outcome = run(policy, arrivals, known, workers, record, opens, drop_late)
            else:
                watched = _Watched(arrivals, max_late)
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
    """Arrivals that end once more than `max_late` of them are late."""

    def __init__(self, arrivals: Arrivals, max_late: int) -> None:
        self._arrivals, self._max_late = arrivals, max_late
        self._count = len(arrivals.arrival)
        self.stopped = False

    def blocks(self, outcome: Outcome) -> Iterator[Arrivals]:
        arrival, ready, deadline = self._arrivals.arrays()
        deadline = deadline + 1e-9  # latencies, which are compared with the SLO, are rounded in another way
        last = float(arrival.max(initial=0.0))
        late = judged = 0  # of the first `judged` requests it is known whether they are late
        for start in range(0, len(arrival), BLOCK):
            yield _part(self._arrivals, start, start + BLOCK)
            came = min(start + BLOCK, len(arrival))
            now = min(float(ready[came - 1]), last)  # a request after the last one changes nothing before it
            open_at = np.flatnonzero(deadline[judged:came] >= now)
            until = judged + int(open_at[0]) if len(open_at) else came
            finished = np.array(outcome.finished[judged:until])
            late += int(np.sum((finished < 0.0) | (finished > deadline[judged:until])))
            judged = until
            if late > self._max_late:
                self.stopped, self._count = True, came
                return

    def came(self, outcome: Outcome) -> Arrivals:
        """Return the requests that came, and cut `outcome` down to them."""
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
