"""Device memory in files that XRT's emulation shims also map."""

import ctypes
import mmap
import os
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from headrace.batching.errors import HeadraceError
from headrace.host.xrt.engine import MemoryRange

PAGE = mmap.PAGESIZE


class BadAddress(HeadraceError, ValueError):
    """The device address is outside every buffer."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Buffer:
    base: int
    size: int
    memory: mmap.mmap
    file: Path

    def pointer(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))


class SharedMemory:
    """Hold the buffers at the device addresses that the shim chose.

    Before XRT 2.14 each buffer has a file of its own. Since 2.14, after `in_one_file`, all buffers lie in one file,
    each at its device address. The files have no names and disappear with this process."""

    def __init__(self) -> None:
        self._buffers: dict[int, _Buffer] = {}
        self._single: int | None = None
        # A run's thread frees the buffers that the run held. The lock is reentrant, because the garbage collector may
        # free them in the middle of an allocation.
        self._changing = threading.RLock()

    def in_one_file(self) -> None:
        """Place the buffers that are allocated from now on in one file."""
        if self._single is None:
            self._single = _anonymous_file("memory")

    def allocate(self, address: int, size: int) -> Path:
        """Allocate `size` bytes at the device address, and return the file that the shim maps."""
        length = max(1, -(-size // PAGE)) * PAGE
        if self._single is None:
            descriptor, offset = _anonymous_file(f"0x{address:x}"), 0
        else:
            descriptor, offset = self._single, address
        with self._changing:
            if os.fstat(descriptor).st_size < offset + length:
                os.ftruncate(descriptor, offset + length)
            memory = mmap.mmap(descriptor, length, offset=offset)
            file = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
            self._buffers[address] = _Buffer(address, length, memory, file)
            return file

    def free(self, address: int) -> None:
        """Free the buffer at the device address, if there is one."""
        buffer = self._buffers.pop(address, None)
        if buffer is not None and self._single is None:
            os.close(int(buffer.file.name))
        elif buffer is not None:  # a run may still hold the buffer
            weakref.finalize(buffer, self._give_back, buffer.base, buffer.size)

    def _give_back(self, base: int, size: int) -> None:
        """Give pages of the one file back to the system, unless a new buffer lies there."""
        with self._changing:
            if not any(buffer.base < base + size and base < buffer.base + buffer.size for buffer in self.held()):
                assert self._single is not None
                with mmap.mmap(self._single, size, offset=base) as pages:
                    pages.madvise(mmap.MADV_REMOVE)

    def clear(self) -> None:
        """Free every buffer."""
        for address in list(self._buffers):
            self.free(address)

    def ranges(self) -> list[MemoryRange]:
        """Return every buffer as a range of device memory."""
        return [MemoryRange(b.base, b.size, b.pointer()) for b in self.held()]

    def held(self) -> list[_Buffer]:
        """Return the current buffers. Their memory lasts as long as the caller keeps the list."""
        return list(self._buffers.values())

    def pointer(self, address: int) -> int:
        """Return the host pointer to a device address. Raises ValueError for an address outside every buffer."""
        buffer, offset = self._at(address, 1)
        return buffer.pointer() + offset

    def write(self, address: int, data: bytes) -> None:
        """Write bytes at a device address. Raises BadAddress."""
        buffer, offset = self._at(address, len(data))
        buffer.memory[offset : offset + len(data)] = data

    def read(self, address: int, size: int) -> bytes:
        """Read bytes from a device address. Raises BadAddress."""
        buffer, offset = self._at(address, size)
        return buffer.memory[offset : offset + size]

    def _at(self, address: int, size: int) -> tuple[_Buffer, int]:
        for buffer in self.held():
            if buffer.base <= address and address + size <= buffer.base + buffer.size:
                return buffer, address - buffer.base
        raise BadAddress(f"no buffer holds the {size} bytes at the device address 0x{address:x}")


def _anonymous_file(name: str) -> int:
    return os.memfd_create(f"headrace-{name}", os.MFD_CLOEXEC)
