"""Which sources a module needs, in which order tools get them, and what is compiled of them."""

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from headrace.bitstreams import verilate
from headrace.bitstreams.cache_folder import cache_folder
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import compiled, link, needed_files, rtl_sources

WIRES = Path(__file__).parent / "wires"


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


def passed(folder: Path, name: str, bits: int, trace: str | None = None) -> tuple[int, list[Path]]:
    """What leaves a module whose output is its input, and the objects of Verilator's runtime. The sources always lie in
    the same place, so that ccache knows them."""
    source, driver = WIRES / f"{name}.sv", WIRES / f"{name}.cpp"
    library = folder / f"{name}.so"
    with compiled(name, [source], [driver], macros=[f"VALUE={(1 << bits) - 2}"], trace=trace) as objects:
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
    _, traced = passed(tmp_path, "wide", 8, trace="vcd")
    assert (first, second) == (14, 254)
    assert again == runtime == [made for made in traced if "vcd" not in made.name]
    assert all(made.is_relative_to(cache_folder()) for made in runtime)
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
    (tmp_path / "kept").mkdir()
    _, kept = passed(tmp_path / "kept", "narrow", 4)
    run = verilate._run

    def run_or_take(command, what, folder=None):
        """Take the objects of the runtime, which cost seconds, from those that are kept."""
        if not what.startswith("compiling verilated"):
            return run(command, what, folder)
        source, _, target = command[-3:]
        shutil.copy(next(made for made in kept if made.stem == Path(source).name), target)
        return ""

    (tmp_path / "file").touch()
    monkeypatch.setenv("CCACHE_DIR", os.environ.get("CCACHE_DIR", str(cache_folder().parent / "ccache")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(verilate, "_run", run_or_take)
    value, runtime = passed(tmp_path, "narrow", 4)
    assert value == 14 and not any(made.exists() for made in runtime)
