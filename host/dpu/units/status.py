"""The status codes of the CUs, equal to those in `hls/include/headrace/status.hpp` (a test compares the two)."""

from enum import IntEnum

_REASONS = {
    0: "done",
    1: "not a JPEG file: it does not begin with the SOI marker",
    2: "the file ends before the image or the audio does",
    3: "hierarchical JPEG, or a progressive one for a unit without a workspace",
    4: "arithmetic coding; the DPU takes Huffman coding",
    5: "lossless JPEG; the DPU takes baseline and extended sequential",
    6: "sample precision other than 8 bits",
    7: "a number of components other than 1 (gray) or 3",
    8: "unusual subsampling; the DPU takes factors of 1, 2 and 4, luma's the greatest, and no image too wide for them",
    9: "wider than 8192 pixels (2048 in the configuration small), or too high or without a height in its header",
    10: "a marker segment, or a chunk, contradicts itself or the standard",
    11: "the scan refers to a quantisation or Huffman table that the file does not define",
    12: "the entropy-coded data is corrupt",
    13: "a restart marker is missing, out of order or unexpected",
    14: "more than 128 scans, more than its frame has, or several for a unit without a workspace",
    15: "the resized image would exceed 65535 pixels on a side, or resize_short is 0; choose another resize_short",
    16: "the crop window is not inside the resized image; make it smaller or resize_short larger",
    17: "the output buffer or the workspace is too small",
    18: "unknown stage or format, or a buffer that is not aligned",
    19: "memory answered with an error: a buffer's device address is wrong",
    20: "not a WAV file: it does not begin with RIFF and WAVE",
    21: "samples other than 16-bit PCM",
    22: "neither mono nor stereo",
    23: "a sample rate other than 8, 11.025, 16, 22.05, 24, 32, 44.1 and 48 kHz",
    24: "too long: more than 65535 frames, which are 655 s",
}


class Status(IntEnum):
    OK = 0
    NOT_JPEG = 1
    TRUNCATED = 2
    PROGRESSIVE = 3
    ARITHMETIC = 4
    LOSSLESS = 5
    PRECISION = 6
    COMPONENTS = 7
    SAMPLING = 8
    TOO_LARGE = 9
    CORRUPT_HEADER = 10
    MISSING_TABLE = 11
    CORRUPT_HUFFMAN = 12
    RESTART_MISMATCH = 13
    MULTIPLE_SCANS = 14
    RESIZE_LIMIT = 15
    CROP_OUTSIDE = 16
    BUFFER_TOO_SMALL = 17
    BAD_ARGUMENT = 18
    BUS_ERROR = 19
    NOT_WAV = 20
    SOUND_FORMAT = 21
    CHANNELS = 22
    RATE = 23
    TOO_LONG = 24

    @property
    def reason(self) -> str:
        return _REASONS[self.value]
