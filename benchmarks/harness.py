"""The parts that all benchmarks share: options, rounds in which cases take turns, statistics, tables and JSON.

A benchmark is a module with a docstring, a function `run(options)` that returns a `Report`, and these last lines:

    if __name__ == "__main__":
        parser = arguments(__doc__, rounds=3)
        parser.add_argument("--size", type=int, default=8)
        main(parser, run)
"""

import argparse
import asyncio
import functools
import inspect
import json
import operator
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headrace.batching import HeadraceError, UsageError
from headrace.batching.policies import lazy

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
IMAGE_FILE = ROOT / "examples" / "chelsea.jpg"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a benchmark: its figures for JSON and a text for people. `failed` sets the exit status 1."""

    figures: Mapping[str, Any]
    text: str
    failed: bool = False


# ---- the command line ----


def arguments(doc: str | None, *, only: Sequence[str] = (), **defaults: float) -> argparse.ArgumentParser:
    """Return a parser with the options that benchmarks share.

    Args:
        doc: the benchmark's docstring, which is its help.
        only: the names of its parts. `--only` chooses one of them; its default is None for all.
        defaults: numeric options with their defaults, such as `rounds=3` for `--rounds`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{Path(sys.argv[0]).stem}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, default in defaults.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"default: {default}"
        )
    if only:
        parser.add_argument("--only", choices=only, help="one part; default: all")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="also write all figures to FILE; without FILE, write them to stdout in place of the tables",
    )
    return parser


def main(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], Any]) -> None:
    """Run a benchmark, print its text, write its JSON, and end the process with its exit status.

    The status is 1 if the run failed, 2 if an option cannot be used."""
    options = parser.parse_args()
    try:
        report = run(options)
        if inspect.iscoroutine(report):
            report = asyncio.run(report)
    except HeadraceError as error:
        print(f"{parser.prog.rpartition('.')[2]}: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    from headrace.host.workers.profiling.batches import machine  # after the run, whose memory may be what is measured

    where = {**machine(), "compiled": not lazy.__file__.endswith(".py")}
    text = json.dumps({"machine": where, "options": vars(options), **report.figures}, indent=2, default=str)
    if options.json == "-":
        print(text)
    else:
        compiled = "compiled" if where["compiled"] else "NOT compiled: run scripts/setup"
        print(f"{where['cpu']}, {where['cores']} cores; policies {compiled}\n\n{report.text}")
        if options.json:
            Path(options.json).write_text(text + "\n")
    sys.exit(report.failed)


def progress(text: str) -> None:
    """Write a line about the run to stderr."""
    print(text, file=sys.stderr, flush=True)


# ---- rounds ----


def measure(cases: Mapping[str, Callable[[int], T]], rounds: int, warm_up: int = 0) -> dict[str, list[T]]:
    """Return the value of each case in each round.

    Each round runs every case once, so that a slow moment of the machine meets all cases alike. A case gets the number
    of the round, which may serve as a seed. The values of the first `warm_up` rounds are thrown away."""
    values: dict[str, list[T]] = {name: [] for name in cases}
    for name, number in _turns(cases, rounds, warm_up):
        value = cases[name](max(0, number))
        if number >= 0:
            values[name].append(value)
    return values


async def measure_async(
    cases: Mapping[str, Callable[[int], Awaitable[T]]], rounds: int, warm_up: int = 0
) -> dict[str, list[T]]:
    """Return what `measure` returns, for cases that are coroutine functions. They run one after another."""
    values: dict[str, list[T]] = {name: [] for name in cases}
    for name, number in _turns(cases, rounds, warm_up):
        value = await cases[name](max(0, number))
        if number >= 0:
            values[name].append(value)
    return values


def _turns(cases: Mapping[str, object], rounds: int, warm_up: int) -> Iterator[tuple[str, int]]:
    for number in range(-warm_up, rounds):
        for name in cases:
            yield name, number
        progress(f"round {number + 1} of {rounds}" if number >= 0 else "warm-up")


def seconds(call: Callable[[], object], at_least_s: float = 0.0) -> float:
    """Return the seconds that a call takes: the mean over as many calls as take `at_least_s`, and over one at least."""
    calls, began = 0, time.perf_counter()
    while True:
        call()
        calls += 1
        passed = time.perf_counter() - began
        if passed >= at_least_s:
            return passed / calls


async def closed_loop(
    call: Callable[[int], Awaitable[object]], callers: int, seconds: float, warm_up_s: float = 0.0
) -> float:
    """Return the calls per second of `callers` that each call again as soon as they are answered.

    A caller passes `call` a number: its own first, then in steps of `callers`. Calls that begin within `warm_up_s` do
    not count. Calls that run when `seconds` are over count, with the time that they take."""
    began = time.monotonic()
    counted_from, end = began + warm_up_s, began + seconds
    count = 0

    async def caller(number: int) -> None:
        nonlocal count
        while (now := time.monotonic()) < end:
            await call(number)
            number += callers
            count += now >= counted_from

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return count / (time.monotonic() - counted_from)


# ---- statistics and tables ----


def median(rounds: Sequence[Any], *keys: str) -> float:
    """Return the median of the rounds, or of what lies at `keys` in each round. None counts as 0."""
    return statistics.median(functools.reduce(operator.getitem, keys, each) or 0.0 for each in rounds)


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Return "median (least to greatest)", each in the format `form`."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def summary(values: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the median and the rounds of each case, for JSON."""
    return {name: {"median": statistics.median(each), "rounds": list(each)} for name, each in values.items()}


def table(head: str, rows: Iterable[str]) -> str:
    """Return a Markdown table whose columns are aligned. The cells of `head` and of each row are separated by " | "."""
    lines = [head.split(" | "), [], *(row.split(" | ") for row in rows)]
    lines[1] = ["---"] * len(lines[0])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines[1] = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
