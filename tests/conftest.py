import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

from headrace.batching import lazy
from headrace.bitstreams.build import build_kernels

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
