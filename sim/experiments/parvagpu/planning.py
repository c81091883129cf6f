"""Choose the segments that serve a scenario, and the number of GPUs: by exact packing, and so that no request is late.

`packed` takes ParvaGPU's own rule for the rate of a segment and for the latency of its batches. It packs by a MILP,
where ParvaGPU's allocator packs greedily. `planned` simulates the queue instead of reserving half of the SLO for it:

1. For each network and size of slice, take the triplets with the greatest throughput at several limits of a batch's
   latency. Choose the one that serves most. As many such segments as the rate needs serve Poisson arrivals. A search by
   halves finds the greatest load at which no request takes longer than MARGIN of the SLO.
2. Find the fewest GPUs on which such segments do the rates, each segment at MAX_LOAD of its throughput.
3. Simulate every network on its segments under several seeds. Where a request takes longer than that, its segments are
   taken to serve STEP of the rate so far. Repeat from 2 until no request does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from headrace.batching.graphs.profile import Profile
from headrace.sim.experiments.parvagpu.baseline import LATENCY_SHARE, fastest
from headrace.sim.experiments.parvagpu.packing import Gpus, fewest, on_fewest
from headrace.sim.experiments.parvagpu.published import Demand, Profiles, Segment
from headrace.sim.experiments.parvagpu.serving import POISSON, serve

MARGIN = 0.95
MAX_LOAD = 0.97  # closer to 1, queues grow for longer than a simulation
STEP = 0.98
LATENCY_SHARES = (0.9, 0.75, 0.6, LATENCY_SHARE)  # the limits of a batch's latency, as shares of the SLO
HALVINGS = 5  # the last step is 1/32 of the load
SCREENING = 0.1  # the share of a trial's requests that shows most cases of too few segments
SEEDS = (1, 2, 3)  # the seeds of planning; reported runs have others


@dataclass(frozen=True, slots=True)
class Effort:
    """The requests of each simulation: to choose triplets, and to try a network on its segments."""

    choosing: int
    trying: int


def packed(wanted: Sequence[Demand], profiles: Profiles) -> Gpus:
    """Return the segments of each GPU by the rule of ParvaGPU's configurator."""
    return on_fewest(
        wanted,
        {each.model: list(fastest(profiles[each.model], LATENCY_SHARE * each.slo_s).values()) for each in wanted},
    )


def least(wanted: Sequence[Demand], profiles: Profiles) -> int:
    """Return the number of GPUs below which no plan by these profiles is in time, for any arrivals.

    The slices are then always busy, in any batches that take no longer than the SLO."""
    max_rps: dict[Segment, float] = {}
    for each in wanted:
        by_gpcs: dict[int, tuple[float, Segment]] = {}
        for segment in profiles[each.model]:
            found = _max_rps(segment.profile, each.slo_s)
            if segment.gpcs not in by_gpcs or by_gpcs[segment.gpcs][0] < found:
                by_gpcs[segment.gpcs] = found, segment
        max_rps |= {segment: found for found, segment in by_gpcs.values()}
    segments = {each.model: [segment for segment in max_rps if segment.model == each.model] for each in wanted}
    return fewest(wanted, segments, lambda segment: max_rps[segment])


def _max_rps(profile: Profile, latency_s: float) -> float:
    """Return the greatest rate in batches of at most that latency, also between two that were measured."""
    rates = [point.throughput_rps for point in profile.points if point.latency_s <= latency_s]
    for low, high in pairwise(profile.points):
        if low.latency_s <= latency_s < high.latency_s:
            share = (latency_s - low.latency_s) / (high.latency_s - low.latency_s)
            rates.append(profile.workers * (low.batch + share * (high.batch - low.batch)) / latency_s)
    return max(rates, default=0.0)


def _fastest(segments: Sequence[Segment], latency_s: float) -> list[Segment]:
    return list(fastest(segments, latency_s).values())


def planned(wanted: Sequence[Demand], profiles: Profiles, effort: Effort) -> Gpus:
    chosen = {each.model: _chosen(each, profiles[each.model], effort) for each in wanted}
    share = dict.fromkeys(chosen, MAX_LOAD)
    while True:
        gpus = on_fewest(wanted, chosen, lambda segment: share[segment.model] * segment.throughput_rps)
        late = _late(wanted, gpus, effort)
        if not late:
            return gpus
        for model in late:
            share[model] *= STEP


def segments_of(gpus: Gpus, model: str) -> tuple[Segment, ...]:
    """Return the segments of a network, the largest first."""
    segments = [segment for gpu in gpus for segment in gpu if segment.model == model]
    return tuple(sorted(segments, key=lambda segment: -segment.gpcs))


def _late(wanted: Sequence[Demand], gpus: Gpus, effort: Effort) -> list[str]:
    """Return the networks with late requests, by the first runs that show any."""
    for requests, seed in ((round(SCREENING * effort.trying), SEEDS[0]), *((effort.trying, seed) for seed in SEEDS)):
        late = [e.model for e in wanted if not _in_time(e, segments_of(gpus, e.model), requests, seed)]
        if late:
            return late
    return []


@cache
def _chosen(wanted: Demand, segments: tuple[Segment, ...], effort: Effort) -> list[Segment]:
    """Return one segment of each size of slice that can serve the network in time."""
    best: dict[int, tuple[float, Segment]] = {}  # by GPCs, with the rate that the segment serves
    for share in LATENCY_SHARES:  # this order has the greatest throughput first
        for gpcs, segment in fastest(segments, share * wanted.slo_s).items():
            if gpcs not in best or best[gpcs][0] < segment.throughput_rps:
                served = _served_rps(wanted, segment, effort.choosing)
                if served > 0 and (gpcs not in best or best[gpcs][0] < served):
                    best[gpcs] = served, segment
    return [segment for _, segment in best.values()]


def _served_rps(wanted: Demand, segment: Segment, requests: int) -> float:
    """Return the rate that a segment serves, next to as many equal ones as the rate needs."""
    count = math.ceil(wanted.rate_rps / segment.throughput_rps)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        load = (low + high) / 2
        there = Demand(wanted.model, load * count * segment.throughput_rps, wanted.slo_s)
        low, high = (load, high) if _in_time(there, (segment,) * count, requests, SEEDS[0]) else (low, load)
    return low * segment.throughput_rps


def _in_time(wanted: Demand, segments: tuple[Segment, ...], requests: int, seed: int) -> bool:
    return serve(wanted, segments, requests, POISSON, seed).longest_s <= MARGIN * wanted.slo_s
