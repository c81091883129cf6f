"""A Perfetto trace of live runs: one track per CU and per worker, one flow per request from its CU to its tasks."""

from collections.abc import Iterable
from pathlib import Path

from headrace.host.demo.serving import Run
from headrace.sim.trace import Slice, write


def write_trace(path: Path, runs: Iterable[Run]) -> None:
    slices: list[Slice] = []
    flow_of_run = 0
    for run in runs:
        lanes: dict[str, list[float]] = {}
        for record in run.records:
            if record.preprocessed is None:
                continue
            pre = record.preprocessed
            lane = _free_lane(lanes.setdefault(pre.unit, []), pre.started, pre.finished)
            # A CU does one request at a time, so it has one lane; the CPU's threads overlap.
            track = (run.name, pre.unit if lane == 0 else f"{pre.unit} ({lane + 1})")
            name = f"request {record.number}: {record.input}"
            slices.append(Slice(track, pre.started, pre.finished, name, [flow_of_run + record.number]))
        numbers = {record.request_id: record.number for record in run.records if record.request_id is not None}
        for execution in run.executions:
            track = (run.name, f"worker {execution.worker}")
            flows = [flow_of_run + numbers[r.id] for r in execution.task.requests if r.id in numbers]
            name = f"batch of {execution.task.batch_size}, {execution.task.reason}"
            if len(run.result["models"]) > 1:
                name = f"{execution.task.model}: {name}"
            if execution.error:
                name = f"{name}: {execution.error}"
            slices.append(Slice(track, run.origin + execution.started, run.origin + execution.ended, name, flows))
        flow_of_run += len(run.records)
    write(path, slices)


def _free_lane(lanes: list[float], started: float, finished: float) -> int:
    """The first lane whose last slice ended by `started`; `lanes` holds each lane's last end."""
    for lane, end in enumerate(lanes):
        if end <= started:
            lanes[lane] = finished
            return lane
    lanes.append(finished)
    return len(lanes) - 1
