"""Bound the time that an input may keep a CU at work, so that a slow but legal input does not look like a hang.

The result is a bound, not a prediction (see sim/hardware/dpu/image.py). It takes every bit of the file for a symbol of
the slowest kind. It takes every pixel of the image and of the resized one at the units' slowest rate. It is some 20
times what usual images take.
"""

import math
from typing import Final

from headrace.batching import CorruptInput, UnsupportedInput
from headrace.bitstreams.xclbin import Mode
from headrace.host.dpu.processors import MergedPatches, PatchImages, ProcessorSpec
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.specs import AudioSpec, ImageSpec, ImageStage
from headrace.host.dpu.units.jobs import program_of

# The least clocks that a CU does in a second. It is less than any clock rate of a card, and than the speed as software
# (500x375 pixels at quality 90 in 10 ms) or emulated clock by clock (0.6 million real clocks a second).
CLOCKS_PER_S: Final = {Mode.SW_EMU: 10e6, Mode.HW_EMU: 1e6}
CARD_CLOCKS_PER_S: Final = 100e6
A_JPEG_BYTE: Final = 24  # clocks: eight symbols of one bit, three clocks for each in files of several scans
A_PIXEL: Final = 1  # clocks, for each scan (words of its coefficients) and for the image (transform, rows, filters)
AN_OUTPUT_PIXEL: Final = 2
A_PASS: Final = 1000  # clocks from a pass of a program to the next one: memory answers a few times
A_ROW: Final = 16  # clocks between two rows of a resize, and pixels of a row that its lists add
A_WAV_BYTE: Final = 24  # at 8 kHz and two bytes a sample, each CU takes 2.2 clocks for one; room for any filter
SOS: Final = b"\xff\xda"


def image_clocks(jpeg: bytes, spec: ImageSpec, stage: ImageStage) -> int:
    """Return the most clocks of one run. Without a size in the header, only the bytes of the file count."""
    clocks = A_JPEG_BYTE * len(jpeg)
    try:
        width, height = image_file.size(jpeg)
    except CorruptInput:
        return clocks
    clocks += A_PIXEL * width * height * (2 + jpeg.count(SOS))
    if stage >= ImageStage.RESIZE and width and height:
        clocks += AN_OUTPUT_PIXEL * math.ceil(width * height * (spec.resize_short / min(width, height)) ** 2)
    return clocks


def processor_clocks(jpeg: bytes, spec: ProcessorSpec) -> int:
    """Return the most clocks of one run with a program.

    Only the bytes of the file count if there is no program for it. Raises UsageError for a size that the spec does not
    take."""
    clocks = A_JPEG_BYTE * len(jpeg)
    try:
        made = program_of(jpeg, spec)
    except UnsupportedInput:
        return clocks
    clocks += A_PIXEL * made.plan.source.width * made.plan.source.height * (2 + jpeg.count(SOS))
    frames = spec.layout.frames if isinstance(spec.layout, MergedPatches | PatchImages) else 1
    for each in made.passes:
        # Between its directions, a resize has the width of one image and the height of the other.
        rows = max(each.given.rows.count, each.table.out.height)
        columns = max(each.given.columns.count, each.table.out.width)
        clocks += A_PASS + AN_OUTPUT_PIXEL * (rows + A_ROW) * (columns + A_ROW)
        # A word of the tensor takes a clock, and a pixel has at most two words.
        clocks += AN_OUTPUT_PIXEL * each.canvas.width * each.canvas.height * frames
    return clocks


def audio_clocks(wav: bytes, spec: AudioSpec) -> int:
    """Return the most clocks of one run of either CU. Samples that the spec adds count like those of the file."""
    return A_WAV_BYTE * (len(wav) + 2 * spec.padded(0))


def clocks_per_s(mode: Mode) -> float:
    return CLOCKS_PER_S.get(mode, CARD_CLOCKS_PER_S)
