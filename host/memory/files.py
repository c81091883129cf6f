"""Files of clients that hold tensors. Workers read and write these tensors there, without a copy in a slot.

Rule: a file is open as long as it is registered or a request in flight uses it. `SharedFile` is the runtime's side. A
worker gets the descriptor of a file before its first task that uses the file (workers/channel.py), and maps the file
itself (`MappedFiles`).

A file belongs to its client, who may make it shorter at any time. So both sides copy through guarded mappings
(memory/mapped).
"""

import itertools
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace.host.memory.mapped import mapped

_numbers = itertools.count(1)  # 0 stands for no file


class SharedFile:
    """An open file and the mapping of its first `size` bytes. `mapping` is None where it cannot be mapped.

    `close` makes the file unusable for further requests. Its descriptor and mapping are closed when the last request
    lets the file go."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.number = next(_numbers)
        self.descriptor = descriptor
        self.size = size
        self.mapping = mapped(descriptor, size)
        self.is_open = True
        self._revoke: dict[object, Callable[[], None]] = {}  # by request
        self._closed: list[Callable[[int], None]] = []

    def hold(self, request: object, revoke: Callable[[], None]) -> None:
        """Keep the file open for a request. `revoke` is called if the file is closed before the request ends."""
        self._revoke[request] = revoke

    def let_go(self, request: object) -> None:
        """End what `hold` began."""
        del self._revoke[request]
        self._close_unused()

    def when_closed(self, call: Callable[[int], None]) -> None:
        """Call with the file's number when nobody uses the file any more."""
        self._closed.append(call)

    def forget(self, call: Callable[[int], None]) -> None:
        """End what `when_closed` began."""
        self._closed.remove(call)

    def close(self) -> None:
        """Close the file for further requests, and revoke it from those that use it."""
        self.is_open = False
        for revoke in list(self._revoke.values()):
            revoke()
        self._close_unused()

    def _close_unused(self) -> None:
        if self.is_open or self._revoke:
            return
        for call in self._closed:
            call(self.number)
        self._closed.clear()
        if self.mapping is not None:
            self.mapping.close()
        os.close(self.descriptor)


class FilePlace(NamedTuple):
    """Say where in a file a tensor begins, in bytes."""

    file: SharedFile
    offset: int


class MappedFiles:
    """The files that a worker has mapped, by their numbers. `in_use` tells whether any task has used files so far."""

    def __init__(self) -> None:
        self.in_use = False
        self._files: dict[int, tuple[int, Any]] = {}

    def add(self, number: int, file: int, size: int) -> None:
        """Take a descriptor and map its file."""
        self.in_use = True
        self._files[number] = (file, mapped(file, size))

    def mapping(self, number: int) -> Any:
        """Return the mapping of a file, or None if it could not be mapped."""
        return self._files.get(number, (-1, None))[1]

    def remove(self, numbers: Iterable[int]) -> None:
        """Unmap and close files that no task uses any more."""
        for number in numbers:
            file, mapping = self._files.pop(number, (-1, None))
            if mapping is not None:
                mapping.close()
            if file >= 0:
                os.close(file)
