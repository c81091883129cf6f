"""The data-processing unit: clock cycles of the image units' SystemVerilog.

Each function says how many clocks pass from a unit's first input to its last output when input is always there and
output is always taken; tests hold them against the simulated hardware within 2 %.
"""

from math import ceil


def _beats(width: int) -> int:
    """Streams carry two pixels a beat, and a row starts with a new one."""
    return -(-width // 2)


def _resized_row_cycles(width: int, out_width: int) -> int:
    """A row takes as long as its beats, or the source's. Going down, an odd last pixel takes a clock of its own if the
    two source pixels that complete it complete the beat before, too."""
    scale = width / out_width
    words = [ceil((x + 0.5) * scale - 0.5) // 2 for x in (out_width - 2, out_width - 1)]
    alone = out_width % 2 == 1 and 1 < out_width <= width and words[0] == words[1]
    return max(_beats(width) + alone, _beats(out_width))


def resize_cycles(width: int, height: int, out_width: int, out_height: int) -> int:
    """From the frame to the last beat of the resized image.

    The scales are computed first, by bit-serial divisions that begin at the leading ones of both sizes of an axis, and
    only four source rows come in meanwhile, or until the first output row is read if that needs the very first of
    them. The image takes as long as the rows of the output, or what the source has left. For images below 8 x 8, or
    with rows of one word, the formula is coarse."""
    leading_zeros = sum(16 - min(size).bit_length() for size in ((width, out_width), (height, out_height)))
    setup = 336 + leading_zeros
    source = _beats(width)
    row = _resized_row_cycles(width, out_width)
    rows = max(out_height * row, (height - 4) * source + (row if height < 3 * out_height else 0))
    return max(setup + rows, height * source) + 17


def crop_cycles(width: int, height: int) -> int:
    """From the frame to the last beat of a window of a `width` x `height` image, wherever it lies."""
    return _beats(width) * height + 8


def normalize_cycles(width: int, height: int) -> int:
    """From the first to the last beat."""
    return _beats(width) * height + 2
