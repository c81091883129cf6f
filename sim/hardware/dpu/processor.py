"""Image processors on the image CU: clock cycles of its SystemVerilog with a program.

A program has one pass or several. A pass takes an image through the scaler's two lists of steps, places it on a canvas,
and writes the tensor in planes or in patches. The first pass takes the rows of decode. The others wait for the end of
the pass before, and read an image from the workspace.

As in image.py, the models follow the structure, and each constant is a depth, a pipeline or a count of states. A row
passes these stations, and each waits for the one before it and for room in the one after it:

    decode -> steps along rows -> steps along columns -> canvas -> tensor -> words of memory

With columns first, the two lists change places. A step along columns takes a whole row of pixels. A list along rows
takes an entry a clock, for each row.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Protocol

from headrace.sim.hardware.dpu.image import (
    FIFO,
    TO_DONE,
    TO_FIRST_BYTE,
    TO_NEXT_BURST,
    TO_NORMALIZED,
    Send,
    Size,
    Store,
    beats_of,
    decode_rows,
    file_arrival,
    tables_loaded,
)
from headrace.sim.hardware.dpu.jpeg import JpegWork

TAKE, EMIT = 1, 2  # flags of a step: it takes a row or pixel, and it gives one

# ---- decode, where the file is not known ----

HEADERS: Final = 1033  # the bytes of the headers that libjpeg writes, with the usual tables
MCU_ROW: Final = 16  # rows of an MCU at 4:2:0
HELD_BACK: Final = 1  # the last row of an MCU row waits for the next one (image.py, _Render)

# ---- an image of the workspace ----

# image_cu.sv, program_load.sv: from the confirmation of a pass's last word to the frame of the next pass
TO_NEXT_PASS: Final = 16
READERS: Final = 2  # image_read.sv: they take rows in turn, and each asks for its next row when it has given one
# image_read.sv, axi_read.sv, block_fifo.sv: from the frame, or a reader's last beat of a row, to the clock before the
# first beat of its next row, in addition to memory's latency
TO_ROW: Final = 8
# frame_fifo.sv, the register of scaler.sv and pixel_gear.sv: beats on their way to a list along rows, and the clocks of
# the latter two, which the scaler's own do not have
READ_AHEAD, TO_LIST = 32 + 2 + 2, 2

# ---- scaler ----

# image_cu.sv, u_program: the lists come in bursts, of which four fit the FIFO. An entry has two words.
LIST_BURST_WORDS, LIST_BURSTS_AHEAD, ENTRY_WORDS = 64, 4, 2
# scaler.sv: from the last entry along rows to the first step, by StCheck, StFrame and the reading of the table
TO_RUN: Final = 6
ROWS: Final = 14  # scaler_rows.sv: from a pixel to an output that it completes
TO_QUEUE: Final = 9  # of these, until the queue at the end shows that it has no room
COLUMNS, COLUMNS_TO_QUEUE = 13, 11  # scaler_columns.sv: the same two
ROW_STATES: Final = 2  # scaler_columns.sv, StFetch and StSet: the clocks between two rows
TURN: Final = 8  # scaler_columns.sv, Turn: words of a shorter row come again only after a pause
QUEUED: Final = 16  # scaler_output.sv, beat_queue.sv: a queue takes more while it is at most half full
PAIRS: Final = 2  # scaler_output.sv, u_pair: pairs of pixels in the register after the queue
FULL: Final = ROW_STATES + 2  # stream_register.sv: with PAIRS of a row, u_pair takes no more for so many clocks
CANVAS: Final = 5  # scaler_canvas.sv and beat_queue.sv
# While the canvas is at the sides of the image, pixels wait in u_pair and in its pixel_gear. If the queue
# holds single pixels, one more waits for its pair.
AFTER_QUEUE, FOR_PAIR = 4 * PAIRS, 1
TO_GIVE: Final = 2  # pixel_gear.sv and u_pair: from the image's first pixel on the canvas until the queue gives again
TO_CANVAS: Final = 2  # the same two: from the queue to the canvas
TO_STEP: Final = 2  # scaler_output.sv, room_o: from a queue with one entry too many until a step

# ---- tensor ----
BAND_WORDS: Final = 16384  # patches_pkg.sv: words of eight pixels of a row of squares
WORD_PIXELS: Final = 8
# patches_read.sv: from a band's last pixel to its first read, and from the last read of a band to the next one's first
TO_BAND: Final = 8
TO_ROOM: Final = 2  # patches_read.sv, patches_band.sv: from the last read of a band to room for another
# patches.sv: StFlush and StPack, and tensor_write.sv: the last burst
TO_LAST_WORD: Final = 25
FILL_CLOCKS: Final = 2  # patches.sv: 16 bytes of zeros every other clock
TENSOR_WORD: Final = 16  # bytes, of patches.sv, image_keep.sv and tensor_write.sv
TENSOR_BURST_WORDS: Final = 32  # tensor_write.sv, which knows the last burst only when all words are there


@dataclass(frozen=True, slots=True)
class Planes:
    """A tensor with the layout (channels, rows, columns)."""

    value_bytes: int


@dataclass(frozen=True, slots=True)
class Patches:
    """A tensor in patches.

    Args:
        side: Width of a patch, in pixels.
        value_bytes: Bytes of a value.
        merge: Patches on a side of a square that stays together.
        frames: How often each patch is there.
        channels_last: The channels of a pixel lie side by side.
        fill_bytes: Bytes of zeros after the last patch.
        height: Height of a patch, if it is not `side`.
    """

    side: int
    value_bytes: int
    merge: int = 1
    frames: int = 1
    channels_last: bool = False
    fill_bytes: int = 0
    height: int | None = None

    def row_reads(self) -> int:
        """Return the clocks for a row of a patch: of one channel, or of all with channels last.

        A read gives four values of four bytes, or eight, of a word of eight pixels."""
        at_once = 4 if self.value_bytes == 4 else 8
        words, last = divmod(self.side, WORD_PIXELS)
        values = [WORD_PIXELS] * words + ([last] if last else [])
        return sum(-(-(3 if self.channels_last else 1) * count // at_once) for count in values)


@dataclass(frozen=True, slots=True)
class Workspace:
    """An image that a later pass reads, with four bytes a pixel."""


Layout = Planes | Patches | Workspace


@dataclass(frozen=True, slots=True, eq=False)
class ScalerPass:
    """The sizes and steps on which the clocks of a pass depend.

    Args:
        source: Width and height of the image that it reads.
        out: Width and height of the part of the resized image that is wanted.
        row_gives: Pixels that each entry of the list along rows gives.
        column_steps: TAKE and EMIT of each step along columns.
        wide: Whether two pixels pass in a clock.
        columns_first: Whether the steps along columns come first.
        canvas: Width and height of the canvas.
        left: Columns of the canvas before the image.
        top: Rows of the canvas above the image.
        layout: What becomes of the canvas.
    """

    source: Size
    out: Size
    row_gives: Sequence[int]
    column_steps: Sequence[int]
    wide: bool
    columns_first: bool
    canvas: Size
    left: int
    top: int
    layout: Layout

    @property
    def row_entries(self) -> int:
        """The entries of the list along rows."""
        return len(self.row_gives)


@dataclass(frozen=True, slots=True)
class DecodeEstimate:
    """An image of which only the size is known, and an estimate of decode's clocks for the data after the headers."""

    width: int
    height: int
    clocks: float


