"""What a JPEG file asks of a decoder: its size, its headers and the Huffman symbols of its blocks.

Reads no pixel: codes are followed only as far as their lengths (ITU-T T.81, annexes B, C and F.2.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.batching import UsageError
from headrace.sim.hardware.jpeg_tables import STANDARD_TABLES

SOF0, SOF1, DHT, RST0, RST7, SOI, SOS, DQT, DRI = 0xC0, 0xC1, 0xC4, 0xD0, 0xD7, 0xD8, 0xDA, 0xDB, 0xDD
TEM = 0x01
END_OF_BLOCK: Final = 64  # as an advance: past every coefficient
# Bits of a Huffman code from which on the decoder takes a second clock (entropy_decoder.sv).
LONG_DC_CODE: Final = 7
LONG_AC_CODE: Final = 8
FIRST_BYTES: Final = 7  # that it waits for

Entry = tuple[int, int, bool]
Factors = tuple[int, int]  # sampling factors of a component: its blocks across and down an MCU


@dataclass(frozen=True, slots=True)
class JpegWork:
    """`symbols` and, among them, `long_codes` (LONG_DC_CODE or LONG_AC_CODE bits or more) of each block in the file's
    order; `segments` are (marker, bytes behind the length field) in front of the image's data, and `garbage` has the
    bytes in front of each of them that belong to none, fill bytes too.

    `code_lengths` has the number of codes of each length, 1 to 16, for every Huffman table in the file's order;
    `standard_tables` those of the standard's tables that the scan uses and the file does not have; `starts` the clocks
    of the first FIRST_BYTES of each restart interval: two bytes in one, but one next to 0xFF."""

    width: int
    height: int
    components: int
    h_factor: int  # of luma: the greatest
    v_factor: int
    restart_interval: int  # MCUs, 0 for none
    symbols: tuple[int, ...]
    long_codes: tuple[int, ...]
    segments: tuple[tuple[int, int], ...]
    code_lengths: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    garbage: tuple[int, ...]
    standard_tables: tuple[tuple[int, ...], ...]
    chroma_factors: tuple[Factors, ...] = ((1, 1), (1, 1))

    @property
    def mcus_across(self) -> int:
        return -(-self.width // (8 * self.h_factor))

    @property
    def mcus_down(self) -> int:
        return -(-self.height // (8 * self.v_factor))

    @property
    def blocks_per_mcu(self) -> int:
        return 1 if self.components == 1 else _blocks((self.h_factor, self.v_factor), *self.chroma_factors)


def _blocks(*factors: Factors) -> int:
    return sum(h * v for h, v in factors)


def read_jpeg_work(jpeg: bytes) -> JpegWork:
    """Of a sound baseline file in one scan, as the image CU takes it: between segments there may be garbage, and what
    the scan uses of the Huffman tables 0 and 1 and the file does not have is the standard's. Raises UsageError for any
    other."""
    try:
        return _read(jpeg)
    except (IndexError, KeyError, ValueError) as error:
        raise UsageError(f"not a sound baseline JPEG file in one scan: {error}") from error


def _read(jpeg: bytes) -> JpegWork:
    if jpeg[:3] != bytes([0xFF, SOI, 0xFF]):
        raise ValueError("no SOI marker, and another one, at the start")
    segments: list[tuple[int, int]] = []
    garbage: list[int] = []
    code_lengths: list[tuple[int, ...]] = []
    tables: dict[int, list[Entry]] = {}
    frame, restart_interval, at = b"", 0, 2
    while not segments or segments[-1][0] != SOS:
        found = _marker(jpeg, at)
        garbage.append(found - at)
        at = found
        marker, length = jpeg[at + 1], int.from_bytes(jpeg[at + 2 : at + 4], "big")
        payload = jpeg[at + 4 : at + 2 + length]
        segments.append((marker, length - 2))
        if marker in (SOF0, SOF1):
            frame = payload
        elif 0xC2 <= marker <= 0xCF and marker != DHT:
            raise ValueError(f"frame type 0x{marker:X} is not baseline")
        elif marker == DRI:
            restart_interval = int.from_bytes(payload, "big")
        elif marker == DHT:
            place = 0
            while place < len(payload):
                counts = tuple(payload[place + 1 : place + 17])
                values = payload[place + 17 : place + 17 + sum(counts)]
                tables[payload[place]] = _look_up(counts, values, ac=payload[place] >> 4 == 1)
                code_lengths.append(counts)
                place += 17 + sum(counts)
        at += 2 + length
    components = frame[5]
    if payload[0] != components:
        raise ValueError("several scans")
    factors = [(frame[at] >> 4, frame[at] & 15) for at in range(7, len(frame), 3)] if components > 1 else [(1, 1)]
    h_factor, v_factor = factors[0]
    selectors = [payload[2 + 2 * component] for component in range(components)]
    order = [component for component, (h, v) in enumerate(factors) for _ in range(h * v)]
    used = sorted({selector >> 4 for selector in selectors} | {0x10 | selector & 15 for selector in selectors})
    standard = [STANDARD_TABLES[number] for number in used if number not in tables]
    tables |= {n: _look_up(*STANDARD_TABLES[n], ac=n >> 4 == 1) for n in used if n not in tables}
    blocks = [(tables[selectors[c] >> 4], tables[0x10 | selectors[c] & 15]) for c in order]
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    across, down = -(-width // (8 * h_factor)), -(-height // (8 * v_factor))
    intervals = _intervals(jpeg, at)
    symbols, long_codes = _count(intervals, blocks, across * down, restart_interval)
    return JpegWork(
        width, height, components, h_factor, v_factor, restart_interval, symbols, long_codes, tuple(segments),
        tuple(code_lengths), tuple(map(_start, intervals)), tuple(garbage), tuple(counts for counts, _ in standard),
        *([tuple(factors[1:])] if components > 1 else []),
    )  # fmt: skip


def _marker(jpeg: bytes, at: int) -> int:
    """Where the next segment begins: libjpeg skips what is no marker, FF 00 too, and markers without a segment."""
    while True:
        at = jpeg.index(0xFF, at)
        while jpeg[at + 1] == 0xFF:
            at += 1
        marker = jpeg[at + 1]
        if marker not in (0, TEM) and not RST0 <= marker <= RST7:
            return at
        at += 2


def _look_up(counts: Sequence[int], symbols: bytes, ac: bool) -> list[Entry]:
    """For each window of 16 bits: bits of the code with its extra bits, coefficients that the symbol moves on, and
    whether the code is a long one."""
    entries: list[Entry] = []
    place = 0
    long = LONG_AC_CODE if ac else LONG_DC_CODE
    for length, count in enumerate(counts, start=1):
        for symbol in symbols[place : place + count]:
            run, size = symbol >> 4, symbol & 15
            advance = 1 if not ac else END_OF_BLOCK if size == 0 and run != 15 else run + 1
            entries += [(length + size, advance, length >= long)] * (1 << (16 - length))
        place += count
    return entries


def _start(data: bytes) -> int:
    at = clocks = 0
    while at < min(len(data), FIRST_BYTES):
        at += 2 if 0xFF not in data[at : at + 2] and at + 1 < len(data) else 1
        clocks += 1
    return clocks


def _intervals(jpeg: bytes, start: int) -> list[bytes]:
    """The data of each restart interval, stuffing removed."""
    parts, at = [], start
    begin = at
    while True:
        at = jpeg.index(0xFF, at)
        if jpeg[at + 1] == 0:
            at += 2
            continue
        end = at
        while jpeg[at + 1] == 0xFF:
            at += 1
        parts.append(jpeg[begin:end].replace(b"\xff\x00", b"\xff"))
        if not RST0 <= jpeg[at + 1] <= RST7:
            return parts
        at += 2
        begin = at


def _count(
    intervals: Sequence[bytes], blocks: Sequence[tuple[list[Entry], list[Entry]]], mcus: int, restart_interval: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Symbols and long codes of each block."""
    symbols: list[int] = []
    long_codes: list[int] = []
    per_interval = restart_interval or mcus
    mcu = 0
    for data in intervals:
        padded = data + bytes(4)
        bit = 0
        for _ in range(min(per_interval, mcus - mcu)):
            mcu += 1
            for dc, ac in blocks:
                place, table, taken, long_taken = 0, dc, 0, 0
                while place < 64:
                    byte = bit >> 3
                    window = int.from_bytes(padded[byte : byte + 3], "big") >> (8 - (bit & 7)) & 0xFFFF
                    used, advance, is_long = table[window]
                    bit += used
                    place += advance
                    taken += 1
                    long_taken += is_long
                    table = ac
                symbols.append(taken)
                long_codes.append(long_taken)
    return tuple(symbols), tuple(long_codes)
