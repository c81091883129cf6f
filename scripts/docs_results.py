#!/usr/bin/env python3
"""Write the pages of docs that have a template, from files that experiments, benchmarks and checks wrote.

    .venv/bin/python scripts/docs_results.py [--check] [PAGE ...]
    .venv/bin/python scripts/docs_results.py --pictures preba out/preba

The template of docs/results/NAME.md is docs/results/NAME.md.jinja. Its prose is written by hand. Its tables, and the
numbers in its prose, come from sim/experiments/*/results, docs/results/measured and docs/results/runs. Pages of other
sections of docs may have a template, too.

--pictures copies the pictures that pages show of an experiment from a folder that `headrace reproduce` wrote. With
--check nothing is written, and the exit status is 1 if a page differs from what would be written."""

import argparse
import csv
import functools
import importlib
import json
import operator
import re
import shutil
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXPERIMENTS = ROOT / "sim" / "experiments"
PICTURES = DOCS / "images" / "results"
DARK = "-dark"  # ends the name of a picture's variant for dark pages (sim/plot_style.py)
PICTURE = """<picture>
  <source media="(prefers-color-scheme: dark)" srcset="{dark}">
  <img src="{light}" alt="{text}">
</picture>"""
TEMPLATE = ".md.jinja"
NOTICE = "<!-- scripts/docs_results.py writes this page from {}. Change the template, then run the script. -->\n\n"
CAUSE = "Why it differs: "
NO_RUN = "-"
NEAR = 0.15  # as `headrace.sim.experiments.report` has it
INDEPENDENT = "independent"
WIDTH = 120
LIST_ITEM = re.compile(r" *(?:[-*]|\d+\.) +")
KEPT = re.compile(r"[|#>]|!\[| *<|    ")  # the beginnings of lines that are no prose


@dataclass(frozen=True)
class Claim:
    """A number of a paper with the measured one, as a line of the table.md that `headrace reproduce` wrote."""

    figure: str
    what: str
    paper: str
    measured: str
    compared: str
    kind: str
    note: str
    cause: str

    @property
    def number(self) -> str:
        """Return the measured number without its unit."""
        return self.measured.split()[0]

    def other(self, name: str) -> str:
        """Return the number that the note gives after a name, in its list of other costs."""
        found = re.search(rf"With other costs: .*?\b{re.escape(name)} (-?[\d.e+]+)", self.note)
        if found is None:
            raise ValueError(f"{self.what}: the note has no other cost {name!r}")
        return f"{float(found[1]):,g}{self.measured.removeprefix(self.number)}"

    @property
    def result(self) -> str:
        """Return how the measured number compares with the paper's."""
        if self.measured == NO_RUN:
            return "no result"
        if self.compared in ("kept", "not kept"):
            return "bound kept" if self.compared == "kept" else "**bound not kept**"
        return "near" if self.near else "**differs**"

    @property
    def near(self) -> bool:
        """Return whether the number keeps the paper's bound, or is within NEAR of the paper's number."""
        if self.measured == NO_RUN or self.compared in ("kept", "not kept"):
            return self.compared == "kept"
        paper, measured = (float(text.split()[0]) for text in (self.paper, self.measured))
        return abs(measured - paper) <= NEAR * abs(paper)


