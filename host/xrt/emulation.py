"""An emulated XRT device with the API of XRT's Python module `pyxrt`. It has pyxrt's names, which do not follow PEP
8, and no AI engines.

The device enforces the rules of a card:
  - A buffer has a copy on the host and one on the device. Only `sync` makes them equal.
  - An argument takes only buffers in the memory bank that its compute unit is connected to.
  - A scalar argument is a 32-bit integer.
  - A device runs one container at a time.

As with pyxrt, a violation raises RuntimeError. It is TypeError for a value that pybind11 cannot convert, and
IndexError for an argument that the kernel does not have.

Each compute unit has its own thread, so units run concurrently. A unit executes its runs in the order of their
starts.

Like pyxrt, this module gives no access to the registers of a kernel. It adds `inject`, `set_launch_cost`,
`set_faithful` and `kernel.get_waited_s` to pyxrt's API. For `hw_emu` containers it adds `run.get_hw_emu_stats`,
`trace` and `set_memory_model`."""

import json
import queue
import threading
import uuid as _uuid
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import HeadraceError
from headrace.bitstreams.hw_emu.library import unpack
from headrace.bitstreams.kernel import KernelSpec, kernels_of
from headrace.bitstreams.xclbin import MemoryBank, Mode, Xclbin, check_content, from_bytes
from headrace.host.xrt.arguments import Form, as_a, as_index, as_size, as_text, as_unsigned, is_a, taken
from headrace.host.xrt.engine import DeviceMemory, Engine, RunFailed, SwEmuEngine, load_library
from headrace.host.xrt.enums import (
    XCL_BO_FLAGS_NONE,
    Enumeration,
    alert,
    critical,
    debug,
    emergency,
    error,
    ert_cmd_state,
    info,
    log_message,
    notice,
    warning,
    xclBOSyncDirection,
    xrt_info_device,
    xrt_msg_level,
)
from headrace.host.xrt.faults import Fault, FaultKind
from headrace.host.xrt.hw_emu import HwEmuEngine, MemoryModel

__all__ = [  # noqa: RUF022  pyxrt's names first, then the names that only this device has
    "XCL_BO_FLAGS_NONE",
    "alert",
    "bo",
    "critical",
    "debug",
    "device",
    "emergency",
    "enumerate_devices",
    "error",
    "ert_cmd_state",
    "hw_context",
    "info",
    "kernel",
    "log_message",
    "notice",
    "run",
    "runlist",
    "uuid",
    "warning",
    "xclBOSyncDirection",
    "xclbin",
    "xrt_info_device",
    "xrt_msg_level",
    "inject",
    "set_faithful",
    "set_launch_cost",
    "set_memory_model",
    "trace",
]

PAGE = 4096
_DONE = {
    ert_cmd_state.ERT_CMD_STATE_COMPLETED,
    ert_cmd_state.ERT_CMD_STATE_ERROR,
    ert_cmd_state.ERT_CMD_STATE_ABORT,
}


class uuid:
    """Identify a container. As in pyxrt, two objects with the same text are not equal; compare their `to_string()`."""

    def __init__(self, text: str, /) -> None:
        self._text = _canonical(as_text(text))

    def to_string(self) -> str:
        return self._text


def _canonical(text: str) -> str:
    """Return the UUID in its usual form. Like XRT's parser, it returns the zero UUID for text that is no UUID."""
    try:
        return str(_uuid.UUID(text))
    except ValueError:
        return str(_uuid.UUID(int=0))


