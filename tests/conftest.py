import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

from headrace.batching.policies import lazy
from headrace.bitstreams.build import build_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.xclbin import Mode

settings.register_profile("headrace", deadline=None)  # shared machines pause; a slow example is no failure
settings.load_profile("headrace")


def pytest_sessionstart():
    """What is compiled must be what is written; make sees to that, and pytest alone would test yesterday's policies."""
    compiled = not lazy.__file__.endswith(".py")
    setup = Path(__file__).parent.parent / "scripts" / "setup"
    if compiled and subprocess.run([setup, "--check"], check=False).returncode != 0:
        pytest.exit("the compiled modules are older than their sources: run scripts/setup", returncode=3)


@pytest.fixture(scope="session")
def vadd_xclbin(tmp_path_factory):
    """A container with two compute units of a small kernel, see tests/bitstreams/vadd."""
    folder = Path(__file__).parent / "bitstreams" / "vadd"
    path = tmp_path_factory.mktemp("vadd") / "vadd.xclbin"
    build_kernels(path, [folder / "vadd.cpp"], [], [(folder / "kernel.xml").read_bytes()], {"vadd": 2})
    return path


@pytest.fixture(scope="session")
def vadd_hw_xclbin(tmp_path_factory):
    """The same of the kernel's RTL, for hw_emu."""
    folder = Path(__file__).parent / "bitstreams" / "vadd"
    path = tmp_path_factory.mktemp("vadd") / "vadd.hw_emu.xclbin"
    sources = [hls_folder() / "rtl" / "stream_fifo.sv", folder / "vadd.sv"]
    build_kernels(path, sources, [], [(folder / "kernel.xml").read_bytes()], {"vadd": 2}, Mode.HW_EMU)
    return path
