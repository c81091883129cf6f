"""Clocks of the image unit in files of several scans, up to the last pass over the workspace.

The model follows the modules progressive_decoder.sv, band_decoder.sv, workspace_read.sv and axi_write.sv, and memory.
Memory takes a limited number of bursts at a time, answers them in their order, and moves a word a clock in each
direction. A scan goes word by word: words come, symbols and correction bits change them, words leave. It begins when
everything that the scan before has written is in memory. Clocks are counted from the file's first byte, whose own is 1.
"""

from collections.abc import Callable, Iterator
from typing import Final

from headrace.sim.hardware.dpu.headers import TableWrites, first_headers, headers_read, noted_at_the_end
from headrace.sim.hardware.dpu.jpeg import JpegWork, Scan
from headrace.sim.hardware.dpu.jpeg_scans import (
    STEP_ALONE,
    STEP_DC,
    STEP_EMPTY,
    STEP_LAST,
    STEP_RUN,
    STEP_SHORT,
    STEP_SYMBOL,
    STEP_WORD,
    Interval,
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
# that in which the decoder has counted its coefficients.
TO_ADDRESS: Final = 2
TO_WORD: Final = 8
BLOCKS_AHEAD: Final = 64
WORDS_AHEAD: Final = 512 - 16
FIRST_WORD: Final = 4  # the first word of a scan that reads none, from the start

# axi_write.sv: a burst is sized and issued
SIZED: Final = 2

# band_decoder.sv
LONGEST: Final = 30  # the bits that a look-up in all codes waits for,
ENOUGH: Final = 24  # and one in the short codes
BYTE: Final = 8  # bits that are enough for any corrections
FULL: Final = 32  # with more bits than this, no more are taken
FILLED: Final = 6  # clocks after which the window is full
LOOK_UP: Final = 2  # clocks of a look-up in all codes, before its code and its extra bits leave
TO_LEAVE: Final = 7  # from the clock in which a word is done to that in which it may leave
LEAVING: Final = 14  # words that may be on their way


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


class _Leaving:
    """Words between the machine and the writer."""

    def __init__(self, fill: int, writes: _Writes) -> None:
        self.last = 0  # the clock in which the last word left
        self._fill, self._writes = fill, writes
        self._done = 0  # the clock in which the last word was done
        self._left: list[int] = []  # the clocks in which words left the queue

    def room(self, clock: int) -> int:
        """Return the clock, not before this one, in which the next word can be done."""
        number = len(self._left)
        while True:
            known = number - 1 if self._done == clock - 1 else number  # a clock late
            if known < LEAVING or self._left[known - LEAVING] + 2 <= clock:
                return clock
            clock = max(clock + 1, self._left[known - LEAVING] + 2)

    def word(self, clock: int, last: bool) -> None:
        """Let a word that is done in this clock leave, behind its block's `last` one those of zeros, too."""
        self._done = clock
        left = max(clock + TO_LEAVE, self.last + 1)
        if last and not self._fill:
            left = max(left, self._writes.room)
        self._left.append(left)
        if last and self._fill:
            left = max(left + self._fill, self._writes.room)
        if last:
            self._writes.block(left)
        self.last = left


class _Window:
    """The bits in front of the decoder."""

    def __init__(self, tokens: bytes) -> None:
        self.bits = 0
        self.taken = 0  # the number of tokens taken
        self._tokens = tokens

    def ended(self) -> bool:
        return self.taken == len(self._tokens)

    def clock(self, used: int = 0) -> None:
        """Pass a clock in which so many bits leave."""
        if self.bits <= FULL and self.taken < len(self._tokens):
            self.bits += self._tokens[self.taken]
            self.taken += 1
        self.bits -= used

    def look(self, used: int) -> int:
        """Pass a clock with a look-up in the short codes, in which no token comes, and return the number of clocks.

        Of 16 bits and more, 16 leave in another clock."""
        self.bits -= used % 16
        if used < 16:
            return 1
        self.clock(16)
        return 2

    def fill(self, clocks: int) -> None:
        for _ in range(min(clocks, FILLED)):
            self.clock()

    def holds(self, bits: int) -> int:
        """Pass clocks until it holds so many bits or all that are left, and return how many."""
        clocks = 0
        while self.bits < bits and not self.ended():
            self.clock()
            clocks += 1
        return clocks

    def corrects(self, bits: int) -> int:
        """Pass clocks until it is known to hold so many correction bits, and return how many."""
        if not bits or self.bits >= BYTE:
            return 0
        clocks = self.holds(BYTE)
        if self.bits < BYTE:
            self.clock()
            clocks += 1
        return clocks


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
    words = _Words(scan, start, latency)
    left = sum(len(interval.tokens) for interval in scan.intervals)
    parsed = taken + left
    clock += 2  # the first token waits for a clock
    for interval in scan.intervals:
        window = _Window(interval.tokens)
        for block_end in _interval(interval, window, words, clock):
            clock = block_end + 1
            if left - window.taken > WAITING_TOKENS:
                parsed = max(parsed, block_end)
        left -= len(interval.tokens)
        clock += 2  # two clocks see that the interval ends, and its marker
    return max(words.leaving.last + TO_IDLE, words.writes.answered() + FROM_ANSWER), parsed + 3


class _Words:
    """The words of a scan: when they are there, and when they may go."""

    def __init__(self, scan: Scan, start: int, latency: int) -> None:
        self.writes = _Writes(scan.writes, latency)
        self.leaving = _Leaving(scan.fill, self.writes)
        self._reads = WorkspaceReads(start, scan.reads, latency) if scan.reads else None
        self._first = start + FIRST_WORD
        self._word = 0  # number in its block
        self._come = 0
        self.there = 0  # the clock in which the next word is there
        self.run_known = 0  # the clock before which a block's last word does not go
        self._next(0)

    def symbol(self, step: int, clock: int) -> None:
        """Note a symbol with a short code, taken in this clock. A run of blocks takes another to work out."""
        if step & STEP_RUN:
            self.run_known = clock + 2

    def _next(self, clock: int) -> None:
        if self._reads is None:
            self.there = max(clock, self._first)
            return
        self._come = self._reads.block() if self._word == 0 else self._come + 1
        self.there = max(clock, self._come + TO_WORD)

    def go(self, clock: int, last: bool) -> None:
        """Let the word go in this clock."""
        self.leaving.word(clock, last)
        self._word = 0 if last else self._word + 1
        if last and self._reads is not None:
            self._reads.left.append(clock)
        self._next(clock + 1)


def _interval(interval: Interval, window: _Window, words: _Words, clock: int) -> Iterator[int]:
    """Yield the clock in which each block ends. The first may begin in `clock`."""
    steps = interval.steps
    begins, taken, waiting = True, False, False  # taken: the next symbol is. waiting: an empty word may go beside it
    for at, step in enumerate(steps):
        if begins:  # a clock sees that there is a word
            window.fill(max(words.there - clock, 0) + 1)
            clock = max(words.there, clock) + 1
            begins = False
        if step >= STEP_SYMBOL:
            if taken:
                taken = False
                continue
            bits, extra = step // STEP_SYMBOL, step & 15
            if not step & STEP_DC:
                while True:
                    if waiting and words.there <= clock == words.leaving.room(clock):
                        words.go(clock, False)
                        waiting = False
                    if window.bits >= ENOUGH or window.ended():
                        break
                    window.clock()
                    clock += 1
            if step & STEP_SHORT and window.bits >= ENOUGH:
                words.symbol(step, clock)
                clock += window.look(bits + extra)
            else:
                looks = not step & STEP_DC and window.bits >= ENOUGH
                if looks and window.bits < LONGEST and not window.ended():
                    clock += 1
                    looks = False
                clock += window.holds(LONGEST) + LOOK_UP
                window.fill(LOOK_UP - looks)
                window.clock(bits)
                window.clock(extra)
                clock += 2
        elif not step & (STEP_WORD | STEP_EMPTY):
            corrections = step & 15
            if words.there > clock:
                window.fill(words.there - clock)
                clock = words.there
            clock += window.corrects(corrections or not step & STEP_ALONE)
            # Without corrections the next symbol of the block may be taken in the same clock.
            if step & STEP_ALONE and steps[at + 1] != STEP_EMPTY + STEP_LAST and window.bits >= ENOUGH:
                following = steps[at + 1 if steps[at + 1] >= STEP_SYMBOL else at + 2]
                if following & STEP_SHORT:
                    words.symbol(following, clock)
                    clock += window.look(following // STEP_SYMBOL + (following & 15)) - 1
                    taken = True
            else:
                window.clock(corrections)
            clock += 1
        elif step == STEP_EMPTY and not taken:
            waiting = True
        elif step & STEP_LAST:
            # The first symbol of the next block may be taken beside the last word of this one.
            following = steps[at + 1] if at + 1 < len(steps) else 0
            begins = following >= STEP_SYMBOL and bool(following & STEP_DC)
            clock, taken = _leave(window, words, clock, step, 0 if begins else following)
            yield clock - 1
        else:
            clock, _ = _leave(window, words, clock, step)
        if waiting and step >= STEP_SYMBOL:
            clock, _ = _leave(window, words, clock, STEP_EMPTY)
            waiting = False


def _leave(window: _Window, words: _Words, clock: int, step: int, following: int = 0) -> tuple[int, bool]:
    """Let a word go, not before this clock, and return the next clock. In the same clock the symbol that is `following`
    may be taken."""
    corrections, last = step & 15, bool(step & STEP_LAST)
    if words.there > clock:
        window.fill(words.there - clock)
        clock = words.there
    clock += window.corrects(corrections)
    free = words.leaving.room(max(clock, words.run_known) if last else clock)
    window.fill(free - clock)
    clock = free
    looks = corrections == 0 and following >= STEP_SYMBOL and window.bits >= ENOUGH
    taken = looks and bool(following & STEP_SHORT)
    clocks = 1
    if taken:
        clocks = window.look(following // STEP_SYMBOL + (following & 15))
        words.symbol(following, clock)
    elif not looks:
        window.clock(corrections)
    words.go(clock, last)
    return clock + clocks, taken
