"""A decoder for request bodies with `Transfer-Encoding: chunked` (RFC 9112, 7.1)."""

import re

MAX_LINE = 1024  # bytes of a chunk's size with its extensions
MAX_TRAILERS = 8192  # bytes of the fields behind the last chunk, which nobody reads

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\0\r\n]*)?")


class BadChunk(Exception):
    """The bytes are no chunked body."""


class Chunks:
    """Decode one body. `feed` appends to `body`, and sets `ended` after the last chunk."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.ended = False
        self._line = bytearray()  # the part of a line that is here
        self._left = 0  # bytes that the chunk still has
        self._behind = False  # a chunk's data are here, but not the end of their line
        self._trailers: int | None = None  # bytes of trailers; None before the last chunk

    def feed(self, data: memoryview) -> int:
        """Decode the next bytes. Return how many of them belong to this body: all, unless it ends. Raises BadChunk."""
        at = 0
        while at < len(data) and not self.ended:
            if self._left:
                taken = min(self._left, len(data) - at)
                self.body += data[at : at + taken]
                self._left -= taken
                self._behind = not self._left
                at += taken
                continue
            end = bytes(data[at : at + MAX_LINE]).find(b"\n") + 1
            taken = end or len(data) - at
            self._line += data[at : at + taken]
            at += taken
            if len(self._line) > MAX_LINE:
                raise BadChunk(f"a line of more than {MAX_LINE} bytes where a chunk begins")
            if end:
                if not self._line.endswith(b"\r\n"):
                    raise BadChunk("a line that does not end in CR and LF")
                self._read(bytes(self._line[:-2]))
                self._line.clear()
        return at

    def _read(self, line: bytes) -> None:
        if self._behind:
            if line:
                raise BadChunk("a chunk with more bytes than it has announced")
            self._behind = False
        elif self._trailers is not None:
            self._trailers += len(line) + 2
            if self._trailers > MAX_TRAILERS:
                raise BadChunk(f"more than {MAX_TRAILERS} bytes of trailers")
            self.ended = not line
        elif size := _SIZE.fullmatch(line):
            self._left = int(size[1], 16)
            if not self._left:
                self._trailers = 0
        else:
            raise BadChunk("a chunk without a size in hexadecimal digits")
