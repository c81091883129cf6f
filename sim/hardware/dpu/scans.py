"""Clocks of the image unit in files of several scans, up to the last pass over the workspace.

The model follows the modules progressive_decoder.sv, band_decoder.sv, workspace_read.sv and axi_write.sv, and memory.
Memory takes a limited number of bursts at a time, answers them in their order, and moves a word a clock in each
direction. A scan goes block by block: words come, symbols and correction bits change them, words leave. It begins when
everything that the scan before has written is in memory. Clocks are counted from the file's first byte, whose own is 1.
"""

from collections.abc import Callable
from typing import Final

from headrace.sim.hardware.dpu.headers import TableWrites, first_headers, headers_read, noted_at_the_end
from headrace.sim.hardware.dpu.jpeg import JpegWork, Scan
from headrace.sim.hardware.dpu.jpeg_scans import (
    STEP_CORRECT,
    STEP_DC,
    STEP_GO_ON,
    STEP_LAST,
    STEP_SYMBOL,
)

MEMORY_BURSTS: Final = 32  # bursts under way in each direction, as MemoryModel has it

# progressive_decoder.sv: from the clock in which a scan is taken to its start. The scan is evaluated in four clocks,
# and the pass begins.
TO_START: Final = 6
TO_IDLE: Final = 5  # from the last word that leaves to the next scan's turn, if memory has answered before
FROM_ANSWER: Final = 2  # from memory's last answer to the next scan's turn
TO_TABLES: Final = 1  # from the turn until tables are written
WAITING_TOKENS: Final = 34  # the tokens between parser and decoder

# workspace_read.sv. TO_ADDRESS: from the start to the first address. TO_WORD: from the clock in which a word comes to
# the decoder.
TO_ADDRESS: Final = 2
TO_WORD: Final = 7
BLOCKS_AHEAD: Final = 64
WORDS_AHEAD: Final = 512 - 16
FIRST_WORD: Final = 4  # the first word of a scan that reads none, from the start

# axi_write.sv: a burst is sized and issued
SIZED: Final = 2

# band_decoder.sv
LONGEST: Final = 30  # the bits that a look-up waits for
FULL: Final = 32  # with more bits than this, no more are taken
TOKEN_BITS: Final = 16
FILLED: Final = 4  # clocks after which the window is full


