"""A Perfetto trace of live runs: one track per CU and per worker, one flow per request from its CU to its tasks."""

from collections.abc import Iterable
from pathlib import Path

from headrace.host.demo.serving import Run
from headrace.host.live.trace import Lanes, name_of
from headrace.sim.trace import Slice, write


def write_trace(path: Path, runs: Iterable[Run]) -> None:
    slices: list[Slice] = []
    flow_of_run = 0
    for run in runs:
        lanes = Lanes()
        for record in run.records:
            if record.preprocessed is None:
                continue
            pre = record.preprocessed
            track = (run.name, lanes.of(pre.unit, pre.started, pre.finished))
            name = f"request {record.number}: {record.input}"
            slices.append(Slice(track, pre.started, pre.finished, name, [flow_of_run + record.number]))
        numbers = {record.request_id: record.number for record in run.records if record.request_id is not None}
        for execution in run.executions:
            track = (run.name, f"worker {execution.worker}")
            flows = [flow_of_run + numbers[r.id] for r in execution.task.requests if r.id in numbers]
            name = name_of(execution, several=len(run.result["models"]) > 1)
            slices.append(Slice(track, run.origin + execution.started, run.origin + execution.ended, name, flows))
        flow_of_run += len(run.records)
    write(path, slices)
