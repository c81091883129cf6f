"""Triton's system shared memory extension: regions of POSIX shared memory in which clients of this machine lay inputs
and find outputs, so that a message has none.

https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_shared_memory.md

A region is read and written by system calls, and never mapped: its file belongs to the client, and one that is made
shorter would end the server by SIGBUS. The copy that this makes is one that a tensor's way to its worker has anyway.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.batching import BadInput, UnknownModel

FOLDER = "/dev/shm"
MAX_REGIONS = 1024  # each holds a file open
_KEY = re.compile(r"/?([^/\0]{1,255})")


class UnknownRegion(UnknownModel):
    """No region is registered by this name."""


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """`byte_size` bytes from `offset` on of the file `key` in FOLDER."""

    name: str
    key: str
    offset: int
    byte_size: int
    file: int  # its descriptor


@dataclass(frozen=True, slots=True)
class Window:
    """What a tensor may take of a region: `byte_size` bytes from `offset` on, counted from the region's begin."""

    regions: "Regions"
    region: Region
    offset: int
    byte_size: int

    def read(self) -> memoryview:
        """A copy. Raises BadInput."""
        found = np.empty(self.byte_size, np.uint8).data
        self._all(os.preadv, found)
        return found

    def write(self, raw: bytes | memoryview) -> None:
        """Raises BadInput."""
        if len(raw) > self.byte_size:
            raise BadInput(
                f"an output of {len(raw)} bytes is longer than the {self.byte_size} that were given for it in shared "
                f"memory region {self.region.name!r}"
            )
        self._all(os.pwritev, memoryview(raw))

    def described(self, written: int) -> dict[str, Any]:
        """As parameters of an answer's output."""
        return {
            "shared_memory_region": self.region.name,
            "shared_memory_offset": self.offset,
            "shared_memory_byte_size": written,
        }

    def _all(self, call: Any, view: memoryview) -> None:
        if not self.regions.has(self.region):
            raise BadInput(f"shared memory region {self.region.name!r} was unregistered while it was in use")
        at = self.region.offset + self.offset
        while view:
            # What is written behind the end of a file that has become shorter would make it longer again.
            fits = at + len(view) <= os.fstat(self.region.file).st_size
            try:
                done = call(self.region.file, [view], at) if fits else 0
            except OSError as error:  # the system has no memory left for it
                raise BadInput(f"shared memory region {self.region.name!r}: {error.strerror}") from None
            if not done:
                raise BadInput(f"shared memory region {self.region.name!r} is shorter than when it was registered")
            at, view = at + done, view[done:]


class Regions:
    """The registered regions, by name. What a request has in them is at most `most` bytes together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Raises BadInput."""
        if not name:
            raise BadInput("a shared memory region has no name; give it one")
        if name in self._regions:
            raise BadInput(f"shared memory region {name!r} is registered already; give each a name of its own")
        if len(self._regions) == MAX_REGIONS:
            raise BadInput(f"{MAX_REGIONS} shared memory regions are registered; unregister one")
        if offset < 0 or byte_size < 1:
            raise BadInput(f"shared memory region {name!r}: give an offset of 0 or more and a byte_size of 1 or more")
        file = _opened(name, key)
        size = os.fstat(file).st_size
        if offset + byte_size > size:
            os.close(file)
            raise BadInput(
                f"shared memory region {name!r}: {byte_size} bytes from {offset} on go beyond {key!r}, which has {size}"
            )
        self._regions[name] = Region(name, key, offset, byte_size, file)

    def unregister(self, name: str = "") -> None:
        """All of them without a name; one that is not there is none the less gone."""
        for each in [name] if name else list(self._regions):
            region = self._regions.pop(each, None)
            if region is not None:
                os.close(region.file)

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """All of them without a name. Raises UnknownRegion."""
        found = [self._region(name)] if name else self._regions.values()
        return [
            {"name": each.name, "key": each.key, "offset": each.offset, "byte_size": each.byte_size} for each in found
        ]

    def has(self, region: Region) -> bool:
        return self._regions.get(region.name) is region

    def window(self, name: str, offset: int, byte_size: int) -> Window:
        """Raises UnknownRegion and BadInput."""
        region = self._region(name)
        if offset < 0 or byte_size < 0 or offset + byte_size > region.byte_size:
            raise BadInput(
                f"{byte_size} bytes from {offset} on go beyond shared memory region {name!r}, which has "
                f"{region.byte_size}"
            )
        return Window(self, region, offset, byte_size)

    def _region(self, name: str) -> Region:
        found = self._regions.get(name)
        if found is None:
            raise UnknownRegion(f"there is no shared memory region {name!r}; register it")
        return found


class Shared:
    """What one request has in shared memory: nothing without `regions`."""

    def __init__(self, regions: Regions | None) -> None:
        self._regions = regions
        self._read = 0

    def input(self, name: str, parameters: Mapping[str, Any]) -> memoryview | None:
        """Its bytes, if they are there. Raises BadInput and UnknownRegion."""
        window = self.window(name, parameters)
        if window is None:
            return None
        self._read += window.byte_size
        if self._read > window.regions.most:
            raise BadInput(
                f"with input {name!r} the request has {self._read} bytes; send at most {window.regions.most}"
            )
        return window.read()

    def window(self, name: str, parameters: Mapping[str, Any]) -> Window | None:
        """Where the tensor lies, if it is there. Raises BadInput and UnknownRegion."""
        region = parameters.get("shared_memory_region")
        if region is None:
            return None
        if self._regions is None:
            raise BadInput(
                f"{name!r} is in shared memory, which this server does not use; start it with --shared-memory"
            )
        offset, byte_size = parameters.get("shared_memory_offset", 0), parameters.get("shared_memory_byte_size")
        if not isinstance(region, str) or type(offset) is not int or type(byte_size) is not int:
            raise BadInput(f"{name!r}: give shared_memory_region as a text, its offset and byte_size as whole numbers")
        return self._regions.window(region, offset, byte_size)


def _opened(name: str, key: str) -> int:
    """Raises BadInput."""
    found = _KEY.fullmatch(key)
    if found is None or found[1] in (".", ".."):
        raise BadInput(f"shared memory region {name!r}: its key must be the name of a file in {FOLDER}, as in /{name}")
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(f"{FOLDER}/{found[1]}", flags)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no name of a file"
        raise BadInput(f"shared memory region {name!r}, key {key!r}: {reason}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BadInput(f"shared memory region {name!r}: {key!r} is no shared memory")
    return file
