"""Compare a finished check with the slice model of today: measured numbers stay, and expected ones are made again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.host.validation.plan import Row, row_of
from headrace.host.validation.prediction import model_of, predicted_s

CAPTURED: Final = "as one CUDA graph"
LAUNCHED: Final = "latency"


def predicted_again(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a gpu_check.json in which the part `profiles` is compared with today's slice model.

    Nothing changes in other parts, which no slice model predicts, nor where the GPU has no model."""
    gpu = model_of(str(found["device"].get("name") or ""))
    part = found["parts"].get("profiles")
    if gpu is None or part is None:
        return dict(found)

    def again(row: Row) -> Row:
        details = row.details
        if row.quantity not in (CAPTURED, LAUNCHED) or not details:
            return row
        seconds = predicted_s(
            gpu, details["network"], details["precision"], details["batch"], captured=row.quantity == CAPTURED
        )
        return replace(row, expected=seconds and 1e3 * seconds)

    rows = [again(row_of(values)).to_dict() for values in part["rows"]]
    return {**found, "parts": {**found["parts"], "profiles": {**part, "rows": rows}}}
