"""The native API of XRT, from one of two modules with the same names.

The real `pyxrt` drives a card, or the emulation of XRT itself. `headrace.host.xrt.emulation` emulates a device in this
process and runs emulation containers."""

import importlib
import os
import re
from enum import StrEnum
from pathlib import Path
from types import ModuleType

from headrace.batching import HeadraceError
from headrace.bitstreams.kernel import read_checked
from headrace.bitstreams.xclbin import Mode

OLDEST = "2.16"
EMULATED = (Mode.SW_EMU, Mode.HW_EMU, Mode.HW_EMU_PR)


class Api(StrEnum):
    """Select the device that a driver uses: the emulated one or that of the real XRT."""

    EMULATION = "emulation"
    REAL = "real"


class NoDevice(HeadraceError):
    """This machine has no device for the container.

    Either the container is for a card and there is no card or no XRT. Or the caller asked for the real XRT, and it
    cannot run the container."""


def api_for(xclbin: Path, api: Api | None = None) -> ModuleType:
    """Return the module whose device can load this container. Both modules have pyxrt's names.

    Without `api` the emulated device gets emulation containers, and a card gets all others.

    Raises XclbinError or NoDevice. An emulation never replaces a missing card."""
    mode = read_checked(xclbin).mode
    if mode in EMULATED and api is not Api.REAL:
        return importlib.import_module("headrace.host.xrt.emulation")
    if api is Api.EMULATION:
        raise NoDevice(
            f"{xclbin} is for a card (mode {mode.name}); the emulation runs containers for sw_emu and hw_emu"
        )
    if mode in EMULATED and (emulation := os.environ.get("XCL_EMULATION_MODE")) != mode.name.lower():
        raise NoDevice(
            f"XRT is not set up for {xclbin}: XCL_EMULATION_MODE is {emulation or 'not set'}, not {mode.name.lower()}; "
            f"run `headrace xrt-env {xclbin} -o DIR`, then `. DIR/setup.sh`"
        )
    try:
        pyxrt = importlib.import_module("pyxrt")
    except ImportError as error:
        raise NoDevice(
            f"{xclbin} is for XRT (mode {mode.name}), but its Python module pyxrt cannot be imported ({error}); "
            "install XRT and source its setup.sh, or build for sw_emu"
        ) from error
    if not os.environ.get("XILINX_XRT"):
        raise NoDevice(
            "XILINX_XRT is not set, and XRT does nothing without it; "
            "source the setup.sh of XRT or the one that `headrace xrt-env` wrote"
        )
    if not hasattr(pyxrt, "hw_context"):
        raise NoDevice(f"the Python module of XRT {_version()} has no hardware contexts; install XRT {OLDEST} or later")
    try:
        pyxrt.device(0)
    except RuntimeError as error:
        raise NoDevice(f"{xclbin} is for XRT (mode {mode.name}), but XRT finds no card: {error}") from error
    return pyxrt


def _version() -> str:
    """Return the version of the XRT that this process would load, such as "2.13"."""
    libraries = sorted(Path(os.environ["XILINX_XRT"], "lib").glob("libxrt_core.so.2*"))
    numbers = re.findall(r"so\.(\d+\.\d+)", " ".join(file.resolve().name for file in libraries))
    return numbers[0] if numbers else f"older than {OLDEST}"
