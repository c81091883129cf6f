"""`csim_library` and `csim_executable`: compile a test bench of HLS units, see csim.py. `quick`: see stratified.py."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import csim
import pytest
import stratified


def pytest_configure(config):
    config.addinivalue_line("markers", "quick(n, **n_by_name): so many cases stay in `make test`, see stratified.py")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items):
    stratified.mark_others_slow(items)


@pytest.fixture(scope="session")
def csim_library() -> Callable[[str, list[Path]], ctypes.CDLL]:
    """csim_library(name, sources) compiles (or finds) the shared library and loads it."""
    return lambda name, sources: csim.load(csim.build_library(name, sources))


@pytest.fixture(scope="session")
def csim_executable() -> Callable[[str, list[Path]], Path]:
    """csim_executable(name, sources) compiles (or finds) a program under the address and UB sanitizers."""
    return lambda name, sources: csim.build_executable(name, sources)
