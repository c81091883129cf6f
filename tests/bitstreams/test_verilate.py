"""Which sources a module needs, in which order tools get them, and what is compiled of them."""

import ctypes
import shutil
from pathlib import Path

import pytest

from headrace.bitstreams import verilate
from headrace.bitstreams.cache_folder import cache_folder
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import compiled, link, needed_files, rtl_sources


def test_a_copy_of_hls_with_a_unit_of_ones_own_is_ordered_as_the_installed_one(tmp_path):
    copy = tmp_path / "hls"
    shutil.copytree(hls_folder(), copy)
    (copy / "mine").mkdir()
    (copy / "mine/mine.sv").write_text(
        '`include "../rtl/axi/axi_ports.svh"\nmodule mine;\n  stream_fifo u ();\nendmodule\n'
    )
    own = rtl_sources(copy)
    installed = [path.relative_to(hls_folder()) for path in rtl_sources()]
    assert [path.relative_to(copy) for path in own if path.stem != "mine"] == installed
    found = [str(path.relative_to(copy)) for path in needed_files("mine", own)]
    assert found[0] == "rtl/axi/axi_ports.svh" and found[-2:] == ["mine/mine.sv", "rtl/stream_fifo.sv"]
    assert found.index("rtl/headrace_pkg.sv") < found.index("decode/progressive/progressive_pkg.sv")


def wire(folder: Path, name: str, bits: int) -> tuple[Path, Path]:
    """A module whose output is its input, and a function that passes 200 through it."""
    source, driver = folder / f"{name}.sv", folder / f"{name}.cpp"
    source.write_text(
        f"module {name} (input logic [{bits - 1}:0] a, output logic [{bits - 1}:0] b);\n  assign b = a;\nendmodule\n"
    )
    driver.write_text(f"""#include "V{name}.h"
extern "C" int passed() {{ V{name} top; top.a = VALUE; top.eval(); return top.b; }}
""")
    return source, driver


def passed(folder: Path, name: str, bits: int) -> tuple[int, list[Path]]:
    """What leaves the module, and the objects of Verilator's runtime."""
    source, driver = wire(folder, name, bits)
    library = folder / f"{name}.so"
    with compiled(name, [source], [driver], macros=[f"VALUE={(1 << bits) - 2}"]) as objects:
        link(library, objects.values(), ["-shared"])
        runtime = [made for source, made in objects.items() if source.stem.startswith("verilated")]
        assert all(made.exists() for made in runtime)
    return ctypes.CDLL(str(library)).passed(), runtime


@pytest.mark.parametrize("piece_bytes", [1, verilate.PIECE_BYTES])
def test_models_of_one_piece_or_several_share_one_runtime(tmp_path, monkeypatch, piece_bytes):
    monkeypatch.setattr(verilate, "PIECE_BYTES", piece_bytes)
    first, runtime = passed(tmp_path, "narrow", 4)
    times = [made.stat().st_mtime_ns for made in runtime]
    second, again = passed(tmp_path, "wide", 8)
    assert (first, second) == (14, 254)
    assert again == runtime and all(made.is_relative_to(cache_folder()) for made in runtime)
    assert [made.stat().st_mtime_ns for made in runtime] == times


def test_the_runtime_is_another_one_after_a_change_of_a_file_that_its_flags_include(tmp_path):
    header = tmp_path / "first.hpp"
    header.write_text("#define VALUE 1\n")
    flags = ["-O2", "-include", str(header)]
    before = verilate.runtime_folder(flags)
    assert verilate.runtime_folder(flags) == before != verilate.runtime_folder(["-O1", "-include", str(header)])
    header.write_text("#define VALUE 2\n")
    assert verilate.runtime_folder(flags) != before


def test_a_model_is_built_where_the_cache_folder_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    monkeypatch.setattr(verilate, "COMPILE_FLAGS", (*verilate.COMPILE_FLAGS, "-O0"))  # quicker
    value, runtime = passed(tmp_path, "narrow", 4)
    assert value == 14 and not any(made.exists() for made in runtime)
