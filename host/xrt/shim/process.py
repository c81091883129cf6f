"""The device process: connects to the shim that started it and does what it asks until it says close.

Compute units run beside the socket's loop, each in a thread of its own, so that the host can ask how they are. What a
run or a request does wrong does not end this process: it would leave the host spinning, or have the shim kill its whole
process group."""

import fcntl
import logging
import os
import queue
import socket
import sys
import termios
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from headrace.batching.errors import HeadraceError
from headrace.bitstreams.hw_emu.library import METADATA
from headrace.bitstreams.kernel import KernelSpec, parse_kernels
from headrace.host.xrt.engine import Engine, SwEmuEngine, load_library
from headrace.host.xrt.hw_emu import HwEmuEngine
from headrace.host.xrt.shim.memory import BadAddress, SharedMemory
from headrace.host.xrt.shim.messages import ProtocolError, Request, answer, receive

CONNECT_TIMEOUT_S = 30.0
RUN_LIMIT_S = 120.0  # sw_emu's shim waits without end and holds Python's lock: the device ends every run

START, DONE, IDLE, CONTINUE = 1, 2, 4, 0x10  # bits of the control register
REGISTER_BYTES = 0x10000  # of a compute unit

_log = logging.getLogger(__name__)


class DeviceError(HeadraceError):
    """The device cannot begin; the message says what to change."""


def socket_path() -> Path:
    """Where the shim of the parent process listens. Raises DeviceError."""
    name, user = os.environ.get("EMULATION_SOCKETID"), os.environ.get("USER")
    if not name:
        raise DeviceError(
            "EMULATION_SOCKETID is not set: XRT's emulation starts this command itself; `headrace xrt-env` says how"
        )
    return Path("/tmp") / user / name if user else Path("/tmp") / name


