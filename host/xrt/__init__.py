"""XRT's native API: the real `pyxrt` for a card, an emulated device of the same API for emulation containers."""

import importlib
from pathlib import Path
from types import ModuleType

from headrace.batching import HeadraceError
from headrace.bitstreams.xclbin import Mode, read_xclbin

EMULATED = (Mode.SW_EMU, Mode.HW_EMU, Mode.HW_EMU_PR)


class NoDevice(HeadraceError):
    """A container for a card was given, and there is no card or no XRT on this machine."""


def api_for(xclbin: Path) -> ModuleType:
    """The module whose device can load this container; both have pyxrt's names.

    Raises XclbinError, or NoDevice: a missing card is never replaced by an emulation."""
    mode = read_xclbin(xclbin).mode
    if mode in EMULATED:
        return importlib.import_module("headrace.host.xrt.emulation")
    try:
        pyxrt = importlib.import_module("pyxrt")
    except ImportError as error:
        raise NoDevice(
            f"{xclbin} is for a card (mode {mode.name}), but XRT's Python module pyxrt cannot be imported ({error}); "
            "install XRT and source its setup.sh, or build for sw_emu"
        ) from error
    try:
        pyxrt.device(0)
    except RuntimeError as error:
        raise NoDevice(f"{xclbin} is for a card (mode {mode.name}), but XRT finds none: {error}") from error
    return pyxrt
