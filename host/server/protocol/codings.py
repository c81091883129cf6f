"""The content codings gzip and deflate, for requests and responses (RFC 9110, sections 8.4 and 12.5.3)."""

import asyncio
import zlib
from collections.abc import Callable, Sequence

from headrace.batching import BadInput, HeadraceError

CODINGS = ("gzip", "deflate")
MIN_BYTES = 1024  # a smaller answer is not compressed
INLINE = 1 << 16  # bytes that are coded in the event loop; more are coded in a thread
STEP = 1 << 20  # bytes that are decompressed between two checks of the limits

_WBITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}

Reserve = Callable[[int], None]  # reserves room for so many more bytes, or raises if there is none


class UnknownCoding(HeadraceError):
    """The body has a Content-Encoding that this server does not support."""


async def decoded(body: memoryview, coding: str, reserve: Reserve) -> memoryview:
    """Return the body without its Content-Encoding.

    It calls `reserve` with the size of each decompressed piece before it makes the next one. An error of `reserve`
    stops it.

    Raises UnknownCoding, BadInput for a damaged body, and every error of `reserve`."""
    coding = coding.strip().lower().removeprefix("x-")
    if coding in ("", "identity"):
        return body
    if coding not in CODINGS:
        raise UnknownCoding(f"the body's Content-Encoding is {coding[:50]!r}; send gzip, deflate or identity")
    content = bytearray()
    inflating = _Inflating(body, coding)
    while not inflating.ended:
        small = len(body) <= INLINE and len(content) <= INLINE
        piece = inflating.step(INLINE) if small else await asyncio.to_thread(inflating.step, STEP)
        reserve(len(piece))
        content += piece
    return memoryview(content)


class _Inflating:
    """Decompress one body step by step."""

    def __init__(self, body: memoryview, coding: str) -> None:
        self._body = body
        self._at = 0
        self._fed: bytes | memoryview = b""  # bytes of the body before `_at` that zlib has not consumed yet
        # Some clients send deflate data without a zlib header.
        self._wbits = -zlib.MAX_WBITS if coding == "deflate" and not _is_zlib(body) else _WBITS[coding]
        self._several = coding == "gzip"  # several gzip members may follow each other
        self._stream = zlib.decompressobj(self._wbits)
        self.ended = False

    def step(self, max_bytes: int) -> bytes:
        """Return the next bytes, at most `max_bytes` of them. Raises BadInput."""
        content = bytearray()
        while len(content) < max_bytes and not self.ended:
            if not self._fed:
                self._fed = self._body[self._at : self._at + INLINE]
                self._at += len(self._fed)
            last = not self._fed
            try:
                piece = self._stream.decompress(self._fed, max_bytes - len(content))
            except zlib.error as error:
                raise BadInput(f"the body does not match its Content-Encoding: {error}") from None
            content += piece
            self._fed = self._stream.unconsumed_tail
            if self._stream.eof:
                self._end_stream()
            elif last and not piece:
                raise BadInput("the compressed body is cut off")
        return bytes(content)

    def _end_stream(self) -> None:
        self._fed = self._stream.unused_data
        if not self._fed and self._at == len(self._body):
            self.ended = True
        elif self._several:
            self._stream = zlib.decompressobj(self._wbits)
        else:
            raise BadInput(f"{len(self._fed) + len(self._body) - self._at} bytes follow the compressed body")


def _is_zlib(body: memoryview) -> bool:
    return len(body) >= 2 and body[0] & 0x0F == zlib.DEFLATED and (body[0] << 8 | body[1]) % 31 == 0


def accepted(accept: str) -> str:
    """Return the coding that an Accept-Encoding header prefers, or "" if it prefers none."""
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        name, _, parameter = part.partition(";")
        key, _, value = parameter.strip().partition("=")
        try:
            weights[name.strip().removeprefix("x-")] = float(value) if key.strip() == "q" else 1.0
        except ValueError:
            continue  # a coding with an invalid weight counts as absent
    anything = weights.get("*", 0.0)
    best = max(CODINGS, key=lambda coding: weights.get(coding, anything))
    weight = weights.get(best, anything)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else ""


async def encoded(parts: Sequence[bytes | memoryview], coding: str) -> bytes:
    """Return the parts as one compressed body. A large body is compressed in a thread."""
    if sum(map(len, parts)) <= INLINE:
        return _deflated(parts, coding)
    return await asyncio.to_thread(_deflated, parts, coding)


def _deflated(parts: Sequence[bytes | memoryview], coding: str) -> bytes:
    """Compress at the fastest level, because a smaller response is not worth a longer delay."""
    stream = zlib.compressobj(1, zlib.DEFLATED, _WBITS[coding])
    return b"".join([*map(stream.compress, parts), stream.flush()])
