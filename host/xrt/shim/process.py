"""The device process. It connects to the shim that started it and serves requests until the shim sends close.

Each compute unit runs in its own thread, so the host can read the units' state while they run. An error in a run or a
request does not end this process. If it ended, the host would wait in a busy loop, or the shim would kill its whole
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
# sw_emu's shim waits without a limit and holds Python's lock meanwhile, so the device must end every run itself.
RUN_LIMIT_S = 120.0

START, DONE, IDLE, CONTINUE = 1, 2, 4, 0x10  # bits of the control register
REGISTER_BYTES = 0x10000  # size of the register space of one compute unit

_log = logging.getLogger(__name__)


class DeviceError(HeadraceError):
    """The device process cannot start or go on; the message says what to change."""


def socket_path() -> Path:
    """Return the path of the socket on which the shim of the parent process listens. Raises DeviceError."""
    name, user = os.environ.get("EMULATION_SOCKETID"), os.environ.get("USER")
    if not name:
        raise DeviceError(
            "EMULATION_SOCKETID is not set: XRT's emulation starts this command itself; "
            "set it up with `headrace xrt-env`"
        )
    return Path("/tmp") / user / name if user else Path("/tmp") / name


class _ComputeUnit:
    """One compute unit: its registers and a thread. The host starts it through the control register."""

    def __init__(self, name: str, spec: KernelSpec, engine: Engine, memory: SharedMemory, limit_s: float) -> None:
        self.name = name
        self._spec = spec
        self._engine = engine
        self._memory = memory
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._registers = bytearray(REGISTER_BYTES)
        self._control = IDLE
        self._run = 0  # number of the run that the registers describe
        self._lost = False  # a run took longer than the limit
        self._watch: threading.Timer | None = None  # ends the run after the limit
        self._runs: queue.SimpleQueue[tuple[int, dict[int, int]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def write(self, offset: int, data: bytes) -> None:
        with self._lock:
            if offset + len(data) > REGISTER_BYTES:
                raise BadAddress(f"{self.name}: register 0x{offset:x} is outside its {REGISTER_BYTES} bytes")
            first = max(offset, 4)  # the control register does not store the written value
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
                    self._control &= ~DONE  # a read clears the bit
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
            _log.error("%s: run %d does not start, because an earlier run has not ended", self.name, number)
            self._control = DONE | IDLE
            return
        self._runs.put((number, values))
        self._watch = threading.Timer(self._limit_s, self._end, (number, None))
        self._watch.daemon = True
        self._watch.start()

    def _work(self) -> None:
        while (item := self._runs.get()) is not None:
            number, values = item
            held = self._memory.held()  # keeps the memory of buffers that the host frees during the run
            outputs: dict[int, int] = {}
            try:
                outputs = dict(self._engine.execute(self._spec, values, self._memory, None).registers)
            except Exception as error:  # after any error the run must end, and the unit continues with the next
                _log.error("%s: run %d failed: %s", self.name, number, error or repr(error))
            del held
            self._end(number, outputs)

    def _end(self, number: int, outputs: dict[int, int] | None) -> None:
        """Report the end of a run in the registers.

        `outputs` has the output registers by offset. It is None if the run has passed its limit."""
        with self._lock:
            if number != self._run or not self._control & START:
                return
            if self._watch is not None:
                self._watch.cancel()
            if outputs is None:
                self._lost = True
                _log.error(
                    "%s: run %d took more than its limit of %g s and is abandoned", self.name, number, self._limit_s
                )
            for offset, value in (outputs or {}).items():
                self._registers[offset : offset + 4] = value.to_bytes(4, "little")
            self._control = DONE | IDLE


class Device:
    """The device that the shim controls: its memory and its compute units."""

    def __init__(self, limit_s: float = RUN_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._memory = SharedMemory()
        self._units: dict[int, _ComputeUnit] = {}  # by the address of their registers
        self._unpacked = False  # True for hw_emu, whose shim unpacks the container and starts a process for each load

    def load(self, kernels_xml: bytes, engines: Callable[[str, int], Engine]) -> None:
        """Replace the compute units by those of a container.

        `engines(kernel, number)` makes the engine of compute unit `number`, which is one of `kernel`. Raises
        HeadraceError, OSError."""
        for unit in self._units.values():
            unit.stop()
        self._units = {}
        specs = {spec.name: spec for spec in parse_kernels(kernels_xml)}
        for number, (kernel, instance, base) in enumerate(instances(kernels_xml)):
            self._units[base] = _ComputeUnit(
                instance, specs[kernel], engines(kernel, number), self._memory, self._limit_s
            )

    def load_unpacked(self, folder: Path) -> None:
        """Load the files of a `hw_emu` container's archive from `folder`. Raises HeadraceError, OSError."""
        identity = uuid4()
        self._unpacked = True

        def engine(kernel: str, number: int) -> Engine:
            library = load_library(identity, kernel, (folder / f"{kernel}.so").read_bytes)
            return HwEmuEngine(library, seed=number)

        self.load((folder / METADATA).read_bytes(), engine)

    def serve(self, connection: socket.socket) -> None:
        """Serve requests until the shim closes.

        A request that fails is written to the log and not acknowledged."""
        while (request := receive(connection)) is not None:
            try:
                outcome = self._do(request)
            except (HeadraceError, ElementTree.ParseError, KeyError, OSError) as error:
                _log.error("%s: %s", request.name, error)
                outcome = {"size": 0} if request.name in ("to_device", "to_host") else {"ack": False}
            answer(connection, request.name, **outcome)
            # sw_emu's shim sends close before each load, and close of everything at its end. hw_emu's shim sends close
            # at its end and before another load. It then waits for this process before it closes the socket.
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
            case (
                "to_device"
            ):  # sw_emu's shim adds the offset of a transfer to the address, and also sends it as a field
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
            return  # XRT 2.13 starts the process before it has a container
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
    """Return the kernel, the instance and the base address of the registers of each compute unit in
    EMBEDDED_METADATA."""
    units = []
    for kernel in ElementTree.fromstring(kernels_xml).iter("kernel"):
        for instance in kernel.iter("instance"):
            remap = instance.find("addrRemap")
            if remap is None:
                raise DeviceError(f"instance {instance.attrib.get('name')} of the container has no addrRemap")
            units.append((kernel.attrib["name"], instance.attrib["name"], int(remap.attrib["base"], 0)))
    return units