class xclbin:
    """The metadata of a container. Without arguments it is empty, and its methods raise RuntimeError."""

    class xclbinip:
        """An IP of a container; it has no name here."""

        def get_name(self) -> str:
            return ""

    class xclbinkernel:
        """A kernel of a container."""

        _spec: KernelSpec | None = None

        def get_name(self) -> str:
            return self._spec.name if self._spec is not None else ""

        def get_num_args(self) -> int:
            return len(self._spec.args) if self._spec is not None else 0

    class xclbinmem:
        """A memory bank of a container."""

        _index: int = -1
        _bank: MemoryBank | None = None

        def _known(self) -> MemoryBank:
            if self._bank is None:
                raise RuntimeError("an empty xclbinmem has no data: Invalid argument")
            return self._bank

        def get_tag(self) -> str:
            return self._known().tag

        def get_base_address(self) -> int:
            return self._known().base_address

        def get_size_kb(self) -> int:
            return self._known().size_kb

        def get_used(self) -> bool:
            return self._known().used

        def get_index(self) -> int:
            self._known()
            return self._index

    def __init__(self, *path: str) -> None:
        self._data: tuple[Xclbin, tuple[KernelSpec, ...]] | None = None
        arguments = taken([{}, {"arg0": as_text}], path, {})
        if not arguments:
            return
        try:
            content = from_bytes(Path(arguments["arg0"]).read_bytes())
            check_content(content)
            self._data = content, kernels_of(content)
        except (OSError, ValueError, HeadraceError) as failed:  # ValueError: the path has a zero byte
            raise RuntimeError(f"failed to load xclbin: {failed}") from failed

    def _known(self) -> tuple[Xclbin, tuple[KernelSpec, ...]]:
        if self._data is None:
            raise RuntimeError("the xclbin is empty: Invalid argument")
        return self._data

    @property
    def _content(self) -> Xclbin:
        return self._known()[0]

    @property
    def _specs(self) -> tuple[KernelSpec, ...]:
        return self._known()[1]

    def get_kernels(self) -> list["xclbin.xclbinkernel"]:
        kernels = []
        for spec in self._specs:
            kernels.append(xclbin.xclbinkernel())
            kernels[-1]._spec = spec
        return kernels

    def get_mems(self) -> list["xclbin.xclbinmem"]:
        memories = []
        for index, bank in enumerate(self._content.memories):
            memories.append(xclbin.xclbinmem())
            memories[-1]._index, memories[-1]._bank = index, bank
        return memories

    def get_uuid(self) -> uuid:
        return uuid(str(self._content.uuid))

    def get_xsa_name(self) -> str:
        return self._content.platform

    def get_axlf(self) -> NoReturn:
        """Raise TypeError. XRT returns an object for which pyxrt has no Python class."""
        raise TypeError("Unable to convert function return value to a Python type: axlf")


_Container = xclbin  # for methods in which a parameter has the name `xclbin`


class _Bank:
    """Allocate page-aligned ranges of one memory bank, first fit."""

    def __init__(self, bank: MemoryBank) -> None:
        self.bank = bank
        self._taken: list[tuple[int, int]] = []  # (address, size), in the order of the addresses

    def allocate(self, size: int) -> int:
        size = -(-size // PAGE) * PAGE
        address = self.bank.base_address
        for position, (start, length) in enumerate(self._taken):
            if start - address >= size:
                self._taken.insert(position, (address, size))
                return address
            address = start + length
        if address + size > self.bank.base_address + self.bank.size_kb * 1024:
            raise RuntimeError(f"failed to allocate bo of {size} bytes in bank {self.bank.tag}: Cannot allocate memory")
        self._taken.append((address, size))
        return address

    @property
    def in_use(self) -> bool:
        return bool(self._taken)

    @property
    def taken(self) -> int:
        """Return the number of allocated bytes."""
        return sum(size for _, size in self._taken)

    @property
    def count(self) -> int:
        return len(self._taken)

    def free(self, address: int) -> int:
        """Free the range at `address` and return its size in bytes."""
        for position, (start, size) in enumerate(self._taken):
            if start == address:
                del self._taken[position]
                return size
        raise AssertionError(f"nothing is allocated at 0x{address:x}")


class _Allocation:
    """Hold a range of device memory. The range is freed when neither its bo nor a run holds this object.

    The object does not keep the card alive, so a run that hangs does not keep it either."""

    def __init__(self, lock: threading.RLock, memory: DeviceMemory, bank: _Bank, size: int) -> None:
        with lock:
            self.address = bank.allocate(size)
        self._end = weakref.finalize(self, _free, lock, memory, bank, self.address)


def _free(lock: threading.RLock, memory: DeviceMemory, bank: _Bank, address: int) -> None:
    with lock:
        memory.release(bank.bank.base_address, address, bank.free(address))


class _Start(NamedTuple):
    """A run in the queue of a compute unit."""

    command: "_Command"
    fault: FaultKind | None
    wave: Path | None


class _ComputeUnit:
    """One compute unit: a queue of runs and the thread that executes them. It keeps nothing of the card alive."""

    def __init__(
        self, name: str, spec: KernelSpec, banks: dict[int, int], engine: Engine, memory: DeviceMemory
    ) -> None:
        self.name = name
        self.spec = spec
        self.banks = banks  # argument index -> memory index
        self.pending = 0
        self.engine = engine
        self._memory = memory
        self._runs: queue.SimpleQueue[_Start | None] = queue.SimpleQueue()
        self._reset = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"xrt {name}", daemon=True)
        self._thread.start()

    def start(self, start: _Start) -> None:
        self.pending += 1
        self._runs.put(start)

    def waited_s(self) -> float:
        """Return the seconds in which this unit's thread could have run but had no core (proc(5), schedstat)."""
        try:
            schedstat = Path(f"/proc/self/task/{self._thread.native_id}/schedstat").read_text()
        except OSError:  # the thread has ended, or this Linux kernel has no such file
            return 0.0
        return int(schedstat.split()[1]) / 1e9

    def stop(self) -> None:
        self._reset.set()
        self._runs.put(None)

    def _work(self) -> None:
        while (item := self._runs.get()) is not None:
            command, fault, wave = item
            command.enter(ert_cmd_state.ERT_CMD_STATE_SUBMITTED)
            if fault is FaultKind.HANG:
                self._reset.wait()
                command.enter(ert_cmd_state.ERT_CMD_STATE_ABORT)
            elif fault is FaultKind.ERROR:
                command.enter(ert_cmd_state.ERT_CMD_STATE_ERROR)
            else:
                try:
                    command.stats = self.engine.execute(self.spec, command.values, self._memory, wave).stats
                except Exception as error:  # after any error the run must end, and the unit continues with the next
                    command.error = str(error) if isinstance(error, RunFailed) else repr(error)
                    command.enter(ert_cmd_state.ERT_CMD_STATE_ERROR)
                else:
                    command.enter(ert_cmd_state.ERT_CMD_STATE_COMPLETED)
            self.pending -= 1
            del item, command  # otherwise the thread keeps a finished run until the next one starts


