"""Draw the shields of the documentation from the results of the checks.

    .venv/bin/python scripts/shields.py [--tier test]

It reads what `make test` (or `make test-all`) and `make release-check` wrote, and refuses results of another commit, of
changed files, or with a failure. It writes docs/project/checked.json, which has the numbers, and an SVG for each shield
in docs/images/shields/. Each SVG names the commit in its title. Exit status 0, or 1 if a result is missing or refused.
"""

import argparse
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
CHECKED = ROOT / "docs" / "project" / "checked.json"
FOLDER = ROOT / "docs" / "images" / "shields"
UNITS = "tests.hls."  # the tests of the hardware units, in C++ and in RTL
HEIGHT, FONT_SIZE, CHARACTER, MARGIN = 20, 11, 6.6, 8  # pixels; the width of a character is that of a wide one


class Refused(Exception):
    """The results are no ground for a shield. The message says why."""


def collect(build: Path, tier: str) -> dict[str, Any]:
    """Read the results of the tests and of the release check. Raises Refused."""
    folder = build / "results" / tier
    try:
        commit = (folder / "commit").read_text().strip()
        suites = [ElementTree.parse(folder / f"{name}.xml").getroot() for name in ("parallel", "timed")]
        release = json.loads((build / "release_check" / "report.json").read_text())
    except FileNotFoundError as error:
        raise Refused(f"{error.filename} does not exist; run make {tier} and make release-check") from None
    if commit.endswith("-dirty"):
        raise Refused(f"make {tier} ran with changes that are not committed")
    if release["commit"] != commit:
        raise Refused(f"make {tier} ran on {commit}, and make release-check on {release['commit']}")
    cases = [case for suite in suites for case in suite.iter("testcase")]
    outcomes = [outcome(case) for case in cases]
    if failed := outcomes.count("failed"):
        raise Refused(f"{failed} tests failed")
    units = [each for case, each in zip(cases, outcomes, strict=True) if case.get("classname", "").startswith(UNITS)]
    return {
        "commit": commit,
        "version": release["version"],
        "python": release["python"],
        "tier": tier,
        "passed": outcomes.count("passed"),
        "skipped": outcomes.count("skipped"),
        "units_passed": units.count("passed"),
    }


def outcome(case: ElementTree.Element) -> str:
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


def shields(checked: dict[str, Any]) -> dict[str, str]:
    """Return the SVG of each shield by its name."""
    python = ".".join(checked["python"].split(".")[:2])
    texts = {
        "tests": (f"make {checked['tier']}", f"{checked['passed']:,} tests passed"),
        "units": ("hardware units, C++ and RTL", f"{checked['units_passed']:,} tests passed"),
        "packages": ("wheel and sdist", f"installed with Python {python}"),
    }
    return {name: svg(*text, f"{': '.join(text)}; commit {checked['commit'][:12]}") for name, text in texts.items()}


def svg(left: str, right: str, title: str) -> str:
    """Draw two fields with text, the name and the value."""
    widths = [round(len(text) * CHARACTER) + 2 * MARGIN for text in (left, right)]
    total = sum(widths)
    middles = (widths[0] / 2, widths[0] + widths[1] / 2)
    size = f'width="{total}" height="{HEIGHT}"'
    font = f'font-family="Verdana,DejaVu Sans,sans-serif" font-size="{FONT_SIZE}"'
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f'<rect {size} rx="3" fill="#444c56"/>',
        f'<path d="M{widths[0]} 0h{widths[1] - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{widths[0]}z" fill="#1a6e37"/>',
        f'<g fill="#fff" {font} text-anchor="middle">',
        *(f'<text x="{x:g}" y="14">{text}</text>' for x, text in zip(middles, (left, right), strict=True)),
        "</g>",
        "</svg>",
    )
    return "\n".join(lines) + "\n"


def write(checked: dict[str, Any], file: Path, folder: Path) -> Iterable[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(checked, indent=2) + "\n")
    yield file
    for name, picture in shields(checked).items():
        path = folder / f"{name}.svg"
        path.write_text(picture)
        yield path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", default="test", choices=("test", "test-all"), help="the tests to count [%(default)s]")
    options = parser.parse_args()
    try:
        checked = collect(BUILD, options.tier)
    except Refused as reason:
        print(f"shields: {reason}", file=sys.stderr)
        return 1
    for path in write(checked, CHECKED, FOLDER):
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
