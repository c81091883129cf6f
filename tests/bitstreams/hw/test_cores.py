"""FuseSoC takes the cores: it lints units, runs one, and calls Vivado for a card's part."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.bitstreams.hw import cores
from headrace.bitstreams.hw.folder import own_design, write_folder
from headrace.bitstreams.platforms import platform, platforms
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import rtl_sources, verilator_folder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cores") / "d"
    write_folder(folder, own_design(platform("u55c"), "rtl", (1, 1, 1), 225.0, {}))
    return folder


@pytest.fixture
def fusesoc(written, tmp_path):
    """Return fusesoc(*arguments), which runs in a copy of the folder."""
    folder = tmp_path / "d"
    shutil.copytree(written, folder)
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "VERILATOR_ROOT": str(verilator_folder()), "PATH": paths, "HOME": str(tmp_path)}

    def run(*arguments):
        command = [sys.executable, "-c", "from fusesoc.main import main; main()", "run", *arguments]
        return folder, subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)

    return run


def test_every_unit_has_a_core(written):
    units = {path.stem for path in hls_folder().glob("*/*.sv") if path.stem == path.parent.name}
    assert {path.stem for path in written.glob("*.core")} == units == set(cores.units(rtl_sources()))
    assert {"image_cu", "decode", "audio_norm_cu"} <= units


def test_what_is_only_included_is_no_source_of_its_own(written):
    core = json.loads((written / "image_cu.core").read_text().removeprefix("CAPI=2:"))
    marked = [file for file in core["filesets"]["rtl"]["files"] if not isinstance(file, str)]
    assert marked == [{"src/rtl/axi/axi_ports.svh": {"is_include_file": True}}]


# With all that they are made of. What is slow lacks no file: Verilator compiles the same lists for other tests.
@pytest.mark.parametrize(
    "unit",
    ["audio_norm_cu", *(pytest.param(unit, marks=pytest.mark.slow) for unit in ("image_cu", "audio_mel_cu"))],
)
def test_lint(fusesoc, unit):
    _, done = fusesoc("--target", "lint", f"headrace:unit:{unit}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_lint_notices_a_fault(fusesoc, written):
    folder, _ = fusesoc("--target", "lint", "--setup", "headrace:unit:crop")
    source = folder / "src/crop/crop.sv"
    source.write_text(source.read_text().replace("endmodule", "  assign nothing = 1'b1;\nendmodule"))
    _, done = fusesoc("--target", "lint", "headrace:unit:crop")
    assert done.returncode != 0 and "nothing" in done.stdout + done.stderr


@pytest.mark.slow
def test_sim_runs_the_unit(fusesoc):
    _, done = fusesoc("--target", "sim", "headrace:unit:normalize")
    assert done.returncode == 0 and "1000 clocks" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("unit", ["image_cu", "decode"])
def test_a_core_has_a_target_for_each_cards_part(written, unit):
    targets = json.loads((written / f"{unit}.core").read_text().removeprefix("CAPI=2:"))["targets"]
    for card in platforms().values():
        assert targets[card.name]["tools"]["vivado"]["part"] == card.part
        assert (targets[card.name]["toplevel"], targets[card.name]["filesets"]) == (unit, ["rtl"])


@pytest.mark.parametrize(
    "card",
    [pytest.param(card, marks=pytest.mark.slow if number else ()) for number, card in enumerate(sorted(platforms()))],
)
def test_a_cards_target_is_a_project_for_its_part(fusesoc, card):
    folder, done = fusesoc("--target", card, "--setup", "headrace:unit:decode")
    assert done.returncode == 0, done.stdout + done.stderr
    (project,) = _projects(folder, card)
    text = project.read_text()
    assert platforms()[card].part in text and "jpeg_parser.sv" in text
    assert text.index("headrace_pkg.sv") < text.index("/decode.sv")


def _projects(folder, card):
    found = [path for path in (folder / "build").rglob("*.tcl") if f"{card}-vivado" in str(path)]
    return [path for path in found if "create_project" in path.read_text()]
