"""docs/reference/registers.md follows from hls/: what changes there changes the page."""

import dataclasses
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.bitstreams.sources import hls_folder
from headrace.host.dpu.units.status import Status

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "registers_reference.py"))
PAGE = ROOT / "docs" / "reference" / "registers.md"
HLS = hls_folder()


def test_the_page_in_the_repository_is_what_hls_says():
    assert PAGE.read_text() == SCRIPT["page"]()


def test_check_ends_with_0_for_the_page_in_the_repository():
    command = [sys.executable, ROOT / "scripts" / "registers_reference.py", "--check"]
    assert subprocess.run(command, timeout=60).returncode == 0


def test_the_page_has_every_compute_unit():
    found = {path.parent.name for path in HLS.glob("*/kernel.xml")}
    assert set(SCRIPT["CUS"]) == found
    assert re.findall(r"^## (\w+_cu)$", PAGE.read_text(), re.M) == list(SCRIPT["CUS"])


def test_the_page_documents_every_status_code_once():
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", PAGE.read_text(), re.M)
    assert [(int(code), name) for code, name in rows] == [(status.value, status.name) for status in Status]


def test_a_register_that_moves_or_is_explained_otherwise_changes_the_tables():
    spec = SCRIPT["spec_of"]("audio_norm_cu")
    moved = dataclasses.replace(
        spec, counters={**spec.counters, "wait_write": 0x158}, about={**spec.about, 0x158: "Waits."}
    )
    assert "| 0x158 | `wait_write` | Waits. |" in SCRIPT["register_tables"](moved)
    assert SCRIPT["register_tables"](moved) != SCRIPT["register_tables"](spec)


def test_a_status_code_without_advice_ends_the_script():
    header = (HLS / "include/headrace/status.hpp").read_text()
    with pytest.raises(SystemExit, match="STRANGE"):
        SCRIPT["status_table"](header.replace("STATUS_TOO_LONG = 24", "STATUS_TOO_LONG = 24,\n    STATUS_STRANGE = 25"))


def test_the_descriptor_is_read_from_the_rtls_struct():
    package = (HLS / "image_cu/image_cu_pkg.sv").read_text()
    rows = SCRIPT["descriptor_table"](package).splitlines()[2:]
    assert rows[0].startswith("| 0 | `jpeg` |") and rows[-1].startswith("| 15 | `number` |")
    with pytest.raises(AssertionError):
        SCRIPT["descriptor_table"](package.replace("logic [31:0] zeros;", "logic [63:0] zeros;"))


def test_the_control_registers_are_those_of_the_rtl():
    source = (HLS / "rtl/axi/axi_control.sv").read_text()
    table = SCRIPT["control_table"](source)
    assert "| 0x0C | `ISR` |" in table and "ap_continue" in table
    assert "| 0x10 | `ISR` |" in SCRIPT["control_table"](source.replace("Isr     = 12'h00C", "Isr     = 12'h010"))
