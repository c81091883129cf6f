"""Triton's system shared memory extension. Clients of this machine put inputs into regions of POSIX shared memory
and read outputs there, so messages carry no tensors.

Source: https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_shared_memory.md

A worker reads and writes the tensors of a whole network in the region itself (memory/files.py), if their shapes are
fixed. The server copies all others between the region and the tensor slot that the worker sees.

The file belongs to the client, and a plain copy from a mapping of a file that becomes shorter would end the process by
SIGBUS. So both copy through guarded mappings (memory/mapped). Where there is none, or where that copy fails, the server
reads and writes by system calls. Their error says why."""

import math
import os
import re
import stat
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, UnknownModel
from headrace.host.memory.files import FilePlace, SharedFile
from headrace.host.memory.sources import Source

FOLDER = "/dev/shm"
MAX_REGIONS = 1024  # each region keeps a file open
_KEY = re.compile(r"/?([^/\0]{1,255})")


class UnknownRegion(UnknownModel):
    """No region is registered under this name."""


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Describe a registered region: `byte_size` bytes from `offset` on in the file `key` of FOLDER.

    `file` is mapped from its begin to the region's end."""

    name: str
    key: str
    offset: int
    byte_size: int
    file: SharedFile


class Window(NamedTuple):
    """Describe the part of a region that one tensor uses: `byte_size` bytes from `offset` on, relative to the
    region."""

    regions: "Regions"
    region: Region
    offset: int
    byte_size: int

    def read(self) -> memoryview:
        """Return a copy of the bytes. Raises BadInput."""
        copy = np.empty(self.byte_size, np.uint8)
        self.read_into(copy)
        return copy.data

    def read_into(self, array: NDArray[Any], offset: int = 0) -> None:
        """Fill a contiguous array with the bytes from `offset` on. Raises BadInput."""
        at, mapping = self._begin(offset), self.region.file.mapping
        if mapping is None or not mapping.read_into(array, at):
            self._all(os.preadv, array, array.nbytes, at)

    def place(self, offset: int = 0) -> FilePlace | None:
        """Return where the byte at `offset` lies in the file, if workers can use the file."""
        if self.region.file.mapping is None or not self.regions.has(self.region):
            return None
        return FilePlace(self.region.file, self.region.offset + self.offset + offset)

    def check_registered(self) -> None:
        """Raise BadInput if the region was unregistered."""
        if not self.regions.has(self.region):
            raise BadInput(f"shared memory region {self.region.name!r} was unregistered while it was in use")

    def check_fits(self, size: int) -> None:
        """Raise BadInput unless an output of `size` bytes fits."""
        if size > self.byte_size:
            raise BadInput(
                f"an output of {size} bytes does not fit its {self.byte_size} bytes in shared memory region "
                f"{self.region.name!r}; give it a larger shared_memory_byte_size"
            )

    def write(self, raw: bytes | memoryview | NDArray[Any], offset: int = 0) -> None:
        """Write the bytes of a contiguous output, or of a part of it that begins at `offset`. Raises BadInput."""
        at, mapping = self._begin(offset), self.region.file.mapping
        if mapping is None or not mapping.write(raw, at):
            self._all(os.pwritev, raw, memoryview(raw).nbytes, at)

    def described(self, written: int) -> dict[str, Any]:
        """Return the parameters of an answer's output of `written` bytes."""
        return {
            "shared_memory_region": self.region.name,
            "shared_memory_offset": self.offset,
            "shared_memory_byte_size": written,
        }

    def _begin(self, offset: int) -> int:
        """Return the place in the file at which `offset` lies. Raises BadInput."""
        self.check_registered()
        return self.region.offset + self.offset + offset

    def _all(self, call: Any, buffer: Any, size: int, at: int) -> None:
        """Copy all bytes of a buffer by system calls, from `at` of the file on. Raises BadInput."""
        end = at + size
        descriptor = self.region.file.descriptor
        while at < end:
            # The file may have become shorter. A write past its end would make it longer again.
            fits = end <= os.fstat(descriptor).st_size
            try:
                done = call(descriptor, [buffer], at) if fits else 0
            except OSError as error:  # the system has no memory left for the file
                raise BadInput(f"shared memory region {self.region.name!r}: {error.strerror}") from None
            if not done:
                raise BadInput(f"shared memory region {self.region.name!r} is shorter than when it was registered")
            at += done
            if at < end:
                buffer = memoryview(buffer).cast("B")[done:]