class WorkspaceReads:
    """Reads of the words of a pass' blocks, which are asked for ahead. The caller adds to `left` the clock in which
    each block has left."""

    def __init__(self, start: int, words: int, latency: int) -> None:
        self.left: list[int] = []
        self._words, self._latency = words, latency
        self._ahead = min(BLOCKS_AHEAD, WORDS_AHEAD // words)
        self._asked = start + TO_ADDRESS
        self._came: list[int] = []  # the clocks in which the last words of blocks came

    def block(self) -> int:
        """Return the clock in which the first word of the next block comes."""
        number = len(self._came)
        asked = self._asked + 1
        if number >= self._ahead:
            asked = max(asked, self.left[number - self._ahead] + 2)
        if number >= MEMORY_BURSTS:
            asked = max(asked, self._came[number - MEMORY_BURSTS] + 1)
        self._asked = asked
        first = max(asked + self._latency, self._came[-1] + 1 if number else 0)
        self._came.append(first + self._words - 1)
        return first


class _Writes:
    """Writes of the words of blocks to memory, one burst for each block."""

    def __init__(self, words: int, latency: int) -> None:
        self.room = 0  # the clock from which a block's last word may leave
        self._words, self._latency = words, latency
        self._issued = self._taken = 0  # the clocks in which the last burst was issued, and taken by memory
        self._written: list[int] = []  # the clocks in which the last words of blocks were written

    def block(self, left: int) -> None:
        number = len(self._written)
        command = max(left, self._issued) + 1
        self.room = command + 1
        self._issued = max(command + SIZED, self._taken + 1)
        self._taken = self._issued + 1
        if number >= MEMORY_BURSTS:
            self._taken = max(self._taken, self._written[number - MEMORY_BURSTS] + self._latency + 1)
        self._written.append(max(self._taken, self._written[-1] if number else 0) + self._words)

    def answered(self) -> int:
        return self._written[-1] + self._latency


class _Window:
    """The bits in front of the decoder, and whether the first code in them is looked up."""

    def __init__(self, tokens: bytes) -> None:
        self.looked_up = False
        self.bits = 0
        self.taken = 0  # the number of tokens taken
        self._tokens = tokens
        self._room = True

    def clock(self, used: int = 0) -> None:
        """Pass one clock without a symbol; `used` bits are corrections."""
        bits, full, enough = self.bits, FULL, True
        if self.taken < len(self._tokens):
            enough = bits >= LONGEST
            if self._room:
                self.bits += self._tokens[self.taken]
                self.taken += 1
                full -= TOKEN_BITS
        self.bits -= used
        self._room = bits <= full
        self.looked_up = enough and not used

    def fill(self, clocks: int) -> None:
        for _ in range(min(clocks, FILLED)):
            self.clock()

    def symbol(self, code: int, extra: int) -> None:
        """Pass the two clocks of a symbol, in which no token comes."""
        bits = self.bits - code
        self.looked_up = bits >= LONGEST + extra or self.taken == len(self._tokens)
        self._room = bits <= FULL
        self.bits = bits - extra


def scans_cycles(work: JpegWork, latency: int, arrival: Callable[[int], int] = lambda word: 0) -> tuple[int, int]:
    """Return the clock in which the last pass is taken, and the clock in which the image's size is known."""
    tables = TableWrites()
    taken, sized = first_headers(work, tables, arrival)
    noted = [scan.noted for scan in work.scans[1:]] + [noted_at_the_end(work)]
    for scan, next_noted in zip(work.scans, noted, strict=True):
        idle, parsed = _scan(scan, taken, latency)
        tables.written = idle + TO_TABLES
        taken, _ = headers_read(scan.next_headers, parsed - 1, tables, next_noted, arrival)
    return taken, sized


def _scan(scan: Scan, taken: int, latency: int) -> tuple[int, int]:
    """Return the clock in which the decoder is idle again, and the clock in which the parser has seen the marker after
    the data."""
    start = clock = taken + TO_START
    reads = WorkspaceReads(start, scan.reads, latency) if scan.reads else None
    writes = _Writes(scan.writes, latency)
    left = sum(len(interval.tokens) for interval in scan.intervals)
    parsed = taken + left
    for interval in scan.intervals:
        window = _Window(interval.tokens)
        begins, follows = True, False  # the next symbol follows without a clock between
        for step in interval.steps:
            if begins:
                word = reads.block() + TO_WORD if reads else start + FIRST_WORD
                waits = max(word - clock, 1)
                window.fill(waits)
                clock += waits
                window.looked_up = begins = follows = False
            if step >= STEP_SYMBOL:
                while not follows:
                    follows = window.looked_up
                    window.clock()
                    clock += 1
                window.symbol(step >> 4 & 31, step & 15)
                clock += 2
                follows = False
                if step >= STEP_DC:
                    window.fill(2)
                    window.looked_up = False
                    clock += 2
            elif step == STEP_LAST:
                end = max(clock + 1, writes.room)
                window.fill(end - clock)
                clock = end
                writes.block(clock)
                if reads:
                    reads.left.append(clock)
                if left - window.taken > WAITING_TOKENS:
                    parsed = max(parsed, clock)
                begins = True
            elif step == STEP_CORRECT:
                if not window.bits:
                    window.clock()
                    clock += 1
                window.clock(1)
                clock += 1
            elif step == STEP_GO_ON:
                window.fill(2)
                clock += 2
            else:  # STEP_WORD, STEP_PLACE
                follows = window.looked_up
                window.clock()
                clock += 1
        left -= len(interval.tokens)
        last = clock
        clock += 2  # two clocks see that the interval ends, and its marker
    return max(last + TO_IDLE, writes.answered() + FROM_ANSWER), parsed + 3