class Claims:
    """All claims of an experiment, in the order of its table.

    Raises ValueError if the counts at the head of table.md are not those of its rows."""

    def __init__(self, experiment: str) -> None:
        lines = (EXPERIMENTS / experiment / "results" / "table.md").read_text().splitlines()
        heads, rows = tables(lines)[0], tables(lines)[1]
        self.rows = [_claim(cells) for cells in rows[1:]]
        counted = {cells[0]: [int(cell) for cell in cells[1:]] for cells in heads[1:]}
        for kind, counts in counted.items():
            if counts != self.counts(kind):
                raise ValueError(f"{experiment}: {kind} rows are counted as {counts}, and are {self.counts(kind)}")

    def counts(self, kind: str) -> list[int]:
        """Return how many rows of a kind there are: in all, near, off with a cause, and off without one."""
        rows = [row for row in self.rows if row.kind == kind]
        off = [row for row in rows if not row.near]
        explained = sum(bool(row.cause) for row in off)
        return [len(rows), len(rows) - len(off), explained, len(off) - explained]

    def count_table(self) -> str:
        """Return a table of the counts of each kind of row that there is."""
        kinds = [kind for kind in (INDEPENDENT, "by construction", "circular") if self.counts(kind)[0]]
        rows = [[kind, *map(str, self.counts(kind))] for kind in kinds]
        return markdown(["rows", "all", "near, or bound kept", "differ, cause found", "differ, no cause found"], rows)

    def one(self, figure: str, what: str) -> Claim:
        """Return the only claim of a figure whose words begin with `what`."""
        found = [row for row in self.rows if row.figure == figure and row.what.startswith(what)]
        if len(found) != 1:
            raise ValueError(f"figure {figure}, {what!r}: {len(found)} rows in place of one")
        return found[0]

    def exactly(self, figure: str, what: str) -> Claim:
        """Return the claim of a figure with these words."""
        (found,) = (row for row in self.rows if (row.figure, row.what) == (figure, what))
        return found

    def of(self, *kinds: str) -> list[Claim]:
        return [row for row in self.rows if row.kind in kinds]

    def table(self, *kinds: str) -> str:
        """Return the rows of these kinds: the paper's numbers with the measured ones."""
        return markdown(
            ["figure", "what", "paper", "measured", "measured / paper", "result"],
            [[row.figure, row.what, row.paper, row.measured, row.compared, row.result] for row in self.of(*kinds)],
        )

    def off_table(self, *kinds: str) -> str:
        """Return the rows of these kinds that differ from the paper, with the cause that a run shows."""
        return markdown(
            ["figure", "what", "paper", "measured", "cause"],
            [
                [row.figure, row.what, row.paper, row.measured, sentence(row.cause) or "not found"]
                for row in self.of(*kinds)
                if not row.near
            ],
        )

    def notes(self) -> str:
        """Return the conditions of every row, as a table in a block that a reader opens."""
        rows = [[row.figure, row.what, sentence(row.note)] for row in self.rows if row.note]
        return folded("The conditions of every row", markdown(["figure", "what", "conditions"], rows))


def _claim(cells: Sequence[str]) -> Claim:
    note, _, cause = cells[6].partition(CAUSE)
    return Claim(*cells[:6], note.removesuffix(". "), cause)


