"""How long an input may keep a CU at work, so that one that is slow but legal is not taken for a CU that hangs.

A bound, not a prediction (that is sim/hardware/dpu/image.py): every bit of the file a symbol of the slowest kind,
every pixel of the image and of the resized one at the units' slowest rate. It is some 20 times what photos take.
"""

import math
from typing import Final

from headrace.batching import CorruptInput
from headrace.bitstreams.xclbin import Mode
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.specs import ImageSpec, ImageStage

# Clocks that a CU does in a second at the least, for a bound as wide: on a card below any clock rate, as software
# (500x375 at quality 90 in 10 ms), and emulated clock by clock (0.6 million of real ones).
CLOCKS_PER_S: Final = {Mode.SW_EMU: 10e6, Mode.HW_EMU: 1e6}
CARD_CLOCKS_PER_S: Final = 100e6
A_JPEG_BYTE: Final = 24  # eight symbols of one bit, three clocks for each in files of several scans
A_PIXEL: Final = 1  # of a scan: the words of its coefficients; of the image: transform, rows, filters
AN_OUTPUT_PIXEL: Final = 2
A_WAV_BYTE: Final = 24  # 8 kHz, two bytes a sample: 2.2 clocks of each CU for one, and filters of any width
SOS: Final = b"\xff\xda"


def image_clocks(jpeg: bytes, spec: ImageSpec, stage: ImageStage) -> int:
    """At most for one run. Of a file whose header says no size the bytes are all that there is to do."""
    clocks = A_JPEG_BYTE * len(jpeg)
    try:
        width, height = image_file.size(jpeg)
    except CorruptInput:
        return clocks
    clocks += A_PIXEL * width * height * (2 + jpeg.count(SOS))
    if stage >= ImageStage.RESIZE and width and height:
        clocks += AN_OUTPUT_PIXEL * math.ceil(width * height * (spec.resize_short / min(width, height)) ** 2)
    return clocks


def audio_clocks(wav: bytes) -> int:
    """At most for one run of either CU."""
    return A_WAV_BYTE * len(wav)


def clocks_per_s(mode: Mode) -> float:
    return CLOCKS_PER_S.get(mode, CARD_CLOCKS_PER_S)
