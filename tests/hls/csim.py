"""Compiles HLS units and their test benches with g++ and keeps the result by content, see builds.py.

The key is the hash of the sources, of all that they include and of the flags, so that a stale library cannot be
loaded and an unchanged one costs nothing.
"""

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

from builds import built
from includes import update, with_includes
from models import CONFIGURATION, LIBRARIES, PROGRAMS

from headrace.bitstreams.configurations import FULL, headers_of
from headrace.bitstreams.sources import include_folders

# g++ knows no `#pragma HLS`, and takes the vendor's way of setting an ap_uint for a use before it is set.
QUIET = ["-Wno-unknown-pragmas", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]
FLAGS = ["-std=c++17", "-O2", "-Wall", *QUIET]
# Without shift-base: the vendor's default constructor masks what happens to lie in memory, and by chance that is a
# negative number shifted left. Its authors exempt the function for clang; C++20 defines such shifts.
SANITIZE = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize=shift-base", "-fno-sanitize-recover=all"]


def load(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(library(name)))


def library(name: str) -> Path:
    """The shared library of that name in models.LIBRARIES."""
    headers = headers_of(CONFIGURATION.get(name, FULL))
    return _build(f"lib{name}", ".so", LIBRARIES[name], ["-shared", "-fPIC"], include_folders(headers))


def program(name: str) -> Path:
    """The program of that name in models.PROGRAMS, under the address and UB sanitizers."""
    return _build(f"sanitized_{name}", "", PROGRAMS[name], SANITIZE, include_folders())


def _build(stem: str, suffix: str, sources: list[Path], flags: list[str], folders: list[Path]) -> Path:
    compiler = [shutil.which("ccache"), "g++"] if shutil.which("ccache") else ["g++"]
    # The vendor's ap_types are system headers: their warnings are not ours to fix.
    *ours, vendor = folders
    includes = [flag for folder in ours for flag in ("-I", str(folder))] + ["-isystem", str(vendor)]
    command = [*compiler, *FLAGS, *flags, *includes]

    digest = hashlib.sha256(repr((FLAGS, flags, len(sources))).encode())
    update(digest, with_includes(sources, folders))  # in the order of the command

    def compile(target: Path) -> None:
        partial = target.with_suffix(".partial")  # renamed when whole
        done = subprocess.run(
            [*command, *map(str, sources), "-o", str(partial)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"g++ failed on {stem}:\n{done.stderr}")
        partial.replace(target)

    return built(stem, digest.hexdigest(), suffix, compile)
