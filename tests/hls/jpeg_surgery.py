"""Taking JPEG files apart and putting them together again, for files that no encoder at hand writes."""

from dataclasses import dataclass, replace

SOF0, DHT, SOI, EOI, SOS, DQT, DRI, APP0, APP1, APP14, COM = (
    0xC0, 0xC4, 0xD8, 0xD9, 0xDA, 0xDB, 0xDD, 0xE0, 0xE1, 0xEE, 0xFE,
)  # fmt: skip
RST0 = 0xD0


@dataclass(frozen=True, slots=True)
class Segment:
    marker: int
    payload: bytes  # without the length field

    def to_bytes(self) -> bytes:
        return bytes([0xFF, self.marker]) + (len(self.payload) + 2).to_bytes(2, "big") + self.payload


@dataclass(frozen=True, slots=True)
class Jpeg:
    """A file with one scan: header segments up to and with SOS, the scan's bytes, and what follows from EOI on."""

    segments: tuple[Segment, ...]
    scan: bytes
    trailer: bytes = bytes([0xFF, EOI])

    def to_bytes(self, fill: int = 0) -> bytes:
        """The file, with `fill` bytes 0xFF before every header marker."""
        padding = b"\xff" * fill
        return bytes([0xFF, SOI]) + b"".join(padding + s.to_bytes() for s in self.segments) + self.scan + self.trailer

    def edit(self, marker: int, change) -> "Jpeg":
        """`change` maps the payload of each segment with this marker."""
        return replace(
            self,
            segments=tuple(
                Segment(s.marker, change(s.payload)) if s.marker == marker else s for s in self.segments
            ),
        )

    def without(self, *markers: int) -> "Jpeg":
        return replace(self, segments=tuple(s for s in self.segments if s.marker not in markers))

    def with_first(self, *segments: Segment) -> "Jpeg":
        return replace(self, segments=segments + self.segments)

    def payloads(self, marker: int) -> list[bytes]:
        return [s.payload for s in self.segments if s.marker == marker]


def take_apart(jpeg: bytes) -> Jpeg:
    """Raises AssertionError if the file is none that an encoder wrote."""
    assert jpeg[:2] == bytes([0xFF, SOI])
    at, segments = 2, []
    while not segments or segments[-1].marker != SOS:
        assert jpeg[at] == 0xFF
        length = int.from_bytes(jpeg[at + 2 : at + 4], "big")
        segments.append(Segment(jpeg[at + 1], jpeg[at + 4 : at + 2 + length]))
        at += 2 + length
    end = jpeg.rindex(bytes([0xFF, EOI]))
    return Jpeg(tuple(segments), jpeg[at:end], jpeg[end:])


def patched(payload: bytes, at: int, *values: int) -> bytes:
    return payload[:at] + bytes(values) + payload[at + len(values) :]


def quant_tables(payload: bytes) -> list[tuple[int, list[int]]]:
    """The 8-bit tables (number, 64 values in zigzag order) of a DQT segment."""
    return [(payload[at], list(payload[at + 1 : at + 65])) for at in range(0, len(payload), 65)]


def wide_quant_table(number: int, values: list[int]) -> bytes:
    """A 16-bit table of a DQT segment."""
    return bytes([0x10 | number]) + b"".join(value.to_bytes(2, "big") for value in values)


def huffman_tables(payload: bytes) -> list[bytes]:
    """The tables of a DHT segment, each with its class and number, 16 counts and symbols."""
    tables, at = [], 0
    while at < len(payload):
        length = 17 + sum(payload[at + 1 : at + 17])
        tables.append(payload[at : at + length])
        at += length
    return tables
