#!/usr/bin/env python3
"""Draw what every policy does with the same requests, as timelines: docs/images/policies/*.svg.

    .venv/bin/python scripts/draw_policies.py [--check]

The simulator's engine drives the policies, and the pictures show the tasks that it recorded. Whole networks have the
nodes A to D. Networks of cells, and policies for inputs of several lengths, have a chain of as many cells as the input
has steps. The page docs/reference/policies/index.md describes the example.

With --check nothing is written, and the exit status is 1 if a file is not what would be written.
"""

import argparse
import dataclasses
import html
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.cell_graph import CellModel, lstm
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind
from headrace.batching.graphs.profile import Profile
from headrace.batching.registry import find_policy
from headrace.batching.request import Task
from headrace.sim.engine import Arrivals, run

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "policies"

# ---- the example ----

MAX_BATCH = 4
BUSY_W = 200.0  # power of a busy worker, for `smdp`
NODES, STEPS, CELLS = "nodes A to D", "a chain of cells, run as a whole", "a chain of cells"


@dataclass(frozen=True)
class Example:
    """The requests of an example, one entry for each.

    Args:
        arrival_ms: When they come (ms).
        slo_ms: The time from there to the deadline (ms).
        cells: The number of cells, where the network consists of cells.
        node_ms: The latency (ms) of a node or a cell by batch size.
    """

    arrival_ms: Sequence[float] = (0, 1, 1.5, 4.5, 5, 7.5, 12, 14)
    slo_ms: Sequence[float] = (20, 20, 9, 20, 20, 20, 20, 20)
    cells: Sequence[int] = (4, 2, 5, 3, 6, 2, 4, 3)
    node_ms: Callable[[int], float] = lambda batch: 0.8 + 0.2 * batch if batch <= MAX_BATCH else 0.4 * batch


@dataclass(frozen=True)
class Case:
    """A policy with settings, on one kind of network."""

    policy: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    network: str = NODES


@dataclass(frozen=True)
class Block:
    """A batch on the worker: `requests` and, for each, the name of each node or cell that it runs, empty if padded."""

    start: float
    stop: float
    requests: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]
    reason: str


@dataclass(frozen=True)
class Run:
    """The batches and the ends of requests under a policy. Times are in milliseconds."""

    case: Case
    example: Example
    blocks: tuple[Block, ...]
    finished: tuple[float, ...]

    @property
    def latencies(self) -> list[float]:
        return [end - came for end, came in zip(self.finished, self.example.arrival_ms, strict=True)]

    @property
    def mean_ms(self) -> float:
        return sum(self.latencies) / len(self.latencies)

    def is_late(self, request: int) -> bool:
        return self.latencies[request] > self.example.slo_ms[request] + 1e-6

    @property
    def late(self) -> int:
        return sum(map(self.is_late, range(len(self.finished))))


CASES = {
    "serial": Case("serial"),
    "graph": Case("graph", {"max_batch": MAX_BATCH, "window_ms": 3.0}),
    "static": Case("static", {"max_batch": MAX_BATCH}),
    "work-conserving": Case("work-conserving", {"max_batch": MAX_BATCH}),
    "bucketed-graph": Case("bucketed-graph", {"max_batch": MAX_BATCH, "bucket_width": 2}, STEPS),
    "dynamic-graph": Case("dynamic-graph", {"max_batch": MAX_BATCH}, CELLS),
    "cellular": Case("cellular", {"max_batch": MAX_BATCH, "max_tasks": 1}, CELLS),
    "lazy": Case("lazy", {"max_batch": MAX_BATCH}),
    "oracle": Case("oracle", {"max_batch": MAX_BATCH}),
    "preba": Case("preba"),
    "smdp": Case("smdp", {"max_batch": MAX_BATCH, "w2": 0.05}),
    "preba-lazy": Case("preba-lazy"),
    "deferred": Case("deferred", {"max_batch": MAX_BATCH}),
    "earliest-deadline": Case("earliest-deadline", {"max_batch": MAX_BATCH}),
}
FURTHER_CASES = {  # cases that pictures show beside those above
    "lazy-eq2": Case("lazy", {"max_batch": MAX_BATCH, "slack": "eq2"}),
    "graph-cells": Case("graph", {"max_batch": MAX_BATCH, "window_ms": 3.0}, STEPS),
}
# The example of Eq. 2 at the head of batching/policies/lazy.py.
EQ2 = Example((0, 0.5, 2.5, 2.7, 5.5), (10, 10, 20, 3, 20), (1,) * 5, lambda batch: 1.0)


