"""`--run` builds with recording stand-ins for the tools, and reads reports as Vivado writes them."""

import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from headrace.bitstreams.errors import BuildError
from headrace.bitstreams.hw.folder import write_folder
from headrace.bitstreams.hw.reports import read_reports
from headrace.bitstreams.hw.run import build_folder, implementation
from headrace.bitstreams.platforms import platform
from headrace.bitstreams.xclbin import Mode, make_xclbin, write_xclbin

U250 = platform("u250")
TIMING = """
------------------------------------------------------------------------------------------------
| Design Timing Summary
| ---------------------
------------------------------------------------------------------------------------------------

    WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns)      THS(ns)
    -------      -------  ---------------------  -------------------      -------      -------
     -0.042       -0.117                      5              1204311        0.010        0.000
"""
USED = """
1. CLB Logic
+----------------------------+--------+--------+------------+-----------+-------+
|          Site Type         |  Used  |  Fixed | Prohibited | Available | Util% |
+----------------------------+--------+--------+------------+-----------+-------+
| CLB LUTs                   | 214330 |      0 |          0 |   1728000 | 12.40 |
| CLB Registers              | 301122 |      0 |          0 |   3456000 |  8.71 |
+----------------------------+--------+--------+------------+-----------+-------+

3. BLOCKRAM
+-------------------+-------+-------+------------+-----------+-------+
|     Site Type     |  Used | Fixed | Prohibited | Available | Util% |
+-------------------+-------+-------+------------+-----------+-------+
| Block RAM Tile    | 245.5 |     0 |          0 |      2688 |  9.13 |
| URAM              |     4 |     0 |          0 |      1280 |  <0.3 |
| DSPs              |    71 |     0 |          0 |     12288 |  0.58 |
+-------------------+-------+-------+------------+-----------+-------+
"""
INFO = """Clocks
------
   Name:      DATA_CLK
   Index:     0
   Type:      DATA
   Frequency: 221 MHz

   Name:      KERNEL_CLK
   Index:     1
   Type:      KERNEL
   Frequency: 500 MHz
"""


@pytest.fixture
def linked(tmp_path, monkeypatch, recorders):
    """Write the files that the link leaves: a container and reports."""
    folder = tmp_path / "linked"
    runs = folder / "link/vivado/vpl/prj/prj.runs/impl_1"
    runs.mkdir(parents=True)
    (runs / "level0_wrapper_timing_summary_routed.rpt").write_text(TIMING)
    (runs / "level0_wrapper_utilization_placed.rpt").write_text(USED)
    (folder / "headrace.xclbin.info").write_text(INFO)
    write_xclbin(
        folder / "headrace.xclbin",
        make_xclbin(
            mode=Mode.PR,
            platform=U250.shell,
            bitstream=b"bits",
            metadata_xml=b"<project/>",
            build_metadata=b"{}",
            memories=[],
            ips=[],
            connections=[],
        ),
    )
    monkeypatch.setenv("LINKED", str(folder))
    return folder


