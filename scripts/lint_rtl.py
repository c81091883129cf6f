#!/usr/bin/env python3
"""Check the SystemVerilog of the units with Verilator (-Wall) and slang (-Wextra, -Wunused).

    .venv/bin/python scripts/lint_rtl.py

Each top of TOPS is checked with all modules below it. A finding is a warning that no entry of WAIVERS matches, an entry
that matches nothing, or a module that is below no top. Any finding makes the exit status 1. What was clean is not
checked again until the SystemVerilog, the tools or this file change.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from headrace.bitstreams.configurations import FULL, configuration_names
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import needed_files, rtl_sources, verilator_folder

TIMEOUT_S = 300
CLEAN = Path(__file__).resolve().parents[1] / "build" / "lint_rtl"  # the hash of what was clean
# Tops, each with its configuration and parameters.
TOPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("image_cu", FULL, ()),
    ("image_cu", "small", ()),
    ("image_stream", FULL, ()),
    ("image_stream", "small", ()),
    ("image_stream", "small", ("InputBits=64",)),
    ("audio_mel_cu", FULL, ()),
    ("audio_norm_cu", FULL, ()),
)
# slang has no threads here, and names no parent folders.
SLANG = ("slang", "-Wextra", "-Wunused", "--diag-abs-paths", "--error-limit=0", "--threads=1")
SLANG_PROGRAM = """
import sys
from pyslang.driver import Driver
driver = Driver()
driver.addStandardArgs()
if driver.parseCommandLine(sys.stdin.read()) and driver.processOptions() and driver.parseAllSources():
    driver.runFullCompilation(quiet=True)
"""
MESSAGES = (
    re.compile(r"^%(?P<kind>Warning|Error)(?:-(?P<rule>\w+))?: (?:(?P<file>[^\s:]+):(?P<line>\d+):\d+: )?(?P<text>.*)"),
    re.compile(
        r"^(?P<file>[^\s:]+):(?P<line>\d+):\d+: (?P<kind>warning|error): (?P<text>.*?)(?: \[-W(?P<rule>[\w-]+)\])?$"
    ),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A message of a tool. `file` is relative to hls/, if it is there."""

    rule: str
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text} [{self.rule}]"


@dataclass(frozen=True, slots=True)
class Waiver:
    """Findings that are no fault: of this rule, with regular expressions for the whole file name and text."""

    rule: str
    why: str
    file: str = ".*"
    text: str = ".*"

    def matches(self, finding: Finding) -> bool:
        return (
            self.rule == finding.rule
            and re.fullmatch(self.file, finding.file) is not None
            and re.fullmatch(self.text, finding.text) is not None
        )


WHOLE = "Signal is not used: "  # a finding only if no other top or configuration uses the signal
SHELL = "the macro of the bus has these ports; the compute unit takes them"
BEFORE_RESET = "an initial value, so that memory takes no burst before the first reset"
WAIVERS = (
    # Verilator
    Waiver("UNUSEDPARAM", "not every module uses all of a package", r".*_pkg\.sv"),
    Waiver("PINCONNECTEMPTY", "`.port()` says that the module does not use this output"),
    Waiver("WIDTHEXPAND", "operands that widen lose no bits; a warning remains for those that do"),
    Waiver("SYMRSVDWORD", "the vendor's tools require this port's name", text=".*'interrupt'.*"),
    Waiver("UNUSEDSIGNAL", "fields that one module of several uses, and bits that rounding drops", text="Bits of .*"),
    Waiver("UNUSEDSIGNAL", SHELL, r"rtl/axi/cu_shell\.sv", WHOLE + "'m_axi_gmem0_r.*'"),
    Waiver("UNUSEDSIGNAL", "the assertion of a later stage uses it", r"mel/spectrum/fft_stage\.sv", WHOLE + "'busy'"),
    Waiver("UNUSEDPARAM", "only an attribute uses it", r"mel/spectrum/fft_stage\.sv", ".*'Style'"),
    # slang
    Waiver("case-redundant-default", "the default is the way out of a state that an upset made"),
    Waiver("useless-cast", "other values of the parameters need the cast"),
    Waiver("unused-package-parameter", "not every top uses all of a package"),
    Waiver("unused-package-typedef", "not every top uses all of a package"),
    Waiver("unused-package-subroutine", "not every top uses all of a package"),
    Waiver("unused-port", SHELL, r"rtl/axi/cu_shell\.sv", ".*'m_axi_gmem0_r.*'"),
    Waiver(
        "unused-but-set-variable", "its name says so; it takes what a variant of the module leaves", text=".*'unused'.*"
    ),
    Waiver("multiple-always-assigns", BEFORE_RESET, r"rtl/axi/axi_read\.sv", ".*'arvalid_o'.*"),
    Waiver(
        "shadow-value",
        "arguments and variables of functions",
        r"decode/progressive/band_decoder\.sv",
        "'(sent|zero|sents_before|zeros_before)'.*",
    ),
)


