"""Write the results of a reproduction: CSV files, and a table of paper, measured and ratio."""

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of the paper with the number measured here.

    `note` says how it is measured, or why it differs. Where the paper gives only a bound, `bound` is ">" or "<"."""

    figure: str
    claim: str
    paper: float
    measured: float | None
    unit: str
    note: str = ""
    bound: str = ""

    @property
    def ratio(self) -> float | None:
        """Return measured by paper; None if either is zero or missing, or if the paper gives a bound."""
        return self.measured / self.paper if self.measured and self.paper and not self.bound else None

    @property
    def kept(self) -> bool | None:
        """Return whether the measured number keeps the bound; None if there is none."""
        if self.measured is None or not self.bound:
            return None
        return self.measured > self.paper if self.bound == ">" else self.measured < self.paper

    @property
    def given(self) -> str:
        """Return the paper's number in words."""
        return f"{self.bound} {self.paper:g} {self.unit}".strip()

    @property
    def compared(self) -> str:
        if self.kept is not None:
            return "kept" if self.kept else "not kept"
        return "-" if self.ratio is None else f"{self.ratio:.2f}"

    @property
    def shown(self) -> str:
        """Return the measured number with as many digits as the paper has, and at least three."""
        if self.measured is None:
            return "-"
        digits = sum(character.isdigit() for character in f"{self.paper:g}".lstrip("0."))
        whole = len(f"{abs(self.measured):.0f}")
        return f"{self.measured:.{max(3, digits, whole)}g} {self.unit}".rstrip()


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    """Write dataclass instances of one class as CSV, without fields that hold tuples."""
    names = [field.name for field in fields(rows[0]) if not isinstance(getattr(rows[0], field.name), tuple)]
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(names)
        for row in rows:
            out.writerow([getattr(row, name) for name in names])
    return path


def write_claims(folder: Path, claims: Iterable[Claim]) -> list[Path]:
    """Write table.md and table.json in `folder`."""
    claims = list(claims)
    lines = ["| figure | what | paper | measured | measured / paper | note |", "| --- | --- | --- | --- | --- | --- |"]
    for claim in claims:
        lines.append(
            f"| {claim.figure} | {claim.claim} | {claim.given} | {claim.shown} | {claim.compared} | {claim.note} |"
        )
    table, data = folder / "table.md", folder / "table.json"
    table.write_text("\n".join(lines) + "\n")
    data.write_text(json.dumps([{**asdict(claim), "ratio": claim.ratio} for claim in claims], indent=2) + "\n")
    return [table, data]
