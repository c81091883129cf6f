"""What executes a kernel behind the emulated device: memory and register values in, memory and registers changed."""

import ctypes
import mmap
import os
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from headrace.bitstreams.kernel import KernelSpec

MAP_NORESERVE = 0x4000  # Linux's; Python 3.11's mmap does not name it


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

    def pointer(self, address: int) -> int:
        """The host pointer to a device address. Raises ValueError for one outside all banks in use."""
        for base, (size, memory) in self._banks.items():
            if base <= address < base + size:
                return ctypes.addressof(ctypes.c_char.from_buffer(memory)) + address - base
        raise ValueError(f"device address 0x{address:x} is in no memory bank")


class Engine(Protocol):
    """Executes one run to its end. `values` has each argument's value by index: a device address or a 32-bit number.

    Returns the output registers' values by argument index."""

    def execute(self, spec: KernelSpec, values: Mapping[int, int], memory: DeviceMemory) -> dict[int, int]: ...


class SwEmuEngine:
    """`sw_emu`: the BITSTREAM section is a shared library with each kernel as a C function. ctypes releases the GIL."""

    _libraries: dict[UUID, ctypes.CDLL] = {}  # noqa: RUF012 - a library stays loaded for the process's life

    def __init__(self, uuid: UUID, bitstream: bytes) -> None:
        if uuid not in self._libraries:
            descriptor = os.memfd_create("headrace-sw_emu", os.MFD_CLOEXEC)
            with open(descriptor, "wb") as file:
                file.write(bitstream)
                file.flush()
                self._libraries[uuid] = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        self._library = self._libraries[uuid]

    def execute(self, spec: KernelSpec, values: Mapping[int, int], memory: DeviceMemory) -> dict[int, int]:
        function = self._library[spec.name]
        function.restype = None
        outputs = {arg.index: ctypes.c_uint32(0) for arg in spec.args if arg.is_output_register}
        arguments: list[object] = []
        for arg in spec.args:
            if arg.is_output_register:
                arguments.append(ctypes.byref(outputs[arg.index]))
            elif arg.is_global:
                arguments.append(ctypes.c_void_p(memory.pointer(values[arg.index])))
            else:
                arguments.append(ctypes.c_uint32(values[arg.index] & 0xFFFFFFFF))
        function(*arguments)
        return {index: register.value for index, register in outputs.items()}
