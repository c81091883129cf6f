"""XRT's native API: the real `pyxrt` for a card, an emulated device of the same API for emulation containers, or the
real one for these, too."""

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
    """Whose device a driver uses."""

    EMULATION = "emulation"
    REAL = "real"


class NoDevice(HeadraceError):
    """A container for a card was given, and there is no card or no XRT on this machine; or the real XRT is asked for
    and cannot run the container."""


def api_for(xclbin: Path, api: Api | None = None) -> ModuleType:
    """The module whose device can load this container; both have pyxrt's names. Without `api` emulation containers go
    to the emulated device and all others to a card.

    Raises XclbinError, or NoDevice: a missing card is never replaced by an emulation."""
    mode = read_checked(xclbin).mode
    if mode in EMULATED and api is not Api.REAL:
        return importlib.import_module("headrace.host.xrt.emulation")
    if api is Api.EMULATION:
        raise NoDevice(
            f"{xclbin} is for a card (mode {mode.name}); the emulation runs containers for sw_emu and hw_emu"
        )
    if mode in EMULATED and (found := os.environ.get("XCL_EMULATION_MODE")) != mode.name.lower():
        raise NoDevice(
            f"XRT is not set up for {xclbin}: XCL_EMULATION_MODE is {found or 'not set'}, not {mode.name.lower()}; "
            f"`headrace xrt-env {xclbin} -o DIR`, then `. DIR/setup.sh`"
        )
    try:
        pyxrt = importlib.import_module("pyxrt")
    except ImportError as error:
        raise NoDevice(
            f"{xclbin} is for XRT (mode {mode.name}), but its Python module pyxrt cannot be imported ({error}); "
            "install XRT and source its setup.sh, or build for sw_emu"
        ) from error
    if not os.environ.get("XILINX_XRT"):
        raise NoDevice("XILINX_XRT is not set, and XRT does nothing without; source XRT's setup.sh or that of xrt-env")
    if not hasattr(pyxrt, "hw_context"):
        raise NoDevice(
            f"this XRT is {_version()}: its Python module has no hardware contexts; {OLDEST} or a later one is needed"
        )
    try:
        pyxrt.device(0)
    except RuntimeError as error:
        raise NoDevice(f"{xclbin} is for XRT (mode {mode.name}), but XRT finds no card: {error}") from error
    return pyxrt


def _version() -> str:
    """Of the XRT that the process would load."""
    found = sorted(Path(os.environ["XILINX_XRT"], "lib").glob("libxrt_core.so.2*"))
    numbers = re.findall(r"so\.(\d+\.\d+)", " ".join(file.resolve().name for file in found))
    return numbers[0] if numbers else f"older than {OLDEST}"