def sentence(text: str) -> str:
    """Return a text that begins with a capital, unless its first word is a name or a number."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() and first not in ("dpu",) else text


# ---- tables ----


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. A column whose cells are all numbers is aligned to the right, unless it is the first."""
    rows = [list(row) for row in rows]
    columns = list(zip(*rows, strict=True))[1:]
    numeric = [
        all(re.fullmatch(r"([<>] )?-?[\d.,e+-]*( ?(1/)?[^\d\s]\S*)?", cell) for cell in column) for column in columns
    ]
    rule = ["---", *("---:" if each else "---" for each in numeric or [False] * (len(head) - 1))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def tables(lines: Iterable[str]) -> list[list[list[str]]]:
    """Return the Markdown tables in a text: the cells of the head and of each row. Cells must hold no pipe."""
    found: list[list[list[str]]] = []
    inside = False
    for line in lines:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
            if not inside:
                found.append([])
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                found[-1].append(cells)
        inside = line.startswith("|")
    return found


def folded(title: str, text: str) -> str:
    """Return a block that is closed until a reader opens it."""
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def section(path: str, heading: str, **where: str) -> str:
    """Return the table under a heading of a tables.md, or its rows in which columns have the given cells."""
    text = (EXPERIMENTS / path).read_text()
    _, found, rest = f"\n{text}".partition(f"\n## {heading}\n")
    if not found:
        raise ValueError(f"{path} has no section {heading!r}")
    (head, *lines), *_ = tables(rest.partition("\n## ")[0].splitlines())
    chosen = [line for line in lines if all(line[head.index(name)] == cell for name, cell in where.items())]
    kept = [number for number, name in enumerate(head) if name not in where]
    return markdown([head[number] for number in kept], [[line[number] for number in kept] for line in chosen])


def rows(path: str, **where: Any) -> list[dict[str, Any]]:
    """Return the rows of a CSV file of an experiment in which columns have the given values. Numbers are floats."""
    with (EXPERIMENTS / path).open(newline="") as file:
        found = [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]
    return [row for row in found if all(row[name] == value for name, value in where.items())]


def row(path: str, **where: Any) -> dict[str, Any]:
    """Return the only such row."""
    found = rows(path, **where)
    if len(found) != 1:
        raise ValueError(f"{path}, {where}: {len(found)} rows in place of one")
    return found[0]


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def pivot(found: Sequence[Mapping[str, Any]], line: str, column: str, cell: Callable[[Any], str]) -> str:
    """Return a table with a line and a column for each value of two fields, in the order in which they first appear."""
    lines, columns = (list(dict.fromkeys(row[name] for row in found)) for name in (line, column))
    at = {(row[line], row[column]): cell(row) for row in found}
    head = [line, *(f"{each:g}" if isinstance(each, float) else str(each) for each in columns)]
    return markdown(head, [[str(each), *(at.get((each, other), "") for other in columns)] for each in lines])


# ---- other parts of a page ----


def notes(experiment: str, keep: str = "") -> str:
    """Return the notes of an experiment that begin with `keep`, without it, as a list."""
    lines = (EXPERIMENTS / experiment / "results" / "notes.md").read_text().splitlines()
    chosen = [line.removeprefix("- ") for line in lines if line.startswith(f"- {keep}")]
    return "\n".join(f"- {line.removeprefix(keep)}" for line in chosen)


def table_of(path: str, columns: Sequence[int] | None = None) -> str:
    """Return the first table of a Markdown file of an experiment, or some of its columns, counted from 0."""
    (first, *_) = tables((EXPERIMENTS / path).read_text().splitlines())
    kept = range(len(first[0])) if columns is None else columns
    return markdown([first[0][each] for each in kept], [[line[each] for each in kept] for line in first[1:]])


def table_rows(path: str, **where: str) -> list[dict[str, str]]:
    """Return the rows of the first table of an experiment's Markdown file in which columns have the given cells."""
    (head, *lines), *_ = tables((EXPERIMENTS / path).read_text().splitlines())
    found = [dict(zip(head, line, strict=True)) for line in lines]
    return [row for row in found if all(row[name] == cell for name, cell in where.items())]


def picture(experiment: str, name: str, text: str) -> str:
    """Return a picture of docs/images/results, with its variant for dark pages if there is one.

    `text` describes it for readers who do not see it."""
    path = PICTURES / experiment / f"{name}.png"
    if not path.exists():
        raise ValueError(f"there is no {path.relative_to(ROOT)}")
    address = f"../{path.relative_to(DOCS)}"
    if not dark_variant(path).exists():
        return f"![{text}]({address})"
    return PICTURE.format(light=address, dark=address.replace(".png", f"{DARK}.png"), text=text)


def dark_variant(path: Path) -> Path:
    return path.with_stem(path.stem + DARK)


def take_pictures(experiment: str, folder: Path) -> list[Path]:
    """Copy the pictures that pages show of an experiment from a folder of `headrace reproduce`. Return the copies."""
    taken = []
    for shown in sorted((PICTURES / experiment).glob("*.png")):
        for name in dict.fromkeys((shown.name, dark_variant(shown).name)):
            if (folder / name).exists():
                shutil.copyfile(folder / name, shown.parent / name)
                taken.append(shown.parent / name)
    return taken


def time_of(name: str, words: str) -> str:
    """Return a sentence with the processor time of a command, the machine and the date.

    scripts/record_run.py keeps them in docs/results/runs. The sentence has no number if there is no such file."""
    run = recorded(name)
    if run is None:
        return f"{words} minutes."
    machine = f"{run['machine']['cores']} cores of an {run['machine']['cpu']}"
    return f"{words} {run['cpu_s']:,.0f} s of processor time ({machine}, {run['date']})."


def recorded(name: str) -> dict[str, Any] | None:
    """Return a run that scripts/record_run.py kept in docs/results/runs; None if there is none."""
    path = DOCS / "results" / "runs" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def data(path: str) -> Any:
    """Return the contents of a JSON file below docs/results."""
    return json.loads((DOCS / "results" / path).read_text())


def printed(path: str, number: int = 0, leave_out: Sequence[str] = ()) -> str:
    """Return a table that a command printed (scripts/record_run.py kept it), without some of its columns."""
    head, *lines = tables(data(path)["output"])[number]
    kept = [place for place, name in enumerate(head) if name not in leave_out]
    return markdown([head[place] for place in kept], [[line[place] for place in kept] for line in lines])


def value(name: str) -> Any:
    """Return a value of the code, such as "headrace.sim.hardware.npu:Npu"."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def benchmark_list() -> list[list[str]]:
    """Return the rows of the table of benchmarks in benchmarks/README.md."""
    lines = (ROOT / "benchmarks" / "README.md").read_text().splitlines()
    return next(table[1:] for table in tables(lines) if table[0][0].startswith("command"))


def checked(part: str, quantity: str, **details: Any) -> list[dict[str, Any]]:
    """Return the rows of a part of the H100's check that measured a quantity, with these details."""
    rows = data("measured/h100.json")["parts"][part]["rows"]
    return [
        row
        for row in rows
        if row["quantity"] == quantity and all(row["details"].get(name) == value for name, value in details.items())
    ]


def dispatch_table(run: Mapping[str, Any]) -> str:
    """Return the table of `benchmarks.dispatch`: medians of the rounds, by policy and load."""

    def middle(rounds: Sequence[Any], *keys: str) -> float:
        return statistics.median(functools.reduce(operator.getitem, keys, each) for each in rounds)

    lines = []
    for case, rounds in run["cases"].items():
        policy, load = case.split()
        simulated, (live, p95) = ("profile", "clock"), (("live", "latency_ms", key) for key in ("mean", "p95"))
        ratios = [middle(rounds, *live) / middle(rounds, "simulated", name, *live[1:]) for name in simulated]
        ratios.append(middle(rounds, *p95) / middle(rounds, "simulated", "profile", *p95[1:]))
        lines.append(
            [
                f"`{policy}`",
                load,
                f"{middle(rounds, 'simulated', 'profile', *live[1:]):.2f}",
                f"{middle(rounds, *live):.2f}",
                *(f"{ratio:.2f}" for ratio in ratios),
                f"{middle(rounds, 'dispatch_us', 'both', 'median'):.0f}",
                f"{100 * middle(rounds, 'share'):.1f}",
            ]
        )
    head = [
        "policy",
        "load",
        "simulated mean ms",
        "live mean ms",
        "live / profile",
        "live / clock",
        "p95, live / profile",
    ]
    return markdown([*head, "dispatch us", "share %"], lines)


def mean(values: Iterable[float]) -> str:
    """Return the mean with three digits, or with all digits before the point."""
    found = statistics.fmean(values)
    return f"{found:,.0f}" if found >= 100 else f"{found:.3g}"


def quantile(values: Iterable[float], at: float) -> float:
    """Return a quantile, on the line between two values where it lies between them."""
    ordered = sorted(values)
    place = at * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(DOCS),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    found.globals |= {
        function.__name__: function
        for function in (
            Claims,
            markdown,
            section,
            rows,
            row,
            pivot,
            notes,
            table_of,
            table_rows,
            picture,
            time_of,
            recorded,
            data,
            folded,
        )
    }
    found.globals |= {
        function.__name__: function
        for function in (benchmark_list, checked, dispatch_table, mean, quantile, printed, value)
    } | {"zip": zip}
    return found


def reflowed(text: str) -> str:
    """Return a page with its prose in lines of at most WIDTH characters.

    Values that are filled in change the length of lines. Tables, code, headings, quotes and HTML stay as they are."""
    lines: list[str] = []
    prose: list[str] = []
    fenced = False

    def flush() -> None:
        if prose:
            mark = LIST_ITEM.match(prose[0])
            indent = " " * len(mark[0]) if mark else re.match(" *", prose[0])[0]
            first = mark[0] if mark else indent
            words = " ".join(line.strip() for line in prose)[len(first.strip()) :]
            lines.extend(
                textwrap.wrap(
                    words.strip(),
                    WIDTH,
                    initial_indent=first,
                    subsequent_indent=indent,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
            prose.clear()

    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        if fenced or fence or not line.strip() or KEPT.match(line):
            flush()
            lines.append(line)
            fenced ^= fence
        else:
            if LIST_ITEM.match(line):
                flush()
            prose.append(line)
    flush()
    return "\n".join(lines)


def names() -> list[str]:
    """Return the names of all pages, such as "results/preba"."""
    found = (path.relative_to(DOCS).as_posix() for path in DOCS.rglob(f"*{TEMPLATE}"))
    return sorted(name.removesuffix(TEMPLATE) for name in found)


def page(name: str) -> str:
    """Return the text of a page."""
    template = environment().get_template(name + TEMPLATE)
    text = reflowed(re.sub(r"\n{3,}", "\n\n", template.render()))
    return NOTICE.format((name + TEMPLATE).rpartition("/")[2]) + text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="*", help="names of pages, such as results/preba; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page differs")
    parser.add_argument("--pictures", nargs=2, metavar=("EXPERIMENT", "FOLDER"), help="take pictures from this folder")
    given = parser.parse_args()
    if given.pictures:
        print(*(path.relative_to(ROOT) for path in take_pictures(given.pictures[0], Path(given.pictures[1]))), sep="\n")
    different = []
    for name in given.page or names():
        path, text = DOCS / f"{name}.md", page(name)
        if not path.exists() or path.read_text() != text:
            different.append(str(path.relative_to(ROOT)))
            if not given.check:
                path.write_text(text)
    if different:
        print(f"{'different' if given.check else 'wrote'}: {', '.join(different)}", file=sys.stderr)
    return 1 if given.check and different else 0


if __name__ == "__main__":
    sys.exit(main())
