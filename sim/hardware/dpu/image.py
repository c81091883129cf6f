"""The image units of the data-processing unit: clock cycles of their SystemVerilog.

The models follow the structure and are no fits. Each constant is a depth, the length of a pipeline or a count of states
in the module that it names. Tests hold every function against the simulated hardware within 2 %.

A file takes this way: headers pass at a byte a clock, Huffman symbols at one or two a clock, blocks through the
transform in eight clocks each. Rows of blocks go into a ring of MCU rows, and PIXELS leave it in a clock. Rows of the
resized image leave as soon as their source rows are there, and words of memory at one a clock. All units work at the
same time. They wait for each other where a buffer is empty or full. So the model follows blocks, MCU rows and rows of
pixels in their order. The clock in which an item is through a unit follows from three others. They are the clocks in
which the item came, the item before was through, and the next unit had room. Clocks are numbered from the start. The
clock of an item is the one in which its last part is taken.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import Final

from headrace.sim.hardware.dpu.headers import TableWrites, first_headers
from headrace.sim.hardware.dpu.jpeg import MAX_WIDTH, Factors, JpegWork
from headrace.sim.hardware.dpu.jpeg_scans import BLOCK_WORDS
from headrace.sim.hardware.dpu.scans import TO_START, WorkspaceReads, scans_cycles

# config_pkg.sv: pixels a clock from render into resize. After it, and into other units, streams carry BEAT.
PIXELS: Final = 4
BEAT: Final = 2

# ---- decode ----

# byte_reader.sv
FIRST_BYTE: Final = 4  # from the start: a word is taken and leaves the queue, then its first bytes stand before it

# entropy_decoder.sv
# from the scan's headers, in addition to the first data: count MCUs, two clocks; load tables, look up
FIRST_SYMBOL: Final = 4
# from the last symbol of an interval to the first of the next, in addition to a usual clock and the data
RESTART: Final = 2
TO_COEFFICIENT: Final = 5  # from a symbol to its coefficient at the transform
LONG_CODE: Final = 2  # the clocks that a long code takes besides that of its symbol
QUEUED: Final = 25  # symbols and pairs that wait for the transform while the decoder goes on
# after the last block: the parser has already seen EOI, or its tokens are dropped while blocks are transformed
END_BEAT: Final = 2

# workspace_read.sv, coefficient_send.sv: from a word's coming to the clock before its first coefficient
TO_SEND: Final = 5

# coefficient_buffer.sv, transform.sv
BLOCKS: Final = 512  # blocks that can wait in front of the transform
BLOCK: Final = 8  # clocks in the transform, one a column
TO_TRANSFORM: Final = 7  # from a block's last coefficient to its first column
TO_SAMPLES: Final = 31  # from there to its first row
QUEUED_BLOCKS: Final = 8  # a queue of 64 rows: blocks begun and not yet taken by render

# render.sv, render_pkg.sv
# The memory of luma has this many rows of blocks of the widest image, that of each component of chroma half of them.
LUMA_BLOCK_ROWS, CHROMA_BLOCK_ROWS = 4, 2
TO_FRAME: Final = 4  # from the last word of the first MCU row to the frame
TO_PIXELS: Final = 21  # from the last word of each MCU row to its first pixels
READ: Final = 2  # row_reader.sv: clocks for a word of eight pixels
TO_GROUP: Final = 1  # row_reader.sv: from the last word of an MCU row to the first of the next
LEAD_WORDS: Final = 8  # words that are read ahead of those sent
WORD: Final = 8  # pixels

Size = tuple[int, int]  # width, height
Range = range  # rows or columns of an image, or of the resized one
# takes the clock after which a row of pixels can begin, and returns the clock of its last beat
Send = Callable[[int], int]


class _Transform:
    """Blocks on their way from their last coefficient to their last row of samples."""

    def __init__(self) -> None:
        self._left: list[int] = []  # the clocks in which blocks left the buffer
        self._sent: list[int] = []

    def room(self) -> int:
        """Return the clock after which coefficients of the next block are taken."""
        before = len(self._left) - BLOCKS
        return self._left[before] if before >= 0 else 0

    def drop(self, taken: int) -> None:
        """Drop a block that is not wanted, in a clock."""
        self._left.append(max(taken + TO_TRANSFORM, self._left[-1] + 1 if self._left else 0))

    def block(self, taken: int, free: int = 0) -> int:
        """Return the clock of the last row of samples of a block.

        `taken` is the clock of its last coefficient. Its samples are taken after `free`."""
        begun, sent = max(taken + TO_TRANSFORM, self._left[-1] + 1 if self._left else 0), 0
        if self._sent:
            sent = self._sent[-1]
        if len(self._sent) >= QUEUED_BLOCKS:
            begun = max(begun, self._sent[-QUEUED_BLOCKS] + 1)
        self._left.append(begun + BLOCK - 1)
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
        self,
        width: int,
        height: int,
        luma: Factors,
        chroma: Sequence[Factors],
        rows: Range,
        columns: Range,
        send: Send,
        pixels: int,
        max_width: int = MAX_WIDTH,
    ) -> None:
        h_factor, v_factor = luma
        across = -(-width // (8 * h_factor))
        # MCU rows of one MCU. Half of them for each doubling of the MCUs across.
        fitting = [
            LUMA_BLOCK_ROWS * max_width // 8 // (h_factor * v_factor),
            *(CHROMA_BLOCK_ROWS * max_width // 8 // (h * v) for h, v in chroma),
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
        self._lead = LEAD_WORDS * WORD // pixels
        self._beats = beats_of(len(columns), pixels)
        self._reads = READ * -(-len(columns) // WORD)  # the clocks for the words of a row
        self._read = 0  # the clock after which words can be sent that are read next
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
        self._read = max(self._read + TO_GROUP, written + TO_PIXELS - 1)
        freed = 0
        while self._y < end:
            if self._y in self._window:
                self._read += self._reads
                clock = max(self._send(clock), self._read)
                freed = max(clock - min(self._lead, self._beats), self._read - self._lead)
                self._read = max(self._read, clock - self._lead)
            else:
                self._read += 1
                clock = max(clock, self._read)
                freed = clock - min(self._lead, self._beats)
            if self._held_back and self._y % self._rows == 0 and self._y:
                self._freed.append(freed)
            self._y += 1
        if not self._held_back:
            self._freed.append(freed)
        self._next += 1
        self.sent = clock
        return clock


def render_cycles(
    width: int,
    height: int,
    h_factor: int,
    v_factor: int,
    components: int,
    chroma: Sequence[Factors] = ((1, 1), (1, 1)),
    pixels: int = PIXELS,
) -> int:
    """Return the clocks from the first row of a block to the last pixels, for samples and output that never pause.

    MCU rows are written into the ring at a word a clock and read at `pixels` a clock."""
    whole = range(height), range(width)
    beats = beats_of(width, pixels)
    render = _Render(width, height, (h_factor, v_factor), chroma, *whole, lambda clock: clock + beats, pixels)
    blocks = h_factor * v_factor + sum(h * v for h, v in chroma) if components == 3 else 1
    words = 8 * blocks * -(-width // (8 * h_factor))
    written = 0
    for _ in range(-(-height // (8 * v_factor))):
        written = max(written, render.free()) + words
        render.mcu_row(written)
    return render.sent + END_BEAT


def decode_cycles(work: JpegWork, latency: int = 120, pixels: int = PIXELS) -> int:
    """Return the clocks from the start to the last beat; the words of the file are there and the pixels are taken.

    `latency` is that of the workspace, `pixels` those of a beat. In files of one scan, many symbols of many bits in a
    row cause clocks without data. They are left out (less than 0.1 % in photos). The model is not meant for images
    below 32 x 32 pixels, where single clocks count."""
    return decode_rows(
        work,
        FIRST_BYTE,
        range(work.height),
        range(work.width),
        0,
        lambda frame: lambda clock: clock + beats_of(work.width, pixels),
        latency,
        pixels=pixels,
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
    pixels: int = PIXELS,
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
        pixels: Pixels of a beat.
    """
    sends: list[Send] = []
    luma = work.h_factor, work.v_factor
    render = _Render(
        work.width,
        work.height,
        luma,
        work.chroma_factors,
        rows,
        columns,
        lambda clock: sends[0](clock),
        pixels,
        work.max_width,
    )
    transform = _Transform()
    blocks = _sent_blocks if work.scans else _decoded_blocks
    coefficients = blocks(work, first_byte, window, latency, arrival, transform)
    mcu_width = 8 * work.h_factor
    mcus = range(columns.start // mcu_width, -(-columns.stop // mcu_width))
    for row in range(render.mcu_rows):
        free = render.free()
        written = 0
        for mcu in range(work.mcus_across):
            wanted = mcu in mcus or mcu == work.mcus_across - 1  # block_window.sv
            for _ in range(work.blocks_per_mcu):
                if wanted:
                    written = transform.block(next(coefficients), free)
                else:
                    transform.drop(next(coefficients))
        last = END_BEAT if row == render.mcu_rows - 1 else 0
        if row == 0:
            sends.append(begin(written + last + TO_FRAME))
        render.mcu_row(written + last)
    return render.sent


def _decoded_blocks(
    work: JpegWork, first_byte: int, window: int, latency: int, arrival: Callable[[int], int], transform: _Transform
) -> Iterator[int]:
    """Yield the clock of each block's last coefficient, for a file in one scan."""
    writes = TableWrites()
    headers, sized = first_headers(work, writes, arrival)
    # The clock from which on the decoder takes pairs in the blocks of each component, as it has worked out their table.
    paired = [first_byte - 1 + writes.paired.get(0x10 | table, 0) for table in work.ac_tables] or [0] * work.components
    # The clock of the symbol before the first, if there were one.
    clock = first_byte + max(headers, sized + window - 1) - 1 + FIRST_SYMBOL + work.starts[0] - 1 + TO_COEFFICIENT
    components = work.components_of_blocks
    block = stored = 0
    for mcu in range(work.mcus_across * work.mcus_down):
        if work.restart_interval and mcu and mcu % work.restart_interval == 0:
            clock += RESTART + work.starts[mcu // work.restart_interval]
        for component in components:
            pairs, splits, long_codes = work.pairs[block], work.splits[block], work.long_codes[block]
            if clock < paired[component]:
                pairs, splits, long_codes = 0, 0, work.long_singles[block]
            beats = work.symbols[block] - pairs
            stored = max(stored, clock, transform.room()) + beats + splits
            clock += beats + LONG_CODE * long_codes
            stored = max(stored, clock)
            clock = max(clock, stored - QUEUED)
            yield stored
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
RING_ROWS, WIDE_RING_ROWS, WIDE = 4, 2, 4096  # of images with more columns than that
TAPS_AHEAD: Final = 16  # resize_taps.sv: it continues while its queue has fewer
TO_RING: Final = 1  # from a word's arrival to its reading
TO_RESIZED: Final = 14  # from a word read to its pixels, through resize_rows.sv, resize_columns.sv and two queues
TO_ROOM: Final = 2  # from the last word read of a row to room for another

# takes the clocks between which a row is sent, and returns the clock in which its last beat could be taken
Window = Callable[[int, int], int]


def beats_of(width: int, pixels: int = BEAT) -> int:
    """Return the beats of a row, of so many pixels each. A row starts with a new beat."""
    return -(-width // pixels)


def _row_cycles(width: int, out_width: int, columns: Range, come: Range, pixels: int) -> int:
    """Return the clocks of a row of the resized image in resize_columns.sv, if all that it needs is there.

    A row takes a clock for each beat of the source. A beat of the output takes a clock of its own if the source's beat
    that completes it also completes the one before."""
    of = _sources(width, out_width)
    complete = [of[min(x + BEAT, columns.stop) - 1][1] // pixels for x in columns[::BEAT]]
    return beats_of(len(come), pixels) + sum(one == other for one, other in pairwise(complete))


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
        self,
        frame: int,
        size: Size,
        out_size: Size,
        rows: Range,
        columns: Range,
        come: Range,
        send: Window,
        pixels: int,
    ) -> None:
        """Begin at the clock `frame`. `rows` and `columns` of the resized image are wanted, and columns `come` of their
        source rows."""
        (width, height), (out_width, out_height) = size, out_size
        self._read = [frame + TO_READ + rows.start]  # the clocks of the output rows' last words, and one before
        self._beats = beats_of(len(come), pixels)
        self._row = _row_cycles(width, out_width, columns, come, pixels)
        self._wanted = beats_of(columns.stop) - beats_of(columns.start)
        # The clock in which the last row's last tap came. Those left of the window come once.
        self._tapped = frame + TO_READ + beats_of(columns.start)
        self._places = WIDE_RING_ROWS if come.stop > WIDE else RING_ROWS
        self._of = _sources(height, out_height)[rows.start : rows.stop]
        self._send = send
        self._first = self._taken = self._of[0][0]  # the first source row, and the number taken so far
        self._free = 0  # the number of the output row that has given the next one a place
        self.sent = 0

    def take(self, clock: int) -> int:
        """Take a source row after `clock` and return the clock of its last beat, as a Send."""
        y = self._taken
        while self._free < len(self._of) and self._of[self._free][0] <= y - self._places:
            self._free += 1
        if y >= self._first + self._places:
            clock = max(clock, self._read[self._free] + TO_ROOM)
        end = clock + self._beats
        while len(self._read) <= len(self._of) and self._of[len(self._read) - 1][1] <= y:
            begun, read = self._read[-1], 0
            if self._of[len(self._read) - 1][1] == y:  # the row is read word by word as words come
                begun, read = max(begun, clock + TO_RING), end + TO_RING
            self._tapped += self._wanted
            rows_ahead, rest = divmod(TAPS_AHEAD, self._wanted)
            if 0 < rows_ahead < len(self._read):  # that row gave the queue room
                self._tapped = max(self._tapped, self._read[-rows_ahead] - rest)
            read = max(begun + self._row, self._tapped, read)
            if rows_ahead == 0:
                self._tapped = max(self._tapped, read - rest)
            self._read.append(self._send(begun + TO_RESIZED, read + TO_RESIZED) - TO_RESIZED)
        self._taken += 1
        # The last pixels wait for the end of the input.
        self.sent = max(self._read[-1] + TO_RESIZED, end + TO_ROOM)
        return end


def resize_cycles(width: int, height: int, out_width: int, out_height: int, pixels: int = PIXELS) -> int:
    """Return the clocks from the frame to the last beat of the resized image.

    For images below 8 x 8, or with rows of one word, the formula is coarse."""
    whole = range(out_height), range(out_width), range(width)
    resize = _Resize(0, (width, height), (out_width, out_height), *whole, lambda _, end: end, pixels)
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
TO_FIRST_BYTE: Final = 12
# In stage 3 the tables' first burst comes before it, as their reader had the last turn of the run before
# (axi_read_share.sv). Only in the first run after a reset does the file come first.
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
WRITE_BYTES: Final = 32  # config_pkg.sv: bytes of a word of memory
STORE_BYTES: Final = 8192  # of a plane
ON_THE_WAY: Final = 8  # words of a plane that may still come when it is seen to be full
BURST_BYTES: Final = 512
TO_STORED: Final = 13  # from the last pixels to the first word of the bursts that they complete
# store.sv, image_cu.sv, record_write.sv: from the tensor's last word to the end, in addition to twice memory's latency
TO_DONE: Final = 7


class Store:
    """Rows of the window on their way into the FIFOs, and words of `word` bytes, one a clock, out of them.

    A plane's words leave in bursts that end where memory has a multiple of BURST_BYTES, each when all its words are
    there."""

    def __init__(self, row_bytes: int, rows: int, planes: int, ready: int, word: int = WRITE_BYTES) -> None:
        self._burst = BURST_BYTES // word  # words
        self._row_words = row_bytes / word / planes
        self._places = (STORE_BYTES // word - ON_THE_WAY) * planes
        self._ready = ready
        self._written = 0.0  # the clock of the last word
        self._came = 0.0  # words of a plane
        starts = [-(-row_bytes * rows * plane // planes // word) for plane in range(planes + 1)]
        self._left = starts[-1]  # words of no burst yet
        # Each plane's next burst: the words of the plane with its last one, and its own.
        self._bursts = [(self._burst - start % self._burst,) * 2 for start in starts[:-1]]

    def row(self, begun: int, end: int) -> int:
        """Take a row and return the clock of its last beat, as a Window. Nothing is taken before the clock `ready`."""
        waits = max(0, self._ready - begun)
        begun, end, before = begun + waits, end + waits, self._came
        self._came += self._row_words
        kept = 0.0  # words in the FIFOs that wait for the rest of their burst
        complete = []
        for plane, (last, words) in enumerate(self._bursts):
            while last <= self._came:
                complete.append((last, words))
                last, words = last + self._burst, self._burst
            self._bursts[plane] = last, words
            kept += self._came - last + words
        for last, words in sorted(complete):
            due = begun + (end - begun) * (last - before) / self._row_words + TO_STORED
            self._written = max(self._written, due) + words
            self._left -= words
        return max(end, ceil(self._written + kept) - self._places)

    def end(self, last: int) -> int:
        """Return the clock of the last word; `last` is the clock of the last pixels."""
        return max(last + TO_STORED, ceil(self._written)) + self._left


def file_arrival(word: int) -> int:
    """Return the clock, from the first byte's, of a word of the file where the tables come through the same port.

    Memory sends the tables' first two bursts in turn with the file's, and two more after each 512 words of it, which
    its queue holds. The first one is there before the first byte."""
    in_turn = min(word // FILE_BURST_WORDS, TABLE_BURSTS_AHEAD - 1)
    bursts = min(TABLE_BURSTS - 1, in_turn + TABLE_BURSTS_AHEAD * (word // FILE_WORDS))
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
    pixels: int = PIXELS,
    write_bytes: int = WRITE_BYTES,
) -> int:
    """Return the clocks from start to done of a run of the image CU, for a window in the middle and buffers at whole
    pages.

    The arguments from `stage` to `element_bytes` are those of the image CU (docs/reference/registers.md). `pixels`
    and `write_bytes` are those of the build: pixels a clock from render into resize, bytes a clock into memory.
    `latency` has the clocks from an address to its first word, and from the last word of a write to its confirmation.
    The words under way hide up to some 400 of them; a word a clock follows. The model is not meant for runs of less
    than 2,000 clocks: the turns of the store unit and of the tables are known to some 30 clocks only."""
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
    row_bytes = 3 * window_width * (element_bytes if stage == 3 else 1)
    store = Store(row_bytes, window_height, planes, tables, write_bytes)
    resize: list[_Resize] = []

    def begin(frame: int) -> Send:
        if stage == 0:
            return lambda clock: store.row(clock, clock + beats_of(width))
        resize.append(_Resize(frame + FIFO, size, (width, height), rows, columns, source_columns, store.row, pixels))
        return lambda clock: resize[0].take(clock + FIFO) - FIFO

    first_byte = TO_FIRST_BYTE + latency + (TABLE_BURST_WORDS if stage == 3 else 0)
    arrival = file_arrival if stage == 3 else lambda word: 0
    last = decode_rows(work, first_byte, source_rows, source_columns, known, begin, latency, arrival, pixels)
    if resize:
        last = resize[0].sent
    else:
        last += FIFO
    last += 2 * FIFO + (TO_CROPPED if stage >= 2 else 0) + (TO_NORMALIZED if stage == 3 else 0)
    return store.end(last) + 2 * latency + TO_DONE
