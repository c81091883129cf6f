"""Containers with a compute unit for images, and the devices that the suite of pyxrt's names runs on."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import containers
import pytest
from backends import COMPILING_S, EMULATED, REAL, TARGETS, Backend, column, debian, importable

from headrace.bitstreams.xclbin import read_xclbin
from headrace.host.xrt.shim.environment import write_environment, xrt_version

CHILD = "HEADRACE_TEST_OF_REAL_XRT"  # set in the process of one test
LIMIT_S = 200


@pytest.fixture(scope="session")
def image_container() -> Callable[[str], Path]:
    """Provide the container of a target."""
    return containers.image


@pytest.fixture(scope="session")
def image_environment(image_container, tmp_path_factory) -> Callable[..., Path]:
    """Provide the environment that xrt-env writes for a container, with the libraries of an XRT."""
    folder = tmp_path_factory.mktemp("environments")

    def environment(target: str, libraries: Path | None = None) -> Path:
        return write_environment(read_xclbin(image_container(target)), folder / target, libraries=libraries).parent

    return environment


@pytest.fixture(scope="session")
def newer_xrt() -> Path:
    """Return the libraries of an XRT that the driver accepts, whose pyxrt can be imported."""
    libraries = importable()
    if xrt_version(libraries) < (2, 16):
        pytest.skip("the driver wants XRT 2.16 or later")
    return libraries


@pytest.fixture(params=[*EMULATED, *REAL])
def backend(request, tmp_path_factory) -> Backend:
    """Provide the emulated device, Debian's XRT through a module compiled from pyxrt.cpp, and any other pyxrt that
    can be imported under the process's variables."""
    whose, _, target = request.param.partition("-")
    container = request.getfixturevalue(TARGETS[target])
    if whose == "emulation":
        return Backend(container, column("emulated"))
    if CHILD in os.environ:
        setup = Path(os.environ[CHILD])
        release = xrt_version(setup.parent / "xrt" / "lib")
        return Backend(container, column(f"{release[0]}.{release[1]} {target}"), setup)
    folder = tmp_path_factory.getbasetemp()
    module = folder / "debian_pyxrt" if whose == "debian" else None
    libraries = importable() if module is None else debian(module)
    release = xrt_version(libraries)
    setup = write_environment(read_xclbin(container), folder / f"{request.param}_env", libraries=libraries)
    return Backend(container, column(f"{release[0]}.{release[1]} {target}"), setup, module)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Extend the time limit of the first test on Debian's XRT, which compiles the module."""
    if "backend" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.timeout(COMPILING_S + LIMIT_S))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test on the real XRT in a process and a session of its own.

    Environment variables configure the shims, which last until the process ends and signal its process group."""
    backend: Any = pyfuncitem.funcargs.get("backend")
    if not isinstance(backend, Backend) or backend.setup is None or CHILD in os.environ:
        return None
    environment = {**os.environ, CHILD: str(backend.setup)}
    if backend.module is not None:
        environment.pop("LD_LIBRARY_PATH", None)
        environment["PYTHONPATH"] = str(backend.module)
    root = pyfuncitem.config.rootpath
    options = ["-q", "-p", "no:cacheprovider", "-m", "", "-c", root / "pyproject.toml", f"{root}/{pyfuncitem.nodeid}"]
    process = subprocess.Popen(
        ["sh", "-c", '. "$0"; exec "$@"', backend.setup, sys.executable, "-m", "pytest", *options],
        cwd=backend.setup.parent / "run",
        env=environment,
        start_new_session=True,  # the shims write logs there
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    if process.returncode != 0:
        pytest.fail(f"with {backend.setup}, status {process.returncode}:\n{said}", pytrace=False)
    if skipped := re.search(r"^SKIPPED \[1\] [^ ]+: (.*)", said, re.M):
        pytest.skip(skipped[1])
    return True