class _Latency:
    """The latency of a node or a cell, which depends on the batch alone."""

    def __init__(self, node_ms: Callable[[int], float]) -> None:
        self._node_ms = node_ms

    def latency(self, node: int, batch: int, length: float) -> float:
        return 1e-3 * self._node_ms(batch)


def play(case: Case, example: Example | None = None) -> Run:
    """Serve the example's requests on one worker."""
    example = example or Example()
    cells: dict[str, CellModel] | None = None
    if case.network == CELLS:
        cells = {"net": lstm("net", MAX_BATCH)}
        graph = cells["net"].graph
    elif case.network == STEPS:
        graph = ModelGraph("net", (Node("step", NodeKind.ENCODER),))
    else:
        graph = ModelGraph("net", tuple(Node(name) for name in "ABCD"))
    times = NodeTimes(graph, _Latency(example.node_ms))
    context = PolicyContext(
        {"net": times}, 1, known_profiles={"net": Profile.of("net", times, 1)}, cells=cells, busy_w=BUSY_W
    )
    policy = find_policy(case.policy).cls(**case.settings).build(context)
    count = len(example.arrival_ms)
    lengths = [1.0] * count if case.network == NODES else [float(length) for length in example.cells]
    arrivals = Arrivals(
        ["net"] * count,
        [1e-3 * at for at in example.arrival_ms],
        [1e-3 * (at + slo) for at, slo in zip(example.arrival_ms, example.slo_ms, strict=True)],
        lengths,
        [1] * count,
    )
    outcome = run(
        policy, arrivals, {"net": times}, 1, record=True, open_from=(lambda _: -1) if cells is not None else None
    )
    outcome.ledger.check()
    done = [0] * count  # steps of each request that have run
    blocks: list[Block] = []
    for record in outcome.ran:
        block = _block(record.task, 1e3 * record.started, 1e3 * record.ended, case.network, lengths, done)
        if blocks and _goes_on(blocks[-1], block):
            before = blocks.pop()
            names = tuple(first + then for first, then in zip(before.names, block.names, strict=True))
            block = dataclasses.replace(before, stop=block.stop, names=names)
        blocks.append(block)
    return Run(case, example, tuple(blocks), tuple(1e3 * at for at in outcome.finished))


def _block(task: Task, start: float, stop: float, network: str, lengths: Sequence[float], done: list[int]) -> Block:
    numbers = tuple(request.id for request in task.requests)
    if network == CELLS:
        names = tuple((str(cell + 1),) for cell in task.cells)
    elif network == STEPS:
        steps = int(task.padded_to or max(lengths[number] for number in numbers))
        names = tuple(
            tuple(str(step + 1) if step < lengths[number] else "" for step in range(steps)) for number in numbers
        )
    else:
        names = (tuple("ABCD"[task.start : task.stop]),) * len(numbers)
    return Block(start, stop, numbers, names, task.reason)


def _goes_on(before: Block, block: Block) -> bool:
    """Tell whether a block is the same batch, which a driver stopped and the policy continued unchanged."""
    return before.requests == block.requests and abs(before.stop - block.start) < 1e-6 and block.reason == "idle"


# ---- the style ----

