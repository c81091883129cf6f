"""The folder of a hardware build: its content, how make calls the vendor's tools, and what is refused."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from headrace.batching.errors import UsageError
from headrace.bitstreams.errors import WrongNumber
from headrace.bitstreams.hw import check
from headrace.bitstreams.hw.folder import Design, own_design, write_folder
from headrace.bitstreams.platforms import platform, platforms
from headrace.bitstreams.sources import hls_folder

VADD = Path(__file__).parents[1] / "vadd"
XML = (VADD / "kernel.xml").read_bytes()
VADD_SOURCES = [hls_folder() / "rtl" / "stream_fifo.sv", VADD / "vadd.sv"]


def make(folder, *arguments):
    done = subprocess.run(["make", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kernel", ["rtl", "hls"])
def test_make_calls_the_tools_as_committed(tmp_path, recorders, design, golden, kernel):
    folder = tmp_path / "build-u250"
    write_folder(folder, design(kernel))
    make(folder, "xclbin", "hw_emu", "platform")
    first = recorders.read_text()
    golden(f"{kernel}.txt", first.replace(str(folder.resolve()), "FOLDER"))
    make(folder, "xclbin", "hw_emu")
    assert recorders.read_text() == first  # nothing changed, nothing is built again
    make(folder, "clean")
    assert not (folder / "build").exists()


def test_monitors_are_linked_on_request(tmp_path, recorders, design):
    write_folder(tmp_path / "d", design())
    make(tmp_path / "d", "xclbin")
    assert "profile.cfg" not in recorders.read_text()
    make(tmp_path / "d", "clean")
    make(tmp_path / "d", "xclbin", "PROFILE=1")
    assert "--config link.cfg --config profile.cfg" in recorders.read_text()


def test_what_a_dry_run_prints_needs_no_tool(tmp_path, design, monkeypatch):
    write_folder(tmp_path / "d", design())
    printed = make(tmp_path / "d", "-n", "xclbin")
    assert "v++ -l -t hw" in printed and printed.count("package_kernel.tcl -tclargs") == 2
    assert not (tmp_path / "d" / "build").exists()


TARGETS = {"xo": "vivado", "xclbin": "vivado", "hw_emu": "vivado", "platform": "platforminfo"}


def refused(folder, *arguments):
    """Return the error of make for a build that it does not begin, without make's own lines."""
    done = subprocess.run(["make", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and not (folder / "build").exists(), done.stdout + done.stderr
    return "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("make"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", ["rtl", "hls"])
def test_without_the_tools_make_says_what_to_do(tmp_path, design, kernel, target):
    write_folder(tmp_path / "d", design(kernel))
    tool = TARGETS[target] if kernel == "rtl" or target == "platform" else "v++"
    said = f"{tool} is missing; source the settings64.sh of Vitis 2022.1 or later\n"
    assert refused(tmp_path / "d", target) == said


@pytest.mark.parametrize(
    ("vitis", "said"),
    [
        (
            "2021.2",
            "is of 2021.2; the card's platform needs 2022.1; source the settings64.sh of that or a later Vitis\n",
        ),
        ("x", "names no release; is this the "),
    ],
)
@pytest.mark.parametrize(("kernel", "tool"), [("rtl", "vivado"), ("hls", "v++")])
def test_with_another_vitis_make_says_what_it_needs(
    tmp_path, recorders, monkeypatch, design, kernel, tool, vitis, said
):
    write_folder(tmp_path / "d", design(kernel))
    monkeypatch.setenv("VITIS", vitis)
    told = refused(tmp_path / "d", "xclbin")
    assert told.startswith(tool) and said in told and told.count("\n") == 1
    for later in ("2022.1", "2022.10", "2024.2"):
        monkeypatch.setenv("VITIS", later)
        make(tmp_path / "d", "xclbin")
        make(tmp_path / "d", "clean")


def test_what_is_built_needs_no_tool_to_stay(tmp_path, recorders, design, monkeypatch):
    write_folder(tmp_path / "d", design())
    make(tmp_path / "d", "xclbin")
    monkeypatch.setenv("PATH", os.environ["PATH"].partition(":")[2])
    assert "Nothing to be done" in make(tmp_path / "d", "xclbin")


@pytest.mark.parametrize("script", ["package_kernel", "opt_pre", "place_pre"])
def test_the_scripts_run_the_commands_that_are_committed(tmp_path, golden, script):
    folder = (tmp_path / "d").resolve()
    write_folder(folder, Design(platform("u280"), "rtl", (XML,), {"vadd": 4}), VADD_SOURCES)
    command = ["tclsh", "scripts/record.tcl", f"scripts/{script}.tcl", "vadd", "PART", str(tmp_path / "x")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    golden(f"{script}.txt", done.stdout.replace(str(folder), "ROOT").replace(str(tmp_path / "x"), "OUT"))
    if script == "package_kernel":  # what the IP is made of lies within it
        assert (tmp_path / "x/ip_vadd/src/vadd/vadd.sv").read_bytes() == (VADD / "vadd.sv").read_bytes()


@pytest.mark.parametrize(("card", "slr"), [("u250", {}), ("u280", {}), ("u50", {"vadd_1": 1})])
def test_banks_and_dies_are_those_that_are_committed(tmp_path, golden, card, slr):
    write_folder(tmp_path / "d", Design(platform(card), "rtl", (XML,), {"vadd": 5}, 250.0, slr), VADD_SOURCES)
    golden(f"link_{card}.cfg", (tmp_path / "d/link.cfg").read_text() + (tmp_path / "d/floorplan.tcl").read_text())
    assert "-period 4.000 " in (tmp_path / "d/constraints/ap_clk.xdc").read_text()


@pytest.mark.parametrize("card", sorted(platforms()))
@pytest.mark.parametrize("kernel", ["rtl", "hls"])
def test_every_cards_folder_agrees_with_itself(tmp_path, card, kernel):
    write_folder(tmp_path / "d", own_design(platform(card), kernel, (4, 1, 1), 225.0, {}))
    assert check.check_folder(tmp_path / "d") == []
    if card == "u250":
        assert "agree" in make(tmp_path / "d", "check")


def test_the_folder_says_that_it_is_not_built(tmp_path, recorders, design):
    write_folder(tmp_path / "d", design())
    assert "Not built" in (tmp_path / "d/README.md").read_text()
    assert json.loads((tmp_path / "d/manifest.json").read_text())["built"] is False
    assert "not built" in make(tmp_path / "d", "report")
    make(tmp_path / "d", "xclbin")
    assert "not built" not in make(tmp_path / "d", "report")


@pytest.mark.parametrize("kernel", ["rtl", "hls"])
def test_what_a_source_includes_is_in_the_folder(tmp_path, kernel):
    """The compiler checks the C++, without our stand-ins for the vendor's headers. `include lines show it for the
    RTL."""
    write_folder(tmp_path / "d", own_design(platform("u55c"), kernel, (1, 1, 1), 225.0, {}))
    src = tmp_path / "d" / "src"
    if kernel == "rtl":
        used = [
            (path, line)
            for path in src.rglob("*.sv")
            for line in path.read_text().splitlines()
            if line[:8] == "`include"
        ]
        assert used and all((path.parent / line.split('"')[1]).is_file() for path, line in used)
        return
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    for name in ("ap_int.h", "hls_stream.h"):
        (vendor / name).touch()
    files = list(map(str, src.rglob("*.cpp")))
    command = ["g++", "-std=c++17", "-M", f"-I{src}/include", f"-I{src}", f"-I{vendor}", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert len(files) > 5 and done.returncode == 0, done.stderr


def test_a_folder_is_written_anew_and_keeps_what_was_built(tmp_path, recorders, design):
    folder = tmp_path / "d"
    folder.mkdir()  # an empty one is as good as none
    write_folder(folder, design())
    make(folder, "xclbin")
    first = recorders.read_text()
    write_folder(folder, design())
    make(folder, "xclbin")
    assert recorders.read_text() == first
    write_folder(folder, design(audio_mel_cu_1=3))
    make(folder, "xclbin")
    linked_again = recorders.read_text().removeprefix(first)
    assert [line.split(" -t ")[0] for line in linked_again.splitlines()] == [
        "v++ --version",
        "vivado -version",
        "v++ -l",
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("kernel", ["rtl", "hls"])
def test_for_another_card_all_is_built_again(tmp_path, recorders, design, kernel):
    write_folder(tmp_path / "d", design(kernel))
    make(tmp_path / "d", "xclbin", "hw_emu")
    first = recorders.read_text()
    write_folder(tmp_path / "d", design(kernel, "u280"))
    make(tmp_path / "d", "xclbin", "hw_emu")
    again = recorders.read_text().removeprefix(first)
    assert again.count("\n") == first.count("\n") and "u250" not in again


def test_a_folder_with_other_content_is_left_alone(tmp_path, design):
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="it holds other files"):
        write_folder(folder, design())
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]
    (folder / "letter.txt").unlink()
    write_folder(folder, design())
    for name, text in (("link.cfg", "changed"), ("letter.txt", "dear")):
        before = (folder / name).read_text() if (folder / name).exists() else None
        (folder / name).write_text(text)
        with pytest.raises(UsageError, match=rf"{name} is not as it was written"):
            write_folder(folder, design("hls"))
        assert (folder / name).read_text() == text and (folder / "kernels/audio_mel_cu.tcl").exists()
        (folder / name).unlink() if before is None else (folder / name).write_text(before)
    with pytest.raises(UsageError, match="Not a directory"):
        write_folder(folder / "link.cfg", design())


def test_a_folder_that_cannot_be_written(tmp_path, design):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"-o .*file/d: .*; name a folder that can be written"):
        write_folder(tmp_path / "file" / "d", design())


def test_more_ports_than_the_memory_has_are_refused(tmp_path):
    ports = b"".join(
        b'<arg name="p%d" addressQualifier="1" id="%d" port="M_AXI_P%d" size="0x8" offset="0x%X" hostSize="0x8" '
        b'type="int*"/>' % (i, i, i, 0x10 + 12 * i)
        for i in range(3)
    )
    xml = b'<root><kernel name="k" hwControlProtocol="ap_ctrl_chain"><args>%s</args></kernel></root>' % ports
    source = tmp_path / "k.sv"
    source.write_text("module k; endmodule\n")
    with pytest.raises(WrongNumber, match="11 compute units have 33 memory ports, and the 32 banks of u50 take 32"):
        write_folder(tmp_path / "d", Design(platform("u50"), "rtl", (xml,), {"k": 11}), [source])
    with pytest.raises(WrongNumber, match="17 compute units"):
        write_folder(tmp_path / "d", Design(platform("u50"), "rtl", (xml,), {"k": 17}), [source])
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("unit", "slr", "reason"),
    [("audio_mel_cu_1", 4, "u250 has SLR 0 to 3"), ("image_cu_1", 0, "no such unit; there are audio_mel_cu_1")],
)
def test_a_die_that_is_not_there(tmp_path, design, unit, slr, reason):
    with pytest.raises(UsageError, match=reason):
        write_folder(tmp_path / "d", design(**{unit: slr}))
    assert not (tmp_path / "d").exists()


def test_run_names_what_is_missing(tmp_path, design):
    write_folder(tmp_path / "d", design())
    for environment, reason in (
        ({}, "XILINX_XRT is not set"),
        ({"XILINX_XRT": "/opt"}, "headrace.xclbin is not built"),
    ):
        done = subprocess.run(
            ["make", "-C", str(tmp_path / "d"), "run"],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], **environment},
        )
        assert done.returncode != 0 and reason in done.stderr
