"""Verilates a unit with its C++ bench and caches the result by content in build/tests/, as csim.py does for C++."""

import ctypes
import hashlib
from collections.abc import Sequence
from pathlib import Path

import csim

from headrace.bitstreams.sources import hls_folder, include_folders
from headrace.bitstreams.verilate import COMPILE_FLAGS, VERILATE_FLAGS, rtl_sources, verilate


def load(top: str, bench: str, *, cxx: Sequence[Path] = (), coverage: bool = False) -> ctypes.CDLL:
    """The shared library of module `top` with tests/hls/<bench> and the HLS sources `cxx`."""
    return ctypes.CDLL(str(build(top, [Path(__file__).with_name(bench), *cxx], coverage=coverage)))


def build(top: str, drivers: Sequence[Path], *, coverage: bool = False) -> Path:
    digest = hashlib.sha256(repr((top, coverage, VERILATE_FLAGS, COMPILE_FLAGS)).encode())
    folders = (hls_folder(), Path(__file__).parent)
    kinds = (".sv", ".cpp", ".hpp", ".h")
    files = {
        path for folder in folders for path in folder.rglob("*") if path.suffix in kinds and "cocotb" not in path.parts
    }
    for path in sorted({*files, *drivers}):
        if path.parent == Path(__file__).parent and path.suffix == ".cpp" and path not in drivers:
            continue  # another unit's bench
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    csim.BUILD.mkdir(parents=True, exist_ok=True)
    target = csim.BUILD / f"libV{top}-{digest.hexdigest()[:16]}.so"
    if not target.exists():
        for stale in csim.BUILD.glob(f"libV{top}-*.so"):
            stale.unlink(missing_ok=True)
        verilate(top, rtl_sources(), drivers, target, includes=include_folders(), coverage=coverage)
    return target
