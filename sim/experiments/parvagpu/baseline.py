"""ParvaGPU's two stages, from the paper's description and from the results of its artifact.

The Segment Configurator takes for each network the triplet (slice, batch, processes) with the greatest throughput a GPC
whose batches end within LATENCY_SHARE of the SLO. It takes the triplet as often as its whole throughput is needed. The
rest of the rate gets the smallest slice that serves it, with the best triplet of that slice.

The Segment Allocator puts all segments, the largest first, on the fullest GPU that they fit. Then it empties the GPUs
that are little used, from the last on. Their segments become ones of one and two GPCs and fill the gaps of the others.

With at most MAX_PROCS processes this gives all six published deployments, segment by segment. With the three processes
that the artifact's sources name, the sixth would take 17 GPUs, not 16: the deployments were made with all measurements.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.batching.errors import UsageError
from headrace.sim.experiments.parvagpu.published import GPCS, Demand, Profiles, Segment

LATENCY_SHARE = 0.45  # half of the SLO is for the batch and half for waiting, and a tenth of the first for safety
MAX_PROCS = 5
LITTLE_USED = 4  # a GPU with at most so many GPCs in use is little used
# The places at which a segment may begin, by its GPCs, in the order in which they are tried.
_PLACES = {7: (0,), 4: (0,), 3: (4,), 2: (0, 4, 2), 1: (0, 6, 4, 1, 2, 3, 5)}


def fastest(segments: Sequence[Segment], latency_s: float) -> dict[int, Segment]:
    """Return by GPCs the segment with the greatest throughput whose batches take less than `latency_s`.

    Latencies are rounded to whole milliseconds, as the artifact has them."""
    best_of: dict[int, Segment] = {}
    for segment in segments:
        if round(segment.latency_s, 3) < latency_s:
            best = best_of.get(segment.gpcs)
            if best is None or segment.throughput_rps > best.throughput_rps:
                best_of[segment.gpcs] = segment
    return best_of


@dataclass(frozen=True, slots=True)
class _Service:
    by_gpcs: Mapping[int, Segment]
    best: Segment
    last: Segment
    count: int  # how many times `best` is needed


def _configured(wanted: Demand, segments: Sequence[Segment]) -> _Service:
    """Return the segments of a network. Raises UsageError if none is fast enough."""
    # Its program reads the SLO as whole milliseconds.
    latency_s = LATENCY_SHARE * math.floor(1e3 * wanted.slo_s) / 1e3
    by_gpcs = fastest([segment for segment in segments if segment.procs <= MAX_PROCS], latency_s)
    if not by_gpcs:
        raise UsageError(f"no slice runs a batch of {wanted.model} in {1e3 * latency_s:g} ms: allow more")
    best = max(by_gpcs.values(), key=lambda segment: segment.throughput_rps / segment.gpcs)
    count = math.ceil(wanted.rate_rps / best.throughput_rps) - 1
    rest = wanted.rate_rps - count * best.throughput_rps
    last = next(segment for _, segment in sorted(by_gpcs.items()) if segment.throughput_rps >= rest)
    return _Service(by_gpcs, best, last, count)


class _Fleet:
    """GPUs with segments by the GPC at which they begin. There are as many as are needed, the empty ones last."""

    def __init__(self) -> None:
        self.gpus: list[dict[int, Segment]] = []

    def put(self, segments: Sequence[Segment]) -> None:
        for segment in sorted(segments, key=lambda each: -each.gpcs):
            fitting = [gpu for gpu in self.gpus if self._fits(gpu, segment.gpcs)]
            if not fitting:
                self.gpus.append({})
                fitting = self.gpus[-1:]
            gpu = max(fitting, key=used)
            gpu[next(place for place in _PLACES[segment.gpcs] if place not in gpu)] = segment

    @staticmethod
    def _fits(gpu: Mapping[int, Segment], gpcs: int) -> bool:
        if used(gpu) + gpcs > GPCS:
            return False
        threes = [place for place, segment in gpu.items() if segment.gpcs == 3]
        return not (gpcs == 3 and 4 in threes) and not (gpcs == 1 and len(threes) == 2)


def used(gpu: Mapping[int, Segment]) -> int:
    """Return the GPCs in use."""
    return sum(segment.gpcs for segment in gpu.values())


def allocated(wanted: Sequence[Demand], profiles: Profiles) -> tuple[tuple[Segment, ...], ...]:
    """Return the segments of each GPU. Raises UsageError if a network has no segment that is fast enough."""
    services = {each.model: _configured(each, profiles[each.model]) for each in wanted}
    fleet = _Fleet()
    fleet.put([segment for s in services.values() for segment in (*[s.best] * s.count, s.last)])
    owed = dict.fromkeys(services, 0.0)  # the rate of the segments that were taken off GPUs, by network
    for gpu in reversed(list(fleet.gpus)):
        if used(gpu) > LITTLE_USED:
            continue
        for place in range(GPCS):
            segment = gpu.pop(place, None)
            if segment is not None:
                smaller, owed[segment.model] = _split(services[segment.model], segment, owed[segment.model])
                fleet.put(smaller)
    return tuple(tuple(gpu.values()) for gpu in fleet.gpus if gpu)


def _split(service: _Service, segment: Segment, owed_rps: float) -> tuple[list[Segment], float]:
    """Return segments of two GPCs and of one for a segment's rate and `owed_rps`, and the rate that is owed then.

    It is below zero where the new segments do more."""
    # The rate that the allocator assumes for the segment. It gives the published deployments.
    owed_rps += (service.best if segment.gpcs == service.best.gpcs else service.last).throughput_rps
    one, two = service.by_gpcs.get(1), service.by_gpcs.get(2)
    smaller: list[Segment] = []
    if two is not None and (one is None or two.throughput_rps / 2 > one.throughput_rps):
        count = (math.ceil if one is None else math.floor)(owed_rps / two.throughput_rps)
        smaller += [two] * count
        owed_rps -= max(0, count) * two.throughput_rps
    if one is not None:
        count = math.ceil(owed_rps / one.throughput_rps)
        smaller += [one] * count
        owed_rps -= max(0, count) * one.throughput_rps
    return smaller, owed_rps
