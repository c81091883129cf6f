"""The scans of a JPEG file that has several: what the decoder does in each of their blocks, in order.

The reader follows which coefficients are not zero, because later scans correct those bit by bit (ITU-T T.81, annex G).
A step is a number. From STEP_SYMBOL on it is a symbol, which has the bits of its code * STEP_SYMBOL | its extra bits.
Below, it is what becomes of a word of eight coefficients, and has the number of those of earlier scans that get a bit.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from headrace.sim.hardware.dpu.jpeg_tables import ODD_ROW

# STEP_PLACE: a new coefficient, or a zero after 15 zeros, gets its place. STEP_WORD: the word leaves, because no new
# coefficient follows in it. STEP_EMPTY: the word leaves, because the scan has said everything of it.
STEP_PLACE: Final = 0
STEP_WORD: Final = 16
STEP_EMPTY: Final = 32
# Added to the step of a place: the rest of the word has no coefficients of earlier scans. Added to the step of a word:
# it is the block's last word.
STEP_ALONE: Final = 64
STEP_LAST: Final = 128
STEP_SYMBOL: Final = 2048
STEP_DC: Final = 16  # added to the step of a DC symbol
STEP_SHORT: Final = 32  # added to the step of a symbol that short_codes.sv finds
STEP_RUN: Final = 64  # added to the step of a symbol that stands for the ends of several blocks
SHORT_CODE: Final = 7  # bits
FAST_TABLES: Final = (0, 1)  # those with short codes

BLOCK_WORDS: Final = 8
MAX_SCANS: Final = 128
UNSENT: Final = 15  # the level of a coefficient of which no bit is known
MAX_LOW: Final = 13
GUESSED: Final = 9  # libjpeg guesses the first AC coefficients if they lack bits
DC_BITS, AC_BITS, REFINED_BITS = 11, 10, 1  # the greatest numbers of extra bits

Code = tuple[int, int]  # bits, symbol


@dataclass(frozen=True, slots=True)
class Interval:
    """The data between restart markers.

    It has the `steps` of its blocks, and the bits (8 or 16) of each of the `tokens` in which the parser hands on the
    data."""

    steps: "array[int]"
    tokens: bytes


@dataclass(frozen=True, slots=True)
class ScanHeader:
    """The header of a scan.

    `members` are numbers of components, and `dc` and `ac` are the codes of each. `ac_tables` are the numbers of the
    tables of `ac`."""

    members: tuple[int, ...]
    first: int  # coefficient in zigzag order
    last: int
    high: int  # bit that was sent before, 0 for none
    low: int  # bit that is sent
    progressive: bool
    dc: tuple[Sequence[Code], ...]
    ac: tuple[Sequence[Code], ...]
    ac_tables: tuple[int, ...]


def _short_code(codes: Sequence[Code], table: int, scan: ScanHeader) -> int:
    """Return the bits of the longest code that short_codes.sv finds.

    It is 0 in tables 2 and 3, and if any short symbol exists in no such scan."""
    symbols = {symbol for bits, symbol in codes[:: 1 << (16 - SHORT_CODE)] if bits <= SHORT_CODE}
    max_bits = REFINED_BITS if scan.high else AC_BITS
    ends = {symbol for symbol in symbols if symbol & 15 == 0 and symbol >> 4 not in (0, 15)}
    usable = all(symbol & 15 <= max_bits for symbol in symbols) and (scan.progressive or not ends)
    return SHORT_CODE if usable and table in FAST_TABLES else 0


class Planes:
    """The blocks of all components, in whole MCUs: which bits of which coefficients were sent.

    Raises ValueError for files that the image CU does not take."""

    def __init__(self, width: int, height: int, factors: Sequence[tuple[int, int]]) -> None:
        self._factors = factors
        max_h, max_v = factors[0]  # luma has the greatest
        self._across, self._down = -(-width // (8 * max_h)), -(-height // (8 * max_v))
        # Blocks of each component across and down that have a sample of the image.
        self._seen = [(-(-width * h // (8 * max_h)), -(-height * v // (8 * max_v))) for h, v in factors]
        self._sent = [[0] * (h * v * self._across * self._down) for h, v in factors]  # bit n: coefficient n is not zero
        self._dc = [[0] * len(plane) for plane in self._sent]
        self._level = [[UNSENT] * 64 for _ in factors]
        self._scans = 0

    def read(self, scan: ScanHeader, restart: int, data: Sequence[bytes]) -> list["array[int]"]:
        """Return the steps of each restart interval; `data` has its bytes."""
        self._go_on(scan)
        blocks = list(self._blocks(scan.members))
        size = restart * len(blocks) // self.mcus(scan.members) or len(blocks)
        parts = [blocks[at : at + size] for at in range(0, len(blocks), size)]
        ends = [False] * (len(parts) - 1) + [True]
        return [self._interval(scan, *of) for of in zip(parts, data, ends, strict=True)]

    def mcus(self, members: tuple[int, ...]) -> int:
        """Return the number of MCUs in a scan of these components."""
        across, down = self._seen[members[0]] if len(members) == 1 else (self._across, self._down)
        return across * down

    def end(self) -> tuple[int, ...]:
        """Return the clocks that each block takes to leave after the last scan, in the order of MCUs.

        Two coefficients of a word that are not zero take a clock, or two if both are in even rows or both in odd ones.
        The block's last place leaves as they do. A word without any takes a clock, which may be the second of the two
        before it. A block without a sample takes one."""
        for level in self._level:
            if level[0] == UNSENT or any(level[1 : GUESSED + 1]):
                raise ValueError("coefficients have not been sent to their last bit")
        rows = [self._across * h for h, _ in self._factors]
        leave = []
        split = 0
        for c, index in self._in_mcus(range(len(self._sent))):
            across, down = self._seen[c]
            if index % rows[c] >= across or index // rows[c] >= down:
                leave.append(1)
                split = 0
                continue
            some = self._sent[c][index] & ~1 | (self._dc[c][index] != 0) | 1 << 63
            clocks = -split
            for at in range(0, 64, 8):
                beats, last_split = _word_beats(some >> at & 255, at >> 3)
                clocks += beats + split if beats else 1
                split = last_split
            leave.append(clocks + split)
        return tuple(leave)

    def _go_on(self, scan: ScanHeader) -> None:
        """Check that a scan continues those before it (T.81 G.1.1.1), and note the bits that it sends."""
        alone, band = len(scan.members) == 1, (scan.first, scan.last)
        if scan.progressive:
            exists = scan.last == 0 if scan.first == 0 else scan.first <= scan.last <= 63 and alone
            exists = exists and scan.low <= MAX_LOW and scan.high in (0, scan.low + 1)
        else:
            exists = (*band, scan.high, scan.low) == (0, 63, 0, 0)
        if not exists:
            raise ValueError(f"there is no scan of band {scan.first} to {scan.last}, bits {scan.high} to {scan.low}")
        self._scans += 1
        if self._scans > MAX_SCANS:
            raise ValueError(f"more than {MAX_SCANS} scans")
        before = scan.high or UNSENT
        for c in scan.members:
            level = self._level[c]
            if any(at != before for at in level[scan.first : scan.last + 1]) or (scan.first and level[0] == UNSENT):
                raise ValueError("a scan does not go on from those before it")
            level[scan.first : scan.last + 1] = [scan.low] * (scan.last - scan.first + 1)

    def _blocks(self, members: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yield component and number of each block, in the order of MCUs.

        In a scan of one component an MCU is a block that has a sample of the image."""
        if len(members) > 1:
            yield from self._in_mcus(members)
            return
        (c,) = members
        row = self._across * self._factors[c][0]
        across, down = self._seen[c]
        yield from ((c, y * row + x) for y in range(down) for x in range(across))

    def _in_mcus(self, members: Sequence[int]) -> Iterator[tuple[int, int]]:
        for y in range(self._down):
            for x in range(self._across):
                for c in members:
                    h, v = self._factors[c]
                    row = self._across * h
                    at = y * v * row + x * h
                    yield from ((c, at + j * row + i) for j in range(v) for i in range(h))

    def _interval(self, scan: ScanHeader, blocks: Sequence[tuple[int, int]], data: bytes, ends: bool) -> "array[int]":
        """Return the steps of one restart interval. With `ends` the scan ends with it, and zeros may follow."""
        steps = array("H")
        first, last, progressive = scan.first, scan.last, scan.progressive
        ac_first = max(first, 1)
        band = (2 << last) - (1 << ac_first)
        max_bits = REFINED_BITS if scan.high else AC_BITS
        predictors = dict.fromkeys(scan.members, 0)
        short_codes = [_short_code(ac, table, scan) for ac, table in zip(scan.ac, scan.ac_tables, strict=True)]
        codes = dict(zip(scan.members, zip(scan.dc, scan.ac, short_codes, strict=True), strict=True))
        padded, bit, run = data + bytes(5), 0, 0
        for c, index in blocks:
            if bit > 8 * len(data):
                raise ValueError("the data of a scan ends too early")
            dc_codes, ac_codes, short_code = codes[c]
            sent = self._sent[c]
            if first == 0 and scan.high:
                steps.append(STEP_WORD + 1)
                if padded[bit >> 3] << (bit & 7) & 128:
                    self._dc[c][index] |= 1 << scan.low
                bit += 1
            elif first == 0:
                window = int.from_bytes(padded[bit >> 3 : (bit >> 3) + 5], "big") >> (8 - (bit & 7)) & 0xFFFFFFFF
                length, size = dc_codes[window >> 16]
                if size > DC_BITS:
                    raise ValueError("a DC coefficient of too many bits")
                bit += length + size
                extra = window >> (32 - length - size) & (1 << size) - 1
                predictors[c] += extra if size == 0 or extra >> (size - 1) else extra - (1 << size) + 1
                self._dc[c][index] = predictors[c] << scan.low & 0xFFFF
                steps.append(STEP_SYMBOL * length + STEP_DC + size)
                if last == 0:
                    steps.append(STEP_EMPTY)
            k = ac_first
            if last == 0:
                pass
            elif run:
                run -= 1
                bit += _rest(steps, sent[index] & band, k, last)
                k = 64
            while k <= last:
                window = int.from_bytes(padded[bit >> 3 : (bit >> 3) + 5], "big") >> (8 - (bit & 7)) & 0xFFFFFFFF
                length, symbol = ac_codes[window >> 16]
                zeros, size = symbol >> 4, symbol & 15
                short = STEP_SHORT if length <= short_code else 0
                bit += length
                if size == 0 and zeros != 15:  # this block has no further new coefficients
                    more = zeros if progressive else 0
                    steps.append(STEP_SYMBOL * length + more + short + (STEP_RUN if more else 0))
                    run = (1 << more) - 1 + (window >> (32 - length - more) & (1 << more) - 1) if more else 0
                    bit += more + _rest(steps, sent[index] & band, k, last)
                    break
                if size > max_bits:
                    raise ValueError("an AC coefficient of too many bits")
                steps.append(STEP_SYMBOL * length + size + short)
                bit += size
                known = sent[index] & band
                while True:
                    end = min(k | 7, last) + 1
                    there = known >> k & (1 << (end - k)) - 1
                    room = end - k - there.bit_count()
                    if zeros < room:
                        place = k
                        while there >> (place - k) & 1 or zeros:
                            zeros -= ~there >> (place - k) & 1
                            place += 1
                        before = (there & (1 << (place - k)) - 1).bit_count()
                        over = place + 1 == end
                        steps.append(STEP_PLACE + before + (0 if there else STEP_ALONE))
                        bit += before
                        if size:
                            sent[index] |= 1 << place
                        k = place + 1
                        if over:
                            steps.append(STEP_EMPTY)
                        break
                    zeros -= room
                    steps.append(STEP_WORD + there.bit_count())
                    bit += there.bit_count()
                    k = end
                    if k > last:
                        raise ValueError("a run of zeros goes beyond its band")
            steps[-1] += STEP_LAST
        if bit > 8 * len(data):
            raise ValueError("the data of a scan ends too early")
        rest = data[-(-bit // 8) :]
        if any(rest) or (rest and not ends):
            raise ValueError("the data of a scan continues after its last block")
        return steps


def _rest(steps: "array[int]", known: int, k: int, last: int) -> int:
    """Add the steps of a block without new coefficients from number `k` on.

    Returns the bits that correct the coefficients that are `known`."""
    bits = (known >> k).bit_count()
    while k <= last:
        end = min(k | 7, last) + 1
        steps.append(STEP_WORD + (known >> k & (1 << (end - k)) - 1).bit_count())
        k = end
    return bits


@cache
def _word_beats(some: int, word: int) -> tuple[int, int]:
    """Return the clocks that the coefficients of a word take, and another for the last of them.

    Those that leave are the bits of `some`."""
    places = [8 * word + i for i in range(8) if some >> i & 1]
    splits = [ODD_ROW[first] == ODD_ROW[second] for first, second in zip(places[::2], places[1::2], strict=False)]
    last = int(len(places) % 2 == 0 and splits[-1:] == [True])
    return -(-len(places) // 2) + sum(splits) - last, last
