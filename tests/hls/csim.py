"""Compiles HLS units and their test benches with g++ and keeps the result by content, see builds.py.

The key is the hash of the sources, of all that they include and of the flags, so that a stale library cannot be
loaded and an unchanged one costs nothing. A source that several libraries hold is compiled once.
"""

import ctypes
import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
LIBRARY = ["-fPIC"]
SANITIZE = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize=shift-base", "-fno-sanitize-recover=all"]


@cache
def load(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(library(name)))


def library(name: str) -> Path:
    """The shared library of that name in models.LIBRARIES."""
    return _link(f"lib{name}", ".so", objects_of_library(name), ["-shared"])


def program(name: str) -> Path:
    """The program of that name in models.PROGRAMS, under the address and UB sanitizers."""
    return _link(f"sanitized_{name}", "", objects_of_program(name), SANITIZE)


def objects_of_library(name: str) -> list["Object"]:
    return [Object(source, False, CONFIGURATION.get(name, FULL)) for source in LIBRARIES[name]]


def objects_of_program(name: str) -> list["Object"]:
    return [Object(source, True) for source in PROGRAMS[name]]


class Object(NamedTuple):
    """A source to compile: for a library, or for a program that is sanitized."""

    source: Path
    sanitized: bool
    configuration: str = FULL

    def __str__(self) -> str:
        parts = [
            self.source.name,
            *["sanitized"] * self.sanitized,
            *[self.configuration] * (self.configuration != FULL),
        ]
        return " ".join(parts)


def compiled(part: Object) -> Path:
    """The object file."""
    compiler = [shutil.which("ccache"), "g++"] if shutil.which("ccache") else ["g++"]
    folders = include_folders(headers_of(part.configuration))
    # The vendor's ap_types are system headers: their warnings are not ours to fix.
    *ours, vendor = folders
    includes = [flag for folder in ours for flag in ("-I", str(folder))] + ["-isystem", str(vendor)]
    flags = [*FLAGS, *(SANITIZE if part.sanitized else LIBRARY)]
    digest = hashlib.sha256(repr(flags).encode())
    update(digest, with_includes([part.source], folders))
    return built(
        str(part).replace(" ", "_"),
        digest.hexdigest(),
        ".o",
        lambda target: _run([*compiler, *flags, *includes, "-c", str(part.source)], target),
    )


def _link(stem: str, suffix: str, parts: list[Object], flags: list[str]) -> Path:
    objects = [compiled(each) for each in parts]
    digest = hashlib.sha256(repr((flags, [each.name for each in objects])).encode())
    return built(stem, digest.hexdigest(), suffix, lambda target: _run(["g++", *flags, *map(str, objects)], target))


def _run(command: list[str], target: Path) -> None:
    partial = target.with_suffix(".partial")  # renamed when whole
    done = subprocess.run([*command, "-o", str(partial)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"g++ failed on {target.name}:\n{done.stderr}")
    partial.replace(target)
