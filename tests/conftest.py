import gc
import itertools
import os
import subprocess
import sys
from pathlib import Path

# Before numpy and torch are loaded: what they compute here is small. Several threads would wait for each other, and by
# spinning, which on a busy machine takes several times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("MAKEFLAGS", None)  # what make hands to what it starts is not for a make that a test starts

import containers
import garbage
import pytest
import stratified
from hypothesis import settings

from headrace.batching.policies import lazy
from headrace.bitstreams.xclbin import Mode

gc.disable()  # until the tests are collected: modules and tests stay, so that searching them for garbage finds none

ROOT = Path(__file__).parents[1]

# No deadline: shared machines pause, and a slow example is no failure. `make test` tries the same examples each time,
# so that what fails is what was changed; `make test-all` looks for others, and for more of them.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("others", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_sessionstart():
    """What is compiled must be what is written; make sees to that, and pytest alone would test yesterday's policies."""
    compiled = not lazy.__file__.endswith(".py")
    setup = ROOT / "scripts" / "setup"
    if compiled and subprocess.run([setup, "--check"], check=False).returncode != 0:
        pytest.exit("the compiled modules are older than their sources: run scripts/setup", returncode=3)


def pytest_make_parametrize_id(val, argname):
    """Bytes name no test: a file made now may have the time in it, and the processes of one run must agree on names."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as slow the cases that `quick` leaves out. Put the tests of each module that is marked `in_order` back into
    the order of collection: `-p randomly` shuffles the tests of a module, but it leaves them together."""
    stratified.mark_others_slow(items)
    places = {item: place for place, item in enumerate(items)}
    try:
        return (yield)
    finally:
        for _, group in itertools.groupby(list(enumerate(items)), lambda numbered: numbered[1].path):
            numbers, tests = zip(*group, strict=True)
            if tests[0].get_closest_marker("in_order"):
                items[numbers[0] : numbers[-1] + 1] = sorted(tests, key=places.__getitem__)


def pytest_collection_finish():
    """Modules and tests stay, and with them the little garbage that they left: to look for it takes seconds. A test
    that collects garbage to see a device end need not search them each time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # by default, searches take 6 % of the time
    gc.enable()


def pytest_runtest_setup():
    """An emulated device ends with its last user. While garbage of an earlier test holds it, it takes no other
    container and keeps the faults that were injected."""
    emulation = sys.modules.get("headrace.host.xrt.emulation")
    if emulation is not None and emulation._cards:
        garbage.collect()


@pytest.fixture
def full_stack():
    """Collect no garbage in a test that fills the stack. What an earlier test left may have a finalizer, which fails
    where no frame is left."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def vadd_xclbin():
    """A container with two compute units of a small kernel, see tests/bitstreams/vadd."""
    return containers.vadd(Mode.SW_EMU)


@pytest.fixture(scope="session")
def vadd_hw_xclbin():
    """The same of the kernel's RTL, for hw_emu."""
    return containers.vadd(Mode.HW_EMU)
