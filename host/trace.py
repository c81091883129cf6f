"""A Perfetto trace of live runs: one track per CU and per worker, one flow per request from its CU to its task.

Open the file at https://ui.perfetto.dev or with the `perfetto` package's trace processor.
"""

from collections.abc import Iterable
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from headrace.host.run import Run

SEQUENCE = 1  # all packets come from one writer


class _Tracks:
    """Track descriptors, made when first named."""

    def __init__(self, builder: TraceProtoBuilder) -> None:
        self._builder = builder
        self._uuids: dict[tuple[str, ...], int] = {}

    def uuid(self, *path: str) -> int:
        """The track at `path`, such as ("dpu + preba", "image_cu_1")."""
        if path not in self._uuids:
            parent = self.uuid(*path[:-1]) if len(path) > 1 else None
            self._uuids[path] = len(self._uuids) + 1
            packet = self._builder.add_packet()
            packet.trusted_packet_sequence_id = SEQUENCE
            packet.track_descriptor.uuid = self._uuids[path]
            packet.track_descriptor.name = path[-1]
            if parent is not None:
                packet.track_descriptor.parent_uuid = parent
        return self._uuids[path]


def write_trace(path: Path, runs: Iterable[Run]) -> None:
    builder = TraceProtoBuilder()
    tracks = _Tracks(builder)
    events = []  # (time in s, 1 for a start, track, name, flow ids)
    flow_of_run = 0
    for run in runs:
        lanes: dict[str, list[float]] = {}
        for record in run.records:
            if record.preprocessed is None:
                continue
            pre = record.preprocessed
            lane = _free_lane(lanes.setdefault(pre.unit, []), pre.started, pre.finished)
            # A CU does one request at a time, so it has one lane; the CPU's threads overlap.
            track = tracks.uuid(run.name, pre.unit if lane == 0 else f"{pre.unit} ({lane + 1})")
            flow = [flow_of_run + record.number]
            events.append((pre.started, 1, track, f"request {record.number}: {record.photo}", flow))
            events.append((pre.finished, 0, track, "", []))
        numbers = {record.request_id: record.number for record in run.records if record.request_id is not None}
        for execution in run.executions:
            track = tracks.uuid(run.name, f"worker {execution.worker}")
            flows = [flow_of_run + numbers[r.id] for r in execution.task.requests if r.id in numbers]
            name = f"batch of {execution.task.batch_size}" + (f": {execution.error}" if execution.error else "")
            events.append((run.origin + execution.started, 1, track, name, flows))
            events.append((run.origin + execution.finished, 0, track, "", []))
        flow_of_run += len(run.records)
    first = min((event[0] for event in events), default=0.0)
    for at, starts, track, name, flows in sorted(events, key=lambda event: event[:2]):  # ends before starts
        packet = builder.add_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.timestamp = round((at - first) * 1e9)
        packet.track_event.track_uuid = track
        packet.track_event.type = TrackEvent.TYPE_SLICE_BEGIN if starts else TrackEvent.TYPE_SLICE_END
        if starts:
            packet.track_event.name = name
            packet.track_event.flow_ids.extend(flow + 1 for flow in flows)  # a flow id of 0 means none
    path.write_bytes(builder.serialize())


def _free_lane(lanes: list[float], started: float, finished: float) -> int:
    """The first lane whose last slice ended by `started`; `lanes` holds each lane's last end."""
    for lane, end in enumerate(lanes):
        if end <= started:
            lanes[lane] = finished
            return lane
    lanes.append(finished)
    return len(lanes) - 1