def headrace(*arguments):
    command = [sys.executable, "-c", "from headrace.host.cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


COUNTS = ("--image-cus", "0", "--mel-cus", "1", "--norm-cus", "2")
HW = ("build", "--target", "hw", "--platform", "u250", *COUNTS)


def test_run_builds_and_info_shows_what_the_reports_say(tmp_path, linked):
    folder = tmp_path / "d"
    done = headrace(*HW, "-o", folder, "--run", "--json")
    assert done.returncode == 0, done.stderr
    assert "\nlinking\n" in done.stderr  # the build's own lines, as they come
    told = json.loads(done.stdout)
    assert told["built"] is True and told["implementation"]["clock_mhz"] == 221
    container = folder / "build/hw/headrace.xclbin"
    assert container.read_bytes() == (linked / "headrace.xclbin").read_bytes()  # v++'s own, untouched
    shown = json.loads(headrace("build", "--info", container, "--json").stdout)["implementation"]
    assert (shown["clock_mhz"], shown["slack_ns"]) == (221, -0.042)
    assert shown["utilisation"] == {
        "lut": {"used": 214330, "per_cent": 12.4},
        "ff": {"used": 301122, "per_cent": 8.71},
        "bram36": {"used": 245.5, "per_cent": 9.13},
        "uram": {"used": 4, "per_cent": 0.3},
        "dsp": {"used": 71, "per_cent": 0.58},
    }
    text = headrace("build", "--info", container).stdout
    assert "clock 221 MHz, worst slack -0.042 ns" in text and "lut: 214330 (12.4 % of the card)" in text


def test_without_run_nothing_is_said_to_be_built(tmp_path):
    done = headrace(*HW, "-o", tmp_path / "d", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["built"], told["implementation"]) == (0, False, None)
    assert "not built" in done.stderr


def test_a_report_of_another_container_is_not_shown(tmp_path, linked, design):
    write_folder(tmp_path / "d", design())
    reports = build_folder(tmp_path / "d", U250, lambda line: None)
    container = tmp_path / "d/build/hw/headrace.xclbin"
    assert implementation(container, reports["uuid"]) == reports
    assert implementation(container, str(UUID(int=1))) is None
    for damaged in ("[]", "{"):
        (tmp_path / "d/build/hw/headrace.xclbin.json").write_text(damaged)
        assert implementation(container, reports["uuid"]) is None


def test_what_the_reports_lack_is_unknown(tmp_path, linked):
    for report in [*linked.rglob("*.rpt"), linked / "headrace.xclbin.info"]:
        report.write_text("something else\n")
    assert read_reports(linked) | {"reports": None} == {
        "clock_mhz": None,
        "slack_ns": None,
        "utilisation": {},
        "reports": None,
    }
    for report in [*linked.rglob("*.rpt"), linked / "headrace.xclbin.info"]:
        report.unlink()
    assert read_reports(linked) == {"clock_mhz": None, "slack_ns": None, "utilisation": None, "reports": []}
    (linked / "headrace.xclbin").unlink()
    assert read_reports(linked) is None


def test_the_timing_after_the_last_step_counts(linked):
    routed = next(linked.rglob("*timing_summary_routed.rpt"))
    last = routed.with_name("level0_wrapper_timing_summary_postroute_physopted.rpt")
    last.write_text(TIMING.replace("-0.042", " 0.003"))
    assert read_reports(linked)["slack_ns"] == 0.003


def test_a_build_that_fails_shows_its_last_lines(tmp_path, linked, design, monkeypatch):
    write_folder(tmp_path / "d", design())
    monkeypatch.setenv("FAIL", "-l -t hw")
    with pytest.raises(BuildError, match=r"failed:[\s\S]*v\+\+ 60-1"):
        build_folder(tmp_path / "d", U250, lambda line: None)
    assert not (tmp_path / "d/build/hw/headrace.xclbin").exists()


def test_missing_tools_are_named_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = headrace(*HW, "-o", tmp_path / "d", "--run")
    assert done.returncode == 1 and done.stderr.startswith(
        "headrace: v++ is missing; source the settings64.sh of Vitis"
    )
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("vitis", "told"),
    [
        ("2021.2", "v++ is of Vitis 2021.2; xilinx_u250_gen3x16_xdma_4_1_202210_1 needs 2022.1 or later"),
        ("x", "v++ --version names no release"),
    ],
)
def test_a_wrong_vitis_is_refused(tmp_path, recorders, monkeypatch, vitis, told):
    monkeypatch.setenv("VITIS", vitis)
    done = headrace(*HW, "-o", tmp_path / "d", "--run")
    assert done.returncode == 1 and done.stderr.startswith(f"headrace: {told}")
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "d").exists()


def test_a_release_with_a_later_year_is_taken(recorders, monkeypatch):
    from headrace.bitstreams.hw.run import check_tools

    for vitis in ("2022.1", "2023.1", "2024.2"):
        monkeypatch.setenv("VITIS", vitis)
        check_tools(U250)


def test_the_reports_of_a_folder_are_read_there_too(tmp_path, linked, design):
    write_folder(tmp_path / "d", design())
    build_folder(tmp_path / "d", U250, lambda line: None)
    done = subprocess.run(["make", "-s", "-C", tmp_path / "d", "report"], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["slack_ns"] == -0.042
    assert Path(tmp_path / "d/reports.py").exists()
