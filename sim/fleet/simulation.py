"""Simulate a fleet, as `simulate` does for one server."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.policy import Policy
from headrace.batching.results import PreprocessTotals, summarize
from headrace.sim.engine import Arrivals
from headrace.sim.fleet.run import FleetRun
from headrace.sim.fleet.settings import Fleet
from headrace.sim.preprocessing import Preprocessor, Sizes, input_lengths
from headrace.sim.simulation import Simulation, open_from


def simulate_fleet(
    fleet: Fleet,
    new_policy: Callable[[], Policy],
    arrivals: Arrivals | Iterator[Arrivals],
    times: Mapping[str, NodeTimes] | Sequence[Mapping[str, NodeTimes]],
    workers: int,
    *,
    seed: int = 0,
    busy_power_w: float | None = None,
    cell_models: Mapping[str, CellModel] | None = None,
    preprocessor: Preprocessor | None = None,
    sizes: Sizes = input_lengths,
) -> Simulation:
    """Serve all arrivals with servers that have a new policy, workers and a preprocessor each.

    No request is kept, so mean and maximum are exact and percentiles are within 0.3 %, as for arrivals in blocks.
    Requests that are ready at one instant are taken in the order of arrival.

    Args:
        fleet: The servers, the router, failures and scaling.
        new_policy: Returns a new policy for each server.
        arrivals: All requests together, or blocks of them.
        times: Node latencies by model, one mapping for all workers or one for each worker of a server.
        workers: The workers of each server.
        seed: The router, the network and failures draw from it.
        busy_power_w: The power of a busy worker.
        cell_models: The networks of cells by model, for a policy whose tasks are of cells.
        preprocessor: The steps of preprocessing that each server has.
        sizes: Returns the size of each request, by which the steps take their time.

    Returns:
        The run. Its key `fleet` has the number of `servers`, the `router`, `failures`, how often requests were
            `rerouted`, and `server_hours`. These are the hours of servers that start, serve or finish their requests,
            from the first arrival to the last end. `utilization` is that of all servers over the whole run, whether
            they were up or not. `preprocess_ms` counts from the router.

    Raises:
        UsageError: A step of preprocessing has no valid time for a request.
    """
    began = time.perf_counter()
    known = dict(times) if isinstance(times, Mapping) else [dict(own) for own in times]
    steps = () if preprocessor is None else preprocessor.steps

    def seconds(block: Arrivals) -> list[list[float]]:
        if not steps:
            return []
        sized = sizes(block)
        by_step = [np.asarray(step.service_s(sized), dtype=np.float64) for step in steps]
        for step, taken in zip(steps, by_step, strict=True):
            if taken.shape != sized.shape or not (np.isfinite(taken).all() and (taken >= 0).all()):
                raise UsageError(f"preprocessing step {step.name!r} must take a time of 0 s or more for each request")
        return [taken.tolist() for taken in by_step]

    run = FleetRun(
        fleet,
        new_policy,
        known,
        workers,
        seed,
        open_from(cell_models),
        0.0 if preprocessor is None else preprocessor.delay_s,
        [step.servers for step in steps],
        seconds,
    )
    collecting = gc.isenabled()
    gc.disable()
    try:
        run.run(iter([arrivals]) if isinstance(arrivals, Arrivals) else arrivals)
    finally:
        if collecting:
            gc.enable()
    outcome = run.tally
    outcome.ledger.check()
    totals = outcome.totals()
    span_s = totals.span_s
    preprocess = None
    if preprocessor is not None:
        busy = zip(steps, run.step_busy_s, strict=True)
        preprocess = PreprocessTotals(
            run.ready_after.percentiles_ms(),
            {step.name: used / (fleet.servers * step.servers * span_s) if span_s > 0 else None for step, used in busy},
        )
    result = summarize(
        totals,
        outcome.ledger,
        batch_size_mean=outcome.request_node_runs / outcome.node_runs if outcome.node_runs else None,
        busy_s=outcome.busy_s,
        workers=workers * fleet.servers,
        wall_s=time.perf_counter() - began,
        seed=seed,
        energy_j=None if busy_power_w is None else busy_power_w * outcome.busy_s,
        preprocess=preprocess,
    )
    result["fleet"] = {
        "servers": fleet.servers,
        "router": fleet.router,
        "failures": run.failures,
        "rerouted": run.rerouted,
        "server_hours": run.on_s / 3600,
    }
    return Simulation(result, Arrivals([], [], [], [], []), outcome)
