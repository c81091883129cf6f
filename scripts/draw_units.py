#!/usr/bin/env python3
"""Draw the pipelines of the compute units, for light and for dark ground: docs/images/{image_unit,audio_units}-*.svg.

    .venv/bin/python scripts/draw_units.py [--check]

With --check nothing is written, and the exit status is 1 if a file is not what would be written."""

import argparse
import sys
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTH = 800
LIGHT = """
  .page { fill: #ffffff; }
  .frame { fill: #f1f4f7; stroke: #c4cbd3; }
  .box { fill: #ffffff; stroke: #52616f; }
  .memory { fill: #e2e8ef; stroke: #52616f; }
  .image { fill: #dcebf9; stroke: #2a6aa8; }
  .audio { fill: #e0f1e4; stroke: #2f7d46; }
  .wire { fill: none; stroke: #52616f; }
  .side { fill: none; stroke: #a85b00; }
  .head { fill: #52616f; }
  .sidehead { fill: #a85b00; }
  .note { fill: #8a4a00; }
  .title, .name, .text { fill: #1b2733; }
"""
DARK = """
  .page { fill: #14181d; }
  .frame { fill: #1a222b; stroke: #46515d; }
  .box { fill: #222d38; stroke: #9fb0c2; }
  .memory { fill: #2b3540; stroke: #9fb0c2; }
  .image { fill: #1c3a57; stroke: #6fb1ee; }
  .audio { fill: #1d4228; stroke: #74c58c; }
  .wire { fill: none; stroke: #9fb0c2; }
  .side { fill: none; stroke: #f0a648; }
  .head { fill: #9fb0c2; }
  .sidehead { fill: #f0a648; }
  .note { fill: #f0a648; }
  .title, .name, .text { fill: #e6edf3; }
"""
SHAPES = """
  .wire, .side { stroke-width: 1.8; }
  .side { stroke-dasharray: 5 4; }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; font-size: 12.5px; }
  .title { font-size: 16px; font-weight: 600; }
  .name { font-size: 14px; font-weight: 600; }
"""
THEMES = {"light": LIGHT, "dark": DARK}


