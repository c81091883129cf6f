"""Clocks of the image unit's parser in a file's headers: a byte a clock, and what its states add.

The model follows the modules of hls/decode/parse, progression.sv and huffman_table.sv. Clocks are counted from the
file's first byte, whose own is 1.
"""

from collections.abc import Callable, Iterator
from typing import Final

from headrace.sim.hardware.dpu.jpeg import (
    DHT,
    DQT,
    DRI,
    EOI,
    PAIR_BITS,
    SOF0,
    SOF1,
    SOF2,
    SOS,
    WORD,
    CodeLengths,
    Headers,
    JpegWork,
)
from headrace.sim.hardware.dpu.jpeg_scans import GUESSED

SOI_BYTES: Final = 2
SEGMENT: Final = 5  # 0xFF, marker, a clock to judge it, two bytes of length
LENGTH: Final = 2  # the bytes of the length, which EOI does not have
FRAME_SIZE: Final = 8  # from the length of the frame header to the image's size
APPLICATION_BYTES: Final = 14  # the bytes of APP0 and APP14 that are read one by one
STANDARD_BYTE: Final = 2  # the clocks of a byte in the standard's Huffman tables, a ROM
# For a file of several scans, in addition to a clock for each coefficient that is noted: one clock for each of three
# components, one to see that all are noted, and one to judge it.
PROGRESSION: Final = 5
BEFORE_WORD: Final = 4  # byte_reader.sv: bytes before the word where a segment begins at an even place; else one more
# huffman_table.sv: a short code of n bits is written to 2^(6 - n) groups of places.
GROUP_BITS: Final = 6
# symbol_pairs.sv: the AC tables that have pairs, the clocks to work out a table, and those of each of its short codes
PAIR_TABLES: Final = range(0x10, 0x12)
PAIR_TABLE: Final = 266
PAIR_CODE: Final = 2


def header_cycles(work: JpegWork) -> int:
    """Return the clocks from the first byte until the first scan is taken; the words of the file never pause.

    Bytes in front of markers take a clock each."""
    return first_headers(work, TableWrites())[0]


def first_headers(
    work: JpegWork, writes: "TableWrites", arrival: Callable[[int], int] = lambda word: 0
) -> tuple[int, int]:
    """Return `headers_read` for the headers in front of the first scan."""
    return headers_read(work.headers, SOI_BYTES, writes, work.scans[0].noted if work.scans else None, arrival)


def noted_at_the_end(work: JpegWork) -> int:
    """Return the coefficients that are looked at after the last of several scans."""
    return GUESSED * work.components


def headers_read(
    headers: Headers, clock: int, writes: "TableWrites", noted: int | None, arrival: Callable[[int], int]
) -> tuple[int, int]:
    """Return the clock in which the scan is taken, and the clock in which the image's size is known.

    Args:
        headers: The headers.
        clock: The clock before the first byte.
        writes: The writes to Huffman tables.
        noted: `Scan.noted`, for a file of several scans; None for others.
        arrival: Returns the clock from which on a word of the file is there, where words may be late.
    """
    at, sized = headers.begin, 0
    tables = iter(headers.code_lengths)
    for (marker, size), garbage in zip(headers.segments, headers.garbage, strict=True):
        clock += SEGMENT + garbage
        at += 4 + garbage
        if marker in (SOF0, SOF1, SOF2):
            sized = clock + FRAME_SIZE
        if marker in (SOF0, SOF1, SOF2, DQT, SOS):
            clock += size + 1
        elif marker == EOI:
            clock += 1 - LENGTH
        elif marker == DRI:
            clock += size
        elif marker == DHT:
            clock = _tables_read(clock, writes, size, tables)
        elif marker in (0xE0, 0xEE):
            read = min(size, APPLICATION_BYTES)
            clock += read + 2 + _skip_cycles(size - read, at + read)
        else:
            clock += _skip_cycles(size, at)
        at += size
        clock = max(clock, arrival(at // WORD))
    if noted is not None:
        clock += PROGRESSION + noted
    if headers.standard_tables:  # the tables are written as if they stood here
        size = sum(17 + sum(table.counts) for table in headers.standard_tables)
        clock = _tables_read(clock, writes, size, iter(headers.standard_tables), STANDARD_BYTE)
    return max(clock + 1, writes.written) + 1, sized  # the last two clocks notice that the tables are written


def _skip_cycles(size: int, at: int) -> int:
    """Return the clocks to skip bytes of the file.

    One clock tells how many there are. The bytes before the word pass at once, then the rest of a word, while two words
    were left a clock ago, and one more clock ends that. Then a byte passes a clock. One more clock tells that all have
    passed."""
    clocks, left, far = 1, BEFORE_WORD + at % 2, size >= 2 * WORD
    while far:
        far = size >= 2 * WORD
        size, at, clocks = size - left, at + left, clocks + (1 if far else 2)
        left = WORD - at % WORD
    return clocks + size + 1


class TableWrites:
    """Writes of counts and symbols to Huffman tables. Two of them can wait while a table spreads a short code."""

    def __init__(self) -> None:
        self.written = 0  # the clock before which the tables take nothing
        # The clock from which on the decoder takes pairs of symbols of a table, by class and number.
        self.paired: dict[int, int] = {}
        self._taken = (0, 0)  # the clocks in which the last but one and the last one went into a table
        self._paired = 0

    def put(self, clock: int, spread: int = 1) -> int:
        """Return the clock, not before this one, in which a write can leave the parser. Its table is busy for `spread`
        clocks."""
        clock = max(clock, self._taken[0] + 1)
        taken = max(clock + 1, self.written)
        self._taken = self._taken[1], taken
        self.written = taken + spread
        return clock

    def short_codes_end(self, table: CodeLengths) -> None:
        """Tell that the last short code of a table has left the parser. Tables are paired one after the other."""
        if table.table in PAIR_TABLES:
            begin = max(self.written, self._paired)
            self._paired = begin + PAIR_TABLE + PAIR_CODE * sum(table.counts[:PAIR_BITS])
            self.paired[table.table] = self._paired


def _tables_read(clock: int, writes: TableWrites, size: int, tables: Iterator[CodeLengths], byte: int = 1) -> int:
    """Return the clock after a DHT segment.

    `byte` has the clocks of one byte. The clocks of the first symbol of a length pass while the length is looked up."""
    while size > 0:
        table = next(tables)
        counts = table.counts
        last_short = max((length for length in range(1, PAIR_BITS + 1) if counts[length - 1]), default=0)
        clock += 1  # class and number
        for _ in counts:
            clock = writes.put(clock + byte)
        clock += 1  # check
        size -= 17 + sum(counts)
        left = sum(counts)
        for length, count in enumerate(counts, start=1):
            if not left:
                break
            clock += 1
            for number in range(count):
                clock = writes.put(clock + (byte if number else 1), 1 << max(0, GROUP_BITS - length))
            left -= count
            if length == last_short:
                writes.short_codes_end(table)
        clock += 1
    return clock + 1
