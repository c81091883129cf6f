"""What executes a kernel behind the emulated device: memory and register values in, memory and registers changed."""

import ctypes
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.batching import HeadraceError
from headrace.bitstreams.kernel import KernelSpec

MAP_NORESERVE = 0x4000  # Linux's; Python 3.11's mmap does not name it


class MemoryRange(NamedTuple):
    """`size` bytes at the device address `base`, which lie at `pointer` in this process."""

    base: int
    size: int
    pointer: int


class Memory(Protocol):
    """Device memory as kernels reach it."""

    def ranges(self) -> list[MemoryRange]:
        """All that there is."""

    def pointer(self, address: int) -> int:
        """The host pointer to a device address. Raises ValueError for one outside."""


class DeviceMemory:
    """Banks of device memory by device address. A bank takes memory from the system only where it is written.

    A whole bank is mapped, so a kernel that runs past its buffer meets its neighbour's bytes, as on a card."""

    def __init__(self) -> None:
        self._banks: dict[int, tuple[int, mmap.mmap]] = {}  # base address -> size, memory

    def view(self, base: int, bank_bytes: int, address: int, size: int) -> memoryview:
        """The bytes [address, address + size) of the bank at `base`."""
        if base not in self._banks:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
            self._banks[base] = bank_bytes, mmap.mmap(-1, bank_bytes, flags=flags)
        return memoryview(self._banks[base][1])[address - base : address - base + size]

    def release(self, base: int, address: int, size: int) -> None:
        """Give the pages back to the system; what is read there next is zero."""
        if base in self._banks:
            self._banks[base][1].madvise(mmap.MADV_DONTNEED, address - base, size)

    def ranges(self) -> list[MemoryRange]:
        """All banks in use."""
        return [
            MemoryRange(base, size, ctypes.addressof(ctypes.c_char.from_buffer(memory)))
            for base, (size, memory) in list(self._banks.items())  # a copy: other threads may add banks
        ]

    def pointer(self, address: int) -> int:
        """The host pointer to a device address. Raises ValueError for one outside all banks in use."""
        for base, size, pointer in self.ranges():
            if base <= address < base + size:
                return pointer + address - base
        raise ValueError(f"device address 0x{address:x} is in no memory bank")


class RunFailed(HeadraceError):
    """The kernel did not come to its end; the message says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output registers' values by offset, if the engine has registers, and what it measured, by name."""

    registers: Mapping[int, int] = field(default_factory=dict)
    stats: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """Executes the runs of one compute unit, each to its end. `values` has each argument's value by index: a device
    address or a 32-bit number. `wave` is a waveform file to write, for engines that can. `launch_us`: what a start
    takes before the kernel sees it.

    Raises RunFailed."""

    launch_us: float

    def execute(
        self, spec: KernelSpec, values: Mapping[int, int], memory: Memory, wave: Path | None = None
    ) -> Outcome: ...


_libraries: dict[tuple[UUID, str], ctypes.CDLL] = {}  # a library stays loaded for the process's life


def load_library(uuid: UUID, name: str, content: Callable[[], bytes]) -> ctypes.CDLL:
    """The shared library `name` of container `uuid`, loaded from memory when it is first asked for."""
    if (uuid, name) not in _libraries:
        # The descriptor stays open: the loader knows libraries by path, and would take the next one that got the same
        # number for this one.
        descriptor = os.memfd_create(f"headrace-{name}", os.MFD_CLOEXEC)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content())
        _libraries[uuid, name] = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    return _libraries[uuid, name]


class SwEmuEngine:
    """`sw_emu`: the BITSTREAM section is a shared library with each kernel as a C function. ctypes releases the GIL."""

    def __init__(self, uuid: UUID, bitstream: bytes) -> None:
        self._library = load_library(uuid, "sw_emu", lambda: bitstream)
        self.launch_us = 0.0

    def execute(self, spec: KernelSpec, values: Mapping[int, int], memory: Memory, wave: Path | None = None) -> Outcome:
        assert wave is None, "C++ has no waveforms; the device refuses them"
        function = self._library[spec.name]
        function.restype = None
        arguments: list[object] = []
        for arg in spec.args:
            if arg.is_global:
                arguments.append(ctypes.c_void_p(memory.pointer(values[arg.index])))
            else:
                arguments.append(ctypes.c_uint32(values[arg.index] & 0xFFFFFFFF))
        if self.launch_us:
            sleep(self.launch_us / 1e6)
        function(*arguments)
        return Outcome()