# A policy has one colour in all pictures, for a light and for a dark page: those of sim/plot_style.py.
COLORS = {
    "serial": ("#636363", "#8c8c8c"),
    "graph": ("#cf7500", "#f4a91d"),
    "static": ("#6b3a12", "#e0b070"),
    "work-conserving": ("#3a8ef0", "#71c7fe"),
    "bucketed-graph": ("#574000", "#f2ea60"),
    "dynamic-graph": ("#4a31c6", "#7f62e6"),
    "cellular": ("#b04a16", "#d2452a"),
    "lazy": ("#2f9e86", "#52d6b3"),
    "oracle": ("#1a1a1a", "#ffffff"),
    "preba": ("#063085", "#5a8cff"),
    "smdp": ("#a83abd", "#b066a6"),
    "preba-lazy": ("#2a7f70", "#b2fdfc"),
    "deferred": ("#6a1228", "#e0304c"),
    "earliest-deadline": ("#4f6223", "#f4f48c"),
}
LETTER_COLORS = "#ffffff", "#000000"  # the one with the higher contrast is taken
STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; fill: var(--ink) }
svg { --ink: #1f2328; --muted: #59636e; --line: #d1d9e0; --paper: #ffffff; --wait: #8c959f; --late: #cf222e }
@media (prefers-color-scheme: dark) {
  svg { --ink: #f0f6fc; --muted: #9198a1; --line: #3d444d; --paper: #14181f; --wait: #7d8590; --late: #ff7b72 }
}
.paper { fill: var(--paper) } .muted { fill: var(--muted) } .late { fill: var(--late) }
.grid { stroke: var(--line); stroke-width: 1 } .wait { stroke: var(--wait); stroke-width: 2 }
.pause { stroke: var(--wait); stroke-width: 2; stroke-dasharray: 2 4 } .came { fill: var(--wait) }
.halo { stroke: var(--paper); stroke-width: 5 }
.due { stroke: var(--muted); stroke-width: 2 } .missed { stroke: var(--late); stroke-width: 2.5 }
.pad { stroke-width: 1.2; stroke-dasharray: 3 2 }
"""
WIDTH = 800
LEFT, RIGHT = 50, 12
ROW = 25
LETTERS = 1.12  # pages may show a picture at 640 pixels, and its letters must still be readable
MS_SHOWN = 33.0


def luminance(color: str) -> float:
    """Return the relative luminance of a colour such as #cf7500, as WCAG defines it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def letters_on(color: str) -> str:
    """Return the colour of letters that can be read on this colour."""
    return max(LETTER_COLORS, key=lambda each: contrast(each, color))


def _rules(policy: str, column: int) -> str:
    """Return the styles of a policy's boxes, of the letters on them, and of padding, on one kind of page."""
    color = COLORS[policy][column]
    return (
        f".{policy} {{ fill: {color} }} .on-{policy} {{ fill: {letters_on(color)} }} "
        f".pad-{policy} {{ fill: none; stroke: {color} }}"
    )


class Svg:
    """The parts of a picture, in pixels. `policies` are those whose boxes it has."""

    def __init__(self, title: str, policies: Iterable[str]) -> None:
        self._title = title
        self._policies = list(dict.fromkeys(policies))
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, size: float = 12, anchor: str = "start", **more: str) -> None:
        self._parts.append(
            f'<text x="{_px(x)}" y="{_px(y)}" font-size="{LETTERS * size:g}" text-anchor="{anchor}"{_attributes(more)}>'
            f"{html.escape(text)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self._parts.append(f'<line x1="{_px(x1)}" y1="{_px(y1)}" x2="{_px(x2)}" y2="{_px(y2)}" class="{style}"/>')

    def box(self, x: float, y: float, width: float, height: float, **more: str) -> None:
        size = f'width="{_px(width)}" height="{_px(height)}" rx="2.5"'
        self._parts.append(f'<rect x="{_px(x)}" y="{_px(y)}" {size}{_attributes(more)}/>')

    def dot(self, x: float, y: float, radius: float, style: str) -> None:
        self._parts.append(f'<circle cx="{_px(x)}" cy="{_px(y)}" r="{radius:g}" class="{style}"/>')

    def written(self, height: float) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_px(height)}" width="{WIDTH}" '
            f'height="{_px(height)}" role="img">'
        )
        paper = f'<rect width="{WIDTH}" height="{_px(height)}" rx="6" class="paper"/>'
        title = f"<title>{html.escape(self._title)}</title>"
        light, dark = ("\n".join(_rules(each, column) for each in self._policies) for column in (0, 1))
        style = f"{STYLE}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
        return "\n".join([head, title, f"<style>{style}</style>", paper, *self._parts, "</svg>", ""])


