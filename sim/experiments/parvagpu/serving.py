"""Simulate a network's requests on its segments: all wait in one queue, first come first served.

An idle process takes the waiting requests, up to the batch of its segment (`graph` without a window). Of several idle
ones, one of the largest segment does. Its batch takes the time that was measured with all processes of the segment
busy, though some may be idle, so the simulation is rather too slow. Batches between those measured are interpolated.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.window import BatchLimits, WindowBatching, WindowQueue
from headrace.sim.experiments.parvagpu.published import Demand, Segment
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Fixed
from headrace.sim.workload.traffic import deterministic, generate, poisson

EVEN: Final = "even"
POISSON: Final = "poisson"
ARRIVALS: Final = (EVEN, POISSON)


@dataclass(frozen=True, slots=True)
class Served:
    """The result of a simulation.

    `late` of the `requests` took longer than the SLO, and `late_batches` of the `batches` had one of them."""

    model: str
    requests: int
    late: int
    batches: int
    late_batches: int
    p99_s: float
    longest_s: float


@cache
def serve(wanted: Demand, segments: tuple[Segment, ...], requests: int, arrivals: str, seed: int) -> Served:
    processes = [each for each in sorted(segments, key=lambda one: -one.gpcs) for _ in range(each.procs)]
    batches = tuple(each.batch for each in processes)
    limits = BatchLimits(max(batches), 0.0, batches)
    policy = WindowBatching([WindowQueue(ModelGraph.opaque(wanted.model), limits)])
    times = {id(each.profile): {wanted.model: each.profile.times()} for each in processes}
    rate = wanted.rate_rps
    arrival = deterministic(rate, requests) if arrivals == EVEN else poisson(rate, requests, seed)
    done = simulate(
        policy,
        generate(arrival, {wanted.model: Fixed()}, wanted.slo_s, seed),
        [times[id(each.profile)] for each in processes],
        len(processes),
        seed=seed,
    )
    latencies, finished = done.latencies(), np.array(done.outcome.finished)
    late = latencies > wanted.slo_s
    return Served(
        wanted.model,
        requests,
        int(late.sum()),
        done.outcome.tasks,
        len(np.unique(finished[late])),
        float(np.quantile(latencies, 0.99)),
        float(latencies.max()),
    )
