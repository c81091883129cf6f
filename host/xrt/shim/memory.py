"""Device memory as the shims see it: files that they map, too."""

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
    """No buffer lies there."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Buffer:
    base: int
    size: int
    memory: mmap.mmap
    file: Path

    def pointer(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))


class SharedMemory:
    """Buffers at the device addresses that the shim chose. Before XRT 2.14 each is a file of its own; since then, after
    `in_one_file`, they lie in one, at their addresses. The files have no names and end with this process."""

    def __init__(self) -> None:
        self._buffers: dict[int, _Buffer] = {}
        self._single: int | None = None
        # What a run held is given back in its thread. Reentrant: that may happen amidst an allocation, too.
        self._changing = threading.RLock()

    def in_one_file(self) -> None:
        if self._single is None:
            self._single = _anonymous_file("memory")

    def allocate(self, address: int, size: int) -> Path:
        """The file that the shim maps."""
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
        buffer = self._buffers.pop(address, None)
        if buffer is not None and self._single is None:
            os.close(int(buffer.file.name))
        elif buffer is not None:  # a run may hold it still
            weakref.finalize(buffer, self._give_back, buffer.base, buffer.size)

    def _give_back(self, base: int, size: int) -> None:
        """The pages of the one file, unless another buffer has come to lie there."""
        with self._changing:
            if not any(buffer.base < base + size and base < buffer.base + buffer.size for buffer in self.held()):
                assert self._single is not None
                with mmap.mmap(self._single, size, offset=base) as pages:
                    pages.madvise(mmap.MADV_REMOVE)

    def clear(self) -> None:
        for address in list(self._buffers):
            self.free(address)

    def ranges(self) -> list[MemoryRange]:
        return [MemoryRange(b.base, b.size, b.pointer()) for b in self.held()]

    def held(self) -> list[_Buffer]:
        """The buffers of now; whoever keeps the list keeps their memory."""
        return list(self._buffers.values())

    def pointer(self, address: int) -> int:
        """Raises ValueError for an address outside all buffers."""
        buffer, offset = self._at(address, 1)
        return buffer.pointer() + offset

    def write(self, address: int, data: bytes) -> None:
        buffer, offset = self._at(address, len(data))
        buffer.memory[offset : offset + len(data)] = data

    def read(self, address: int, size: int) -> bytes:
        buffer, offset = self._at(address, size)
        return buffer.memory[offset : offset + size]

    def _at(self, address: int, size: int) -> tuple[_Buffer, int]:
        for buffer in self.held():
            if buffer.base <= address and address + size <= buffer.base + buffer.size:
                return buffer, address - buffer.base
        raise BadAddress(f"no buffer holds the {size} bytes at the device address 0x{address:x}")


def _anonymous_file(name: str) -> int:
    return os.memfd_create(f"headrace-{name}", os.MFD_CLOEXEC)
