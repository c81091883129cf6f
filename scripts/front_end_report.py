#!/usr/bin/env python3
"""Compare the built-in front ends with transformers over the curated images, for some models, and print tables.

    .venv/bin/python scripts/front_end_report.py [MODEL ...]

docs/results/front_ends.md has the tables of a recorded run."""

import sys
from collections.abc import Iterator

from headrace.host.compare.comparison import DIFFERS, EQUAL, FAILED, Comparison, compare

MODELS = ("clip-vit-base-patch32", "qwen2-vl", "vit-base-patch16-224")
FRONT_ENDS = ("headrace", "pillow", "torchvision", "opencv", "torch-float", "dali-like")


def rows(found: Comparison) -> Iterator[str]:
    """Yield the cells of a front end: files that are equal, and for each stage those that differ and by how much."""
    yield found.candidate["name"]
    yield f"{found.count(EQUAL)} of {len(found.files)}"
    for name in found.names:
        stage = found.stages.get(name)
        if stage is None or not stage["differ"]:
            yield ""
        else:
            largest = f"{stage['max']:.0f}" if stage["unit"] == "levels" else f"{stage['max']:.1e}"
            yield f"{stage['differ']}: {largest}, {stage['share']:.1%}"
    yield str(found.count(FAILED) or "")


def main() -> int:
    for model in sys.argv[1:] or MODELS:
        print(f"\n{model}\n")
        head: tuple[str, ...] = ()
        for name in FRONT_ENDS:
            found = compare(f"transformers:{model}", name)
            if not head:
                head = ("front end", "equal files", *found.names, "failed")
                print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
            print(f"| {' | '.join(rows(found))} |", flush=True)
            first = ", ".join(f"{stage} {count}" for stage, count in found.first.items())
            print(f"{name}: {found.count(DIFFERS)} differ, first at {first or 'none'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
