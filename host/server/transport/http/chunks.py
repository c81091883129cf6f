"""A decoder for request bodies with `Transfer-Encoding: chunked` (RFC 9112, section 7.1)."""

import re

MAX_LINE = 1024  # bytes of a line with a chunk's size and its extensions
MAX_TRAILERS = 8192  # bytes of the fields after the last chunk, which the server ignores

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\0\r\n]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")  # RFC 9110, section 5.5


class BadChunk(Exception):
    """The bytes are not a chunked body."""


class Chunks:
    """Decode one body. `feed` appends to `body` and sets `ended` after the last chunk."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.ended = False
        self._line = bytearray()  # the received part of the current line
        self._left = 0  # bytes of the current chunk that are still to come
        self._after_data = False  # the next line ends a chunk's data and must be empty
        self._trailers: int | None = None  # received bytes of trailers; None before the last chunk

    def feed(self, data: memoryview) -> int:
        """Decode the next bytes. Returns the number of bytes that belong to this body: all of them unless it ends.

        Raises BadChunk."""
        at = 0
        while at < len(data) and not self.ended:
            if self._left:
                taken = min(self._left, len(data) - at)
                self.body += data[at : at + taken]
                self._left -= taken
                self._after_data = not self._left
                at += taken
                continue
            end = bytes(data[at : at + MAX_LINE]).find(b"\n") + 1
            taken = end or len(data) - at
            self._line += data[at : at + taken]
            at += taken
            if len(self._line) > MAX_LINE:
                raise BadChunk(f"the line of a chunk's size has more than {MAX_LINE} bytes")
            if end:
                if not self._line.endswith(b"\r\n"):
                    raise BadChunk("a line does not end with CR and LF")
                self._read(bytes(self._line[:-2]))
                self._line.clear()
        return at

    def _read(self, line: bytes) -> None:
        if self._after_data:
            if line:
                raise BadChunk("a chunk has more bytes than its size says")
            self._after_data = False
        elif self._trailers is not None:
            self._trailers += len(line) + 2
            if self._trailers > MAX_TRAILERS:
                raise BadChunk(f"the trailers have more than {MAX_TRAILERS} bytes")
            if line and not _TRAILER.fullmatch(line):
                raise BadChunk("a trailer is no field of the form NAME: VALUE")
            self.ended = not line
        elif size := _SIZE.fullmatch(line):
            self._left = int(size[1], 16)
            if not self._left:
                self._trailers = 0
        else:
            raise BadChunk("a chunk has no size in hexadecimal digits")
