"""Verilates a unit with its C++ bench and keeps the result by content in build/tests/, as csim.py does for C++.

With HEADRACE_RTL_COVERAGE in the environment, every model also counts lines and toggles, and writes them to that folder
at the end; scripts/coverage_rtl.py makes tables of them.
"""

import atexit
import ctypes
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from builds import built

from headrace.bitstreams.sources import hls_folder, include_folders
from headrace.bitstreams.verilate import COMPILE_FLAGS, VERILATE_FLAGS, rtl_sources, verilate

HERE = Path(__file__).parent
COVERAGE_FOLDER = os.environ.get("HEADRACE_RTL_COVERAGE")


def coverage_file(name: str) -> Path:
    """Where this process writes what it has covered of `name`."""
    assert COVERAGE_FOLDER
    return Path(COVERAGE_FOLDER) / f"{name}-{os.getpid()}.dat"


def load(top: str, bench: str, *, cxx: Sequence[Path] = ()) -> ctypes.CDLL:
    """The shared library of module `top` with tests/hls/<bench> and the HLS sources `cxx`."""
    library = ctypes.CDLL(str(build(top, [HERE / bench, *cxx], coverage=COVERAGE_FOLDER is not None)))
    if COVERAGE_FOLDER:
        atexit.register(library.write_coverage, os.fsencode(coverage_file(top)))
    return library


def build(top: str, drivers: Sequence[Path], *, coverage: bool = False) -> Path:
    drivers = [*drivers, *([HERE / "coverage.cpp"] if coverage else [])]
    digest = hashlib.sha256(repr((top, coverage, VERILATE_FLAGS, COMPILE_FLAGS)).encode())
    kinds = (".sv", ".svh", ".cpp", ".hpp", ".h")
    files = {path for folder in (hls_folder(), HERE) for path in folder.rglob("*") if path.suffix in kinds}
    for path in sorted({*files, *drivers}):
        if path.parent == HERE and path not in drivers and path.suffix == ".cpp":
            continue  # another unit's bench
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    stem = f"libV{top}_coverage" if coverage else f"libV{top}"
    return built(
        stem,
        digest.hexdigest(),
        ".so",
        lambda target: verilate(top, rtl_sources(), drivers, target, includes=include_folders(), coverage=coverage),
    )
