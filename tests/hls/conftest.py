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
def csim_library() -> Callable[[str], ctypes.CDLL]:
    """csim_library(name) compiles (or finds) the shared library of that name in models.py and loads it."""
    return csim.load


@pytest.fixture(scope="session")
def csim_executable() -> Callable[[str], Path]:
    """csim_executable(name) compiles (or finds) the program of that name, under the address and UB sanitizers."""
    return csim.program
