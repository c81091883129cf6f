"""ParvaGPU's two stages, again, from the paper's description and what its artifact's results show.

Segment Configurator: of each network, the triplet (slice, batch, processes) of the greatest throughput a GPC whose
batches end within LATENCY_SHARE of the SLO, as often as its whole throughput is needed; the rest of the rate gets the
smallest slice that serves it, with the best triplet of that slice.

Segment Allocator: all segments, the largest first, each on the fullest GPU that it fits. Then the GPUs that are little
used, from the last on, are emptied: their segments become ones of one and two GPCs and fill the gaps of the others.

With at most MOST_PROCS processes this gives all six published deployments, segment by segment. (With the three that the
artifact's sources name the sixth would take 17 GPUs, not 16: the deployments were made with all that was measured.)"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.batching.errors import UsageError
from headrace.sim.experiments.parvagpu.published import GPCS, Profiles, RequestedOutput, Segment

LATENCY_SHARE = 0.45  # half of the SLO for the batch, the other for waiting, and a tenth of that for safety
MAX_PROCS = 5
LITTLE_USED = 4  # GPCs
# By GPCs of a segment: where it may begin, in the order in which places are tried.
_PLACES = {7: (0,), 4: (0,), 3: (4,), 2: (0, 4, 2), 1: (0, 6, 4, 1, 2, 3, 5)}


def fastest(segments: Sequence[Segment], latency_s: float) -> dict[int, Segment]:
    """By GPCs, that of the greatest throughput whose batches take less than `latency_s`, by whole milliseconds, which
    is how the artifact has them."""
    found: dict[int, Segment] = {}
    for segment in segments:
        if round(segment.latency_s, 3) < latency_s:
            best = found.get(segment.gpcs)
            if best is None or segment.throughput_rps > best.throughput_rps:
                found[segment.gpcs] = segment
    return found


@dataclass(frozen=True, slots=True)
class _Service:
    by_gpcs: Mapping[int, Segment]
    best: Segment
    last: Segment
    count: int  # of `best`


def _configured(wanted: RequestedOutput, segments: Sequence[Segment]) -> _Service:
    """Raises UsageError if no segment is fast enough."""
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
    """GPUs: segments by the GPC at which they begin. As many as are needed, the empty ones behind."""

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
    """GPCs."""
    return sum(segment.gpcs for segment in gpu.values())


def allocated(wanted: Sequence[RequestedOutput], profiles: Profiles) -> tuple[tuple[Segment, ...], ...]:
    """The segments of each GPU. Raises UsageError if a network has none that is fast enough."""
    services = {each.model: _configured(each, profiles[each.model]) for each in wanted}
    fleet = _Fleet()
    fleet.put([segment for s in services.values() for segment in (*[s.best] * s.count, s.last)])
    owed = dict.fromkeys(services, 0.0)  # of the rate, by network, of what was taken off GPUs
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
    """Segments of two GPCs and one for its rate and what is `owed_rps` besides, and what is owed then: below zero where
    they do more."""
    # What it is taken to serve, whatever it is: so the deployments have it.
    owed_rps += (service.best if segment.gpcs == service.best.gpcs else service.last).throughput_rps
    one, two = service.by_gpcs.get(1), service.by_gpcs.get(2)
    found: list[Segment] = []
    if two is not None and (one is None or two.throughput_rps / 2 > one.throughput_rps):
        count = (math.ceil if one is None else math.floor)(owed_rps / two.throughput_rps)
        found += [two] * count
        owed_rps -= max(0, count) * two.throughput_rps
    if one is not None:
        count = math.ceil(owed_rps / one.throughput_rps)
        found += [one] * count
        owed_rps -= max(0, count) * one.throughput_rps
    return found, owed_rps
