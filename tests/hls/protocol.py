"""Builds a compute unit for cocotb and runs tests of it."""

import hashlib
import os
import re
import shutil
from collections.abc import Collection, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from builds import BUILD, alone
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner
from includes import update
from models import CONFIGURATION, PARAMETERS
from rtlsim import COVERAGE_FOLDER, coverage_file

from headrace.bitstreams.configurations import FULL
from headrace.bitstreams.verilate import (
    COVERAGE_FLAGS,
    VERILATE_FLAGS,
    needed_files,
    rtl_sources,
    verilator_folder,
    verilator_version,
)

HERE = Path(__file__).parent
# The runner chooses what Verilator makes; the warnings have their test where the models are built.
FLAGS = [flag for flag in VERILATE_FLAGS if flag not in ("--cc", "-Wall")]
if COVERAGE_FOLDER:
    FLAGS += COVERAGE_FLAGS


def tests(kernel: str) -> list[str]:
    """Those of cocotb_<kernel>.py."""
    return re.findall(r"^@cocotb\.test.*\nasync def (\w+)", (HERE / f"cocotb_{kernel}.py").read_text(), re.M)


@cache
def simulator(kernel: str) -> Path:
    """The folder of the compiled simulator, kept by content in build/tests/."""
    sources = needed_files(kernel, rtl_sources(configuration=CONFIGURATION.get(kernel, FULL)))
    parameters = PARAMETERS.get(kernel, {})
    digest = hashlib.sha256(repr((FLAGS, parameters, verilator_version(), version("cocotb"))).encode())
    update(digest, sources)
    stem = f"cocotb_{kernel}_coverage-" if COVERAGE_FOLDER else f"cocotb_{kernel}-"
    folder = BUILD / f"{stem}{digest.hexdigest()[:16]}"
    with alone(f"cocotb_{kernel}"), pytest.MonkeyPatch.context() as environment:
        if not (folder / kernel).exists():
            for stale in BUILD.glob(f"{stem}*"):
                shutil.rmtree(stale, ignore_errors=True)
            # What the build's own commands read.
            environment.setenv("PATH", f"{verilator_folder() / 'bin'}{os.pathsep}{os.environ['PATH']}")
            environment.setenv("VERILATOR_ROOT", str(verilator_folder()))
            # The package's makefile names the precompiled headers without telling g++ to include them.
            environment.setenv("MAKEFLAGS", f"-j{os.cpu_count()} VK_PCH_I_FAST= VK_PCH_I_SLOW=")
            if shutil.which("ccache"):
                environment.setenv("OBJCACHE", "ccache")
            get_runner("verilator").build(
                sources=sources,
                hdl_toplevel=kernel,
                parameters=parameters,
                build_args=FLAGS,
                build_dir=folder,
                timescale=("1ns", "1ps"),
                log_file=BUILD / f"cocotb_{kernel}.log",
            )
    return folder


def shared_runs(kernel: str, count: int, without: Collection[str] = ()) -> list[list[str]]:
    """Divide the kernel's tests among `count` simulator runs: the start of a run takes as long as a short test."""
    names = [name for name in tests(kernel) if name not in without]
    return [names[first::count] for first in range(count)]


def run(kernel: str, names: Sequence[str], folder: Path, *, every: bool = False) -> None:
    """These tests in one simulator run, each of which begins with a reset; the run's files go to `folder`.

    `every`: also the cases that cocotb_bench.some leaves out."""
    plusargs = [f"+verilator+coverage+file+{coverage_file(names[0])}"] if COVERAGE_FOLDER else []
    results = get_runner("verilator").test(
        test_module=f"cocotb_{kernel}",
        hdl_toplevel=kernel,
        hdl_toplevel_lang="verilog",
        test_filter=rf"\.({'|'.join(names)})$",
        build_dir=simulator(kernel),
        test_dir=folder,
        results_xml=str(folder / "results.xml"),
        seed=1,
        timescale=("1ns", "1ps"),
        plusargs=plusargs,
        extra_env={"PYTHONPATH": str(HERE), "COCOTB_LOG_LEVEL": "WARNING", "PYTHONWARNINGS": "ignore"}
        | ({"HEADRACE_EVERY_CASE": "1"} if every else {}),
    )
    assert get_results(results) == (len(names), 0)
