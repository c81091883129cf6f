"""Programs that run cocotb's tests: a Verilated model, cocotb's own main function and its library."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from builds import built, whole
from cocotb_tools.config import libs_dir, share_dir
from includes import update
from models import CONFIGURATION, PARAMETERS
from rtlsim import coverage_of

from headrace.bitstreams.configurations import FULL
from headrace.bitstreams.hw_emu.library import LIBRARY_FLAGS, PRINTS, model_macros
from headrace.bitstreams.verilate import (
    COMPILE_FLAGS,
    VERILATE_FLAGS,
    compiled,
    link,
    needed_files,
    rtl_sources,
    verilator_version,
)

HERE = Path(__file__).parent
MAIN, TOP = HERE / "cocotb_main.cpp", HERE / "cocotb_top"
INCLUDES = (Path(share_dir) / "lib" / "verilator", TOP)
FLAGS = ("--vpi", "--public-depth", "1")  # cocotb reads and writes the ports of the top by their names
SOURCES = (MAIN, *sorted(TOP.iterdir()))
VERSIONS = (verilator_version(), version("cocotb"))


def link_program(program: Path, objects: Sequence[Path]) -> None:
    """Link a model with FLAGS, and MAIN, to a program."""
    link(program, objects, [f"-Wl,-rpath,{libs_dir}", f"-L{libs_dir}", "-lcocotbvpi_verilator"])


@cache
def folder(top: str) -> Path:
    """The folder of the program of a top that is no compute unit; it has the name of the top."""
    sources = needed_files(top, rtl_sources(configuration=CONFIGURATION.get(top, FULL)))
    coverage = coverage_of(sources)
    flags = [*FLAGS, *(f"-G{name}={value}" for name, value in PARAMETERS.get(top, {}).items())]
    digest = hashlib.sha256(repr((coverage, VERILATE_FLAGS, COMPILE_FLAGS, flags, VERSIONS)).encode())
    update(digest, [*sources, *SOURCES])

    def build(target: Path) -> None:
        made = compiled(
            top,
            sources,
            [MAIN],
            includes=INCLUDES,
            trace="vcd",
            coverage=coverage,
            compile_flags=(*LIBRARY_FLAGS, *PRINTS),
            macros=model_macros(top),
            verilate_flags=flags,
        )
        with made as objects, whole(target) as folder:
            link_program(folder / top, list(objects.values()))

    return built(f"cocotb_{top}{'_coverage' if coverage == 'all' else ''}", digest.hexdigest(), "", build)
