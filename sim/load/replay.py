"""Traces of arrivals, to be served again as they were."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from headrace.batching.errors import UsageError
from headrace.sim.engine import Arrivals
from headrace.sim.load.traffic import check_sla

TRACE_COLUMNS = ("arrival_s", "model", "input_len", "output_len")


def read_trace(path: Path, models: Sequence[str], sla_s: float) -> Arrivals:
    """A CSV file with the header arrival_s,model,input_len,output_len. Raises UsageError that names file and line."""
    check_sla(sla_s)
    arrival: list[float] = []
    names: list[str] = []
    inputs: list[float] = []
    outputs: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file, strict=True)
            missing = [column for column in TRACE_COLUMNS if column not in (rows.fieldnames or ())]
            if missing:
                raise UsageError(f"{path}: the header lacks {', '.join(missing)}; it must be {','.join(TRACE_COLUMNS)}")
            for row in rows:
                where = f"{path}, line {rows.line_num}"
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
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}") from error
    if not arrival:
        raise UsageError(f"{path} has no requests")
    return Arrivals(names, arrival, [time + sla_s for time in arrival], inputs, outputs)
