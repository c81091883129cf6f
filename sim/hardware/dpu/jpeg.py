"""The work that a JPEG file gives a decoder: its size, its headers and the contents of its blocks.

The reader decodes no pixel. It follows codes only as far as their lengths (ITU-T T.81, annexes B, C and F.2.2), and in
files of several scans also which coefficients are not zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from headrace.batching import UsageError
from headrace.sim.hardware.dpu.jpeg_scans import Code, Interval, Planes, ScanHeader
from headrace.sim.hardware.dpu.jpeg_tables import ODD_ROW, STANDARD_TABLES

SOF0, SOF1, SOF2, DHT, RST0, RST7, SOI, EOI = 0xC0, 0xC1, 0xC2, 0xC4, 0xD0, 0xD7, 0xD8, 0xD9
SOS, DQT, DRI = 0xDA, 0xDB, 0xDD
APP0, APP15, COM, DNL, TEM = 0xE0, 0xEF, 0xFE, 0xDC, 0x01
WORD: Final = 16  # the file comes in words of this many bytes
END_OF_BLOCK: Final = 64  # an advance past every coefficient
# The decoder takes two AC symbols at once where this many bits tell them (entropy_pkg.sv). 0: it always takes one, as
# config_pkg.sv may have it.
PAIR_BITS: Final = 8
# The bits of a Huffman code that the decoder finds within a clock (entropy_decoder.sv). SHORT_SINGLE_CODE: of AC, in a
# decoder that takes one symbol at once.
SHORT_CODE: Final = 6
SHORT_SINGLE_CODE: Final = 7
MAX_TOTAL: Final = 17  # bits that such codes take with their extra bits
MAX_SIZE: Final = 10  # extra bits of an AC coefficient
MAX_ADVANCE: Final = 16  # coefficients that two symbols advance at most
FIRST_BYTES: Final = 7  # the bytes that the decoder waits for

Entry = tuple[int, int, int, int]  # bits of a code with its extra bits, coefficients that it advances, both bits alone
Step = tuple[int, int, int, int]  # bits, coefficients, symbols taken at once, coefficients that the first one advances
MAX_WIDTH: Final = 8192
MAX_HEIGHT: Final = 65500
MAX_MCU_BLOCKS: Final = 10  # T.81 B.2.3
MAX_MCU_BYTES: Final = MAX_MCU_BLOCKS * 64 * 31 // 8 + 4  # a coefficient has a code of 16 bits and 15 bits at most

Counts = tuple[int, ...]  # of each block, in the file's order
Factors = tuple[int, int]  # sampling factors of a component: its blocks across and down an MCU
Table = tuple[tuple[int, ...], bytes]  # the number of codes of 1 to 16 bits, and their symbols


class CodeLengths(NamedTuple):
    """The lengths of a Huffman table's codes.

    Attributes:
        table: Class and number as a DHT segment has them: 0x10 and above for AC.
        counts: The number of codes of each length, 1 to 16.
    """

    table: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers in front of a scan's data, or of the file's end, from byte `begin` on.

    Attributes:
        begin: The first byte.
        segments: Pairs of a marker and the number of bytes after the length field.
        code_lengths: Those of every Huffman table in the file's order.
        garbage: The number of bytes in front of each segment that belong to none, fill bytes included.
        standard_tables: The code lengths of the standard's tables that the scan uses and the file does not have.
    """

    begin: int
    segments: tuple[tuple[int, int], ...]
    code_lengths: tuple[CodeLengths, ...]
    garbage: tuple[int, ...]
    standard_tables: tuple[CodeLengths, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of a file that has several.

    Attributes:
        noted: The number of coefficients that the parser notes as sent, all 64 of a component's first scan.
        reads: The words that are read of each block. A block has eight words of eight coefficients.
        writes: The words that are written of each block.
        fill: Of these, the words of zeros behind the band's.
        intervals: The data between restart markers.
        next_headers: The headers in front of the next scan.
    """

    noted: int
    reads: int
    writes: int
    fill: int
    intervals: tuple[Interval, ...]
    next_headers: Headers  # the headers in front of the next scan


@dataclass(frozen=True, slots=True)
class JpegWork:
    """Hold the work that a file is for the decoder.

    A file of one sequential scan has five counts of each block, in the file's order:

    - `symbols` are its Huffman symbols.
    - `long_codes` are those whose code is too long for a clock.
    - `pairs` are the pairs of symbols that the decoder takes at once.
    - `splits` are the pairs of coefficients that the transform stores one by one. Both are in even rows, or both in odd
      ones.
    - `long_singles` are the long codes if all symbols come one by one.

    `starts` are the clocks of the first FIRST_BYTES of each restart interval. Two bytes come in one clock, but one next
    to 0xFF. `ac_tables` are the numbers of the components' AC tables. It is empty if no table has pairs.

    Any other file has `scans`. Then `symbols` count, in the order of MCUs, what leaves of each block after the last
    scan, as Planes.end has it."""

    width: int
    height: int
    components: int
    h_factor: int  # the factors of luma, the greatest
    v_factor: int
    headers: Headers
    restart_interval: int  # MCUs, 0 for none
    symbols: tuple[int, ...]
    long_codes: tuple[int, ...]
    pairs: tuple[int, ...]
    splits: tuple[int, ...]
    long_singles: tuple[int, ...]
    starts: tuple[int, ...]
    ac_tables: tuple[int, ...] = ()
    chroma_factors: tuple[Factors, ...] = ((1, 1), (1, 1))
    scans: tuple[Scan, ...] = ()
    max_width: int = MAX_WIDTH  # pixels of the widest image that the decoder takes: sizes its row memories

    @property
    def mcus_across(self) -> int:
        return -(-self.width // (8 * self.h_factor))

    @property
    def mcus_down(self) -> int:
        return -(-self.height // (8 * self.v_factor))

    @property
    def components_of_blocks(self) -> tuple[int, ...]:
        """The component of each block of an MCU, in the file's order."""
        return _components_of_blocks(((self.h_factor, self.v_factor), *self.chroma_factors)[: self.components])

    @property
    def blocks_per_mcu(self) -> int:
        return len(self.components_of_blocks)


def _components_of_blocks(factors: Sequence[Factors]) -> tuple[int, ...]:
    return tuple(component for component, (h, v) in enumerate(factors) for _ in range(h * v))


def _blocks(*factors: Factors) -> int:
    return sum(h * v for h, v in factors)


def read_jpeg_work(jpeg: bytes, *, pair_bits: int = PAIR_BITS, max_width: int = MAX_WIDTH) -> JpegWork:
    """Return the work of a baseline or progressive file without errors, as the image CU takes it with a workspace.

    `max_width` is that of the CU's configuration, in pixels.

    There may be garbage between segments. If a sequential scan uses one of the Huffman tables 0 and 1 that the file
    does not have, the standard's table takes its place. Raises UsageError for any other file.

    Args:
        jpeg: The file.
        pair_bits: The bits that tell a pair of symbols, 6 to 16; 0 for a decoder that takes one symbol at once.
    """
    try:
        return _read(jpeg, pair_bits, max_width)
    except (IndexError, KeyError, ValueError) as error:
        raise UsageError(f"not a valid baseline or progressive JPEG file: {error}") from error


def _read(jpeg: bytes, pair_bits: int, max_width: int) -> JpegWork:
    if jpeg[:3] != bytes([0xFF, SOI, 0xFF]):
        raise ValueError("no SOI marker, and another one, at the start")
    file = _File(jpeg)
    headers = file.headers()
    components = file.frame[5]
    height, width = int.from_bytes(file.frame[1:3], "big"), int.from_bytes(file.frame[3:5], "big")
    if not (0 < width <= max_width and 0 < height <= MAX_HEIGHT):
        raise ValueError(f"{width} x {height} pixels, which the image CU does not take")
    factors = [(pair >> 4, pair & 15) for pair in file.frame[7::3]]
    _check_sampling(factors, width, max_width)
    if components == 1:
        factors = [(1, 1)]  # one block is an MCU, whatever its factors are
    h_factor, v_factor = factors[0]
    size = width, height, components, h_factor, v_factor
    if file.progressive or file.scan[0] < components:
        return _read_several(file, headers, width, height, factors, max_width)
    selectors = [file.scan[2 + 2 * component] for component in range(components)]
    blocks = [
        _Tables(file.tables[selector >> 4], file.tables[0x10 | selector & 15], pair_bits if selector & 2 == 0 else 0)
        for selector in selectors
    ]
    mcus = -(-width // (8 * h_factor)) * -(-height // (8 * v_factor))
    intervals = [_unstuffed(jpeg, *span) for span in file.intervals(mcus)]
    short = SHORT_CODE if pair_bits else SHORT_SINGLE_CODE
    counts = _count(intervals, [blocks[c] for c in _components_of_blocks(factors)], mcus, file.restart_interval, short)
    return JpegWork(
        *size,
        headers,
        file.restart_interval,
        *counts,
        tuple(map(_start, intervals)),
        tuple(selector & 15 for selector in selectors) if pair_bits else (),
        tuple(factors[1:]) or ((1, 1), (1, 1)),
        max_width=max_width,
    )


def _check_sampling(factors: Sequence[Factors], width: int, max_width: int) -> None:
    """Check sampling factors as sampling_status in jpeg_parser.cpp does.

    A single component may have factors of 1 to 4. Of three components luma has the greatest, an MCU has at most ten
    blocks, and two rows of MCUs fit the row memories. Raises ValueError."""
    max_h, max_v = factors[0]
    color = len(factors) > 1
    fits = not color or _blocks(*factors) <= MAX_MCU_BLOCKS
    for c, (h, v) in enumerate(factors):
        wide = color and h == max_h and width * v > (1 if c else 2) * max_width
        if {h, v} - ({1, 2, 4} if color else {1, 2, 3, 4}) or h > max_h or v > max_v or wide:
            fits = False
    if not fits:
        raise ValueError(f"sampling factors that the image CU does not take: {factors}")


def _read_several(
    file: "_File", headers: Headers, width: int, height: int, factors: Sequence[Factors], max_width: int
) -> JpegWork:
    h_factor, v_factor = factors[0]
    blocks = -(-width // (8 * h_factor)) * -(-height // (8 * v_factor)) * _blocks(*factors)
    if blocks > 8 * len(file.jpeg):  # each block has a DC coefficient
        raise ValueError(f"{len(file.jpeg)} bytes are too few for {blocks} blocks")
    planes = Planes(width, height, factors)
    scans, marker = [], SOS
    while marker == SOS:
        scan, restart = file.scan_header(), file.restart_interval
        spans = file.intervals(planes.mcus(scan.members))
        steps = planes.read(scan, restart, [_unstuffed(file.jpeg, *span) for span in spans])
        intervals = tuple(
            Interval(*of) for of in zip(steps, (_tokens(file.jpeg, *span) for span in spans), strict=True)
        )
        # the first scan of its components reads nothing and writes whole blocks
        begins = scan.first == 0 and scan.high == 0
        words = scan.last // 8 - scan.first // 8 + 1
        noted = len(scan.members) * (64 if begins else scan.last - scan.first + 1)
        next_headers = file.headers()
        reads, writes = (0, 8) if begins else (words, words)
        scans.append(Scan(noted, reads, writes, writes - words, intervals, next_headers))
        marker = next_headers.segments[-1][0]
    return JpegWork(
        width,
        height,
        len(factors),
        h_factor,
        v_factor,
        headers,
        0,
        planes.end(),
        (),
        (),
        (),
        (),
        (),
        (),
        tuple(factors[1:]) or ((1, 1), (1, 1)),
        tuple(scans),
        max_width,
    )


class _File:
    """A file that is read from front to back: `headers` and `intervals` by turns."""

    def __init__(self, jpeg: bytes) -> None:
        self.jpeg = jpeg
        self.frame = b""
        self.progressive = False
        self.restart_interval = 0
        self.tables: dict[int, Table] = {}
        self.quantisation: set[int] = set()  # the numbers of the tables
        self.scan = b""  # the last SOS segment
        self._at = 2
        self._codes: dict[int, list[Code]] = {}

    def headers(self) -> Headers:
        """Read up to a scan's data, or to the file's end."""
        begin = self._at
        segments: list[tuple[int, int]] = []
        garbage: list[int] = []
        code_lengths: list[CodeLengths] = []
        while not segments or segments[-1][0] not in (SOS, EOI):
            at = _marker(self.jpeg, self._at)
            garbage.append(at - self._at)
            marker, length = self.jpeg[at + 1], int.from_bytes(self.jpeg[at + 2 : at + 4], "big")
            if marker == EOI:
                segments.append((EOI, 0))
                break
            if length < 2:
                raise ValueError(f"a segment of {length} bytes")
            self._at = at + 2 + length
            payload = self.jpeg[at + 4 : self._at]
            segments.append((marker, length - 2))
            if marker in (SOF0, SOF1, SOF2):
                self._begin_frame(payload, marker == SOF2)
            elif marker == DRI:
                if length != 4:
                    raise ValueError(f"a restart interval of {length - 2} bytes")
                self.restart_interval = int.from_bytes(payload, "big")
            elif marker == SOS:
                self.scan = payload
            elif marker == DHT:
                code_lengths += self._define(payload)
            elif marker == DQT:
                self._define_quantisation(payload)
            elif not (APP0 <= marker <= APP15 or marker in (COM, DNL)):
                raise ValueError(f"marker 0x{marker:X} is of no segment in a baseline or progressive file")
        if not self.frame:
            raise ValueError("no frame in front of the first scan")
        standard = self._standard(segments[-1][0])
        return Headers(begin, tuple(segments), tuple(code_lengths), tuple(garbage), standard)

    def intervals(self, mcus: int) -> list[tuple[int, int]]:
        """Return where the data of each restart interval of this many MCUs begins and ends, in front of the next
        marker."""
        jpeg, begin, spans, numbers = self.jpeg, self._at, [], []
        at = begin
        while True:
            at = jpeg.index(0xFF, at)
            if jpeg[at + 1] == 0:
                at += 2
                continue
            spans.append((begin, at))
            self._at = at
            while jpeg[at + 1] == 0xFF:
                at += 1
            if jpeg[at + 1] == 0:
                raise ValueError("fill bytes in front of a byte of data")
            if not RST0 <= jpeg[at + 1] <= RST7:
                break
            numbers.append(jpeg[at + 1] - RST0)
            begin = at = at + 2
        count = -(-mcus // self.restart_interval) if self.restart_interval else 1
        if numbers[: count - 1] != [number % 8 for number in range(count - 1)]:
            raise ValueError(f"restart markers that do not separate {count} intervals")
        if any(any(_unstuffed(jpeg, *span)) for span in spans[count:]):
            raise ValueError("the data of a scan continues after its last block")
        return spans[:count]

    def scan_header(self) -> ScanHeader:
        count = self.scan[0]
        ids = list(self.frame[6::3])
        members = tuple(ids.index(self.scan[1 + 2 * place]) for place in range(count))
        if not members or list(members) != sorted(set(members)) or len(self.scan) != 4 + 2 * count:
            raise ValueError("a scan whose components are not those of the frame, in its order")
        if {self.frame[8 + 3 * c] for c in members} - self.quantisation:
            raise ValueError("a quantisation table that is not defined")
        first, last, bits = self.scan[-3:]
        selectors = self.scan[2 : 2 + 2 * count : 2]
        begins = first == 0 and bits >> 4 == 0
        dc = tuple(self._code(selector >> 4) if begins else [] for selector in selectors)
        ac = tuple(self._code(0x10 | selector & 15) if last else [] for selector in selectors)
        tables = tuple(selector & 15 for selector in selectors)
        return ScanHeader(members, first, last, bits >> 4, bits & 15, self.progressive, dc, ac, tables)

    def _begin_frame(self, payload: bytes, progressive: bool) -> None:
        if self.frame:
            raise ValueError("a second frame")
        components = payload[5]
        if payload[0] != 8 or components not in (1, 3) or len(payload) != 6 + 3 * components:
            raise ValueError(f"a frame of {components} components of {payload[0]} bits in {len(payload)} bytes")
        self.frame, self.progressive = payload, progressive

    def _define(self, payload: bytes) -> list[CodeLengths]:
        place = 0
        code_lengths: list[CodeLengths] = []
        while place < len(payload):
            counts = tuple(payload[place + 1 : place + 17])
            end = place + 17 + sum(counts)
            if payload[place] & ~0x13 or len(counts) < 16 or end > len(payload):
                raise ValueError("a Huffman table that goes beyond its segment, or above number 3")
            symbols = payload[place + 17 : end]
            if payload[place] < 0x10 and max(symbols, default=0) > 15:
                raise ValueError("a symbol above 15 in a Huffman table for DC coefficients")
            self.tables[payload[place]] = counts, symbols
            self._codes.pop(payload[place], None)
            code_lengths.append(CodeLengths(payload[place], counts))
            place = end
        return code_lengths

    def _define_quantisation(self, payload: bytes) -> None:
        place = 0
        while place < len(payload):
            if payload[place] & ~0x13:
                raise ValueError("a quantisation table above number 3")
            self.quantisation.add(payload[place] & 3)
            place += 129 if payload[place] & 0x10 else 65
        if place > len(payload):
            raise ValueError("a quantisation table that goes beyond its segment")

    def _standard(self, marker: int) -> tuple[CodeLengths, ...]:
        """Return the code lengths of the standard's tables that the scan uses and the file lacks. The file has them
        from there on."""
        if marker != SOS or self.progressive:
            return ()
        selectors = self.scan[2 : 2 + 2 * self.scan[0] : 2]
        used = {selector >> 4 for selector in selectors} | {0x10 | selector & 15 for selector in selectors}
        lacking = sorted(used - self.tables.keys())
        self.tables |= {number: STANDARD_TABLES[number] for number in lacking}
        return tuple(CodeLengths(number, STANDARD_TABLES[number][0]) for number in lacking)

    def _code(self, number: int) -> list[Code]:
        if number not in self._codes:
            self._codes[number] = [
                code for length, symbol, places in _codes(*self.tables[number]) for code in [(length, symbol)] * places
            ]
        return self._codes[number]


def _marker(jpeg: bytes, at: int) -> int:
    """Return where the next segment begins.

    libjpeg skips bytes that are no marker, FF 00 too, and markers without a segment."""
    while True:
        at = jpeg.index(0xFF, at)
        while jpeg[at + 1] == 0xFF:
            at += 1
        marker = jpeg[at + 1]
        if marker not in (0, TEM) and not RST0 <= marker <= RST7:
            return at
        at += 2


def _codes(counts: Sequence[int], symbols: bytes) -> list[tuple[int, int, int]]:
    """Return length and symbol of each code, and the number of windows of 16 bits that begin with it."""
    codes = []
    place = used = 0
    for length, count in enumerate(counts, start=1):
        used += count << (16 - length)
        if used > 0xFFFF:  # the code of all ones is never assigned
            raise ValueError("a Huffman table has more codes than there are")
        codes += [(length, symbol, 1 << (16 - length)) for symbol in symbols[place : place + count]]
        place += count
    return codes


class _Tables:
    """The look-ups of a component's blocks: entries for windows of 16 bits, and the AC table's steps."""

    def __init__(self, dc: Table, ac: Table, pair_bits: int) -> None:
        self.dc = _look_up(*dc, ac=False)
        self.ac = _look_up(*ac, ac=True)
        self.pair_bits = pair_bits
        self.steps = [_step(self.ac, window, pair_bits) for window in range(1 << pair_bits)] if pair_bits else []


def _look_up(counts: Sequence[int], symbols: bytes, ac: bool) -> list[Entry]:
    """Return an entry for each window of 16 bits that begins with a code."""
    entries: list[Entry] = []
    for length, symbol, places in _codes(counts, symbols):
        run, size = symbol >> 4, symbol & 15
        advance = 1 if not ac else END_OF_BLOCK if size == 0 and run != 15 else run + 1
        entries += [(length + size, advance, length, size)] * places
    return entries


def _step(entries: Sequence[Entry], window: int, pair_bits: int) -> Step | None:
    """Return what the decoder takes at once where a window of `pair_bits` bits is next, as symbol_pairs.sv has it, or
    None for a code that is too long."""
    unknown = 16 - pair_bits  # bits behind the window
    place = window << unknown
    if place >= len(entries):
        return None
    bits, advance, code, size = entries[place]
    if code > pair_bits or bits > MAX_TOTAL:
        return None
    following = place << bits & 0xFFFF
    if 0 < size <= MAX_SIZE and bits < pair_bits and following < len(entries):
        more, further, second_code, second_size = entries[following]
        both = advance + (0 if further == END_OF_BLOCK else further)
        if (
            second_code <= min(SHORT_CODE, pair_bits - bits)
            and (further == END_OF_BLOCK or 0 < second_size <= MAX_SIZE)
            and bits + more <= MAX_TOTAL
            and both <= MAX_ADVANCE
        ):
            return bits + more, max(both, further), 2, advance
    return bits, advance, 1, advance


def _start(data: bytes) -> int:
    at = clocks = 0
    while at < min(len(data), FIRST_BYTES):
        at += 2 if 0xFF not in data[at : at + 2] and at + 1 < len(data) else 1
        clocks += 1
    return clocks


def _unstuffed(jpeg: bytes, begin: int, end: int) -> bytes:
    return jpeg[begin:end].replace(b"\xff\x00", b"\xff")


def _tokens(jpeg: bytes, begin: int, end: int) -> bytes:
    """Return the bits that the parser hands on in each clock: two bytes, but one next to 0xFF."""
    tokens = bytearray()
    at = begin
    while at < end:
        if jpeg[at] == 0xFF:  # and the 0 behind it
            tokens.append(8)
            at += 2
        elif jpeg[at + 1] == 0xFF:
            tokens.append(8)
            at += 1
        else:
            tokens.append(16)
            at += 2
    return bytes(tokens)


def _words(data: bytes) -> list[int]:
    """Return the 24 bits that begin with each byte, with zeros behind the data as far as an MCU may reach."""
    first = np.frombuffer(data + bytes(MAX_MCU_BYTES), np.uint8).astype(np.int32)
    words: list[int] = (first[:-2] << 16 | first[1:-1] << 8 | first[2:]).tolist()
    return words


def _count(
    intervals: Sequence[bytes], blocks: Sequence[_Tables], mcus: int, restart_interval: int, short_ac_code: int
) -> tuple[Counts, Counts, Counts, Counts, Counts]:
    """Return the symbols, the long codes, the pairs, the splits and the long codes one by one, of each block."""
    counts: list[tuple[int, int, int, int, int]] = []
    per_interval = restart_interval or mcus
    mcu = 0
    for data in intervals:
        words = _words(data)
        bit = 0
        for _ in range(min(per_interval, mcus - mcu)):
            mcu += 1
            if bit > 8 * len(data):
                raise ValueError("the data of a scan ends too early")
            for tables in blocks:
                place, before, symbols, long_codes, pairs, splits, long_singles = 0, 0, 0, 0, 0, 0, 0
                table, short, unknown = tables.dc, SHORT_CODE, 16 - tables.pair_bits
                while place < 64:
                    window = words[bit >> 3] >> (8 - (bit & 7)) & 0xFFFF
                    used, advance, code, _ = table[window]
                    long_singles += code > short  # the second code of a pair is never a long one
                    # The decoder knows how far the symbol before last has come, and whether the last one goes far.
                    if place and tables.steps and (before < 32 or (before < 40 and place - before <= 8)):
                        step = tables.steps[window >> unknown]
                        if step is None:
                            long_codes += 1
                        else:
                            used, advance, taken, first = step
                            if taken == 2:
                                symbols += 1
                                pairs += 1
                                if advance < END_OF_BLOCK:
                                    splits += ODD_ROW[place + first - 1] == ODD_ROW[place + advance - 1]
                    else:
                        long_codes += code > short
                    bit += used
                    before = place
                    place += advance
                    symbols += 1
                    table, short = tables.ac, short_ac_code
                counts.append((symbols, long_codes, pairs, splits, long_singles))
    symbols_of, long_codes_of, pairs_of, splits_of, long_singles_of = zip(*counts, strict=True)
    return symbols_of, long_codes_of, pairs_of, splits_of, long_singles_of
