"""The image units of the data-processing unit: clock cycles of their SystemVerilog.

The models follow the structure and are no fits. Each constant is a depth, the length of a pipeline or a count of states
in the module that it names. Tests hold every function against the simulated hardware within 2 %.

A file takes this way: headers pass at a byte a clock, Huffman symbols at one a clock, blocks through the transform in
eight clocks each. Rows of blocks go into a ring of MCU rows, and pixels leave it two a clock. Rows of the resized image
leave as soon as their source rows are there, and words of memory at one a clock. All units work at the same time. They
wait for each other where a buffer is empty or full. So the model follows blocks, MCU rows and rows of pixels in their
order. The clock in which an item is through a unit follows from three others. They are the clocks in which the item
came, the item before was through, and the next unit had room. Clocks are numbered from the start. The clock of an item
is the one in which its last part is taken.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Final

from headrace.sim.hardware.dpu.headers import TableWrites, first_headers
from headrace.sim.hardware.dpu.jpeg import Factors, JpegWork
from headrace.sim.hardware.dpu.jpeg_scans import BLOCK_WORDS
from headrace.sim.hardware.dpu.scans import TO_START, WorkspaceReads, scans_cycles

# ---- decode ----

# byte_reader.sv
FIRST_BYTE: Final = 3  # from the start: a word is taken and leaves the queue, then comes its first byte

# entropy_decoder.sv
# from the scan's headers, in addition to the first data: count MCUs, two clocks; load tables, look up
FIRST_SYMBOL: Final = 4
# from the last symbol of an interval to the first of the next, in addition to a usual clock and the data
RESTART: Final = 2
TO_COEFFICIENT: Final = 5  # from a symbol to its coefficient at the transform
END_BEAT: Final = 2  # after the last block, when the parser has already seen EOI
CUT_END_BEAT: Final = 35  # if the rest of the file is not wanted: the parser is stopped, the tokens' queue emptied

# workspace_read.sv, coefficient_send.sv: from a word's coming to the clock before its first coefficient
TO_SEND: Final = 5

# coefficient_buffer.sv, transform.sv
BLOCKS: Final = 512  # blocks that can wait in front of the transform
BLOCK: Final = 8  # clocks in the transform, one a column
TO_TRANSFORM: Final = 6  # from a block's last coefficient to its first column
TO_SAMPLES: Final = 31  # from there to its first row
QUEUED_BLOCKS: Final = 8  # a queue of 64 rows: blocks begun and not yet taken by render

# render.sv, render_pkg.sv
# The number of MCU rows of one MCU that fit in the memories of luma and chroma. It is halved for each doubling of the
# MCUs across, and of the component's blocks in one.
LUMA_RING_LOG2: Final = 12
CHROMA_RING_LOG2: Final = 11
TO_FRAME: Final = 4  # from the last word of the first MCU row to the frame
TO_PIXELS: Final = 21  # from the last word of each MCU row to its first pixels
LEAD: Final = 32  # the beats of the eight words that are read ahead of those sent

Size = tuple[int, int]  # width, height
Range = range  # rows or columns of an image, or of the resized one
# takes the clock after which a row of pixels can begin, and returns the clock of its last beat
Send = Callable[[int], int]


class _Transform:
    """Blocks on their way from their last coefficient to their last row of samples."""

    def __init__(self) -> None:
        self._begun: list[int] = []
        self._sent: list[int] = []

    def room(self) -> int:
        """Return the clock after which coefficients of the next block are taken."""
        before = len(self._begun) - BLOCKS
        return self._begun[before] + BLOCK - 1 if before >= 0 else 0

    def block(self, taken: int, free: int = 0) -> int:
        """Return the clock of the last row of samples of a block.

        `taken` is the clock of its last coefficient. Its samples are taken after `free`."""
        begun, sent = taken + TO_TRANSFORM, 0
        if self._begun:
            begun, sent = max(begun, self._begun[-1] + BLOCK), self._sent[-1]
        if len(self._sent) >= QUEUED_BLOCKS:
            begun = max(begun, self._sent[-QUEUED_BLOCKS] + 1)
        self._begun.append(begun)
        self._sent.append(max(begun + TO_SAMPLES - 1, sent, free) + BLOCK)
        return self._sent[-1]


def transform_cycles(lengths: Sequence[int]) -> int:
    """Return the clocks from the first coefficient to the last row of samples, for blocks of `lengths` coefficients.

    One coefficient a clock comes in, and a block takes eight clocks, with BLOCKS blocks in between."""
    transform, taken, sent = _Transform(), 0, 0
    for length in lengths:
        taken = max(taken, transform.room()) + length
        sent = transform.block(taken)
    return sent


class _Render:
    """MCU rows on their way through the ring to rows of pixels.

    The triangle filter between rows needs chroma of the neighbouring MCU rows. So the last row of an MCU row goes with
    the next MCU row, and the first row of that one needs chroma of the MCU row before."""

    def __init__(
        self, width: int, height: int, luma: Factors, chroma: Sequence[Factors], rows: Range, columns: Range, send: Send
    ) -> None:
        h_factor, v_factor = luma
        across = -(-width // (8 * h_factor))
        fitting = [
            (1 << LUMA_RING_LOG2) // (h_factor * v_factor),
            *((1 << CHROMA_RING_LOG2) // (h * v) for h, v in chroma),
        ]
        self._places = min(fitting) >> (across - 1).bit_length()
        self._rows = 8 * v_factor
        self._window = rows
        # The triangle filter between rows holds a row back. One sample of four is replicated, and so is an image of two
        # columns, both ways.
        halved = [h_factor // h for h, v in chroma if 2 * v == v_factor]
        self._held_back = 1 if 1 in halved or (2 in halved and width > 4) else 0
        # The triangle filter between rows may need the row below.
        self.mcu_rows = min(rows.stop - 1 + self._held_back, height - 1) // (8 * v_factor) + 1
        self._lead = min(LEAD, beats_of(len(columns)))
        self._send = send
        self._next = 0  # the number of the next MCU row
        self._y = 0
        self._freed: list[int] = []
        self.sent = 0

    def free(self) -> int:
        """Return the clock after which the next MCU row is taken."""
        before = self._next - self._places
        return self._freed[before] if before >= 0 else 0

    def mcu_row(self, written: int) -> int:
        """Return the clock of the last pixel that can be sent once an MCU row is complete.

        Its last word was taken at `written`, and for the last MCU row the end as well."""
        last = self._next == self.mcu_rows - 1
        end = self._window.stop if last else (self._next + 1) * self._rows - self._held_back
        clock = max(self.sent, written + TO_PIXELS - 1)
        while self._y < end:
            clock = self._send(clock) if self._y in self._window else clock + 1
            if self._held_back and self._y % self._rows == 0 and self._y:
                self._freed.append(clock - self._lead)
            self._y += 1
        if not self._held_back:
            self._freed.append(clock - self._lead)
        self._next += 1
        self.sent = clock
        return clock


def render_cycles(
    width: int, height: int, h_factor: int, v_factor: int, components: int, chroma: Sequence[Factors] = ((1, 1), (1, 1))
) -> int:
    """Return the clocks from the first row of a block to the last pixels, for samples and output that never pause.

    MCU rows are written into the ring at a word a clock and read at two pixels a clock."""
    render = _Render(
        width, height, (h_factor, v_factor), chroma, range(height), range(width), lambda clock: clock + beats_of(width)
    )
    blocks = h_factor * v_factor + sum(h * v for h, v in chroma) if components == 3 else 1
    words = 8 * blocks * -(-width // (8 * h_factor))
    written = 0
    for _ in range(-(-height // (8 * v_factor))):
        written = max(written, render.free()) + words
        render.mcu_row(written)
    return render.sent + END_BEAT


def decode_cycles(work: JpegWork, latency: int = 120) -> int:
    """Return the clocks from the start to the last beat; the words of the file are there and the pixels are taken.

    `latency` is that of the workspace. In files of one scan, many symbols of many bits in a row cause clocks without
    data. They are left out (less than 0.1 % in photos). The model is not meant for images below 32 x 32 pixels, where
    single clocks count."""
    return decode_rows(
        work,
        FIRST_BYTE,
        range(work.height),
        range(work.width),
        0,
        lambda frame: lambda clock: clock + beats_of(work.width),
        latency,
    )


def decode_rows(
    work: JpegWork,
    first_byte: int,
    rows: Range,
    columns: Range,
    window: int,
    begin: Callable[[int], Send],
    latency: int,
    arrival: Callable[[int], int] = lambda word: 0,
) -> int:
    """Return the clock of the last pixels.

    Args:
        work: The file.
        first_byte: The clock of the file's first byte.
        rows: The rows that are wanted.
        columns: The columns that are wanted.
        window: The clocks after the size until rows and columns are known.
        begin: Receives the clock of the frame and returns the function that takes its rows.
        latency: The latency of the workspace.
        arrival: Returns the clock, from the first byte's, from which on a word of the file is there.
    """
    pixels: list[Send] = []
    luma = work.h_factor, work.v_factor
    render = _Render(work.width, work.height, luma, work.chroma_factors, rows, columns, lambda clock: pixels[0](clock))
    transform = _Transform()
    blocks = _sent_blocks if work.scans else _decoded_blocks
    coefficients = blocks(work, first_byte, window, latency, arrival, transform)
    cut = render.mcu_rows < work.mcus_down and not work.scans
    for row in range(render.mcu_rows):
        free = render.free()
        written = 0
        for _ in range(work.mcus_across * work.blocks_per_mcu):
            written = transform.block(next(coefficients), free)
        last = 0 if row < render.mcu_rows - 1 else CUT_END_BEAT if cut else END_BEAT
        if row == 0:
            pixels.append(begin(written + last + TO_FRAME))
        render.mcu_row(written + last)
    return render.sent


def _decoded_blocks(
    work: JpegWork, first_byte: int, window: int, latency: int, arrival: Callable[[int], int], transform: _Transform
) -> Iterator[int]:
    """Yield the clock of each block's last coefficient, for a file in one scan."""
    headers, sized = first_headers(work, TableWrites(), arrival)
    # The clock of the symbol before the first, if there were one.
    clock = first_byte + max(headers, sized + window - 1) - 1 + FIRST_SYMBOL + work.starts[0] - 1 + TO_COEFFICIENT
    block = 0
    for mcu in range(work.mcus_across * work.mcus_down):
        if work.restart_interval and mcu and mcu % work.restart_interval == 0:
            clock += RESTART + work.starts[mcu // work.restart_interval]
        for _ in range(work.blocks_per_mcu):
            clock = max(clock, transform.room()) + work.symbols[block] + work.long_codes[block]
            yield clock
            block += 1


def _sent_blocks(
    work: JpegWork, first_byte: int, window: int, latency: int, arrival: Callable[[int], int], transform: _Transform
) -> Iterator[int]:
    """Yield the same for a file of several scans."""
    taken, sized = scans_cycles(work, latency, arrival)
    start = first_byte + max(taken, sized + window - 1) - 1 + TO_START
    reads = WorkspaceReads(start, BLOCK_WORDS, latency)
    clock = 0
    for clocks in work.symbols:
        seen = clocks >= BLOCK_WORDS
        clock = max(clock, transform.room(), reads.block() + TO_SEND if seen else 0) + clocks
        if seen:
            reads.left.append(clock)
        yield clock


# ---- resize, crop, normalize ----

# resize.sv, resize_setup.sv, resize_taps.sv
SETUP: Final = 329  # from the size: three divisions an axis and one for the longer side, bit by bit
# a clock for each row, or two columns, up to the last that is wanted, until the source of a crop is known
TO_WINDOW: Final = 14
TO_READ: Final = 13  # from the frame, and a clock for each row above the window, to the first word read
RING_ROWS: Final = 4  # two rows for images wider than 4096, which costs some 0.1 %
TAPS_AHEAD: Final = 16  # resize_taps.sv: it continues while its queue has fewer
TO_RING: Final = 1  # from a word's arrival to its reading
TO_RESIZED: Final = 13  # from a word read to its pixels, through resize_rows.sv, resize_columns.sv and two queues
TO_ROOM: Final = 2  # from the last word read of a row to room for another

# takes the clocks between which a row is sent, and returns the clock in which its last beat could be taken
Window = Callable[[int, int], int]


def beats_of(width: int) -> int:
    """Return the beats of a row. Streams carry two pixels a beat, and a row starts with a new beat."""
    return -(-width // 2)


def _last_pixel_alone(width: int, out_width: int) -> bool:
    """Return whether the last pixel of a row takes a clock of its own.

    A row takes as long as its beats, or the source's. When an image is made smaller, an odd last pixel takes one more
    clock if the two source pixels that complete it also complete the beat before."""
    scale = width / out_width
    words = [ceil((x + 0.5) * scale - 0.5) // 2 for x in (out_width - 2, out_width - 1)]
    return out_width % 2 == 1 and 1 < out_width <= width and words[0] == words[1]


def _sources(size: int, out_size: int) -> list[tuple[int, int]]:
    """Return the first and the last source row, or column, of each output row or column."""
    sources = []
    for y in range(out_size):
        position = max(0, round(256 * ((y + 0.5) * size / out_size - 0.5)))
        first = min(position >> 8, size - 1)
        sources.append((first, min(first + (position & 255 != 0), size - 1)))
    return sources


def _window_cycles(size: Size, out_size: Size, taps: int) -> int:
    """Return the clocks from the image's size until it is known which source pixels a crop needs.

    The crop ends with this many of the taps; 0 stands for all."""
    leading_zeros = sum(16 - min(pair).bit_length() for pair in zip(size, out_size, strict=True))
    return SETUP + leading_zeros + (TO_WINDOW + taps if taps else 0)


class _Resize:
    """Source rows on their way into the ring, and output rows out of it, each as soon as its last source row comes in.

    When an image is made smaller, no source row waits. When it is made larger, source rows wait for a place."""

    def __init__(
        self, frame: int, size: Size, out_size: Size, rows: Range, columns: Range, come: Range, send: Window
    ) -> None:
        """Begin at the clock `frame`. `rows` and `columns` of the resized image are wanted, and columns `come` of their
        source rows."""
        (width, height), (out_width, out_height) = size, out_size
        self._read = [frame + TO_READ + rows.start]  # the clocks of the output rows' last words, and one before
        self._beats = beats_of(len(come))
        alone = len(columns) == out_width and _last_pixel_alone(width, out_width)
        self._row = self._beats + alone
        self._taps = beats_of(columns.stop)  # taps left of the window need no data, and no room in their queue
        self._wanted = self._taps - beats_of(columns.start)
        self._tapped = frame + TO_READ  # the clock in which the last row's last tap came
        self._of = _sources(height, out_height)[rows.start : rows.stop]
        self._send = send
        self._first = self._taken = self._of[0][0]  # the first source row, and the number taken so far
        self._free = 0  # the number of the output row that has given the next one a place
        self.sent = 0

    def take(self, clock: int) -> int:
        """Take a source row after `clock` and return the clock of its last beat, as a Send."""
        y = self._taken
        while self._free < len(self._of) and self._of[self._free][0] <= y - RING_ROWS:
            self._free += 1
        if y >= self._first + RING_ROWS:
            clock = max(clock, self._read[self._free] + TO_ROOM)
        end = clock + self._beats
        while len(self._read) <= len(self._of) and self._of[len(self._read) - 1][1] <= y:
            begun, read = self._read[-1], 0
            if self._of[len(self._read) - 1][1] == y:  # the row is read word by word as words come
                begun, read = max(begun, clock + TO_RING), end + TO_RING
            self._tapped += self._taps
            rows_ahead, rest = divmod(TAPS_AHEAD, self._wanted)
            if 0 < rows_ahead < len(self._read):  # that row gave the queue room
                self._tapped = max(self._tapped, self._read[-rows_ahead] - rest)
            read = max(begun + self._row, begun + self._wanted, self._tapped, read)
            if rows_ahead == 0:
                self._tapped = max(self._tapped, read - rest)
            self._read.append(self._send(begun + TO_RESIZED, read + TO_RESIZED) - TO_RESIZED)
        self._taken += 1
        # The last pixels wait for the end of the input.
        self.sent = max(self._read[-1] + TO_RESIZED, end + TO_ROOM)
        return end


def resize_cycles(width: int, height: int, out_width: int, out_height: int) -> int:
    """Return the clocks from the frame to the last beat of the resized image.

    For images below 8 x 8, or with rows of one word, the formula is coarse."""
    whole = range(out_height), range(out_width), range(width)
    resize = _Resize(0, (width, height), (out_width, out_height), *whole, lambda _, end: end)
    clock = 0
    for _ in range(height):
        clock = resize.take(clock)
    return resize.sent


def crop_cycles(width: int, height: int) -> int:
    """Return the clocks from the frame to the last beat of a window of a `width` x `height` image, at any place."""
    return beats_of(width) * height + 5


def normalize_cycles(width: int, height: int) -> int:
    """Return the clocks from the first to the last beat."""
    return beats_of(width) * height + 2


# ---- image_cu ----

# image_cu.sv, axi_read.sv: from the clock after the start to the first byte of the file, in addition to memory's
# latency. The arguments are checked, the burst is sized and issued, and its first word goes through the FIFO into
# decode.
TO_FIRST_BYTE: Final = 11
# table_load.sv: it takes an entry a clock, in bursts of 16 words, of which two fit the FIFO
TABLE_BURSTS, TABLE_BURST_ENTRIES, TABLE_BURSTS_AHEAD = 12, 64, 2
TABLE_BURST_WORDS: Final = 16
TO_FIRST_ENTRY: Final = 8
# axi_read.sv, for the file
FILE_BURST_WORDS, FILE_WORDS = 64, 512
TO_WORD: Final = (
    4  # from the clock in which a word comes, counted from the first byte's, to the clock in which it can be skipped
)
TO_NEXT_BURST: Final = 4  # from a burst's last entry to the next request
FIFO: Final = 1  # frame_fifo.sv
TO_CROPPED: Final = 3  # crop.sv: the last beat, which waits for the end of the input
TO_NORMALIZED: Final = 2
# store.sv
STORE_WORDS: Final = 512 - 8  # the words of a plane, less those on their way
STORE_WORD: Final = 16  # bytes
BURST_WORDS: Final = 32
TO_STORED: Final = 12  # from the last pixels to the first word of the bursts that they complete
# store.sv, image_cu.sv, record_write.sv: from the tensor's last word to the end, in addition to twice memory's latency
TO_DONE: Final = 7


class Store:
    """Rows of the window on their way into the FIFOs, and words of 16 bytes, one a clock, out of them."""

    def __init__(self, row_bytes: int, rows: int, planes: int, ready: int) -> None:
        self._row_words = row_bytes / STORE_WORD
        self._places = STORE_WORDS * planes
        self._ready = ready
        self._written = 0.0
        # Each plane's last burst, which ends where the plane does.
        ends = [-(-row_bytes * rows * (plane + 1) // planes // STORE_WORD) for plane in range(planes)]
        self._last_words = sum((end - 1) % BURST_WORDS + 1 for end in ends)

    def row(self, begun: int, end: int) -> int:
        """Take a row and return the clock of its last beat, as a Window. Nothing is taken before the clock `ready`."""
        waits = max(0, self._ready - begun)
        self._written = max(self._written, begun + waits) + self._row_words
        return max(end + waits, ceil(self._written) - self._places)

    def end(self, last: int) -> int:
        """Return the clock of the last word; `last` is the clock of the last pixels."""
        return max(last + TO_STORED + self._last_words, ceil(self._written))


def file_arrival(word: int) -> int:
    """Return the clock, from the first byte's, of a word of the file where the tables come through the same port.

    Memory sends the tables' first two bursts in turn with the file's, and two more after each 512 words of it, which
    its queue holds."""
    in_turn = min(word // FILE_BURST_WORDS, TABLE_BURSTS_AHEAD)
    bursts = min(TABLE_BURSTS, in_turn + TABLE_BURSTS_AHEAD * (word // FILE_WORDS))
    return word + TABLE_BURST_WORDS * bursts + TO_WORD


def tables_loaded(latency: int) -> int:
    loaded = [0] * TABLE_BURSTS_AHEAD
    for burst in range(TABLE_BURSTS):
        asked = 0 if burst < TABLE_BURSTS_AHEAD else loaded[-TABLE_BURSTS_AHEAD] + TO_NEXT_BURST - TO_FIRST_ENTRY
        loaded.append(max(asked + TO_FIRST_ENTRY + latency - 1, loaded[-1]) + TABLE_BURST_ENTRIES)
    return loaded[-1] + 1


def image_cu_cycles(
    work: JpegWork,
    *,
    stage: int = 3,
    resize_short: int = 256,
    crop_width: int = 224,
    crop_height: int = 224,
    element_bytes: int = 4,
    latency: int = 120,
) -> int:
    """Return the clocks from start to done of a run of the image CU, for a window in the middle and buffers at whole
    pages.

    The arguments from `stage` to `element_bytes` are those of the image CU (docs/reference/registers.md). `latency` has
    the clocks from an address to its first word, and from the last word of a write to its confirmation. The words under
    way hide up to some 400 of them; a word a clock follows. The model is not meant for runs of less than 2,000 clocks:
    the turns of the store unit and of the tables are known to some 30 clocks only."""
    size = width, height = work.width, work.height
    if stage >= 1:
        shorter = min(size)
        width, height = resize_short * width // shorter, resize_short * height // shorter
    window_width, window_height = (crop_width, crop_height) if stage >= 2 else (width, height)
    rows, columns = range(height), range(width)
    source_rows, source_columns = range(work.height), range(work.width)
    taps = 0
    if stage >= 2:
        top, left = round((height - crop_height) / 2), round((width - crop_width) / 2)
        rows = range(top, top + crop_height)
        columns = range(left // 2 * 2, min((left + crop_width + 1) // 2 * 2, width))
        of = _sources(work.height, height)
        source_rows = range(of[top][0], of[rows.stop - 1][1] + 1)
        of = _sources(work.width, width)
        first, last = of[columns.start][0], of[columns.stop - 1][1]
        source_columns = range(max(first - 1, 0) // 8 * 8, min((last + 1) // 8 * 8 + 8, work.width))
        taps = max(rows.stop, beats_of(columns.stop))
    known = _window_cycles(size, (width, height), taps) if stage >= 1 else 0
    tables = tables_loaded(latency) if stage == 3 else 0
    planes = 3 if stage == 3 else 1
    store = Store(3 * window_width * (element_bytes if stage == 3 else 1), window_height, planes, tables)
    resize: list[_Resize] = []

    def begin(frame: int) -> Send:
        if stage == 0:
            return lambda clock: store.row(clock, clock + beats_of(width))
        resize.append(_Resize(frame + FIFO, size, (width, height), rows, columns, source_columns, store.row))
        return lambda clock: resize[0].take(clock + FIFO) - FIFO

    arrival = file_arrival if stage == 3 else lambda word: 0
    last = decode_rows(work, TO_FIRST_BYTE + latency, source_rows, source_columns, known, begin, latency, arrival)
    if resize:
        last = resize[0].sent
    else:
        last += FIFO
    last += 2 * FIFO + (TO_CROPPED if stage >= 2 else 0) + (TO_NORMALIZED if stage == 3 else 0)
    return store.end(last) + 2 * latency + TO_DONE