class _Sink(Protocol):
    def row(self, begun: int, end: int) -> int: ...

    def end(self, last: int) -> int: ...


class _Bands:
    """Rows of the canvas on their way into the memory of patches, and rows of squares out of it, patch by patch."""

    def __init__(self, layout: Patches, canvas: Size, ready: int) -> None:
        width, _ = canvas
        side, merge = layout.side, layout.merge
        height = layout.height or side
        across = width // side
        words = -(-side // WORD_PIXELS) * across * height * merge
        rows = across * merge * height * (1 if layout.channels_last else 3 * layout.frames)
        values = 3 * width * height * merge * layout.frames * layout.value_bytes
        self._read = max(rows * layout.row_reads(), -(-values // TENSOR_WORD))
        self._places = 2 if words <= BAND_WORDS // 2 else 1
        self._rows = height * merge
        self._fill = -(-layout.fill_bytes // TENSOR_WORD) * FILL_CLOCKS
        self._ready = ready
        self._row = 0
        self._done: list[int] = []  # the clock of the last read of each band

    def row(self, begun: int, end: int) -> int:
        free = self._ready
        if len(self._done) >= self._places:
            free = max(free, self._done[-self._places] + TO_ROOM)
        end += max(0, free - begun)
        self._row += 1
        if self._row % self._rows == 0:
            self._done.append(max(end, self._done[-1] if self._done else 0) + TO_BAND + self._read)
        return end

    def end(self, last: int) -> int:
        return max(last, self._done[-1]) + self._fill + TO_LAST_WORD + TENSOR_BURST_WORDS


def _sink(each: ScalerPass, tables: int) -> _Sink:
    width, height = each.canvas
    match each.layout:
        case Patches() as layout:
            return _Bands(layout, each.canvas, tables)
        case Planes(value_bytes):
            return Store(3 * width * value_bytes, height, 3, tables)
        case Workspace():
            return Store(4 * width, height, 1, 0, TENSOR_WORD)


def list_cycles(words: int, latency: int) -> int:
    """Return the clocks in which the first words of the lists come. Those of the FIFO are there already."""
    if words <= LIST_BURST_WORDS * LIST_BURSTS_AHEAD:
        return words
    loaded = [burst * LIST_BURST_WORDS for burst in range(1, LIST_BURSTS_AHEAD + 1)]
    for _ in range(-(-words // LIST_BURST_WORDS) - LIST_BURSTS_AHEAD):
        asked = loaded[-LIST_BURSTS_AHEAD]  # when a burst has left the FIFO
        loaded.append(max(asked + TO_NEXT_BURST + latency - 1, loaded[-1]) + LIST_BURST_WORDS)
    return max(loaded[-1], words)


class _ImageRows:
    """Rows of an image of the workspace on their way from two readers through a queue to the scaler.

    A reader gives a beat a clock while the queue has room. It does not ask memory for its next row before it has given
    the whole row before. So the scaler waits if it takes the other reader's row within memory's latency."""

    def __init__(self, each: ScalerPass, frame: int, latency: int) -> None:
        self._beats = beats_of(each.source[0])
        # Where the scaler waits within a row, it does so soon after the row's begin.
        self._row = each.row_entries if not each.columns_first else self._beats if each.wide else each.source[0]
        self._to_row = TO_ROW + latency
        self._given = [frame] * READERS  # the clocks of the last beats of rows
        self._taken: list[int] = []  # the clocks in which these leave the queue

    def ready(self) -> int:
        """Return the clock after which the beats of the next row come."""
        return max(self._given[-1], self._given[-READERS] + self._to_row)

    def take(self, end: int) -> None:
        """Note the clock in which the last beat of the next row leaves the queue."""
        given = self.ready() + self._beats
        self._taken.append(end)
        # The last beat has room when the one so many beats before has left.
        row, beat = divmod(len(self._taken) * self._beats - 1 - READ_AHEAD, self._beats)
        if row >= 0:
            given = max(given, self._taken[row] - (self._beats - 1 - beat) * self._row // self._beats)
        self._given.append(given)


def _waits(each: ScalerPass) -> int:
    """Return the clocks of a row in which the queue along rows gives nothing, although it has all of the row.

    In each other clock it gives what came from an entry. It waits when a third pair comes and u_pair is full. It also
    waits when the row's last pixel has no partner and comes together with the one before it."""
    gives = [pixels for pixels in each.row_gives if pixels]
    third = bisect_left(list(accumulate(gives)), 2 * (PAIRS + 1))
    alone = each.out[0] % 2 == 1 and gives[-1] == 2
    return max(0, FULL - third) + alone


class _Scaler:
    """Rows of an image on their way through both lists, onto the canvas and to the tensor."""

    def __init__(self, each: ScalerPass, frame: int, sink: _Sink, latency: int) -> None:
        run = frame + list_cycles(ENTRY_WORDS * each.row_entries, latency) + TO_RUN
        self._pass, self._sink = each, sink
        self._beats = beats_of(each.source[0])
        width = each.source[0] if each.columns_first else each.out[0]
        self._words = beats_of(width) if each.wide else width
        # from the first step along columns until the queue before has given a row
        self._given = sum(map(bool, each.row_gives)) + _waits(each) - ROW_STATES
        self._between = ROW_STATES + (TURN if self._words <= TURN else 0)
        # The list along rows goes on while what is after it has room. The queue holds what an entry gives, which is one
        # pixel, or two of a list that grows. Then come PAIRS.
        queued = QUEUED * max(1, each.row_entries / each.out[0]) + PAIRS * each.row_entries / beats_of(each.out[0])
        self._ahead = TO_QUEUE + int(queued)
        self._left = each.left // 2  # words of the canvas at the sides of the image
        self._right = beats_of(each.canvas[0]) - self._left - beats_of(each.out[0])
        self._image = beats_of(each.out[0])  # clocks of a row of the image on the canvas
        if not each.wide:
            # The queue gives a pixel a clock. Some of them have left it while the canvas was at its sides.
            self._image = max(self._image, each.out[0] - AFTER_QUEUE - FOR_PAIR + TO_GIVE + TO_CANVAS)
        self._until_stop, self._to_last = self._stop()
        self._step = 0
        self._first = run  # the last clock of the list that comes first, and of the other one
        self._second = run
        self._sent = run + CANVAS
        for _ in range(each.top):
            self._empty_row()

    def _stop(self) -> tuple[int, int]:
        """Return two spans of clocks for canvases with columns at the sides of the image. There the last list may stop.

        The first one begins with a row's first pixel at the canvas, and ends when the queue is half full. The second
        one begins with the first pixel on the canvas, and ends when the last one is through a list that has stopped."""
        each = self._pass
        if each.columns_first:
            steps, pace, waiting, to_queue = each.row_entries, 1.0, 0, TO_QUEUE
        else:
            # The queue along rows has a row's pixels, and PAIRS are already out of it.
            steps, waiting, to_queue = self._words, PAIRS if each.wide else 2 * PAIRS, COLUMNS_TO_QUEUE
            pace = sum(map(bool, each.row_gives)) / steps
        pixels = each.out[0] / steps  # that a step gives
        places = QUEUED / min(1, pixels) + (AFTER_QUEUE if each.wide else AFTER_QUEUE + FOR_PAIR) / pixels
        flying = to_queue / pace  # steps that are not in the queue when it is half full
        again = TO_GIVE + flying * min(1, pixels) + TO_STEP  # clocks until as many have left the queue, and a step
        left = steps - places - flying - 1 - waiting
        return int(places * pace), int(again + waiting + left * pace + to_queue + TO_CANVAS - (CANVAS - 1))

    def take(self, clock: int) -> int:
        """Take a row after `clock`, and return the clock of its last beat."""
        steps = self._pass.column_steps
        if not self._pass.columns_first:
            begun = max(clock, self._first, self._second + self._between - self._ahead)
            self._first = max(begun + self._pass.row_entries, clock + self._beats)
            start = max(self._second + self._between, begun + ROWS)
            self._second = max(start + self._words, start + self._given, self._first + ROWS)
            if steps[self._step] & EMIT:
                self._second = max(
                    self._second, self._row(start + COLUMNS, self._second + COLUMNS, stops=True) - COLUMNS
                )
            self._first = max(self._first, self._second - ROWS - QUEUED)
        else:
            start = max(self._first + self._between, clock)
            self._first = max(start + self._words, clock + self._beats)
            if steps[self._step] & EMIT:
                self._along_rows(start)
        self._step += 1
        self._after_row()
        return self._first

    def _after_row(self) -> None:
        """Make the steps that take no row and follow the one before."""
        steps = self._pass.column_steps
        while self._step < len(steps) and not steps[self._step] & TAKE:
            gives = steps[self._step] & EMIT
            if self._pass.columns_first:
                start = self._first + self._between
                self._first = start + self._words
                if gives:
                    self._along_rows(start)
            else:
                start = self._second + self._between
                self._second = start + self._words
                if gives:
                    sent = self._row(start + COLUMNS, self._second + COLUMNS, stops=False)
                    self._second = max(self._second, sent - COLUMNS)
            self._step += 1

    def _along_rows(self, start: int) -> None:
        """Take the row that a step along columns gives from the clock `start` on through the list along rows."""
        begun = max(start + COLUMNS, self._second)
        self._second = max(begun + self._pass.row_entries, self._first + COLUMNS)
        self._second = max(self._second, self._row(begun + ROWS, self._second + ROWS, stops=True) - ROWS)
        self._first = max(self._first, self._second - COLUMNS - QUEUED)

    def _row(self, begun: int, end: int, stops: bool) -> int:
        """Send a row of the canvas with a row of the image.

        Return the earliest clock in which the list has given all of it. A list that `stops` waits for room."""
        placed = self._sent + self._left
        first = max(begun + CANVAS, placed)
        if stops and first - begun - CANVAS >= self._until_stop:
            end = max(end, first + self._to_last)
        last = max(first + beats_of(self._pass.out[0]), placed + self._image, end + CANVAS)
        self._sent = self._sink.row(first - self._left, last + self._right)
        # Two queues, before the canvas and after it, are half full when they stop what comes.
        return max(self._sent - self._right - CANVAS - 2 * QUEUED, end)

    def _empty_row(self) -> None:
        """Send a row of the canvas that has no part of the image. It follows the row before without a pause."""
        self._sent = self._sink.row(self._sent, self._sent + beats_of(self._pass.canvas[0]))

    def end(self) -> int:
        """Return the clock of the tensor's last word."""
        for _ in range(self._pass.canvas[1] - self._pass.top - self._pass.out[1]):
            self._empty_row()
        return self._sink.end(self._sent + FIFO + TO_NORMALIZED)


def processor_cycles(source: JpegWork | DecodeEstimate, passes: Sequence[ScalerPass], latency: int = 120) -> int:
    """Return the clocks from start to done of a run of the image CU with a program, for buffers at whole pages.

    Args:
        source: The file, or what is known of it.
        passes: The passes. The first one takes what decode gives.
        latency: The clocks from an address to its first word, and from the last word of a write to its confirmation.
    """
    tables = tables_loaded(latency)
    made: list[_Scaler] = []

    def begin(frame: int) -> Send:
        made.append(_Scaler(passes[0], frame + FIFO, _sink(passes[0], tables), latency))
        return lambda clock: made[0].take(clock + FIFO) - FIFO

    first_byte = TO_FIRST_BYTE + latency
    if isinstance(source, JpegWork):
        rows, columns = range(source.height), range(source.width)
        decode_rows(source, first_byte, rows, columns, 0, begin, latency, file_arrival)
    else:
        mcu_row = source.clocks / -(-source.height // MCU_ROW)
        data = first_byte + HEADERS
        send, clock = begin(int(data + mcu_row)), 0
        for row in range(source.height):
            needed = min(row + HELD_BACK, source.height - 1) // MCU_ROW + 1
            clock = send(max(clock, int(data + needed * mcu_row)))
    end = made[0].end()
    for each in passes[1:]:
        # The image before is in the workspace when its last words are confirmed.
        frame = end + latency + TO_NEXT_PASS
        later = _Scaler(each, frame + FIFO, _sink(each, 0), latency)
        image = _ImageRows(each, frame, latency)
        for _ in range(each.source[1]):
            image.take(later.take(image.ready() + FIFO) + TO_LIST)
        end = later.end()
    return end + 2 * latency + TO_DONE
