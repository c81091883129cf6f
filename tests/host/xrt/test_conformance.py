"""The table of host/xrt/README.md: its calls are the script's, its first column is what the emulated device gives."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts/conformance_xrt.py"))
ROWS = [
    [cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in (ROOT / "host/xrt/README.md").read_text().splitlines()
    if line.startswith("| `")
]


def test_the_table_has_the_scripts_calls():
    assert [row[0] for row in ROWS] == list(SCRIPT["CALLS"])


def test_the_counts_are_the_tables():
    for column, release in ((2, "2.13"), (3, "2.16")):
        alike = sum(row[column] == row[1] for row in ROWS)
        assert f"{release}: {alike} of {len(ROWS)} calls give" in (ROOT / "host/xrt/README.md").read_text()


def test_what_differs_has_a_reason():
    text = (ROOT / "host/xrt/README.md").read_text()
    reasons = text[text.index("## Why") :]
    for call, ours, *theirs in ROWS:
        if any(value != ours for value in theirs):
            assert f"`{call}`" in reasons, call


@pytest.mark.parametrize(("call", "told"), [row[:2] for row in ROWS])
def test_the_emulated_device_gives_what_the_table_says(call, told, vadd_xclbin):
    names: dict[str, object] = {}
    exec(SCRIPT["PRELUDE"].format(real="", container=str(vadd_xclbin)), names)
    try:
        shown = repr(eval(call, names))
    except Exception as error:
        shown = type(error).__name__
    assert SCRIPT["plain"](shown) == told
