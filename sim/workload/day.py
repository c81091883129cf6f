"""Read the rates of a day from a file."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.text_files import read_text

HOURS: Final = 24.0
MAX_ROWS: Final = 96  # rows of a quarter of an hour each
RATES: Final = (1e-3, 1e7)  # requests/s


@dataclass(frozen=True, slots=True)
class Interval:
    """A part of the day from hour `start` to hour `end`, with `rates_rps` by model."""

    start: float
    end: float
    rates_rps: Mapping[str, float]

    @property
    def hours(self) -> float:
        return self.end - self.start

    @property
    def rate_rps(self) -> float:
        """Return the rate of all models together."""
        return sum(self.rates_rps.values())

    @property
    def requests(self) -> float:
        return self.rate_rps * self.hours * 3600


def read_day(path: Path, models: Sequence[str]) -> tuple[Interval, ...]:
    """Read a CSV file with the header hour,MODEL[,MODEL...].

    From the hour of a row until the hour of the next row, or 24, each model has the row's rate in requests/s. The first
    hour is 0. Raises UsageError that names file and line."""
    columns = ["hour", *models]
    wanted = ",".join(columns)
    hours: list[float] = []
    rates: list[dict[str, float]] = []
    try:
        rows = csv.DictReader(io.StringIO(read_text(str(path), path), newline=""), strict=True)
        if sorted(rows.fieldnames or ()) != sorted(columns):
            raise UsageError(f"{path}: the header is {','.join(rows.fieldnames or ())!r}; it must be {wanted}")
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            try:
                hour, *values = (float(row[column]) for column in columns)
            except (TypeError, ValueError) as error:
                raise UsageError(f"{where}: {error}; give {wanted}") from error
            if None in row:
                raise UsageError(f"{where}: more values than the header has; give {wanted}")
            if not hours and hour != 0:
                raise UsageError(f"{where}: the first hour is {hour:g}; the day must begin at 0")
            if hours and not hours[-1] < hour < HOURS:
                raise UsageError(f"{where}: hour {hour:g} after {hours[-1]:g}; hours must rise, and be below 24")
            low, high = RATES
            if any(not low <= value <= high for value in values):
                raise UsageError(f"{where}: give rates of {low:g} to {high:g} requests/s")
            if len(hours) == MAX_ROWS:
                raise UsageError(f"{where}: give at most {MAX_ROWS} rows")
            hours.append(hour)
            rates.append(dict(zip(models, values, strict=True)))
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from error
    if not hours:
        raise UsageError(f"{path} has no rows; give {wanted} with at least one")
    ends = [*hours[1:], HOURS]
    return tuple(Interval(*each) for each in zip(hours, ends, rates, strict=True))
