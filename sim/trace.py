"""Write Perfetto traces: slices on named tracks, tied together by flows.

Open a file at https://ui.perfetto.dev, or with the trace processor of the `perfetto` package.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

from headrace.sim.engine import Arrivals, Outcome

SEQUENCE = 1  # all packets come from one writer


@dataclass(frozen=True, slots=True)
class Slice:
    """An event that lasts from `start` to `end` (s) on the track at the path `track`. `flows` are the numbers of its
    requests."""

    track: tuple[str, ...]
    start: float
    end: float
    name: str
    flows: Sequence[int] = ()


def write(path: Path, slices: Iterable[Slice]) -> None:
    """Write slices to a file. Slices of one track must not overlap. Time counts from the first slice."""
    # Only a run with a trace loads these modules.
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    builder = TraceProtoBuilder()
    uuids: dict[tuple[str, ...], int] = {}

    def uuid(track: tuple[str, ...]) -> int:
        if track not in uuids:
            parent = uuid(track[:-1]) if len(track) > 1 else None
            uuids[track] = len(uuids) + 1
            packet = builder.add_packet()
            packet.trusted_packet_sequence_id = SEQUENCE
            packet.track_descriptor.uuid = uuids[track]
            packet.track_descriptor.name = track[-1]
            if parent is not None:
                packet.track_descriptor.parent_uuid = parent
        return uuids[track]

    events = []  # (time, 0 for an end and 1 for a start, track, slice); so ends come first
    for each in slices:
        track = uuid(each.track)
        events.append((each.start, 1, track, each))
        events.append((each.end, 0, track, each))
    first = min((event[0] for event in events), default=0.0)
    for at, starts, track, each in sorted(events, key=lambda event: event[:2]):
        packet = builder.add_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.timestamp = round((at - first) * 1e9)
        packet.track_event.track_uuid = track
        packet.track_event.type = TrackEvent.TYPE_SLICE_BEGIN if starts else TrackEvent.TYPE_SLICE_END
        if starts:
            packet.track_event.name = each.name
            packet.track_event.flow_ids.extend(flow + 1 for flow in each.flows)  # a flow id of 0 means none
    path.write_bytes(builder.serialize())


def of_simulation(arrivals: Arrivals, outcome: Outcome) -> list[Slice]:
    """Return one track for each worker, with one slice for each task.

    The flow of a request ties its tasks together, and its preprocessing to them. Each request that is preprocessed has
    a slice from its arrival until it is ready. There are as many of these tracks as requests are preprocessed at once.
    """
    return [
        *(_preprocessing(arrivals) if arrivals.preprocessed else ()),
        *_tasks(outcome),
    ]


def _preprocessing(arrivals: Arrivals) -> list[Slice]:
    slices = []
    tracks: list[tuple[float, int]] = []  # the time at which each track is free, and its number
    for number in sorted(range(len(arrivals.arrival)), key=lambda number: arrivals.arrival[number]):
        start, end = arrivals.arrival[number], arrivals.ready[number]
        if start == end:
            continue  # there is nothing to draw
        track = len(tracks)
        if tracks and tracks[0][0] <= start:
            _, track = heappop(tracks)
        heappush(tracks, (end, track))
        slices.append(Slice(("preprocessing", str(track)), start, end, arrivals.models[number], [number]))
    return slices


def _tasks(outcome: Outcome) -> list[Slice]:
    return [
        Slice(
            (f"worker {ran.worker}",),
            ran.started,
            ran.ended,
            f"{ran.task.model}: batch of {ran.task.batch_size} ({ran.task.reason}), "
            f"nodes {ran.task.start} to {ran.task.stop}",
            [request.id for request in ran.task.requests],
        )
        for ran in outcome.ran
    ]
