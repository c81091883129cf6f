"""The enumerations of XRT's Python module `pyxrt`, with its names and values, and its function `log_message`."""

import enum
import logging

from headrace.host.xrt.arguments import as_text, is_a

_log = logging.getLogger("headrace.host.xrt.emulation")

XCL_BO_FLAGS_NONE = 0


class Enumeration(enum.IntEnum):
    """An enumeration whose members equal their numbers and print as their names, as pybind11's do."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self._name_}"


class xclBOSyncDirection(Enumeration):
    """The direction of a buffer transfer."""

    XCL_BO_SYNC_BO_TO_DEVICE = 0
    XCL_BO_SYNC_BO_FROM_DEVICE = 1
    XCL_BO_SYNC_BO_GMIO_TO_AIE = 2
    XCL_BO_SYNC_BO_AIE_TO_GMIO = 3


class ert_cmd_state(Enumeration):
    """The state of a run. State 3, running, has no name in pyxrt, so the emulated device does not use it."""

    ERT_CMD_STATE_NEW = 1
    ERT_CMD_STATE_QUEUED = 2
    ERT_CMD_STATE_COMPLETED = 4
    ERT_CMD_STATE_ERROR = 5
    ERT_CMD_STATE_ABORT = 6
    ERT_CMD_STATE_SUBMITTED = 7
    ERT_CMD_STATE_TIMEOUT = 8
    ERT_CMD_STATE_NORESPONSE = 9
    ERT_CMD_STATE_SKERROR = 10
    ERT_CMD_STATE_SKCRASHED = 11


class xrt_info_device(Enumeration):
    """The keys of `device.get_info`."""

    bdf = 0
    interface_uuid = 1
    kdma = 2
    max_clock_frequency_mhz = 3
    m2m = 4
    name = 5
    nodma = 6
    offline = 7
    electrical = 8
    thermal = 9
    mechanical = 10
    memory = 11
    platform = 12
    pcie_info = 13
    host = 14
    dynamic_regions = 17
    vmr = 18


class xrt_msg_level(Enumeration):
    """The levels of `log_message`."""

    emergency = 0
    alert = 1
    critical = 2
    error = 3
    warning = 4
    notice = 5
    info = 6
    debug = 7


emergency = xrt_msg_level.emergency
alert = xrt_msg_level.alert
critical = xrt_msg_level.critical
error = xrt_msg_level.error
warning = xrt_msg_level.warning
notice = xrt_msg_level.notice
info = xrt_msg_level.info
debug = xrt_msg_level.debug

_LOG_LEVELS = dict.fromkeys((emergency, alert, critical), logging.CRITICAL) | {
    error: logging.ERROR,
    warning: logging.WARNING,
    notice: logging.INFO,
    info: logging.INFO,
    debug: logging.DEBUG,
}


def log_message(level: xrt_msg_level, tag: str, message: str, /) -> None:
    """Write a message to Python's log. XRT itself writes it to a file or to the console."""
    is_a(level, xrt_msg_level)
    _log.log(_LOG_LEVELS[level], "%s: %s", as_text(tag), as_text(message))
