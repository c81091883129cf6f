#!/usr/bin/env python3
"""Count the sampling factors of JPEG files: those that encoders wrote, and those of files that test decoders.

    scripts/count_samplings.py KIND:NAME=PATH[#TEXT] ... > docs/results/measured/samplings.json

A PATH is a folder, or a bare git repository, whose newest commit counts. KIND is `encoders` or `tests`. With #TEXT only
files count whose paths have the text, and with #-TEXT only those whose paths do not have it. Files of the same content
count once, in the first source that has them. A file counts by the frame header of its own image, not by
that of a thumbnail. Factors are written as H x V of each component, in the order of the frame header.

The file also counts the combinations of three components that T.81 allows, and those of which OpenCV decodes a file.
Two tables of docs/reference/units.md show the result (scripts/units_reference.py)."""

import argparse
import hashlib
import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "hls"))

from scan_script import Scan, random_image, to_jpeg

KINDS = ("encoders", "tests")
FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a segment
MAX_BLOCKS = 10
NAMES = re.compile(r"\.jpe?g$|\.jfif$|\.jpe$", re.IGNORECASE)


def factors_of(data: bytes) -> list[tuple[int, int]] | None:
    """Return (h, v) of each component in the first frame header; None if the data has none."""
    if not data.startswith(b"\xff\xd8"):
        return None
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in ALONE:
            at += 2
        elif marker in FRAMES and at + 10 <= len(data):
            count, body = data[at + 9], data[at + 10 : at + 10 + 3 * data[at + 9]]
            return (
                [(body[3 * n + 1] >> 4, body[3 * n + 1] & 15) for n in range(count)] if len(body) == 3 * count else None
            )
        elif marker == 0xDA:
            return None
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def class_of(factors: list[tuple[int, int]]) -> str:
    """Return the class of these factors, by what the image unit takes: docs/reference/units.md."""
    if len(factors) == 1:
        return "gray"
    if len(factors) != 3:
        return f"{len(factors)} components"
    sides = [side for pair in factors for side in pair]
    if not all(1 <= side <= 4 for side in sides):
        return "no factors of T.81"
    if 3 in sides:
        return "a factor of 3"
    if any(h > factors[0][0] or v > factors[0][1] for h, v in factors):
        return "chroma finer than luma"
    if sum(h * v for h, v in factors) > MAX_BLOCKS:
        return "more than ten blocks"
    return "taken"


def combinations() -> Iterator[tuple[str, str]]:
    """Yield each combination of factors of three components with at most ten blocks in an MCU, and its class."""
    pairs = list(itertools.product(range(1, 5), repeat=2))
    for factors in itertools.product(pairs, repeat=3):
        if sum(h * v for h, v in factors) <= MAX_BLOCKS:
            yield " ".join(f"{h}x{v}" for h, v in factors), class_of(list(factors))


def opencv_decodes(factors: str) -> bool:
    """Return whether OpenCV decodes a baseline file with these factors."""
    image = random_image(np.random.default_rng(1), 40, 40, factors)
    jpeg = to_jpeg(image, [Scan((0, 1, 2))], progressive=False)
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR) is not None


def files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each JPEG file in a folder or in the newest commit of a bare repository."""
    if not (path / "HEAD").exists():
        for file in sorted(path.rglob("*")):
            if NAMES.search(file.name) and file.is_file():
                yield str(file.relative_to(path)), file.read_bytes()
        return
    git = ["git", "-C", str(path)]
    listed = subprocess.run([*git, "ls-tree", "-rz", "HEAD"], capture_output=True, check=True, text=True).stdout
    rows = [line.split("\t") for line in filter(None, listed.split("\0"))]
    found = {name: words.split()[2] for words, name in rows if words.split()[1] == "blob" and NAMES.search(name)}
    with subprocess.Popen([*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as batch:
        assert batch.stdin is not None and batch.stdout is not None
        for name, blob in found.items():
            batch.stdin.write(f"{blob}\n".encode())
            batch.stdin.flush()
            _, kind, *size = batch.stdout.readline().split()
            if kind == b"blob":  # a snapshot lacks its largest files
                yield name, batch.stdout.read(int(size[0]) + 1)[:-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="KIND:NAME=PATH[#TEXT]")
    seen: set[str] = set()
    sources, others = [], []
    for given in parser.parse_args().sources:
        kind, _, rest = given.partition(":")
        name, _, place = rest.partition("=")
        path, _, text = place.partition("#")
        if kind not in KINDS or not Path(path).is_dir():
            parser.error(f"{given}: give {' or '.join(KINDS)}, a name and a folder, as encoders:phones=FOLDER")
        counts: Counter[str] = Counter()
        classes: Counter[str] = Counter()
        unread = 0
        for file, data in files(Path(path)):
            digest = hashlib.sha256(data).hexdigest()
            if digest in seen or (text.removeprefix("-") in file) == text.startswith("-"):
                continue
            seen.add(digest)
            factors = factors_of(data)
            if factors is None:
                unread += 1
                continue
            label = " ".join(f"{h}x{v}" for h, v in factors)
            counts[label] += 1
            classes[class_of(factors)] += 1
            if class_of(factors) not in ("taken", "gray"):
                others.append({"source": name, "file": file, "factors": label, "class": class_of(factors)})
        sources.append(
            {
                "kind": kind,
                "name": name,
                "files": counts.total(),
                "no_frame": unread,
                "classes": dict(classes.most_common()),
                "factors": dict(counts.most_common()),
            }
        )
        print(f"{name}: {counts.total()}", file=sys.stderr)
    every = list(combinations())
    figures: dict[str, Any] = {
        "combinations": dict(Counter(name for _, name in every)),
        "opencv_decodes": dict(Counter(name for factors, name in every if opencv_decodes(factors))),
        "sources": sources,
        "not_taken": others,
    }
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
