"""The devices with pyxrt's names, and their known differences: the table of docs/reference/xrt_calls.md."""

import functools
import hashlib
import importlib
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
from builds import built

from headrace.host.xrt import emulation
from headrace.host.xrt.shim.environment import XrtMissing, find_xrt

ROOT = Path(__file__).parents[3]
BINDING = Path(__file__).with_name("pyxrt.cpp")
COMPILING_S = 1200  # far beyond what g++ takes, also on a machine that is slow or busy

# ---- The table, which the script writes, and the reasons below it ----

SCRIPT = runpy.run_path(str(ROOT / "scripts/conformance_xrt.py"))
TEXT = (ROOT / "docs/reference/xrt_calls.md").read_text()
HEADS, *ROWS = [
    [cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in TEXT.splitlines()
    if line.startswith(("| call", "| `"))
]
REASONS = dict(
    line.removeprefix("- `").split("`: ", 1)
    for line in TEXT[TEXT.index("## Why") :].partition("\n## ")[0].splitlines()
    if line.startswith("- `")
)
VARY = {call for call, reason in REASONS.items() if "the value varies" in reason}
ENDS = ("ends the process", "does not return")


def column(name: str) -> dict[str, str]:
    """Return the column of a release, by call. Skips the test if the table lacks the release."""
    if name not in HEADS:
        pytest.skip(f"the table in docs/reference/xrt_calls.md has no column {name}")
    return {row[0]: row[HEADS.index(name)] for row in ROWS}


# ---- The devices ----


@dataclass(frozen=True)
class Backend:
    """Describe the pyxrt that a test uses, with a container of two compute units of vadd. `listed` is its column of the
    table."""

    container: Path
    listed: dict[str, str]
    setup: Path | None = None  # of the real XRT's environment
    module: Path | None = None  # the folder of its pyxrt, if Python does not find it

    @property
    def pyxrt(self) -> ModuleType:
        return emulation if self.setup is None else importlib.import_module("pyxrt")

    def names(self) -> dict[str, object]:
        """Return the names that the calls of the table use."""
        names: dict[str, object] = {}
        text = SCRIPT["PRELUDE"].format(real="", container=str(self.container))
        exec(text.replace("from headrace.host.xrt import emulation as x", f"import {self.pyxrt.__name__} as x"), names)
        return names


def given(call: str, names: dict[str, object]) -> str:
    """Return the result of a call in this process, as the script writes it."""
    try:
        shown = repr(eval(call, names))
    except Exception as error:
        shown = type(error).__name__
    return SCRIPT["plain"](shown)


TARGETS = {"sw_emu": "vadd_xclbin", "hw_emu": "vadd_hw_xclbin"}
EMULATED = ("emulation-sw_emu", "emulation-hw_emu")
REAL = tuple(
    pytest.param(f"{whose}-{target}", marks=marks)
    for whose in ("debian", "pyxrt")
    for target, marks in (("sw_emu", ()), ("hw_emu", pytest.mark.slow))  # its shim sleeps for twenty seconds each time
)


def importable() -> Path:
    """Return the libraries of the pyxrt that Python finds."""
    if importlib.util.find_spec("pyxrt") is None:
        pytest.skip("there is no pyxrt; see PYTHONPATH, LD_LIBRARY_PATH and XILINX_XRT")
    return find_xrt()


def debian(folder: Path) -> Path:
    """Return the libraries of the distribution. `folder` receives the module that is compiled from BINDING."""
    with mock.patch.dict(os.environ):
        os.environ.pop("XILINX_XRT", None)
        try:
            libraries = find_xrt()
        except XrtMissing as error:
            pytest.skip(str(error))
    if not Path("/usr/include/xrt/xrt/xrt_bo.h").exists() or shutil.which("g++") is None:
        pytest.skip("XRT's headers (libxrt-dev) or g++ are not installed")
    folder.mkdir(exist_ok=True)
    link = folder / "pyxrt.so"
    if not link.is_symlink():
        link.symlink_to(_binding())
    return libraries


@functools.cache
def _binding() -> Path:
    import pybind11

    def compiled(path: Path) -> None:
        includes = ("/usr/include/xrt", pybind11.get_include(), sysconfig.get_path("include"))
        line = ["g++", "-O1", "-shared", "-fPIC", "-std=c++17", *(f"-I{folder}" for folder in includes)]
        subprocess.run([*line, BINDING, "-o", path, "-lxrt_coreutil", "-luuid"], check=True, timeout=COMPILING_S)

    digest = hashlib.sha256(BINDING.read_bytes() + f"{sys.version} {pybind11.__version__}".encode())
    return built("pyxrt", digest.hexdigest(), ".so", compiled)
