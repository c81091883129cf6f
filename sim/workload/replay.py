"""Traces of arrivals, which a run serves again as they were, in part, or faster."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np

from headrace.batching.errors import UsageError
from headrace.sim.engine import Arrivals
from headrace.sim.text_files import header, read_rows
from headrace.sim.workload.lengths import Corpus
from headrace.sim.workload.traffic import check_slo

UNITS = {
    f"arrival_{unit}": Decimal(size) for unit, size in (("s", "1"), ("ms", "1e-3"), ("us", "1e-6"), ("ns", "1e-9"))
}
TRACE_COLUMNS = (tuple(UNITS), "model", "input_len", "output_len")
# Seconds. A trace that begins later than EPOCH counts from 1970. If it begins later than LATEST, the year 2100, its
# unit must be another.
EPOCH, LATEST = Decimal(10**8), Decimal(4_102_444_800)


def read_trace(path: Path, models: Sequence[str], slo_s: float) -> Arrivals:
    """Read a CSV file with the header arrival_s,model,input_len,output_len, or arrival_ms, arrival_us or arrival_ns.

    Times that count from 1970 are counted from the first arrival, without rounding before. Raises UsageError that names
    file and line."""
    check_slo(slo_s)
    origin: Decimal | None = None
    arrival: list[float] = []
    names: list[str] = []
    inputs: list[float] = []
    outputs: list[int] = []
    for where, row in read_rows(path, TRACE_COLUMNS):
        try:
            unit = next(name for name in UNITS if name in row)
            exact = _seconds(row[unit], unit)
            model, input_len, output_len = row["model"], float(row["input_len"]), int(row["output_len"])
        except (TypeError, ValueError) as error:
            raise UsageError(f"{where}: {error}; give {header(TRACE_COLUMNS)}") from error
        if origin is None:
            origin = _origin(where, unit, exact)
        time = float(exact - origin)
        if model not in models:
            raise UsageError(f"{where}: model {model!r} is not served; this run serves {', '.join(models)}")
        if not (math.isfinite(time) and time >= (arrival[-1] if arrival else 0.0)):
            raise UsageError(f"{where}: {unit} is {row[unit]}; times must be 0 or more and in rising order")
        if not (0 < input_len <= 1e6 and 1 <= output_len <= 1_000_000):
            raise UsageError(f"{where}: lengths of {input_len} and {output_len}; give 1 to 1000000")
        arrival.append(time)
        names.append(model)
        inputs.append(input_len)
        outputs.append(output_len)
    if not arrival:
        raise UsageError(f"{path} has no requests")
    return Arrivals(names, arrival, [time + slo_s for time in arrival], inputs, outputs)


def _seconds(text: str, unit: str) -> Decimal:
    """Return the time in seconds, exactly. Raises ValueError."""
    try:
        seconds = Decimal(text) * UNITS[unit]
    except ArithmeticError:
        seconds = Decimal("nan")
    if not seconds.is_finite():
        raise ValueError(f"{unit} is {text[:40]}, which is no number")
    return seconds


def _origin(where: str, unit: str, first: Decimal) -> Decimal:
    """Return the time that the trace counts from, by its first arrival. Raises UsageError."""
    if first < EPOCH:
        return Decimal(0)
    if first > LATEST:
        likely = [name for name, size in UNITS.items() if EPOCH < first / UNITS[unit] * size < LATEST]
        way = f"; name the column {likely[0]} if it is a clock's time in that unit" if likely else ""
        raise UsageError(f"{where}: {unit} begins beyond the year 2100{way}")
    return first


def every(arrivals: Arrivals, n: int, first: int) -> Arrivals:
    """Return each `n`-th request, from number `first` on: the part that one of `n` equal servers gets when they take
    turns.

    The parts of all `first` below `n` together are the whole trace. Raises UsageError if the part is empty."""
    part = slice(first, None, n)
    if not arrivals.arrival[part]:
        raise UsageError(f"--replay-every {n}: there are only {len(arrivals.arrival)} requests")
    return Arrivals(
        arrivals.models[part],
        arrivals.arrival[part],
        arrivals.deadline[part],
        arrivals.input_len[part],
        arrivals.output_len[part],
    )


def faster(arrivals: Arrivals, speed: float, slo_s: float) -> Arrivals:
    """Return the same requests, `speed` times as fast after one another."""
    arrival = [time / speed for time in arrivals.arrival]
    return Arrivals(
        arrivals.models, arrival, [time + slo_s for time in arrival], arrivals.input_len, arrivals.output_len
    )


def mean_rps(arrivals: Arrivals) -> float:
    """Return the requests/s from the first to the last. Raises UsageError for arrivals that take no time."""
    span_s = arrivals.arrival[-1] - arrivals.arrival[0]
    if not span_s > 0:
        raise UsageError("all requests of the trace arrive at one time; give one that lasts")
    return (len(arrivals.arrival) - 1) / span_s


def counts(arrivals: Arrivals) -> Mapping[str, int]:
    """Return the number of requests by model."""
    return Counter(arrivals.models)


def lengths_of(arrivals: Arrivals) -> dict[str, Corpus]:
    """Return the lengths that the requests have, by model."""
    models = np.array(arrivals.models)
    inputs, outputs = np.array(arrivals.input_len), np.array(arrivals.output_len)
    return {str(name): Corpus(inputs[models == name], outputs[models == name]) for name in np.unique(models)}
