"""Compare a finished check with the slice model of today: measured numbers stay, and expected ones are made again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.host.validation.plan import CAPTURED, LAUNCHED, Row, row_of
from headrace.host.validation.prediction import expected_ms, model_of


def predicted_again(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a gpu_check.json in which the part `profiles` is compared with today's slice model.

    Nothing changes in other parts, which no slice model predicts, nor where the GPU has no model."""
    product = str(found["device"].get("name") or "")
    part = found["parts"].get("profiles")
    if model_of(product) is None or part is None:
        return dict(found)

    def again(row: Row) -> Row:
        details = row.details
        if row.quantity not in (CAPTURED, LAUNCHED) or not details:
            return row
        of, captured = (details["network"], details["precision"], details["batch"]), row.quantity == CAPTURED
        return replace(row, expected=expected_ms(product, *of, captured=captured))

    rows = [again(row_of(values)).to_dict() for values in part["rows"]]
    return {**found, "parts": {**found["parts"], "profiles": {**part, "rows": rows}}}