class _Card:
    """The hardware of every `device(0)` in this process. It lives as long as any device object or an object made
    from one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.registered: dict[str, xclbin] = {}  # by the text of the UUID
        self.loaded: xclbin | None = None
        self.memory = DeviceMemory()
        self.banks: list[_Bank] = []
        self.cus: list[_ComputeUnit] = []
        self.users: Counter[str] = Counter()  # open contexts by CU name
        self.exclusive: set[str] = set()
        self.contexts = 0
        self.exclusive_context = False
        self.faithful = False
        self.faults: list[Fault] = []
        self.waves: list[tuple[Path, str | None]] = []  # file, CU name or None for any
        self._end: weakref.finalize[Any, Any] | None = None

    def program(self, container: xclbin) -> None:
        with self.lock:
            if self.loaded is not None and _same(self.loaded.get_uuid(), container.get_uuid()):
                return
            if self.contexts or self.users or any(bank.in_use for bank in self.banks):
                raise RuntimeError("failed to load xclbin: another xclbin is in use: Device or resource busy")
            content = container._content
            if content.mode not in (Mode.SW_EMU, Mode.HW_EMU):
                raise RuntimeError(f"failed to load xclbin: mode {content.mode.name} is not for this device")
            if self._end is not None:
                self._end()
            self.memory = DeviceMemory()
            self.banks = [_Bank(bank) for bank in content.memories]
            specs = {spec.name: spec for spec in container._specs}
            self.cus = []
            for index, ip in enumerate(content.ips):
                banks = {c.arg_index: c.memory_index for c in content.connections if c.ip_index == index}
                engine = _engine(content, ip.kernel, index)
                self.cus.append(_ComputeUnit(ip.instance, specs[ip.kernel], banks, engine, self.memory))
            self.loaded = container
            self._end = weakref.finalize(self, _stop, list(self.cus))

    def wave(self, cu: str) -> Path | None:
        """Return the waveform file for the run that starts on `cu` now, or None."""
        with self.lock:
            for position, (path, traced_cu) in enumerate(self.waves):
                if traced_cu in (None, cu):
                    del self.waves[position]
                    return path
        return None

    def fault(self, kinds: tuple[FaultKind, ...], cu: str | None = None) -> FaultKind | None:
        """Return the kind of fault that happens on this occasion, or None."""
        with self.lock:
            return next((kind for kind in kinds for fault in self.faults if fault.fires(kind, cu)), None)


def _engine(content: Xclbin, kernel: str, number: int) -> Engine:
    try:
        if content.mode is Mode.SW_EMU:
            return SwEmuEngine(content.uuid, content.bitstream)
        name = f"{kernel}.so"
        return HwEmuEngine(load_library(content.uuid, name, lambda: unpack(content.bitstream, name)), seed=number)
    except (OSError, KeyError, BadZipFile) as error:
        raise RuntimeError(f"failed to load xclbin: its bitstream is not for {content.mode.name}: {error}") from error


def _stop(cus: list[_ComputeUnit]) -> None:
    for cu in cus:
        cu.stop()


def _same(one: uuid, other: uuid) -> bool:
    return one.to_string() == other.to_string()


_cards: "weakref.WeakValueDictionary[int, _Card]" = weakref.WeakValueDictionary()
_cards_lock = threading.Lock()
_BDF = "0000:00:00.0"


def enumerate_devices() -> int:
    return 1


class device:
    """The emulated card: `device(0)` or `device("0000:00:00.0")`. Without arguments it is empty, and its methods raise
    RuntimeError."""

    def __init__(self, *given: int | str, **named: int | str) -> None:
        self._opened: _Card | None = None
        arguments = taken([{}, {"index": as_unsigned}, {"bdf": as_text}], given, named)
        if not arguments:
            return
        (which,) = arguments.values()
        if which not in (0, _BDF):
            raise RuntimeError(f"could not open device {which!r}: the emulation has device 0 only: No such device")
        with _cards_lock:
            card = _cards.get(0)
            if card is None:
                card = _cards[0] = _Card()
        self._opened = card

    @property
    def _card(self) -> _Card:
        if self._opened is None:
            raise RuntimeError("the device is empty: Invalid argument")
        return self._opened

    def register_xclbin(self, xclbin: "xclbin") -> uuid:
        is_a(xclbin, _Container)
        with self._card.lock:
            self._card.registered[xclbin.get_uuid().to_string()] = xclbin
        return xclbin.get_uuid()

    def load_xclbin(self, *given: "xclbin | str", **named: "xclbin | str") -> uuid:
        """Load the container onto the device at once, in XRT's older way: `load_xclbin(xclbin_path)` or
        `load_xclbin(xclbin)`."""
        (source,) = taken([{"xclbin_path": as_text}, {"xclbin": as_a(xclbin)}], given, named).values()
        loaded = xclbin(source) if isinstance(source, str) else source
        self.register_xclbin(loaded)
        self._card.program(loaded)
        return loaded.get_uuid()

    def get_xclbin_uuid(self) -> uuid:
        loaded = self._card.loaded
        return loaded.get_uuid() if loaded is not None else uuid("00000000-0000-0000-0000-000000000000")

    def get_info(self, key: xrt_info_device, /) -> str:
        """Return the information as text. For the keys of sensors and the shell this device returns an empty JSON
        object."""
        is_a(key, xrt_info_device)
        loaded = self._card.loaded
        match key:
            case xrt_info_device.bdf:
                return _BDF
            case xrt_info_device.name:
                return loaded.get_xsa_name() if loaded is not None else "headrace_emulation"
            case xrt_info_device.max_clock_frequency_mhz:
                return "300"
            case xrt_info_device.interface_uuid:
                return "00000000-0000-0000-0000-000000000000"
            case xrt_info_device.kdma | xrt_info_device.m2m | xrt_info_device.nodma | xrt_info_device.offline:
                return "0"
            case xrt_info_device.memory:
                return json.dumps(self._memory())
            case _:
                return "{}"

    def _memory(self) -> dict[str, Any]:
        banks = self._card.banks
        shown = [
            {
                "tag": bank.bank.tag,
                "base_address": hex(bank.bank.base_address),
                "range_bytes": hex(bank.bank.size_kb * 1024),
                "enabled": bank.bank.used,
                "extended_info": {"usage": {"allocated_bytes": bank.taken, "buffer_objects_count": bank.count}},
            }
            for bank in banks
        ]
        return {"board": {"memory": {"memories": shown}}}


def inject(target: device, fault: Fault) -> None:
    """Make the device misbehave; not in pyxrt. The fault ends with the device."""
    with target._card.lock:
        target._card.faults.append(fault)


def set_faithful(target: device, on: bool = True) -> None:
    """Make the device as lenient as XRT where it is strict by default; not in pyxrt.

    A faithful device differs in three points:
      - `kernel(...)` skips arguments that it cannot set.
      - A run starts although arguments are not set. The kernel reads 0 for each of them.
      - A buffer in a bank that no unit reaches is replaced by a copy in a bank that one reaches. The run completes, but
          the output that the kernel writes to the copy is lost."""
    with target._card.lock:
        target._card.faithful = on


def trace(target: device, path: Path | str, cu: str | None = None) -> None:
    """Write a waveform (VCD) of the next run of `cu`, or of any CU if `cu` is None; not in pyxrt.

    Raises RuntimeError if the loaded container is not for `hw_emu`."""
    card = target._card
    with card.lock:
        _hw_emu_engines(card, "waveforms")
        if cu is not None and cu not in (unit.name for unit in card.cus):
            raise RuntimeError(f"there is no compute unit {cu!r} to trace: Invalid argument")
        card.waves.append((Path(path), cu))


def set_memory_model(target: device, model: MemoryModel) -> None:
    """Set the timing of memory, from the next run of each CU until another container is loaded; not in pyxrt.

    Raises RuntimeError if the loaded container is not for `hw_emu`."""
    with target._card.lock:
        for engine in _hw_emu_engines(target._card, "clocked memory"):
            engine.memory_model = model


def set_launch_cost(target: device, microseconds: float) -> None:
    """Set the time from a start until the kernel sees it, until another container is loaded; not in pyxrt.

    XRT on a U55C takes 50 to 100 us (XRT issue 8687). The emulation takes none by default."""
    with target._card.lock:
        for cu in target._card.cus:
            cu.engine.launch_us = microseconds


def _hw_emu_engines(card: _Card, what: str) -> list[HwEmuEngine]:
    engines = [cu.engine for cu in card.cus if isinstance(cu.engine, HwEmuEngine)]
    if not engines:
        raise RuntimeError(f"no hw_emu container is loaded; load one to use {what}: Operation not supported")
    return engines


class hw_context:
    """The right to use a container on a device; opening it loads the container. Without arguments it is empty.

    `hw_context(device, uuid)` uses a registered container. `hw_context(device, xclbin)`, with an xclbin or a path,
    registers the container first."""

    class access_mode(Enumeration):
        exclusive = 0
        shared = 1

    exclusive = access_mode.exclusive
    shared = access_mode.shared

    def __init__(self, *given: Any, **named: Any) -> None:
        """Open the context. A mapping in the place of `mode`, with settings for a partition of AI engines, has no
        effect here."""
        self._opened: _Card | None = None
        modes: list[Form] = [{}, {"mode": as_a(hw_context.access_mode)}, {"cfg_param": as_a(Mapping)}]
        sources: list[Form] = [{"uuid": as_a(uuid)}, {"xclbin": as_a(xclbin)}, {"xclbin_path": as_text}]
        forms = [{"device": as_a(device), **source, **mode} for source in sources for mode in modes]
        arguments = taken([{}, *forms], given, named)
        if not arguments:
            return
        target, source, *rest = arguments.values()
        mode = rest[0] if rest else None
        card = target._card
        if isinstance(source, str):
            source = xclbin(source)
        identity = target.register_xclbin(source) if isinstance(source, xclbin) else source
        container = card.registered.get(identity.to_string())
        if container is None:
            raise RuntimeError(f"no xclbin with uuid {identity.to_string()} is registered: No such file or directory")
        exclusive = mode is hw_context.exclusive
        with card.lock:
            if card.exclusive_context or (exclusive and card.contexts):
                raise RuntimeError("failed to open a hardware context: Device or resource busy")
            card.program(container)
            card.contexts += 1
            card.exclusive_context = exclusive
        self._opened = card
        self._container = container
        self._mode = hw_context.exclusive if exclusive else hw_context.shared
        self._end = weakref.finalize(self, _close_context, card)

    @property
    def _card(self) -> _Card:
        if self._opened is None:
            raise RuntimeError("the hw_context is empty: Invalid argument")
        return self._opened

    def get_device(self) -> device:
        self._card  # noqa: B018  raises if empty
        return device(0)

    def get_mode(self) -> "hw_context.access_mode":
        self._card  # noqa: B018
        return self._mode

    def get_xclbin(self) -> xclbin:
        self._card  # noqa: B018
        return self._container

    def get_xclbin_uuid(self) -> uuid:
        return self.get_xclbin().get_uuid()


def _close_context(card: _Card) -> None:
    with card.lock:
        card.contexts -= 1
        card.exclusive_context = False


class kernel:
    """One or more compute units of a kernel: "image_cu" for all, "image_cu:{image_cu_1,image_cu_2}" for some.

    The constructor is `kernel(hw_context, name)`, or the older `kernel(device, uuid, name[, mode])`."""

    class cu_access_mode(Enumeration):
        exclusive = 0
        shared = 1
        none = 2

    exclusive = cu_access_mode.exclusive
    shared = cu_access_mode.shared
    none = cu_access_mode.none

    def __init__(self, *given: Any, **named: Any) -> None:
        by_device: Form = {"device": as_a(device), "uuid": as_a(uuid), "name": as_text}
        with_mode: Form = {**by_device, "mode": as_a(kernel.cu_access_mode)}
        arguments = taken([with_mode, by_device, {"hw_context": as_a(hw_context), "name": as_text}], given, named)
        owner = arguments.get("device") or arguments["hw_context"]
        card, name, mode = owner._card, arguments["name"], arguments.get("mode", kernel.shared)
        if (identity := arguments.get("uuid")) is not None and not (
            card.loaded is not None and _same(card.loaded.get_uuid(), identity)
        ):
            raise RuntimeError(f"xclbin {identity.to_string()} is not loaded on the device: Invalid argument")
        base, _, selection = name.partition(":")
        selected = [part.strip() for part in selection.strip("{}").split(",")] if selection else None
        self._cus = [cu for cu in card.cus if cu.spec.name == base and (selected is None or cu.name in selected)]
        if not self._cus or (selected is not None and len(self._cus) != len(selected)):
            raise RuntimeError(f"no compute units matching '{name}'")
        names = [cu.name for cu in self._cus]
        with card.lock:
            for cu in names:
                if cu in card.exclusive or (mode is kernel.exclusive and card.users[cu]):
                    raise RuntimeError(f"failed to open context on compute unit {cu}: Device or resource busy")
            card.users.update(names)
            if mode is kernel.exclusive:
                card.exclusive.update(names)
        self._card = card
        self._owner = owner  # keeps the context alive as long as the kernel
        self._spec = self._cus[0].spec
        self._end = weakref.finalize(self, _close_cus, card, names)

    def group_id(self, argument: int, /) -> int:
        """Return the index of the memory bank in which a buffer for this argument must lie."""
        argument = as_index(argument)
        if not 0 <= argument < len(self._spec.args):
            raise IndexError(f"kernel '{self._spec.name}' has no argument {argument}")
        bank = self._cus[0].banks.get(argument)
        if bank is None:
            raise IndexError(f"argument {argument} of kernel '{self._spec.name}' is not connected to memory")
        return bank

    def get_waited_s(self) -> float:
        """Return the seconds in which this kernel's units could have run but had no core of this machine; not in pyxrt.

        A time limit for a run does not count these seconds, because a busy machine is no fault of a unit."""
        return sum(cu.waited_s() for cu in self._cus)

    def __call__(self, *arguments: Any) -> "run":
        """Set all arguments and start. pyxrt skips an argument that is wrong; see `set_faithful`."""
        command = run(self)
        for index, argument in enumerate(arguments):
            try:
                command.set_arg(index, argument)
            except (IndexError, RuntimeError, TypeError):
                if not self._card.faithful:
                    raise
        command.start()
        return command


def _close_cus(card: _Card, names: list[str]) -> None:
    with card.lock:
        card.users -= Counter(names)
        card.exclusive.difference_update(names)


class bo:
    """A buffer: `bo(device or hw_context, size, flags, group)` or `bo(hw_context, size, group)`.

    `bo(parent, size, offset)` is a part of another buffer."""

    class flags(Enumeration):
        normal = 0
        cacheable = 1 << 24
        device_only = 1 << 28
        host_only = 1 << 29
        p2p = 1 << 30
        svm = 1 << 27

    normal = flags.normal
    cacheable = flags.cacheable
    device_only = flags.device_only
    host_only = flags.host_only
    p2p = flags.p2p
    svm = flags.svm

    def __init__(self, *given: Any, **named: Any) -> None:
        whole: Form = {"size": as_size, "flags": as_a(bo.flags), "group": as_unsigned}
        arguments = taken(
            [
                {"device": as_a(device), **whole},
                {"hwctx": as_a(hw_context), **whole},
                {"hwctx": as_a(hw_context), "size": as_size, "group": as_unsigned},
                {"arg0": as_a(bo), "arg1": as_size, "arg2": as_size},
            ],
            given,
            named,
        )
        owner, length, *rest = arguments.values()
        if length == 0:
            raise RuntimeError(f"failed to allocate bo of {length} bytes: Invalid argument")
        self._size = length
        if isinstance(owner, bo):
            (offset,) = rest
            if offset + length > owner._size:
                raise RuntimeError(
                    f"the sub-buffer [{offset}, {offset + length}) is outside its parent of {owner._size} bytes: "
                    "Invalid argument"
                )
            self._allocation = owner._allocation
            self._card, self._group, self._address = owner._card, owner._group, owner._address + offset
            self._host = None if owner._host is None else owner._host[offset : offset + length]
            self._device = owner._device[offset : offset + length]
            return
        card, flags, group = owner._card, arguments.get("flags", bo.normal), arguments["group"]
        if flags not in (bo.normal, bo.cacheable, bo.device_only):
            raise RuntimeError(f"this device has no {flags.name} buffers: Operation not supported")
        if group >= len(card.banks):
            raise RuntimeError(f"there is no memory bank {group}: Invalid argument")
        bank = card.banks[group]
        self._allocation = _Allocation(card.lock, card.memory, bank, length)
        self._address = self._allocation.address
        base, bank_bytes = bank.bank.base_address, bank.bank.size_kb * 1024
        self._card = card
        self._group = group
        self._host = None if flags is bo.device_only else memoryview(np.zeros(length, np.uint8).data)
        self._device = card.memory.view(base, bank_bytes, self._address, length)

    def _copy_in(self, group: int) -> "bo":
        """Return a copy in another bank. XRT makes such a copy of a buffer that the kernel cannot reach."""
        copy = bo.__new__(bo)
        bank = self._card.banks[group]
        copy._size, copy._card, copy._group, copy._host = self._size, self._card, group, None
        copy._allocation = _Allocation(self._card.lock, self._card.memory, bank, self._size)
        copy._address = copy._allocation.address
        base, bank_bytes = bank.bank.base_address, bank.bank.size_kb * 1024
        copy._device = self._card.memory.view(base, bank_bytes, copy._address, self._size)
        copy._device[:] = self._device
        return copy

    def size(self) -> int:
        return self._size

    def address(self) -> int:
        return self._address

    def map(self) -> memoryview:
        """Return the bytes of the host copy."""
        if self._host is None:
            raise RuntimeError("a device_only buffer cannot be mapped: Operation not supported")
        return self._host

    def write(self, data: Any, seek: int, /) -> None:
        raw, seek = memoryview(data).cast("B"), as_size(seek)
        self._check(len(raw), seek)
        self.map()[seek : seek + len(raw)] = raw

    def read(self, count: int, skip: int, /) -> NDArray[np.int8]:
        count, skip = as_size(count), as_size(skip)
        self._check(count, skip)
        return np.frombuffer(self.map(), np.int8, count, skip).copy()

    def sync(self, direction: xclBOSyncDirection, /, *part: int) -> None:
        """Copy all of the buffer, or the `part`, which is a size and an offset in bytes."""
        is_a(direction, xclBOSyncDirection)
        if len(part) not in (0, 2):
            raise TypeError("incompatible function arguments: sync() takes a size and an offset or neither")
        count, offset = map(as_size, part or (self._size, 0))
        self._check(count, offset)
        if direction > xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE:
            raise RuntimeError("this device has no AI engines to sync with: Operation not supported")
        if self._card.fault((FaultKind.SYNC,)):
            raise RuntimeError("failed to sync bo: Input/output error")
        host, device_copy = self.map()[offset : offset + count], self._device[offset : offset + count]
        if direction is xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE:
            device_copy[:] = host
        else:
            host[:] = device_copy

    def _check(self, count: int, offset: int) -> None:
        if offset + count > self._size:
            raise RuntimeError(
                f"[{offset}, {offset + count}) is outside the bo of {self._size} bytes: Invalid argument"
            )


class _Command:
    """A started run, as the compute unit sees it. It keeps its device memory until it ends."""

    def __init__(self, values: dict[int, int], memory: list[_Allocation]) -> None:
        self.values = values
        self.state = ert_cmd_state.ERT_CMD_STATE_QUEUED
        self.stats: Mapping[str, int] = {}
        self.error = ""  # the reason of ERT_CMD_STATE_ERROR, if the engine gives one
        self._memory = memory
        self._changed = threading.Condition()

    def enter(self, state: ert_cmd_state) -> None:
        with self._changed:
            self.state = state
            if state in _DONE:
                self._memory = []
            self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> ert_cmd_state:
        with self._changed:
            if self._changed.wait_for(lambda: self.state in _DONE, timeout_s):
                return self.state
        return ert_cmd_state.ERT_CMD_STATE_TIMEOUT


class run:
    """One execution of a kernel. It can start again after it has ended."""

    def __init__(self, *of: kernel) -> None:
        self._of: kernel | None = taken([{}, {"arg0": as_a(kernel)}], of, {}).get("arg0")
        self._arguments: dict[int, int | bo] = {}
        self._command: _Command | None = None

    @property
    def _kernel(self) -> kernel:
        if self._of is None:
            raise RuntimeError("the run is empty: Invalid argument")
        return self._of

    def set_arg(self, number: int, value: "int | bo", /) -> None:
        spec = self._kernel._spec
        number = as_index(number)
        if not 0 <= number < len(spec.args):
            raise IndexError(f"kernel '{spec.name}' has no argument {number}")
        arg = spec.args[number]
        if arg.is_global:
            if not isinstance(value, bo):
                raise TypeError(f"argument {number} ({arg.name}) of '{spec.name}' takes a bo, not {value!r}")
            if not any(cu.banks.get(number) == value._group for cu in self._kernel._cus):
                if self._kernel._card.faithful:
                    self._arguments[number] = value._copy_in(self._kernel.group_id(number))
                    return
                wired = self._kernel._card.banks[self._kernel.group_id(number)].bank.tag
                raise RuntimeError(
                    f"no compute unit of '{spec.name}' can reach the bo given as argument {number} ({arg.name}): "
                    f"it is in bank {self._kernel._card.banks[value._group].bank.tag}, and the argument needs {wired}"
                )
            self._arguments[number] = value
            return
        try:
            self._arguments[number] = as_index(value)
        except TypeError:
            message = f"argument {number} ({arg.name}) of '{spec.name}' takes a 32-bit integer, not {value!r}"
            raise TypeError(message) from None

    def start(self) -> None:
        if self._command is not None and self._command.state not in _DONE:
            raise RuntimeError("the run was started and has not ended: Operation already in progress")
        spec, card = self._kernel._spec, self._kernel._card
        missing = [a.name for a in spec.args if a.index not in self._arguments]
        if missing and not card.faithful:
            raise RuntimeError(f"arguments of '{spec.name}' are not set: {', '.join(missing)}: Invalid argument")
        buffers = {index: value for index, value in self._arguments.items() if isinstance(value, bo)}
        able = [cu for cu in self._kernel._cus if all(cu.banks.get(index) == b._group for index, b in buffers.items())]
        if not able:
            raise RuntimeError(f"no compute unit of '{spec.name}' can reach all of its buffers")
        values = dict.fromkeys((arg.index for arg in spec.args), 0)  # a register that is not set reads as 0
        values |= {i: value._address if isinstance(value, bo) else value for i, value in self._arguments.items()}
        command = self._command = _Command(values, [b._allocation for b in buffers.values()])
        with card.lock:
            cu = min(able, key=lambda unit: unit.pending)
            fault = card.fault((FaultKind.HANG, FaultKind.ERROR), cu.name)
            cu.start(_Start(command, fault, None if fault else card.wave(cu.name)))

    def state(self) -> ert_cmd_state:
        return self._command.state if self._command is not None else ert_cmd_state.ERT_CMD_STATE_NEW

    def wait(self, timeout_ms: int = 0, /) -> ert_cmd_state:
        """Wait for the end and return the final state, or ERT_CMD_STATE_TIMEOUT after `timeout_ms`. 0 waits without a
        limit."""
        timeout_ms = as_unsigned(timeout_ms)
        return self._started().wait(timeout_ms / 1e3 if timeout_ms else None)

    def wait2(self) -> None:
        """Wait without a limit. Raises RuntimeError unless the run completed.

        pyxrt also lists a form with a limit, but no Python value converts to the type of its parameter."""
        state = self._started().wait(None)
        if state is not ert_cmd_state.ERT_CMD_STATE_COMPLETED:
            reason = f": {self._started().error}" if self._started().error else ""
            raise RuntimeError(f"kernel '{self._kernel._spec.name}' ended in {state.name}{reason}")

    def get_hw_emu_stats(self) -> Mapping[str, int] | None:
        """Return the measurements of the last run by name, or None before it completes and on targets without a
        clock; not in pyxrt.

        Values are clocks unless the name says otherwise. `cycles` counts from start to done. A kernel with
        counters (kernel.xml) adds its own."""
        command = self._started()
        if command.state is not ert_cmd_state.ERT_CMD_STATE_COMPLETED:
            return None
        return command.stats or None

    def add_callback(self, *_: object) -> NoReturn:
        """Raise TypeError. pyxrt lists this method, but it takes only a C++ function."""
        raise TypeError("incompatible function arguments: add_callback takes no Python function")

    def _started(self) -> _Command:
        if self._command is None:
            raise RuntimeError("the run was not started: Invalid argument")
        return self._command


_Run = run  # for methods in which a parameter has the name `run`


class runlist:
    """A list of runs that start in order and are waited for together."""

    def __init__(self, *given: hw_context, **named: hw_context) -> None:
        self._context = taken([{}, {"hwctx": as_a(hw_context)}], given, named).get("hwctx")
        self._runs: list[run] = []

    def add(self, run: "run") -> None:
        is_a(run, _Run)
        self._runs.append(run)

    def execute(self) -> None:
        if not self._runs:
            raise RuntimeError("the runlist is empty: Invalid argument")
        for command in self._runs:
            command.start()

    def wait(self) -> None:
        """Wait for every run without a limit. Raises RuntimeError unless each run completed."""
        for command in self._runs:
            command.wait2()
