#!/usr/bin/env python3
"""Draw the architecture of Headrace, for light and for dark ground: docs/images/architecture-{light,dark}.svg.

    scripts/draw_architecture.py

The upper row serves, the lower row simulates. Both use the same policy object, which stands in both rows.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTH, HEIGHT = 960, 500
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
TITLE_PX, TEXT_PX, LINE_PX = 18, 15.5, 22


@dataclass(frozen=True)
class Theme:
    ink: str
    faint: str
    band: str
    box: str
    line: str
    accent: str
    on_accent: str


LIGHT = Theme("#1b2733", "#52616f", "#f1f4f7", "#ffffff", "#8a98a5", "#0b6284", "#ffffff")
DARK = Theme("#e6edf3", "#a3b1bf", "#1a222b", "#222d38", "#6b7b8a", "#1b7fa6", "#ffffff")

ROWS = (  # name, what it is for, then the boxes at the left and right of the policy
    (
        "Live",
        "measures latency",
        ("Clients", "JPEG, PNG, WAV,", "tensors", "over HTTP and", "gRPC"),
        ("Preprocessing", "DPU: image CUs,", "audio CUs A and B", "or CPU:", "OpenCV, NumPy"),
        ("Workers", "GPU slices (MIG),", "GPUs, CPU cores", "a process each"),
    ),
    (
        "Simulated",
        "predicts latency, energy and cost",
        ("Workload", "Poisson, bursts,", "traces, lengths", "as in the papers"),
        ("Models", "cycles of the CUs,", "measured costs", "of a CPU core,", "PCIe"),
        ("Models", "GPU slices, GPUs,", "NPU, measured", "profiles"),
    ),
)
POLICY = (
    "Policy",
    "the same object",
    "in both rows",
    "",
    "knows slices,",
    "lengths and",
    "deadlines",
    "",
    "reads no clock,",
    "does no I/O",
)
COLUMNS = (34, 236, 460, 728)  # left edges: clients, preprocessing, policy, workers
WIDTHS = (154, 178, 190, 198)
ROW_TOP, ROW_HEIGHT, GAP, BOX_TOP, BOX_HEIGHT = 8, 232, 20, 54, 156


def text(
    x: float, y: float, words: str, theme_colour: str, px: float, weight: int = 400, anchor: str = "middle"
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{theme_colour}" font-size="{px:g}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def box(
    left: float, top: float, width: float, height: float, lines: tuple[str, ...], fill: str, ink: str, edge: str
) -> str:
    """Draw a rounded box. The first line is its title, and all lines stand in its middle."""
    first = top + (height - LINE_PX * (len(lines) - 1)) / 2 + TEXT_PX / 3
    drawn = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="{fill}" stroke="{edge}"/>']
    for number, words in enumerate(lines):
        size, weight = (TITLE_PX, 600) if number == 0 else (TEXT_PX, 400)
        drawn.append(text(left + width / 2, first + number * LINE_PX, words, ink, size, weight))
    return "".join(drawn)


def arrow(left: float, right: float, y: float, words: str, theme: Theme) -> str:
    """Draw an arrow between two boxes, with words above it."""
    line = f'<path d="M{left + 5} {y}H{right - 13}" stroke="{theme.faint}" stroke-width="2.5" fill="none"/>'
    head = f'<path d="M{right - 5} {y}l-11 -6.5v13z" fill="{theme.faint}"/>'
    return line + head + text((left + right) / 2, y - 13, words, theme.faint, 13.5)


def drawing(theme: Theme) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="{FONT}" role="img">',
        "<title>Architecture: the same policy object serves live requests and simulated requests</title>",
    ]
    middles = []
    for number, (name, purpose, *boxes) in enumerate(ROWS):
        top = ROW_TOP + number * (ROW_HEIGHT + GAP)
        parts.append(f'<rect x="8" y="{top}" width="{WIDTH - 16}" height="{ROW_HEIGHT}" rx="12" fill="{theme.band}"/>')
        parts.append(text(34, top + 34, name, theme.ink, TITLE_PX + 2, 700, "start"))
        parts.append(text(WIDTH - 34, top + 34, purpose, theme.faint, TEXT_PX, 400, "end"))
        for column, lines in zip((0, 1, 3), boxes, strict=True):
            place = COLUMNS[column], top + BOX_TOP, WIDTHS[column], BOX_HEIGHT
            parts.append(box(*place, lines, theme.box, theme.ink, theme.line))
        middles.append(top + BOX_TOP + BOX_HEIGHT / 2)
    top = ROW_TOP + BOX_TOP - 40
    parts.append(box(COLUMNS[2], top, WIDTHS[2], HEIGHT - 2 * top, POLICY, theme.accent, theme.on_accent, theme.accent))
    ends = [left + width for left, width in zip(COLUMNS, WIDTHS, strict=True)]
    for middle in middles:
        for column, words in enumerate(("", "", "batches")):
            parts.append(arrow(ends[column], COLUMNS[column + 1], middle, words, theme))
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        (IMAGES / f"architecture-{name}.svg").write_text(drawing(theme))
    return 0


if __name__ == "__main__":
    sys.exit(main())
