"""Markdown that several generators write: tables, and the units of settings."""

import re
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
OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]*(?: NAME=VALUE)?)")


def unit(name: str) -> str:
    """Return the unit that a name states, empty if it states none."""
    return UNITS.get(name.replace("-", "_").split("_")[-1], "")


def marked(text: str) -> str:
    """Return a text in which options of commands are code. Otherwise two dashes would become one long dash."""
    parts = text.split("`")
    parts[::2] = [OPTION.sub(r"`\1`", part) for part in parts[::2]]  # the other parts are code already
    return "`".join(parts)


def cell(text: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return marked(" ".join(text.split()).replace("|", "\\|"))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. A column in which no row has anything is left out."""
    rows = list(rows)
    used = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    lines = [
        [heads[place] for place in used],
        ["---"] * len(used),
        *([cell(row[place]) for place in used] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def named(names: str, value: str, default: str) -> str:
    """Return the cell of an option or a setting: its names, value and default below each other."""
    lines = [names, value, default if default in ("", "required") else f"default: {default}"]
    return "<br>".join(line for line in lines if line)
