import gc
import hashlib
import os
import subprocess
from pathlib import Path

# Before numpy and torch are loaded: what they compute here is small. Several threads would wait for each other, and by
# spinning, which on a busy machine takes several times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("MAKEFLAGS", None)  # what make hands to what it starts is not for a make that a test starts

import pytest
from builds import built
from hypothesis import settings

from headrace.batching.policies import lazy
from headrace.bitstreams.build import build_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.xclbin import Mode

ROOT = Path(__file__).parents[1]
VADD = ROOT / "tests" / "bitstreams" / "vadd"

# Below these, tests wait for processes and threads, and some bound how long: they must not be starved by other tests.
TIMED = (ROOT / "tests" / "host", ROOT / "tests" / "e2e" / "test_demo.py")

settings.register_profile("headrace", deadline=None)  # shared machines pause; a slow example is no failure
settings.load_profile("headrace")


def pytest_sessionstart():
    """What is compiled must be what is written; make sees to that, and pytest alone would test yesterday's policies."""
    compiled = not lazy.__file__.endswith(".py")
    setup = ROOT / "scripts" / "setup"
    if compiled and subprocess.run([setup, "--check"], check=False).returncode != 0:
        pytest.exit("the compiled modules are older than their sources: run scripts/setup", returncode=3)


def pytest_itemcollected(item):
    if any(item.path.is_relative_to(path) for path in TIMED):
        item.add_marker(pytest.mark.timed)


def pytest_collection_finish():
    """Modules stay; a test that collects garbage to see a device end need not search them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def vadd_xclbin():
    """A container with two compute units of a small kernel, see tests/bitstreams/vadd."""
    return vadd([VADD / "vadd.cpp"], Mode.SW_EMU)


@pytest.fixture(scope="session")
def vadd_hw_xclbin():
    """The same of the kernel's RTL, for hw_emu."""
    return vadd([hls_folder() / "rtl" / "stream_fifo.sv", VADD / "vadd.sv"], Mode.HW_EMU)


def vadd(sources: list[Path], mode: Mode) -> Path:
    """Kept in build/tests/ by the contents of what goes into it and of what builds it."""
    digest = hashlib.sha256()
    kinds = (".py", ".cpp", ".hpp", ".h")
    builders = sorted(path for path in (ROOT / "bitstreams").rglob("*") if path.suffix in kinds)
    for path in (*builders, VADD / "kernel.xml", *sources):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())

    def build(path: Path) -> None:
        build_kernels(path, sources, [], [(VADD / "kernel.xml").read_bytes()], {"vadd": 2}, mode)

    return built(f"vadd_{mode.name.lower()}", digest.hexdigest(), ".xclbin", build)
