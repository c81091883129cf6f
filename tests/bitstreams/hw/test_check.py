"""`make check` and its function find disagreements: each case changes one thing in a valid folder."""

import re
import shutil
import subprocess

import pytest

from headrace.bitstreams.hw import check
from headrace.bitstreams.hw.folder import own_design, write_folder
from headrace.bitstreams.platforms import platform

XML = "kernels/audio_norm_cu.xml"
RTL, CPP = (f"src/audio_norm_cu/audio_norm_cu.{kind}" for kind in ("sv", "cpp"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folders = {}
    for kernel in ("rtl", "hls"):
        folders[kernel] = tmp_path_factory.mktemp("sound") / kernel
        write_folder(folders[kernel], own_design(platform("u250"), kernel, (0, 1, 2), 225.0, {}))
    return folders


CHANGES = (
    ("both", XML, 'offset="0x28"', 'offset="0x2C"', "result"),
    ("both", XML, 'name="frames"', 'name="frame"', "frame"),
    ("both", XML, 'id="1" port="M_AXI_GMEM1"', 'id="1" port="M_AXI_GMEM0"', "tensor|M_AXI_GMEM0|m_axi_gmem0"),
    ("both", XML, 'id="1" port="M_AXI_GMEM1"', 'id="1" port="S_AXI_CONTROL"', "not a port of its kind"),
    ("both", XML, 'hwControlProtocol="ap_ctrl_chain"', 'hwControlProtocol="ap_ctrl_hs"', "ap_ctrl_hs"),
    ("both", XML, 'offset="0x5C"', 'offset="0xFFE"', "argument std_floor lies beyond the 4096 bytes"),
    ("both", XML, "<args>", "<arg", "cannot be read: ParseError"),
    ("both", XML, ' hostSize="0x8"', "", "argument mel has no hostSize"),
    ("rtl", XML, 'name="M_AXI_GMEM0"', 'name="M_AXI_GMEM9"', "m_axi_gmem9, of which the RTL has no channel"),
    ("rtl", XML, 'dataWidth="128"', 'dataWidth="512"', "m_axi_gmem0_rdata is input of 128 bits, not input of 512"),
    ("rtl", XML, 'range="0x1000"', 'range="0x2000"', "s_axi_control_awaddr is input of 12 bits, not input of 13"),
    ("rtl", XML, 'vlnv="headrace:kernel:audio_norm_cu:1.0"', 'vlnv="a:b:audio_norm_cu:2.0"', "version 2.0"),
    ("rtl", RTL, "logic         interrupt,", "logic         irq,", "interrupt is missing"),
    ("rtl", "src/rtl/axi/axi_ports.svh", "port``_arlen", "port``_length", "m_axi_gmem0_arlen is missing"),
    ("rtl", "scripts/package_kernel.tcl", "-ctrl_protocol $protocol", "-ctrl_protocol ap_ctrl_hs", "package_xo"),
    ("rtl", "scripts/package_kernel.tcl", "property value -1", "property value 0", "FREQ_TOLERANCE_HZ"),
    ("rtl", "scripts/package_kernel.tcl", "set_property size $bits", "set_property size 32", "size 32"),
    ("rtl", "scripts/package_kernel.tcl", "property value $master", "property value m_axi_gmem0", "m_axi_gmem1"),
    ("rtl", "scripts/package_kernel.tcl", "ipx::check_integrity -kernel", "ipx::check_integrity", "check_integrity"),
    ("rtl", "scripts/package_kernel.tcl", "lassign $argv", "lassign {$argv", "fails: "),
    ("rtl", "kernels/audio_norm_cu.tcl", "  src/rtl/axi/axi_control.sv\n", "  src/rtl/none.sv\n", "fails: .*none.sv"),
    ("hls", CPP, "port = mels bundle", "port = mel bundle", "mels"),
    ("hls", CPP, "port = tensor bundle = gmem1", "port = tensor bundle = gmem0", "gmem0"),
    ("hls", CPP, "ap_ctrl_chain port", "ap_ctrl_hs port", "protocol"),
    ("both", "link.cfg", "nk=audio_norm_cu:2", "nk=audio_norm_cu:3", "it names 2 units"),
    ("both", "link.cfg", "nk=audio_norm_cu:2:", "nk=norm:2:", "there is no kernel norm"),
    ("both", "link.cfg", "nk=audio_norm_cu:2:audio_norm_cu_1.audio_norm_cu_2\n", "", "no unit of kernel audio_norm_cu"),
    ("both", "link.cfg", "sp=audio_norm_cu_1.tensor:", "sp=audio_norm_cu_1.frames:", "is no pointer of a unit"),
    ("both", "link.cfg", "sp=audio_norm_cu_1.mel:DDR[1]\n", "", "no bank for audio_norm_cu_1.mel"),
    ("both", "link.cfg", "audio_norm_cu_1.mel:DDR[1]", "audio_norm_cu_1.mel:DDR[4]", r"u250 has DDR\[0\] to \[3\]"),
    ("both", "link.cfg", "audio_norm_cu_1.mel:DDR[1]", "audio_norm_cu_1.mel:HBM[1]", r"u250 has DDR\[0\] to \[3\]"),
    ("both", "link.cfg", "slr=audio_mel_cu_1:SLR0", "slr=audio_mel_cu_1:SLR4", "u250 has SLR0 to SLR3"),
    ("both", "link.cfg", "slr=audio_mel_cu_1:SLR0\n", "", "no slr for audio_mel_cu_1"),
    ("both", "link.cfg", "slr=audio_mel_cu_1:", "slr=audio_mel_cu_7:", "no unit or has one already"),
    ("both", "link.cfg", "freqHz=225000000:audio_mel_cu_1\n", "", "no freqHz for audio_mel_cu_1"),
    ("both", "link.cfg", "freqHz=225000000:audio_mel_cu_1", "freqHz=225:audio_mel_cu_1", "a clock of 225 Hz"),
    ("both", "manifest.json", '"ports": 60', '"ports": 5', "6 memory ports, u250 takes 5"),
)
CASES = [(kernel, *rest) for of, *rest in CHANGES for kernel in ("rtl", "hls") if of in (kernel, "both")]


def changed(sound, folder, name, old, new):
    """Return a copy of the valid folder with this change."""
    shutil.copytree(sound, folder)
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    return folder


@pytest.mark.parametrize(("kernel", "name", "old", "new", "told"), CASES)
def test_a_change_is_noticed(tmp_path, sound, kernel, name, old, new, told):
    found = check.check_folder(changed(sound[kernel], tmp_path / "d", name, old, new))
    assert any(re.search(told, line) for line in found), found


# One change of each kernel. The others run the same function.
QUICK_IN_MAKE = [next(case for case in CASES if case[1] == name) for name in ("scripts/package_kernel.tcl", CPP)]


@pytest.mark.parametrize(
    ("kernel", "name", "old", "new", "told"),
    [pytest.param(*case, marks=() if case in QUICK_IN_MAKE else pytest.mark.slow) for case in CASES],
)
def test_make_check_fails_and_tells_of_a_change(tmp_path, sound, kernel, name, old, new, told):
    folder = changed(sound[kernel], tmp_path / "d", name, old, new)
    done = subprocess.run(["make", "-C", str(folder), "check"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    found = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert found and any(re.search(told, line) for line in found), done.stdout


def test_without_tclsh_the_scripts_are_not_taken_for_run(sound, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "tclsh is missing" in check.check_folder(sound["rtl"])[0]


def test_a_check_leaves_nothing_behind(sound):
    before = sorted(sound["rtl"].rglob("*"))
    subprocess.run(["make", "-C", str(sound["rtl"]), "check"], check=True, capture_output=True, timeout=60)
    assert sorted(sound["rtl"].rglob("*")) == before
