"""Write a Perfetto trace of live runs.

Each CU and each worker has a track. Each request has a flow from its CU to its tasks.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headrace.bitstreams.whole_file import replacing
from headrace.host.demo.runs.serving import Run
from headrace.host.dpu.preprocessor import CuRun
from headrace.host.live.trace import Lanes, name_of
from headrace.sim.trace import Slice, write


def write_trace(
    path: Path, runs: Iterable[Run], cu_runs: Mapping[str, Iterable[tuple[str, Sequence[CuRun]]]] | None = None
) -> None:
    """Write the trace into `path`.

    `cu_runs` are CU runs before the live runs: the names of inputs with their CU runs, by the title of a group."""
    slices: list[Slice] = []
    for title, inputs in (cu_runs or {}).items():
        lanes = Lanes()
        slices += [
            Slice((title, lanes.of(part.unit, part.started, part.finished)), part.started, part.finished, name)
            for name, parts in inputs
            for part in parts
        ]
    flow_of_run = 0
    for run in runs:
        lanes = Lanes()
        for record in run.records:
            if record.preprocessed is None:
                continue
            pre = record.preprocessed
            name = f"request {record.number}: {record.input}"
            for part in pre.runs or (CuRun(pre.unit, pre.started, pre.finished),):
                track = (run.name, lanes.of(part.unit, part.started, part.finished))
                slices.append(Slice(track, part.started, part.finished, name, [flow_of_run + record.number]))
        numbers = {record.request_id: record.number for record in run.records if record.request_id is not None}
        for execution in run.executions:
            track = (run.name, f"worker {execution.worker}")
            flows = [flow_of_run + numbers[r.id] for r in execution.task.requests if r.id in numbers]
            name = name_of(execution, several=len(run.result["models"]) > 1)
            slices.append(Slice(track, run.origin + execution.started, run.origin + execution.ended, name, flows))
        flow_of_run += len(run.records)
    with replacing(path) as partial:
        write(partial, slices)