def verilator(top: str, files: Sequence[Path], parameters: Sequence[str]) -> str:
    root = verilator_folder()
    command = [root / "bin" / "verilator_bin", "--lint-only", "-Wall", "-Wno-fatal", "--relative-includes", "--assert"]
    command += ["--top-module", top, *(f"-G{parameter}" for parameter in parameters), *files]
    return run([*map(str, command)], "", {"VERILATOR_ROOT": str(root)})


def slang(top: str, files: Sequence[Path], parameters: Sequence[str]) -> str:
    sources = (file for file in files if file.suffix == ".sv")
    options = [*SLANG, "--top", top, *(f"-G{parameter}" for parameter in parameters)]
    return run([sys.executable, "-c", SLANG_PROGRAM], " ".join(map(str, (*options, *sources))), {})


def run(command: Sequence[str], given: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
        check=False,
    )
    return done.stdout + done.stderr


def findings(output: str) -> Iterator[Finding]:
    """Yield the warnings and errors in what a tool printed."""
    for line in output.splitlines():
        for form in MESSAGES:
            if found := form.match(line):
                yield Finding(
                    found["rule"] or found["kind"],
                    relative(found["file"] or ""),
                    int(found["line"] or 0),
                    found["text"],
                )
                break


def relative(name: str) -> str:
    path = Path(os.path.realpath(name))
    return str(path.relative_to(hls_folder().resolve())) if path.is_relative_to(hls_folder().resolve()) else name


def files_of(top: str, configuration: str, folder: Path | None = None) -> list[Path]:
    """Return the files of a top and of the modules below it. `folder` is a copy of hls/."""
    return needed_files(top, rtl_sources(folder, configuration))


def checked(top: str, files: Sequence[Path], parameters: Sequence[str]) -> set[Finding]:
    """Return what both tools find in a top and the modules below it."""
    return {found for tool in (verilator, slang) for found in findings(tool(top, files, parameters))}


def together(each: Sequence[set[Finding]], files: Sequence[Sequence[Path]]) -> set[Finding]:
    """Return the findings of all tops, given those and the files of each, without signals that another top uses."""
    names = [{relative(str(file)) for file in of} for of in files]
    return {
        finding
        for found in each
        for finding in found
        if not finding.text.startswith(WHOLE)
        or all(finding in other for other, of in zip(each, names, strict=True) if finding.file in of)
    }


def inputs_hash() -> str:
    """Return a hash of all that decides what is found."""
    files = [Path(__file__), *(path for path in hls_folder().rglob("*") if path.suffix in (".sv", ".svh"))]
    found = hashlib.sha256(f"{version('verilator')} {version('pyslang')}".encode())
    for file in sorted(files):
        found.update(str(file).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def main() -> int:
    inputs = inputs_hash()
    if CLEAN.exists() and CLEAN.read_text() == inputs:
        return 0
    tops, _, parameters = zip(*TOPS, strict=True)
    files = [files_of(top, configuration) for top, configuration, _ in TOPS]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        found = together(list(threads.map(checked, tops, files, parameters)), files)
    faults = [str(each) for each in sorted(found, key=str) if not any(waiver.matches(each) for waiver in WAIVERS)]
    faults += [
        f"{Path(__file__).name}: a waiver matches nothing; remove it: {waiver.rule}, {waiver.file}, {waiver.text}"
        for waiver in WAIVERS
        if not any(waiver.matches(each) for each in found)
    ]
    every = {file for name in configuration_names() for file in rtl_sources(configuration=name)}
    faults += [
        f"{relative(str(file))}: below none of the tops of {Path(__file__).name}"
        for file in sorted(every.difference(*files))
    ]
    if not faults:
        CLEAN.parent.mkdir(parents=True, exist_ok=True)
        CLEAN.write_text(inputs)
    print(*faults, sep="\n", end="\n" * bool(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
