"""Compiles HLS units and their test benches with g++ and keeps the result by content; other models are kept by `built`.

The key is the hash of the sources, of every C++ file below hls/ and of the command line, so that a stale
library cannot be loaded and an unchanged one costs nothing. Builds land in build/tests/.
"""

import ctypes
import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.bitstreams.sources import hls_folder, include_folders

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "tests"
# g++ knows no `#pragma HLS`, and takes the vendor's way of setting an ap_uint for a use before it is set.
QUIET = ["-Wno-unknown-pragmas", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]
FLAGS = ["-std=c++17", "-O2", "-Wall", *QUIET]
# Without shift-base: the vendor's default constructor masks what happens to lie in memory, and by chance that is a
# negative number shifted left. Its authors exempt the function for clang; C++20 defines such shifts.
SANITIZE = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize=shift-base", "-fno-sanitize-recover=all"]


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Processes that test at the same time build `name` one after the other, so that the second finds it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def built(stem: str, digest: str, suffix: str, build: Callable[[Path], object]) -> Path:
    """The file of these contents, which build(path) makes if it is not there yet; older ones are removed."""
    target = BUILD / f"{stem}-{digest[:16]}{suffix}"
    with alone(stem):
        if not target.exists():
            for stale in BUILD.glob(f"{stem}-{'?' * 16}{suffix}"):
                stale.unlink()
            build(target)
    return target


def build_library(name: str, sources: list[Path]) -> Path:
    """Shared library of `sources`; load it with `load`."""
    return _build(f"lib{name}", ".so", sources, ["-shared", "-fPIC"])


def build_executable(name: str, sources: list[Path]) -> Path:
    """A program under the address and UB sanitizers."""
    return _build(name, "", sources, SANITIZE)


def load(library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library))


def _build(stem: str, suffix: str, sources: list[Path], flags: list[str]) -> Path:
    compiler = [shutil.which("ccache"), "g++"] if shutil.which("ccache") else ["g++"]
    # The vendor's ap_types are system headers: their warnings are not ours to fix.
    ours, vendor = include_folders()[:-1], include_folders()[-1]
    includes = [flag for folder in ours for flag in ("-I", str(folder))] + ["-isystem", str(vendor)]
    command = [*compiler, *FLAGS, *flags, *includes]

    digest = hashlib.sha256(" ".join(command).encode())
    units = [path for path in hls_folder().rglob("*") if path.suffix in (".cpp", ".hpp", ".h")]
    for path in sorted({*units, *sources}):
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    for path in sources:  # their order is part of the command
        digest.update(str(path).encode())

    def compile(target: Path) -> None:
        partial = target.with_suffix(".partial")  # renamed when whole
        done = subprocess.run(
            [*command, *map(str, sources), "-o", str(partial)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"g++ failed on {stem}:\n{done.stderr}")
        partial.replace(target)

    return built(stem, digest.hexdigest(), suffix, compile)