class Drawing:
    """An SVG under way. Coordinates are pixels from the upper left corner."""

    def __init__(self, style: str, title: str, about: str, height: int) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-labelledby="title about">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="about">{escape(about)}</desc>',
            f"<style>{SHAPES}{style}</style>",
            "<defs>",
            *(
                f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                f'markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path class="{name}" d="M0 0L8 4L0 8z"/>'
                "</marker>"
                for name in ("head", "sidehead")
            ),
            "</defs>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        ]
        self.text(20, 22, title, "title", anchor="start")

    def box(self, x: int, y: int, width: int, height: int, lines: Sequence[str], kind: str = "box") -> None:
        """Draw a box with a name and further lines in its middle."""
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        first = y + height / 2 - 8.5 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 17 * number, line, "text" if number else "name")

    def frame(self, x: int, y: int, width: int, height: int, name: str) -> None:
        """Draw a frame around boxes that come later, with its name in its upper left corner."""
        self._parts.append(f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>')
        self.text(x + 12, y + 20, name, "name", anchor="start")

    def text(self, x: float, y: float, text: str, kind: str = "text", anchor: str = "middle") -> None:
        self._parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def arrow(self, *points: tuple[int, int], side: bool = False, both: bool = False) -> None:
        """Draw an arrow through the points. `side` is for what goes past the stream of data; `both` has two heads."""
        kind, head = ("side", "sidehead") if side else ("wire", "head")
        path = "M" + "L".join(f"{x} {y}" for x, y in points)
        start = f' marker-start="url(#{head})"' if both else ""
        self._parts.append(f'<path class="{kind}" d="{path}" marker-end="url(#{head})"{start}/>')

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


COLUMNS = (156, 318, 480, 642)  # left edges of the boxes in a row
BOX = 138


def image_unit(style: str) -> str:
    """Return the drawing of image_cu."""
    drawing = Drawing(
        style,
        "The image compute unit: one JPEG file to one tensor",
        "A file goes from device memory through parse, entropy decoder, transform and render, then through resize, "
        "crop, normalize and store back to device memory. Files of several scans take a way through a workspace. A "
        "program takes the scaler in place of resize and crop. It ends in normalize, in patches, or in the workspace.",
        604,
    )
    drawing.box(16, 52, 104, 466, [], "memory")
    drawing.text(68, 44, "memory", "name")
    for y, port, what in (
        (110, "gmem0", "file"),
        (230, "gmem1", "workspace"),
        (322, "gmem1", "tensor"),
        (440, "gmem1", "tensor"),
        (490, "gmem1", "images"),
    ):
        drawing.text(68, y, port, "name")
        drawing.text(68, y + 17, what)
    drawing.frame(142, 48, 650, 222, "decode")
    top, middle, low, lowest, high = 80, 186, 292, 406, 68
    for x, lines in zip(
        COLUMNS,
        (
            ("parse", "headers, tables", "1 byte a clock"),
            ("entropy decoder", "Huffman codes", "2 symbols a clock"),
            ("transform", "inverse DCT", "8 clocks a block"),
            ("render", "upsample, RGB", "2 pixels a clock"),
        ),
        strict=True,
    ):
        drawing.box(x, top, BOX, high, lines, "image")
    drawing.box(COLUMNS[1], middle, BOX, high, ("band decoder", "several scans:", "progressive files"), "image")
    for x, lines in zip(
        COLUMNS,
        (
            ("store", "planes, 256-bit", "words"),
            ("normalize", "256-entry tables", "2 pixels a clock"),
            ("crop", "a window", "2 pixels a clock"),
            ("resize", "bilinear", "2 pixels a clock"),
        ),
        strict=True,
    ):
        drawing.box(x, low, BOX, high, lines, "image")
    for x, lines in zip(
        COLUMNS,
        (
            ("tensor_write", "words in a row", "16 bytes a clock"),
            ("image_keep", "images for later", "passes, image_read"),
            ("patches", "256-entry tables", "2 pixels a clock"),
            ("scaler", "any filter, a canvas", "2 pixels a clock"),
        ),
        strict=True,
    ):
        drawing.box(x, lowest, BOX, high, lines, "image")
    line, last = top + high // 2, lowest + high // 2
    drawing.arrow((COLUMNS[3] + BOX, line), (788, line), (788, last), (COLUMNS[3] + BOX, last))
    drawing.arrow(
        (COLUMNS[3] + 48, lowest),
        (COLUMNS[3] + 48, low + high + 14),
        (COLUMNS[1] + 69, low + high + 14),
        (COLUMNS[1] + 69, low + high),
    )
    drawing.arrow((COLUMNS[3], last), (COLUMNS[2] + BOX, last))
    drawing.arrow(
        (COLUMNS[2] + 69, lowest),
        (COLUMNS[2] + 69, lowest - 16),
        (COLUMNS[0] + 69, lowest - 16),
        (COLUMNS[0] + 69, lowest),
    )
    drawing.arrow((COLUMNS[1], last), (COLUMNS[0] + BOX, last))
    drawing.arrow((COLUMNS[0], last), (120, last))
    drawing.arrow((120, lowest + high + 18), (COLUMNS[1] + 40, lowest + high + 18), (COLUMNS[1] + 40, lowest + high))
    drawing.arrow(
        (COLUMNS[1] + 98, lowest + high),
        (COLUMNS[1] + 98, lowest + high + 18),
        (COLUMNS[3] + 69, lowest + high + 18),
        (COLUMNS[3] + 69, lowest + high),
        both=True,
    )
    drawing.arrow((120, line), (COLUMNS[0], line))
    for left, right in pairwise(COLUMNS):
        drawing.arrow((left + BOX, line), (right, line))
        drawing.arrow((right, low + high // 2), (left + BOX, low + high // 2))
    drawing.arrow((COLUMNS[0], low + high // 2), (120, low + high // 2))
    drawing.arrow((COLUMNS[0] + 100, top + high), (COLUMNS[0] + 100, middle + 22), (COLUMNS[1], middle + 22))
    drawing.arrow((120, middle + 48), (COLUMNS[1], middle + 48), both=True)
    drawing.arrow((COLUMNS[1] + BOX, middle + 34), (COLUMNS[2] + 40, middle + 34), (COLUMNS[2] + 40, top + high))
    drawing.arrow((COLUMNS[3] + 100, top + high), (COLUMNS[3] + 100, low))
    drawing.arrow((COLUMNS[3] + 34, low), (COLUMNS[3] + 34, top + high), side=True)
    drawing.text(COLUMNS[3] + 26, middle + 20, "which pixels", "note", anchor="end")
    drawing.text(COLUMNS[3] + 26, middle + 36, "the crop needs", "note", anchor="end")
    drawing.box(
        16, 536, 776, 48, ["cu_shell", "registers (AXI4-Lite), start and done, result record, counters, ring of jobs"]
    )
    return drawing.svg()


def audio_units(style: str) -> str:
    """Return the drawing of audio_mel_cu and audio_norm_cu, and of their work on three requests."""
    drawing = Drawing(
        style,
        "The audio compute units: a WAV file to log-mel bands to a tensor",
        "CU A resamples a file to 16 kHz and makes log-mel bands, which it leaves in device memory with their sums. CU "
        "B normalizes them. While CU B works on a request, CU A works on the next one.",
        462,
    )
    drawing.box(16, 52, 104, 274, [], "memory")
    drawing.text(68, 44, "memory", "name")
    for y, what in ((116, "file"), (190, "mel bands"), (207, "and sums"), (280, "tensor")):
        drawing.text(68, y, what)
    high, top, low = 66, 78, 242
    drawing.frame(142, 48, 650, 128, "CU A: audio_mel_cu")
    drawing.frame(142, 212, 650, 114, "CU B: audio_norm_cu")
    for x, lines in zip(
        COLUMNS,
        (
            ("wav", "headers, mono", "1 sample a clock"),
            ("resample", "88-lane FIR", "to 16 kHz"),
            ("mel", "FFT, filters, log", "1 sample a clock"),
            ("sound_store", "float32 values", "sums of each band"),
        ),
        strict=True,
    ):
        drawing.box(x, top, BOX, high, lines, "audio")
    for x, lines in zip(
        COLUMNS[1:],
        (
            ("tensor_rows", "a row for each band", "axi_write"),
            ("normalize", "(x - mean) / std", "4 values a clock"),
            ("statistics", "mean, deviation", "6 clocks a band"),
        ),
        strict=True,
    ):
        drawing.box(x, low, BOX, high, lines, "audio")
    line, under = top + high // 2, low + high // 2
    drawing.arrow((120, line), (COLUMNS[0], line))
    for left, right in pairwise(COLUMNS):
        drawing.arrow((left + BOX, line), (right, line))
    for left, right in pairwise(COLUMNS[1:]):
        drawing.arrow((right, under), (left + BOX, under))
    drawing.arrow((COLUMNS[1], under), (120, under))
    drawing.arrow((COLUMNS[3] + 100, top + high), (COLUMNS[3] + 100, 186), (120, 186))
    drawing.arrow((120, 203), (COLUMNS[3] + 40, 203), (COLUMNS[3] + 40, low))
    drawing.text(20, 356, "Three requests", "name", anchor="start")
    for unit, y, starts in (("CU A", 372, (156, 326, 496)), ("CU B", 412, (326, 496, 666))):
        drawing.text(138, y + 20, unit, "text", anchor="end")
        for number, x in enumerate(starts, 1):
            drawing.box(x, y, 166 if unit == "CU A" else 44, 30, [f"{number}"], "audio")
    drawing.text(782, 356, "CU B normalizes a request while CU A works on the next one", "note", anchor="end")
    return drawing.svg()


DRAWINGS: dict[str, Callable[[str], str]] = {"image_unit": image_unit, "audio_units": audio_units}


def files() -> dict[str, str]:
    """Return the content of each file, by name."""
    return {f"{name}-{theme}.svg": draw(style) for name, draw in DRAWINGS.items() for theme, style in THEMES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for name, text in files().items():
        file = FOLDER / name
        if not check:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            sys.exit(f"{name} is not what the script draws: run scripts/draw_units.py")


if __name__ == "__main__":
    main()
