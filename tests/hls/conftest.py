"""`csim_library` and `csim_executable`: compile a test bench of HLS units, see csim.py."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import csim
import pytest


@pytest.fixture(scope="session")
def csim_library() -> Callable[[str], ctypes.CDLL]:
    """csim_library(name) compiles (or finds) the shared library of that name in models.py and loads it."""
    return csim.load


@pytest.fixture(scope="session")
def csim_executable() -> Callable[[str], Path]:
    """csim_executable(name) compiles (or finds) the program of that name, under the address and UB sanitizers."""
    return csim.program
