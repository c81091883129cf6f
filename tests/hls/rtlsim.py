"""Verilates a unit with its C++ bench and keeps the result by content in build/tests/, as csim.py does for C++.

Models of RTL with cover properties count them. With HEADRACE_RTL_COVERAGE in the environment, every model also counts
lines and toggles, and writes them to that folder at the end; scripts/coverage_rtl.py makes tables of them.
"""

import atexit
import ctypes
import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from builds import BUILD, built
from includes import update, with_includes
from models import CONFIGURATION, RTL

from headrace.bitstreams.configurations import FULL
from headrace.bitstreams.sources import include_folders
from headrace.bitstreams.verilate import (
    COMPILE_FLAGS,
    VERILATE_FLAGS,
    needed_files,
    rtl_sources,
    verilate,
    verilator_version,
)

HERE = Path(__file__).parent
NONE: Mapping[str, int] = MappingProxyType({})
OWN_SYMBOLS = ("-fno-gnu-unique",)  # a process that loads two models of a module has two benches
COVERAGE_FOLDER = os.environ.get("HEADRACE_RTL_COVERAGE")


def coverage_file(name: str) -> Path:
    """Where this process writes what it has covered of `name`."""
    assert COVERAGE_FOLDER
    return Path(COVERAGE_FOLDER) / f"{name}-{os.getpid()}.dat"


def load(top: str, parameters: Mapping[str, int] = NONE, **constants: int) -> ctypes.CDLL:
    """The shared library of module `top` with its bench in models.RTL, built with `parameters` of the module and with
    other constants of config_pkg."""
    return _loaded(top, tuple(parameters.items()), tuple(constants.items()))


@cache
def _loaded(top: str, parameters: tuple[tuple[str, int], ...], constants: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
    library = ctypes.CDLL(str(model(top, dict(parameters), **dict(constants))))
    if COVERAGE_FOLDER:
        atexit.register(library.write_coverage, os.fsencode(coverage_file(top)))
    return library


def coverage_of(sources: Sequence[Path]) -> str | None:
    """What a model of these sources counts, see `verilate.COVERAGES`."""
    if COVERAGE_FOLDER:
        return "all"
    return "covers" if any("cover property" in file.read_text() for file in sources) else None


def covers(data: Path) -> dict[str, int]:
    """Return how often each cover property held, by MODULE.NAME, from a file that a model wrote; instances added up."""
    counts: Counter[str] = Counter()
    for entry, count in re.findall(r"^C '(.*)' (\d+)$", data.read_text(), re.M):
        keys = dict(part.split("\2", 1) for part in entry.split("\1") if part)
        page, _, module = keys["page"].partition("/")
        if page == "v_user":
            counts[f"{module.partition('__')[0]}.{keys['o']}"] += int(count)  # behind __ are parameters
    return dict(counts)


def configured(sources: Sequence[Path], constants: dict[str, int]) -> list[Path]:
    """The sources with these constants in config_pkg.sv."""
    (package,) = (file for file in sources if file.name == "config_pkg.sv")
    text = package.read_text()
    for name, value in constants.items():
        text, count = re.subn(rf"(\b{name} *= )\d+;", rf"\g<1>{value};", text)
        assert count == 1, f"config_pkg.sv has no {name}"
    folder = BUILD / f"config_pkg-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    other = folder / package.name
    other.write_text(text)
    return [other if file == package else file for file in sources]


def model(top: str, parameters: Mapping[str, int] = NONE, **constants: int) -> Path:
    """Compiled when the RTL at or below `top`, its bench or what that includes has changed."""
    sources = needed_files(top, rtl_sources(configuration=CONFIGURATION.get(top, FULL)))
    if constants:
        sources = configured(sources, constants)
    coverage = coverage_of(sources)
    drivers = [RTL[top], *([HERE / "coverage.cpp"] if coverage else [])]
    flags = [f"-G{name}={value}" for name, value in parameters.items()]
    key = (top, coverage, VERILATE_FLAGS, flags, COMPILE_FLAGS, verilator_version())
    digest = hashlib.sha256(repr(key).encode())
    update(digest, [*sources, *with_includes(drivers, include_folders())])
    stem = "_".join([f"libV{top}", *(f"{name}{value}" for name, value in {**parameters, **constants}.items())])
    stem += "_coverage" if coverage == "all" else ""
    return built(
        stem,
        digest.hexdigest(),
        ".so",
        lambda target: verilate(
            top,
            sources,
            drivers,
            target,
            includes=include_folders(),
            coverage=coverage,
            compile_flags=OWN_SYMBOLS,
            verilate_flags=flags,
        ),
    )
