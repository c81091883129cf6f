"""Traces of arrivals, to be served again as they were, or in part, or faster."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from headrace.batching.errors import UsageError
from headrace.sim.engine import Arrivals
from headrace.sim.load.lengths import Corpus
from headrace.sim.load.table import read_rows
from headrace.sim.load.traffic import check_sla

TRACE_COLUMNS = ("arrival_s", "model", "input_len", "output_len")


def read_trace(path: Path, models: Sequence[str], sla_s: float) -> Arrivals:
    """A CSV file with the header arrival_s,model,input_len,output_len. Raises UsageError that names file and line."""
    check_sla(sla_s)
    arrival: list[float] = []
    names: list[str] = []
    inputs: list[float] = []
    outputs: list[int] = []
    for where, row in read_rows(path, TRACE_COLUMNS):
        try:
            time, model = float(row["arrival_s"]), row["model"]
            input_len, output_len = float(row["input_len"]), int(row["output_len"])
        except (TypeError, ValueError) as error:
            raise UsageError(f"{where}: {error}; give arrival_s,model,input_len,output_len") from error
        if model not in models:
            raise UsageError(f"{where}: model {model!r} is not served; this run serves {', '.join(models)}")
        if not (math.isfinite(time) and time >= (arrival[-1] if arrival else 0.0)):
            raise UsageError(f"{where}: arrival_s is {time}; times must be 0 or more and in rising order")
        if not (0 < input_len <= 1e6 and 1 <= output_len <= 1_000_000):
            raise UsageError(f"{where}: lengths of {input_len} and {output_len}; give 1 to 1000000")
        arrival.append(time)
        names.append(model)
        inputs.append(input_len)
        outputs.append(output_len)
    if not arrival:
        raise UsageError(f"{path} has no requests")
    return Arrivals(names, arrival, [time + sla_s for time in arrival], inputs, outputs)


def every(arrivals: Arrivals, n: int, first: int) -> Arrivals:
    """Each `n`-th, from number `first` on: what one of `n` equal servers gets that take turns. All `first` below `n`
    together are the whole again. Raises UsageError if there is none."""
    part = slice(first, None, n)
    if not arrivals.arrival[part]:
        raise UsageError(f"--replay-every {n}: there are only {len(arrivals.arrival)} requests")
    return Arrivals(
        arrivals.models[part], arrivals.arrival[part], arrivals.deadline[part], arrivals.input_len[part],
        arrivals.output_len[part],
    )  # fmt: skip


def faster(arrivals: Arrivals, speed: float, sla_s: float) -> Arrivals:
    """The same requests `speed` times as fast one upon another."""
    arrival = [time / speed for time in arrivals.arrival]
    return Arrivals(
        arrivals.models, arrival, [time + sla_s for time in arrival], arrivals.input_len, arrivals.output_len
    )


def mean_rps(arrivals: Arrivals) -> float:
    """Requests/s from the first to the last. Raises UsageError for arrivals that take no time."""
    span_s = arrivals.arrival[-1] - arrivals.arrival[0]
    if not span_s > 0:
        raise UsageError("all requests of the trace arrive at one time; give one that lasts")
    return (len(arrivals.arrival) - 1) / span_s


def counts(arrivals: Arrivals) -> Mapping[str, int]:
    """Requests by model."""
    return Counter(arrivals.models)


def lengths_of(arrivals: Arrivals) -> dict[str, Corpus]:
    """The lengths that its requests have, by model."""
    models = np.array(arrivals.models)
    inputs, outputs = np.array(arrivals.input_len), np.array(arrivals.output_len)
    return {str(name): Corpus(inputs[models == name], outputs[models == name]) for name in np.unique(models)}