def main(limit_s: float = RUN_LIMIT_S, unpacked: Path | None = None) -> None:
    """Connect to the shim and serve it until it closes.

    Args:
        limit_s: limit of one run in seconds.
        unpacked: the folder with the files of a `hw_emu` container's archive. The shim of `sw_emu` sends its library
            instead.

    Raises DeviceError."""
    path, device = socket_path(), Device(limit_s)
    if unpacked is not None:
        try:
            device.load_unpacked(unpacked)
        except (HeadraceError, ElementTree.ParseError, KeyError, OSError) as error:
            raise DeviceError(f"{unpacked} is not the unpacked archive of a hw_emu container: {error}") from error
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(CONNECT_TIMEOUT_S)
        _connect(connection, path)
        connection.settimeout(None)  # the host may pause as long as it likes; the socket closes when the host ends
        try:
            device.serve(connection)
        except ProtocolError as error:
            raise DeviceError(f"{path}: {error}") from error
        except OSError as error:  # the host has ended
            _log.error("%s: %s", path, error)


def _wait_until_read(connection: socket.socket) -> None:
    """Wait until the other side has read every byte, at most CONNECT_TIMEOUT_S.

    The hw_emu shim of XRT 2.16 reads nothing more once another of its threads has seen the socket close."""
    end = monotonic() + CONNECT_TIMEOUT_S
    while int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder) and monotonic() < end:
        sleep(0.002)


def _connect(connection: socket.socket, path: Path) -> None:
    """Connect to the shim's socket, trying again until it exists. The shim starts this process before it listens."""
    end = monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            return connection.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError) as error:
            if monotonic() > end:
                raise DeviceError(
                    f"no process listened at {path} for {CONNECT_TIMEOUT_S:g} s: {error.strerror}; "
                    "start the program with XRT's emulation, not this command"
                ) from error
            sleep(0.02)
