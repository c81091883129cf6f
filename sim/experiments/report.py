"""Write the results of a reproduction: CSV files, and a table of paper, measured and ratio."""

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

NEAR: Final = 0.15  # a number this close to the paper's, as a share of it, counts as reproduced


class Kind(StrEnum):
    """Says what a comparison with the paper's number proves.

    INDEPENDENT: nothing in the measured number comes from the paper's number, or from one that implies it.
    BY_CONSTRUCTION: a parameter was chosen so that this number, or one that implies it, comes out.
    CIRCULAR: the measured number is computed from the paper's own results."""

    INDEPENDENT = "independent"
    BY_CONSTRUCTION = "by construction"
    CIRCULAR = "circular"


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of the paper with the number measured here.

    Attributes:
        figure: The paper's figure, table or section.
        claim: What is compared.
        paper: The paper's number.
        measured: Ours; None if no run gave one.
        unit: The unit of both.
        note: How it is measured.
        bound: ">" or "<" where the paper gives only a bound, else empty.
        kind: What the comparison proves.
        cause: Why it differs, as a run shows; it names the run. It is empty where no cause was found.
    """

    figure: str
    claim: str
    paper: float
    measured: float | None
    unit: str
    note: str = ""
    bound: str = ""
    kind: Kind = Kind.INDEPENDENT
    cause: str = ""

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
    def near(self) -> bool:
        """Return whether the measured number keeps the bound, or is within NEAR of the paper's."""
        if self.kept is not None:
            return self.kept
        return self.measured is not None and abs(self.measured - self.paper) <= NEAR * abs(self.paper)

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

    @property
    def noted(self) -> str:
        """Return the note with the cause."""
        return ". ".join(part for part in (self.note, self.cause and f"Why it differs: {self.cause}") if part)


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    """Write dataclass instances of one class as CSV, without fields that hold tuples."""
    names = [field.name for field in fields(rows[0]) if not isinstance(getattr(rows[0], field.name), tuple)]
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(names)
        for row in rows:
            out.writerow([getattr(row, name) for name in names])
    return path


def counted(claims: Iterable[Claim]) -> str:
    """Return a table in Markdown: for each kind the rows near the paper's number, off with a cause and off without."""
    lines = [
        f"| rows | all | within {NEAR:.0%}, or bound kept | off, and a run shows why | off, cause not found |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    claims = list(claims)
    for kind in Kind:
        ours = [claim for claim in claims if claim.kind == kind]
        off = [claim for claim in ours if not claim.near]
        explained = sum(bool(claim.cause) for claim in off)
        lines.append(f"| {kind} | {len(ours)} | {len(ours) - len(off)} | {explained} | {len(off) - explained} |")
    return "\n".join(lines)


def write_claims(folder: Path, claims: Iterable[Claim]) -> list[Path]:
    """Write table.md and table.json in `folder`."""
    claims = list(claims)
    lines = [
        "| figure | what | paper | measured | measured / paper | kind | note |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for claim in claims:
        cells = (claim.figure, claim.claim, claim.given, claim.shown, claim.compared, claim.kind, claim.noted)
        lines.append(f"| {' | '.join(cells)} |")
    table, data = folder / "table.md", folder / "table.json"
    table.write_text(f"{counted(claims)}\n\n" + "\n".join(lines) + "\n")
    data.write_text(json.dumps([{**asdict(claim), "ratio": claim.ratio} for claim in claims], indent=2) + "\n")
    return [table, data]