class SharedTensor(Source):
    """A tensor of numbers in a window, from `offset` on."""

    __slots__ = ("_offset", "_window", "dtype", "shape")

    def __init__(self, window: Window, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int = 0) -> None:
        self.dtype = dtype
        self.shape = shape
        self._window = window
        self._offset = offset

    def __getitem__(self, row: int) -> "SharedTensor":
        shape = self.shape[1:]
        offset = self._offset + row * math.prod(shape) * self.dtype.itemsize
        return SharedTensor(self._window, self.dtype, shape, offset)

    def read_into(self, array: NDArray[Any]) -> None:
        self._window.read_into(array, self._offset)

    def place(self) -> FilePlace | None:
        return self._window.place(self._offset)


class Place(NamedTuple):
    """Say where a tensor lies: `byte_size` bytes of a region, from `offset` on. Nothing of it is checked yet."""

    region: str
    offset: int
    byte_size: int


class Regions:
    """Hold the registered regions by name.

    The inputs of one request that lie in regions have at most `max_bytes` bytes together."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a region. Raises BadInput."""
        if not name:
            raise BadInput("the shared memory region has no name; give it one")
        if name in self._regions:
            raise BadInput(f"shared memory region {name!r} is already registered; give another name")
        if len(self._regions) == MAX_REGIONS:
            raise BadInput(f"{MAX_REGIONS} shared memory regions are registered, the limit; unregister one")
        if offset < 0 or byte_size < 1:
            raise BadInput(f"shared memory region {name!r}: give an offset of 0 or more and a byte_size of 1 or more")
        file = _opened(name, key)
        size = os.fstat(file).st_size
        if offset + byte_size > size:
            os.close(file)
            raise BadInput(
                f"shared memory region {name!r}: {byte_size} bytes from {offset} on go beyond the {size} bytes of "
                f"{key!r}"
            )
        self._regions[name] = Region(name, key, offset, byte_size, SharedFile(file, offset + byte_size))

    def unregister(self, name: str = "") -> None:
        """Unregister one region, or all without a name. A region that does not exist is no error."""
        for each in [name] if name else list(self._regions):
            region = self._regions.pop(each, None)
            if region is not None:
                region.file.close()

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """Return one region, or all without a name, as JSON objects. Raises UnknownRegion."""
        regions = [self._region(name)] if name else self._regions.values()
        return [
            {"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.byte_size} for each in regions
        ]

    def has(self, region: Region) -> bool:
        """Return whether this very region is still registered."""
        return self._regions.get(region.name) is region

    def window(self, name: str, offset: int, byte_size: int) -> Window:
        """Return a window of a region. Raises UnknownRegion and BadInput."""
        region = self._region(name)
        if offset < 0 or byte_size < 0 or offset + byte_size > region.byte_size:
            raise BadInput(
                f"{byte_size} bytes from {offset} on go beyond the {region.byte_size} bytes of shared memory region "
                f"{name!r}"
            )
        return Window(self, region, offset, byte_size)

    def _region(self, name: str) -> Region:
        region = self._regions.get(name)
        if region is None:
            raise UnknownRegion(f"there is no shared memory region {name!r}; register it")
        return region


class Shared:
    """Find the tensors of one request in shared memory. Without `regions` there are none."""

    def __init__(self, regions: Regions | None) -> None:
        self._regions = regions
        self._read = 0

    def input(self, name: str, place: Place) -> Window:
        """Return the window of an input. Raises BadInput and UnknownRegion."""
        window = self.window(name, place)
        self._read += window.byte_size
        if self._read > window.regions.max_bytes:
            raise BadInput(
                f"with input {name!r} the request has {self._read} bytes in shared memory; send at most "
                f"{window.regions.max_bytes}"
            )
        return window

    def window(self, name: str, place: Place) -> Window:
        """Return the window of a tensor. Raises BadInput and UnknownRegion."""
        if self._regions is None:
            raise BadInput(
                f"{name!r} is in shared memory, which this server does not use; start it with --shared-memory"
            )
        return self._regions.window(place.region, place.offset, place.byte_size)


def _opened(name: str, key: str) -> int:
    """Open the file of a region and return its descriptor. Raises BadInput."""
    match = _KEY.fullmatch(key)
    if match is None or match[1] in (".", ".."):
        raise BadInput(f"shared memory region {name!r}: give as key the name of a file in {FOLDER}, such as /{name}")
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(f"{FOLDER}/{match[1]}", flags)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise BadInput(f"shared memory region {name!r}, key {key!r}: {reason}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BadInput(f"shared memory region {name!r}: {key!r} is not shared memory; give the key of a regular file")
    return file