def _px(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _attributes(more: Mapping[str, str]) -> str:
    return "".join(f' {"class" if key == "style" else key.replace("_", "-")}="{value}"' for key, value in more.items())


# ---- the pictures ----


def shown_settings(case: Case) -> str:
    """Return the settings of a case as they are written in Python."""
    return ", ".join(f"{name}={value!r}" for name, value in case.settings.items())


def summary(done: Run) -> str:
    """Return the results of a run in one line."""
    late = f"{done.late} of {len(done.finished)} late" if done.late else "none late"
    return f"mean {done.mean_ms:.1f} ms, longest {max(done.latencies):.1f} ms, {late}"


def timeline(done: Run, last_ms: float = MS_SHOWN) -> str:
    """Return the picture of one run: a row for each request, and one for the worker."""
    case, example = done.case, done.example
    count = len(example.arrival_ms)
    settings = shown_settings(case)
    svg = Svg(f"Timeline of {case.policy}: which requests the worker runs together, and when", [case.policy])
    scale = (WIDTH - LEFT - RIGHT) / last_ms
    top, rows_top = 12, 48

    def at(ms: float) -> float:
        return LEFT + scale * min(ms, last_ms)

    def middle(request: int) -> float:
        return rows_top + ROW * (request + 0.5)

    svg.text(LEFT, top + 10, case.policy, 15, font_weight="700")
    svg.text(LEFT + 10.8 * len(case.policy) + 12, top + 10, settings, 11.5, style="muted")
    svg.text(WIDTH - RIGHT, top + 10, summary(done), 12, "end")
    bottom = rows_top + ROW * count
    _axis(svg, at, last_ms, rows_top - 6, bottom + 54)
    for request in range(count):
        _row(svg, done, request, at, middle(request), last_ms)
    _worker(svg, done, at, bottom + 8, last_ms)
    height = bottom + 54 + 24
    _legend(svg, height + 4, case.policy, padded=any("" in row for block in done.blocks for row in block.names))
    return svg.written(height + 18)


def _axis(svg: Svg, at: Callable[[float], float], last_ms: float, top: float, bottom: float) -> None:
    for ms in range(0, int(last_ms) + 1):
        if ms % 2 == 0:
            svg.line(at(ms), top, at(ms), bottom, "grid")
        if ms % 4 == 0:
            svg.text(at(ms), bottom + 12, f"{ms} ms" if ms == 0 else str(ms), 10.5, "middle", style="muted")


def _row(svg: Svg, done: Run, request: int, at: Callable[[float], float], middle: float, last_ms: float) -> None:
    """Draw a request: when it comes, waits, runs, pauses, and must end."""
    came = done.example.arrival_ms[request]
    due = came + done.example.slo_ms[request]
    svg.text(LEFT - 14, middle + 4, f"R{request + 1}", 12, "end")
    blocks = [block for block in done.blocks if request in block.requests]
    before, style = came, "wait"
    for block in blocks:
        if at(block.start) > at(before):
            svg.line(at(before), middle, at(block.start), middle, style)
        before, style = block.stop, "pause"
    if at(done.finished[request]) > at(before):  # its set ends later
        svg.line(at(before), middle, at(done.finished[request]), middle, style)
    svg.dot(at(came), middle, 3.4, "came")
    for block in blocks:
        if block.start < last_ms:
            _cells(svg, block, request, at, middle, done.case.policy)
        else:
            svg.text(at(last_ms) - 4, middle - 3, f"runs at {block.start:.1f} ms", 10, "end", style="muted")
    if due <= last_ms:
        missed = done.is_late(request)
        svg.line(at(due), middle - 9, at(due), middle + 9, "halo")
        svg.line(at(due), middle - 9, at(due), middle + 9, "missed" if missed else "due")
        if missed:
            svg.text(at(done.finished[request]) + 4, middle + 4, "late", 11, style="late")


def _cells(svg: Svg, block: Block, request: int, at: Callable[[float], float], middle: float, policy: str) -> None:
    """Draw the nodes or cells of a request in one batch. Cells that only pad the batch have an outline alone."""
    height = ROW - 6
    for place, names in zip(block.requests, block.names, strict=True):
        if place != request:
            continue
        step = (block.stop - block.start) / len(names)
        for number, name in enumerate(names):
            left = at(block.start + number * step)
            width = at(block.start + (number + 1) * step) - left
            if not name:
                svg.box(left + 1, middle - height / 2 + 1, width - 2, height - 2, style=f"pad pad-{policy}")
                continue
            svg.box(left + 0.5, middle - height / 2, width - 1, height, style=policy)
            svg.text(left + width / 2, middle + 4, name, 11, "middle", style=f"on-{policy}", font_weight="600")


def _worker(svg: Svg, done: Run, at: Callable[[float], float], top: float, last_ms: float) -> None:
    """Draw the worker's batches with their sizes, and below each the reason for which it left."""
    svg.text(LEFT - 10, top + 12, "batch", 10.5, "end", style="muted")
    svg.text(LEFT - 10, top + 30, "why", 10.5, "end", style="muted")
    ends = [0.0, 0.0]  # the right ends of the reasons in two lines
    for block in done.blocks:
        if block.start >= last_ms:
            continue
        left, width = at(block.start), at(block.stop) - at(block.start)
        policy = done.case.policy
        svg.box(left + 0.5, top, width - 1, 17, style=policy)
        size = str(len(block.requests))
        svg.text(left + width / 2, top + 12.5, size, 11, "middle", style=f"on-{policy}", font_weight="600")
        needed = 6.7 * len(block.reason) + 3
        start = left + 1
        level = 0 if start >= ends[0] else 1
        svg.text(start, top + 30 + 12 * level, block.reason, 10.5, style="muted")
        ends[level] = start + needed


def _legend(svg: Svg, y: float, policy: str, *, padded: bool) -> None:
    x: float = LEFT
    middle = y - 4
    svg.dot(x + 4, middle, 3.4, "came")
    svg.line(x + 4, middle, x + 26, middle, "wait")
    svg.text(x + 31, y, "comes and waits", 11, style="muted")
    x += 150
    svg.box(x, middle - 6, 14, 12, style=policy)
    svg.text(x + 19, y, "runs a node or cell", 11, style="muted")
    x += 148
    svg.line(x, middle, x + 22, middle, "pause")
    svg.text(x + 27, y, "begun, and waits", 11, style="muted")
    x += 150
    if padded:
        svg.box(x, middle - 6, 14, 12, style=f"pad pad-{policy}")
        svg.text(x + 19, y, "padding", 11, style="muted")
        x += 84
    svg.line(x + 3, middle - 7, x + 3, middle + 7, "due")
    svg.text(x + 10, y, "deadline", 11, style="muted")
    x += 78
    svg.line(x + 3, middle - 7, x + 3, middle + 7, "missed")
    svg.text(x + 10, y, "missed", 11, style="muted")


def overview(runs: Mapping[str, Run], title: str, last_ms: float = MS_SHOWN) -> str:
    """Return the picture of the worker's batches under several policies, one row each."""
    left, right, row = 146, 176, 27
    columns = (WIDTH - right + 58, WIDTH - right + 124, WIDTH - 12)
    svg = Svg(title, (done.case.policy for done in runs.values()))
    scale = (WIDTH - left - right) / last_ms
    top = 64

    def at(ms: float) -> float:
        return left + scale * min(ms, last_ms)

    svg.text(12, 22, title, 14, font_weight="700")
    for x, heading in zip(columns, ("mean", "longest", "late"), strict=True):
        svg.text(x, 54, heading, 11, "end", style="muted")
    bottom = top + row * len(runs)
    _axis(svg, at, last_ms, top - 4, bottom + 2)
    example = next(iter(runs.values())).example
    svg.text(left - 10, 54, "requests come", 11, "end", style="muted")
    for came in example.arrival_ms:
        svg.dot(at(came), 50, 3.2, "came")
    for place, (name, done) in enumerate(runs.items()):
        y = top + row * place + 3
        policy = done.case.policy
        svg.text(left - 10, y + 14, name, 12.5, "end", font_weight="600")
        for block in done.blocks:
            if block.start >= last_ms:
                svg.text(at(last_ms) - 3, y + 14, f"1 at {block.start:.1f} ms", 10, "end", style="muted")
                continue
            width = at(block.stop) - at(block.start)
            svg.box(at(block.start) + 0.5, y, width - 1, 19, style=policy)
            size = str(len(block.requests))
            svg.text(at(block.start) + width / 2, y + 14, size, 11, "middle", style=f"on-{policy}", font_weight="600")
        numbers = (f"{done.mean_ms:.1f} ms", f"{max(done.latencies):.1f} ms", str(done.late))
        for x, number in zip(columns, numbers, strict=True):
            svg.text(x, y + 14, number, 12, "end")
    return svg.written(bottom + 24)


def pictures() -> Iterable[tuple[str, str]]:
    """Yield the name and the text of each picture."""
    runs = {name: play(case) for name, case in (CASES | FURTHER_CASES).items()}
    for name, done in runs.items():
        yield f"{name}.svg", timeline(done)
    whole = {name: runs[name] for name, case in CASES.items() if case.network == NODES}
    yield "overview.svg", overview(whole, "One worker, eight requests: the batches of each policy, with their sizes")
    cells = {"graph": runs["graph-cells"]} | {name: runs[name] for name, case in CASES.items() if case.network != NODES}
    yield "overview-cells.svg", overview(cells, "The same requests with inputs of 2 to 6 steps")
    eq2 = play(Case("lazy", {"slack": "eq2"}), EQ2)
    yield "lazy-example.svg", timeline(eq2, 15.0)


def stale_pictures(*, write: bool) -> list[str]:
    """Return the files that are not what the policies do now. With `write` they are written."""
    stale = []
    for name, text in pictures():
        path = OUT / name
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
    return stale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a picture is out of date")
    check = parser.parse_args().check
    stale = stale_pictures(write=not check)
    if check and stale:
        sys.exit(f"{', '.join(stale)}: not what the policies do now; run scripts/draw_policies.py")


if __name__ == "__main__":
    main()
