"""The interface and the memory of the engines that execute kernels for the emulated device.

An engine gets the device memory and the register values of a run. It changes the memory and returns the registers that
the kernel wrote."""

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
    """Map the device addresses [base, base + size) to memory of this process that begins at `pointer`. Sizes are
    bytes."""

    base: int
    size: int
    pointer: int


class Memory(Protocol):
    """Device memory in the form that engines need to run a kernel."""

    def ranges(self) -> list[MemoryRange]:
        """Return every range of device memory."""

    def pointer(self, address: int) -> int:
        """Return the host pointer to a device address. Raises ValueError for an address outside every range."""


class DeviceMemory:
    """Hold the banks of device memory, by their base address. The system provides a page when the page is first
    written.

    A whole bank is one mapping. A kernel that runs past the end of its buffer reaches the next buffer, as on a
    card."""

    def __init__(self) -> None:
        self._banks: dict[int, tuple[int, mmap.mmap]] = {}  # base address -> size, memory

    def view(self, base: int, bank_bytes: int, address: int, size: int) -> memoryview:
        """Return the bytes [address, address + size) of the bank at `base`."""
        if base not in self._banks:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
            self._banks[base] = bank_bytes, mmap.mmap(-1, bank_bytes, flags=flags)
        return memoryview(self._banks[base][1])[address - base : address - base + size]

    def release(self, base: int, address: int, size: int) -> None:
        """Give the pages of a range back to the system. The range then reads as zeros."""
        if base in self._banks:
            self._banks[base][1].madvise(mmap.MADV_DONTNEED, address - base, size)

    def ranges(self) -> list[MemoryRange]:
        """Return the banks in use."""
        return [
            MemoryRange(base, size, ctypes.addressof(ctypes.c_char.from_buffer(memory)))
            for base, (size, memory) in list(self._banks.items())  # a copy: other threads may add banks
        ]

    def pointer(self, address: int) -> int:
        """Return the host pointer to a device address. Raises ValueError for an address outside every bank in use."""
        for base, size, pointer in self.ranges():
            if base <= address < base + size:
                return pointer + address - base
        raise ValueError(f"device address 0x{address:x} is in no memory bank")


class RunFailed(HeadraceError):
    """The kernel did not finish; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold the results of one run.

    `registers` has the values of the output registers by offset; it is empty for an engine without registers. `stats`
    has the engine's measurements by name."""

    registers: Mapping[int, int] = field(default_factory=dict)
    stats: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """Execute the runs of one compute unit, one after another.

    `launch_us` is the time in microseconds from a start until the kernel sees it."""

    launch_us: float

    def execute(self, spec: KernelSpec, values: Mapping[int, int], memory: Memory, wave: Path | None = None) -> Outcome:
        """Run the kernel to its end.

        Args:
            values: the value of each argument by its index, a device address or a 32-bit number.
            wave: a waveform file to write, for engines that can write one.

        Raises RunFailed."""


_libraries: dict[tuple[UUID, str], ctypes.CDLL] = {}  # a library stays loaded until the process ends


def load_library(uuid: UUID, name: str, content: Callable[[], bytes]) -> ctypes.CDLL:
    """Return the shared library `name` of container `uuid`. The first call loads it from memory."""
    if (uuid, name) not in _libraries:
        # The descriptor stays open. The loader identifies a library by its path, which has the descriptor's number.
        # A later library with the same number would be taken for this one.
        descriptor = os.memfd_create(f"headrace-{name}", os.MFD_CLOEXEC)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content())
        _libraries[uuid, name] = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    return _libraries[uuid, name]


class SwEmuEngine:
    """Execute the kernels of a `sw_emu` container.

    The BITSTREAM section is a shared library with one C function for each kernel. ctypes releases the GIL during a
    call."""

    def __init__(self, uuid: UUID, bitstream: bytes) -> None:
        self._library = load_library(uuid, "sw_emu", lambda: bitstream)
        self.launch_us = 0.0

    def execute(self, spec: KernelSpec, values: Mapping[int, int], memory: Memory, wave: Path | None = None) -> Outcome:
        assert wave is None, "a C++ kernel has no waveform, and the device refuses to trace one"
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
