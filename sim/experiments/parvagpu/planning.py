"""Which segments serve a scenario, and on how many GPUs: by exact packing, and so that nothing is late.

`packed` takes ParvaGPU's own rule for what a segment serves and how fast its batches must be, and packs by a MILP what
its allocator packs greedily. `planned` has the queue simulated instead of taking half of the SLO for it:

1. For each network and size of slice, of the triplets with the greatest throughput at several limits of a batch's
   latency, the one that serves most: as many such segments as the rate needs, Poisson arrivals, a search by halves for
   the greatest load at which nothing takes longer than MARGIN of the SLO.
2. The fewest GPUs on which segments of these do the rates, each segment at MOST_LOAD of its throughput.
3. Every network on its segments, simulated under several seeds. Where something takes longer than that, its segments
   are taken to serve STEP of what they were, and again from 2, until nothing does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from headrace.batching.graphs.profile import Profile
from headrace.sim.experiments.parvagpu.baseline import LATENCY_SHARE, fastest
from headrace.sim.experiments.parvagpu.packing import Gpus, fewest, on_fewest
from headrace.sim.experiments.parvagpu.published import Profiles, RequestedOutput, Segment
from headrace.sim.experiments.parvagpu.serving import POISSON, serve

MARGIN = 0.95
MAX_LOAD = 0.97  # nearer to 1, queues grow for longer than what is simulated
STEP = 0.98
LATENCY_SHARES = (0.9, 0.75, 0.6, LATENCY_SHARE)  # of the SLO, for a batch
HALVINGS = 5  # of the load, 1/32 in the end
SCREENING = 0.1  # of the requests of a trial: most segments that are too few show it in them
SEEDS = (1, 2, 3)  # of what is simulated to plan; what is reported has others


@dataclass(frozen=True, slots=True)
class Effort:
    """Requests of each simulation: to choose triplets, and to try a network on its segments."""

    choosing: int
    trying: int


def packed(wanted: Sequence[RequestedOutput], profiles: Profiles) -> Gpus:
    """By the rule of ParvaGPU's configurator."""
    return on_fewest(
        wanted,
        {each.model: list(fastest(profiles[each.model], LATENCY_SHARE * each.slo_s).values()) for each in wanted},
    )


def least(wanted: Sequence[RequestedOutput], profiles: Profiles) -> int:
    """GPUs with fewer than which no plan by these profiles is in time, however the requests come: it is what the slices
    do, always busy, in whatever batches take no longer than the SLO."""
    most: dict[Segment, float] = {}
    for each in wanted:
        by_gpcs: dict[int, tuple[float, Segment]] = {}
        for segment in profiles[each.model]:
            found = _max_rps(segment.profile, each.slo_s)
            if segment.gpcs not in by_gpcs or by_gpcs[segment.gpcs][0] < found:
                by_gpcs[segment.gpcs] = found, segment
        most |= {segment: found for found, segment in by_gpcs.values()}
    segments = {each.model: [segment for segment in most if segment.model == each.model] for each in wanted}
    return fewest(wanted, segments, lambda segment: most[segment])


def _max_rps(profile: Profile, latency_s: float) -> float:
    """In batches of no more than that, be it between two that were measured."""
    rates = [point.throughput_rps for point in profile.points if point.latency_s <= latency_s]
    for low, high in pairwise(profile.points):
        if low.latency_s <= latency_s < high.latency_s:
            share = (latency_s - low.latency_s) / (high.latency_s - low.latency_s)
            rates.append(profile.workers * (low.batch + share * (high.batch - low.batch)) / latency_s)
    return max(rates, default=0.0)


def _fastest(segments: Sequence[Segment], latency_s: float) -> list[Segment]:
    return list(fastest(segments, latency_s).values())


def planned(wanted: Sequence[RequestedOutput], profiles: Profiles, effort: Effort) -> Gpus:
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
    """The largest first."""
    found = [segment for gpu in gpus for segment in gpu if segment.model == model]
    return tuple(sorted(found, key=lambda segment: -segment.gpcs))


def _late(wanted: Sequence[RequestedOutput], gpus: Gpus, effort: Effort) -> list[str]:
    """The networks of which something is late, by the first runs that show any."""
    for requests, seed in ((round(SCREENING * effort.trying), SEEDS[0]), *((effort.trying, seed) for seed in SEEDS)):
        found = [e.model for e in wanted if not _in_time(e, segments_of(gpus, e.model), requests, seed)]
        if found:
            return found
    return []


@cache
def _chosen(wanted: RequestedOutput, segments: tuple[Segment, ...], effort: Effort) -> list[Segment]:
    """One of each size of slice that can serve it in time."""
    best: dict[int, tuple[float, Segment]] = {}  # by GPCs, with what it serves
    for share in LATENCY_SHARES:  # the greatest throughput first
        for gpcs, segment in fastest(segments, share * wanted.slo_s).items():
            if gpcs not in best or best[gpcs][0] < segment.throughput_rps:
                served = _served_rps(wanted, segment, effort.choosing)
                if served > 0 and (gpcs not in best or best[gpcs][0] < served):
                    best[gpcs] = served, segment
    return [segment for _, segment in best.values()]


def _served_rps(wanted: RequestedOutput, segment: Segment, requests: int) -> float:
    """By one of as many such segments as the rate needs."""
    count = math.ceil(wanted.rate_rps / segment.throughput_rps)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        load = (low + high) / 2
        there = RequestedOutput(wanted.model, load * count * segment.throughput_rps, wanted.slo_s)
        low, high = (load, high) if _in_time(there, (segment,) * count, requests, SEEDS[0]) else (low, load)
    return low * segment.throughput_rps


def _in_time(wanted: RequestedOutput, segments: tuple[Segment, ...], requests: int, seed: int) -> bool:
    return serve(wanted, segments, requests, POISSON, seed).longest_s <= MARGIN * wanted.slo_s
