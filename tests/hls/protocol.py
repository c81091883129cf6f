"""Runs cocotb's tests of a compute unit, by a program that is built once."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import cocotb_program
import cu_rtlsim
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner
from models import KERNELS
from rtlsim import COVERAGE_FOLDER, coverage_file

HERE = Path(__file__).parent


def tests(kernel: str) -> list[str]:
    """Those of cocotb_<kernel>.py."""
    return re.findall(r"^@cocotb\.test.*\nasync def (\w+)", (HERE / f"cocotb_{kernel}.py").read_text(), re.M)


def simulator(top: str) -> Path:
    """The folder of the program that runs cocotb's tests of a compute unit or of another top."""
    return cu_rtlsim.folder(top) if top in KERNELS else cocotb_program.folder(top)


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