class _ComputeUnit:
    """Registers and a thread. The host starts it through its control register."""

    def __init__(self, name: str, spec: KernelSpec, engine: Engine, memory: SharedMemory, limit_s: float) -> None:
        self.name = name
        self._spec = spec
        self._engine = engine
        self._memory = memory
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._registers = bytearray(REGISTER_BYTES)
        self._control = IDLE
        self._run = 0  # number of the run that the registers tell of
        self._lost = False  # a run did not come back
        self._watch: threading.Timer | None = None  # ends the run when it takes too long
        self._runs: queue.SimpleQueue[tuple[int, dict[int, int]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def write(self, offset: int, data: bytes) -> None:
        with self._lock:
            if offset + len(data) > REGISTER_BYTES:
                raise BadAddress(f"{self.name}: register 0x{offset:x} is outside its {REGISTER_BYTES} bytes")
            first = max(offset, 4)  # the control register is none that keeps what is written
            self._registers[first : offset + len(data)] = data[first - offset :]
            if offset != 0 or not data:
                return
            if data[0] & CONTINUE:
                self._control &= ~DONE
            if data[0] & START and not self._control & START:
                self._control = START
                self._run += 1
                self._begin(self._run, self._arguments())

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            if offset + size > REGISTER_BYTES:
                raise BadAddress(f"{self.name}: register 0x{offset:x} is outside its {REGISTER_BYTES} bytes")
            content = bytearray(self._registers[offset : offset + size])
            if offset < 4:
                control = self._control.to_bytes(4, "little")[offset : offset + size]
                content[: len(control)] = control
                if self._spec.control_protocol == "ap_ctrl_hs":
                    self._control &= ~DONE  # cleared when read
            return bytes(content)

    def stop(self) -> None:
        self._runs.put(None)

    def _arguments(self) -> dict[int, int]:
        return {
            arg.index: int.from_bytes(self._registers[arg.offset : arg.offset + arg.size], "little")
            for arg in self._spec.args
        }

    def _begin(self, number: int, values: dict[int, int]) -> None:
        if self._lost:
            _log.error("%s: run %d ends at once: an earlier one never came back", self.name, number)
            self._control = DONE | IDLE
            return
        self._runs.put((number, values))
        self._watch = threading.Timer(self._limit_s, self._end, (number, None))
        self._watch.daemon = True
        self._watch.start()

    def _work(self) -> None:
        while (item := self._runs.get()) is not None:
            number, values = item
            held = self._memory.held()  # a buffer may be freed under way
            outputs: dict[int, int] = {}
            try:
                outputs = dict(self._engine.execute(self._spec, values, self._memory, None).registers)
            except Exception as error:  # whatever it was: the run must end, and the unit goes on
                _log.error("%s: run %d failed: %s", self.name, number, error or repr(error))
            del held
            self._end(number, outputs)

    def _end(self, number: int, outputs: dict[int, int] | None) -> None:
        """Tell the host; `outputs`, registers by offset, is None when the limit has passed."""
        with self._lock:
            if number != self._run or not self._control & START:
                return
            if self._watch is not None:
                self._watch.cancel()
            if outputs is None:
                self._lost = True
                _log.error("%s: run %d took more than %g s and is given up", self.name, number, self._limit_s)
            for offset, value in (outputs or {}).items():
                self._registers[offset : offset + 4] = value.to_bytes(4, "little")
            self._control = DONE | IDLE


class Device:
    """What the shim loads, allocates and starts."""

    def __init__(self, limit_s: float = RUN_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._memory = SharedMemory()
        self._units: dict[int, _ComputeUnit] = {}  # by the address of their registers
        self._unpacked = False  # by hw_emu's shim, which starts a device for each load

    def load(self, kernels_xml: bytes, engines: Callable[[str, int], Engine]) -> None:
        """`engines` makes that of a kernel's compute unit of that number. Raises HeadraceError, OSError."""
        for unit in self._units.values():
            unit.stop()
        self._units = {}
        specs = {spec.name: spec for spec in parse_kernels(kernels_xml)}
        for number, (kernel, instance, base) in enumerate(instances(kernels_xml)):
            self._units[base] = _ComputeUnit(
                instance, specs[kernel], engines(kernel, number), self._memory, self._limit_s
            )

    def load_unpacked(self, folder: Path) -> None:
        """What a `hw_emu` container's archive holds. Raises HeadraceError, OSError."""
        identity = uuid4()
        self._unpacked = True

        def engine(kernel: str, number: int) -> Engine:
            library = load_library(identity, kernel, (folder / f"{kernel}.so").read_bytes)
            return HwEmuEngine(library, seed=number)

        self.load((folder / METADATA).read_bytes(), engine)

    def serve(self, connection: socket.socket) -> None:
        """Until the shim closes. What cannot be done is said in the log and not acknowledged."""
        while (request := receive(connection)) is not None:
            try:
                outcome = self._do(request)
            except (HeadraceError, ElementTree.ParseError, KeyError, OSError) as error:
                _log.error("%s: %s", request.name, error)
                outcome = {"size": 0} if request.name in ("to_device", "to_host") else {"ack": False}
            answer(connection, request.name, **outcome)
            # sw_emu's closes before each load, and everything at its end. hw_emu's closes at its end and for another
            # load, in which it waits for this process before it lets go of the socket.
            if request.name == "close" and (request.fields["everything"] or self._unpacked):
                _wait_until_read(connection)
                return

    def _do(self, request: Request) -> dict[str, Any]:
        fields = request.fields
        match request.name:
            case "load":
                self._load_files(fields)
            case "version":
                if "VITIS_SW_EMU_DISABLE_SINGLE_MMAP" not in os.environ:
                    self._memory.in_one_file()
            case "allocate":
                file = self._memory.allocate(fields["address"], fields["size"])
                return {"ack": True, "file": os.fsencode(file)}
            case "free":
                self._memory.free(fields["address"])
            case "to_device":  # sw_emu's has a transfer's offset in its address, and sends it beside it all the same
                self._memory.write(fields["address"] + self._unpacked * fields["seek"], fields["data"])
                return {"size": len(fields["data"])}
            case "to_host":
                data = self._memory.read(fields["address"] + self._unpacked * fields["skip"], fields["size"])
                return {"size": len(data), "data": data}
            case "write_memory":
                self._memory.write(fields["address"], fields["data"])
            case "read_memory":
                return {"ack": True, "data": self._memory.read(fields["address"], fields["size"])}
            case "write_registers":
                unit, offset = self._unit(fields["address"])
                unit.write(offset, fields["data"])
            case "read_registers":
                unit, offset = self._unit(fields["address"])
                return {"ack": True, "data": unit.read(offset, fields["size"])}
            case "write_register":
                self._units[fields["base"]].write(fields["offset"], fields["data"])
            case "read_register":
                return {"ack": True, "data": self._units[fields["base"]].read(fields["offset"], fields["size"])}
            case "copy_to_file":
                data = self._memory.read(fields["address"] + fields["from"], fields["size"])
                with open(fields["file"], "r+b") as file:
                    os.pwrite(file.fileno(), data, fields["to"])
            case "copy_from_file":
                with open(fields["file"], "rb") as file:
                    data = os.pread(file.fileno(), fields["size"], fields["from"])
                self._memory.write(fields["address"] + fields["to"], data)
            case "close":
                self._memory.clear()
            case "debug_messages":
                return {}
        return {"ack": True}

    def _load_files(self, fields: dict[str, Any]) -> None:
        if not fields["library"]:
            return  # 2.13 asks for a process before there is a container
        identity, library = uuid4(), Path(os.fsdecode(fields["library"])).read_bytes()
        self.load(
            Path(os.fsdecode(fields["kernels"])).read_bytes(), lambda kernel, number: SwEmuEngine(identity, library)
        )

    def _unit(self, address: int) -> tuple[_ComputeUnit, int]:
        for base, unit in self._units.items():
            if base <= address < base + REGISTER_BYTES:
                return unit, address - base
        raise BadAddress(f"no compute unit has registers at 0x{address:x}")


def instances(kernels_xml: bytes) -> list[tuple[str, str, int]]:
    """Kernel, instance and base address of the registers of each compute unit in a container's EMBEDDED_METADATA."""
    found = []
    for kernel in ElementTree.fromstring(kernels_xml).iter("kernel"):
        for instance in kernel.iter("instance"):
            remap = instance.find("addrRemap")
            if remap is None:
                raise DeviceError(f"instance {instance.attrib.get('name')} of the container has no addrRemap")
            found.append((kernel.attrib["name"], instance.attrib["name"], int(remap.attrib["base"], 0)))
    return found


def main(limit_s: float = RUN_LIMIT_S, unpacked: Path | None = None) -> None:
    """`unpacked`: the folder with what a `hw_emu` container's archive holds; `sw_emu` sends its library.

    Raises DeviceError."""
    path, device = socket_path(), Device(limit_s)
    if unpacked is not None:
        try:
            device.load_unpacked(unpacked)
        except (HeadraceError, ElementTree.ParseError, KeyError, OSError) as error:
            raise DeviceError(f"{unpacked} is no unpacked hw_emu container: {error}") from error
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(CONNECT_TIMEOUT_S)
        _connect(connection, path)
        connection.settimeout(None)  # the host may think as long as it likes; when it ends, the socket closes
        try:
            device.serve(connection)
        except ProtocolError as error:
            raise DeviceError(f"{path}: {error}") from error
        except OSError as error:  # the host has ended
            _log.error("%s: %s", path, error)


def _wait_until_read(connection: socket.socket) -> None:
    """2.16's hw_emu shim reads nothing more from a socket of which a thread beside has seen that it closed."""
    end = monotonic() + CONNECT_TIMEOUT_S
    while int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder) and monotonic() < end:
        sleep(0.002)


def _connect(connection: socket.socket, path: Path) -> None:
    """The shim starts this process first and listens then."""
    end = monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            return connection.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError) as error:
            if monotonic() > end:
                raise DeviceError(f"nobody listens at {path} for {CONNECT_TIMEOUT_S:g} s: {error.strerror}") from error
            sleep(0.02)
