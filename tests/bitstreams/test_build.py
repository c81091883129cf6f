import json
from pathlib import Path

import pytest

from headrace.bitstreams import build
from headrace.bitstreams.build import BuildError, build_kernels, build_sw_emu, describe
from headrace.bitstreams.kernel import KernelError, parse_kernels
from headrace.bitstreams.xclbin import Mode, read_xclbin

VADD = Path(__file__).parent / "vadd"
XML = (VADD / "kernel.xml").read_bytes()


def test_the_image_cus_container_describes_kernels_offsets_and_banks(tmp_path):
    xclbin = build_sw_emu(tmp_path / "image.xclbin", image_cus=3)
    assert read_xclbin(tmp_path / "image.xclbin") == xclbin and xclbin.mode is Mode.SW_EMU
    assert xclbin.bitstream.startswith(b"\x7fELF")
    description = describe(xclbin)
    (kernel,) = description["kernels"]
    assert kernel["args"][0] == {
        "index": 0, "name": "jpeg", "type": "void*", "offset": 0x10, "size": 8, "port": "M_AXI_GMEM0",
    }  # fmt: skip
    assert [i["name"] for i in kernel["instances"]] == ["image_cu_1", "image_cu_2", "image_cu_3"]
    banks = [bank for instance in kernel["instances"] for bank in instance["banks"].values()]
    assert banks == [f"HBM[{number}]" for number in range(12)]  # four pointers each, a bank for each
    assert [m["used"] for m in description["memories"]] == [True] * 12 + [False] * 20
    build_metadata = json.loads(xclbin.build_metadata)
    assert build_metadata["target"] == "sw_emu" and build_metadata["kernels"] == {"image_cu": 3}


def test_an_unchanged_tree_is_not_compiled_again(tmp_path, monkeypatch):
    first = build_sw_emu(tmp_path / "x.xclbin", image_cus=1)

    def compiled(*_):
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(build, "_compile", compiled)
    assert build_sw_emu(tmp_path / "x.xclbin", image_cus=1) == first
    with pytest.raises(AssertionError, match="compiled again"):
        build_sw_emu(tmp_path / "x.xclbin", image_cus=2)


def test_a_changed_source_is_compiled_again(tmp_path):
    source = tmp_path / "vadd.cpp"
    text = (VADD / "vadd.cpp").read_text()
    source.write_text(text)
    first = build_kernels(tmp_path / "v.xclbin", [source], [], [XML], {"vadd": 1})
    source.write_text(text.replace("a[i] + b[i]", "a[i] - b[i]"))
    assert build_kernels(tmp_path / "v.xclbin", [source], [], [XML], {"vadd": 1}).uuid != first.uuid


def test_a_compile_error_shows_the_compilers_lines(tmp_path):
    (tmp_path / "bad.cpp").write_text('extern "C" void vadd() { undeclared(); }')
    with pytest.raises(BuildError, match=r"bad\.cpp does not compile[\s\S]*undeclared"):
        build_kernels(tmp_path / "v.xclbin", [tmp_path / "bad.cpp"], [], [XML], {"vadd": 1})
    assert not (tmp_path / "v.xclbin").exists()


def test_a_missing_compiler_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"apt-get install g\+\+"):
        build_sw_emu(tmp_path / "x.xclbin")


@pytest.mark.parametrize("count", [0, 17])
def test_an_impossible_number_of_units_is_refused(count, tmp_path):
    with pytest.raises(BuildError, match="1 to 16"):
        build_sw_emu(tmp_path / "x.xclbin", image_cus=count)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'id="1"', b'id="7"'),
        (b'offset="0x1C"', b'offset="0x14"'),
        (b'offset="0x1C"', b'offset="x"'),
        (b"</root>", b""),
    ],
)
def test_an_unsound_kernel_xml_is_refused(old, new):
    with pytest.raises(KernelError):
        parse_kernels(XML.replace(old, new))
