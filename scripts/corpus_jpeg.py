#!/usr/bin/env python3
"""Compare the image CU's decoder with OpenCV on real JPEG files: equal, refused with the reason, or different.

    .venv/bin/python scripts/corpus_jpeg.py [FOLDER ...] [--rtl MEGAPIXELS] [--only-given] [--list]

The files come from the installed Python packages, /usr/share and the given folders. Each content counts once. The C++
is built as `headrace build --target sw_emu` builds it, the RTL as `--target hw_emu`. The RTL is simulated clock by
clock and takes about a second for 0.4 megapixels. The table on stdout is Markdown; progress goes
to stderr. The exit status is 1 if a file differs.
"""

import argparse
import asyncio
import hashlib
import site
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np

from headrace.batching import UnsupportedInput
from headrace.bitstreams.build import build_hw_emu, build_sw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Fallback
from headrace.host.dpu.specs import ImageSpec, ImageStage
from headrace.host.dpu.units.status import Status

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif"}
EQUAL, DIFFERENT, OPENCV_REFUSES = "equal", "different", "refused by OpenCV, too"
TIMEOUT_S = 600.0  # for one file


def jpeg_files(folders: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield each file with a new content, in the order of the paths."""
    seen = set()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() not in SUFFIXES or not path.is_file():
                continue
            data = path.read_bytes()
            digest = hashlib.sha256(data).digest()
            if digest not in seen:
                seen.add(digest)
                yield path, data


def decoded_by_opencv(jpeg: bytes) -> np.ndarray | None:
    """Return the RGB image, or None if OpenCV refuses the file."""
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), flags) if jpeg else None
    except cv2.error:
        return None
    return None if image is None else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


async def outcome(dpu: Dpu, jpeg: bytes, expected: np.ndarray | None) -> str:
    """Return EQUAL, DIFFERENT, OPENCV_REFUSES or the name of the status of a refusal."""
    try:
        decoded = (await dpu.process(jpeg, ImageStage.DECODE)).tensor
    except UnsupportedInput as error:
        return OPENCV_REFUSES if expected is None else str(error).partition(":")[0]
    return EQUAL if expected is not None and np.array_equal(decoded, expected) else DIFFERENT


def table(columns: dict[str, Counter[str]]) -> str:
    """Return the outcomes by implementation as a Markdown table."""

    def row(name: str, outcome: str) -> str:
        return f"| {name} | " + " | ".join(f"{counts[outcome]:,}" for counts in columns.values()) + " |"

    outcomes = set().union(*columns.values())
    lines = ["| files | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns), row("equal", EQUAL)]
    for status in Status:
        if status.name in outcomes:
            lines.append(row(f"refused: {status.reason} ({int(status)})", status.name))
    if OPENCV_REFUSES in outcomes:
        lines.append(row(OPENCV_REFUSES, OPENCV_REFUSES))
    lines.append(row("different", DIFFERENT))
    lines.append("| all | " + " | ".join(f"{counts.total():,}" for counts in columns.values()) + " |")
    return "\n".join(lines)


async def compare(
    build: Callable[..., object], files: Sequence[tuple[Path, bytes]], pixels: float, show: bool
) -> Counter[str]:
    """Count the outcomes of the files. Images with more than `pixels` pixels are left out."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        xclbin = Path(folder) / "image.xclbin"
        build(xclbin, image_cus=1)
        async with Dpu(xclbin, ImageSpec(), timeout_s=TIMEOUT_S, fallback=Fallback.RAISE) as dpu:
            for number, (path, jpeg) in enumerate(files, start=1):
                expected = decoded_by_opencv(jpeg)
                if expected is not None and expected.shape[0] * expected.shape[1] > pixels:
                    continue
                result = await outcome(dpu, jpeg, expected)
                counts[result] += 1
                if result == DIFFERENT or show:
                    print(f"{path}: {result}", file=sys.stderr)
                if number % 100 == 0:
                    print(f"{number} of {len(files)} files", file=sys.stderr)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--rtl", type=float, metavar="MEGAPIXELS", help="also check the RTL, on images up to this size")
    parser.add_argument("--only-given", action="store_true", help="leave out the packages and /usr/share")
    parser.add_argument("--list", action="store_true", help="print the outcome of each file")
    args = parser.parse_args()
    for folder in args.folders:
        if not folder.is_dir():
            parser.error(f"{folder} is not a folder")
    installed = [] if args.only_given else [*map(Path, site.getsitepackages()), Path("/usr/share")]
    files = list(jpeg_files([*installed, *args.folders]))
    if not files:
        parser.error("no JPEG files found; give a folder that has some")

    columns = {"C++": asyncio.run(compare(build_sw_emu, files, float("inf"), args.list))}
    if args.rtl is not None:
        counts = asyncio.run(compare(build_hw_emu, files, args.rtl * 1e6, args.list))
        columns[f"RTL, to {args.rtl:g} megapixels"] = counts
    print(table(columns))
    return int(any(counts[DIFFERENT] for counts in columns.values()))


if __name__ == "__main__":
    sys.exit(main())
