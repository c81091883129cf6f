"""Tables that are printed and that stand in the page."""

from collections.abc import Sequence
from dataclasses import dataclass

import rich.table
from rich.console import Console


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `text` are the places of the columns that hold text; all others hold numbers, which stand at the right.
    A group of rows is set apart from the next."""

    title: str
    headings: Sequence[str]
    groups: Sequence[Sequence[Sequence[str]]]
    text: Sequence[int] = (0,)

    def print(self, console: Console) -> None:
        shown = rich.table.Table(title=self.title, title_justify="left")
        for place, heading in enumerate(self.headings):
            wraps = place > 0 and place in self.text
            shown.add_column(heading, justify="left" if place in self.text else "right", no_wrap=not wraps)
        for rows in self.groups:
            for row in rows:
                shown.add_row(*row)
            shown.add_section()
        console.print(shown)


def number(value: object, digits: int = 1) -> str:
    """Return a value for a cell of a table; None becomes "-"."""
    return f"{value:,.{digits}f}" if isinstance(value, float) else "-" if value is None else str(value)
