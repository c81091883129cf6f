"""One simulated run: a policy, arrivals and hardware in, the result keys of every Headrace run out."""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.policy import Policy
from headrace.batching.request import Request
from headrace.batching.results import ServedTimes, summarize
from headrace.sim.engine import Arrivals, Outcome, run


@dataclass(frozen=True, slots=True)
class Simulation:
    """`result` has the result keys; `outcome` the requests' times and, if recorded, every task."""

    result: dict[str, object]
    arrivals: Arrivals
    outcome: Outcome

    def latencies(self) -> NDArray[np.float64]:
        """Seconds from arrival to end of each request that was served, in order of arrival."""
        finished = np.array(self.outcome.finished)
        latencies: NDArray[np.float64] = (finished - self.arrivals.arrays()[0])[finished >= 0.0]
        return latencies


def simulate(
    policy: Policy,
    arrivals: Arrivals,
    times: Mapping[str, NodeTimes],
    workers: int,
    *,
    seed: int | None = None,
    record: bool = False,
    busy_power_w: float | None = None,
    cell_models: Mapping[str, CellModel] | None = None,
    drop_late: bool = False,
) -> Simulation:
    """Serve all arrivals with `workers` equal workers, whose node latencies of each model are `times`.

    `record` keeps every task in `Simulation.outcome.ran`. `seed` is only reported. With `busy_power_w`, what a busy
    worker draws, the result has the energy of all of them. `cell_models` are for a policy with tasks of cells. With
    `drop_late`, a request that has not begun when its deadline comes is dropped then."""
    began = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()  # the engine makes no cycles, and searching millions of requests for them costs an eighth of the time
    try:
        outcome = run(policy, arrivals, dict(times), workers, record, _open_from(cell_models), drop_late)
    finally:
        if collecting:
            gc.enable()
    arrival, deadline = arrivals.arrays()
    started, finished = np.array(outcome.started), np.array(outcome.finished)
    outcome.ledger.check()
    if outcome.ledger.dropped:
        served = finished >= 0.0
        arrival, deadline, started, finished = arrival[served], deadline[served], started[served], finished[served]
    result = summarize(
        ServedTimes(arrival, arrival, started, finished, deadline),
        outcome.ledger,
        batch_size_mean=outcome.request_node_runs / outcome.node_runs if outcome.node_runs else None,
        busy_s=outcome.busy_s,
        workers=workers,
        wall_s=time.perf_counter() - began,
        seed=seed,
        energy_j=None if busy_power_w is None else busy_power_w * outcome.busy_s,
    )
    return Simulation(result, arrivals, outcome)


def _open_from(models: Mapping[str, CellModel] | None) -> Callable[[Request], int] | None:
    if models is None:
        return None
    return lambda request: models[request.model].unfold(request).open_from
