"""Markdown that several generators write: tables, and the units of settings."""

from collections.abc import Iterable, Sequence

UNITS = {  # units by the last part of a name, such as slo_ms or --max-body-mib
    "ms": "ms",
    "s": "s",
    "us": "µs",
    "rps": "requests/s",
    "mhz": "MHz",
    "kib": "KiB",
    "mib": "MiB",
    "usd": "$",
    "w": "W",
    "megapixels": "megapixels",
    "pixels": "pixels",
    "steps": "steps",
    "timesteps": "steps",
}


def unit(name: str) -> str:
    """Return the unit that a name states, empty if it states none."""
    return UNITS.get(name.replace("-", "_").split("_")[-1], "")


def cell(text: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. A column in which no row has anything is left out."""
    rows = list(rows)
    used = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    lines = [[heads[place] for place in used], ["---"] * len(used), *([cell(row[place]) for place in used] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
