"""Decode JPEG, PNG and WebP files to pixels on the CPU, within limits that are checked before anything is decoded.

The pixels are OpenCV's. OpenCV does not report that it had to invent pixels: libjpeg goes on after damage with a
warning, libpng leaves rows as they are, and both return an image. So this module looks for damage itself:

- JPEG: it reads the warnings of libjpeg-turbo, which TurboJPEG passes on. OpenCV uses the same library, so the pixels
  are equal. Where TurboJPEG does not know the sampling factors, OpenCV decodes the file in another process, and this
  module reads the warnings from the error output of that process.
- PNG: it checks the checksums of chunks and data.
- WebP: the format has no checksums. It checks the length of the file, and libwebp refuses some files.
"""

import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from headrace.batching import CorruptInput
from headrace.host.dpu.specs import Damaged

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by colour type (PNG, 11.2.1)
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # PNG, 8.2
INFLATED_AT_ONCE = 1 << 20  # bytes
SOI, SOS, EOI, APP0 = 0xD8, 0xDA, 0xD9, 0xE0
FRAMES = {0xC0 + n for n in range(16)} - {0xC4, 0xC8, 0xCC}  # SOFn (T.81 table B.1)
ALONE = {0x01, *range(0xD0, 0xD8)}  # markers without a segment: TEM and RSTn
MAX_SCANS = 100  # progressive JPEG files have about ten; for each, libjpeg makes a pass over the whole image
# Parts of those warnings of libjpeg (jerror.h) that do not concern the pixels.
HARMLESS = ("unknown JFIF revision", "extraneous bytes before marker")
CUT_OFF = "Premature end of JPEG file"  # a warning of libjpeg, after which it goes on
GREY = 128
REFUSED = "OpenCV cannot decode it"
UNKNOWN_SAMPLING = "Could not determine subsampling level"  # TurboJPEG's error; OpenCV does decode these files
ALONE_S = 120.0  # a file within the limits of pixels and scans takes far less
# It runs in another process, since all threads of a process share its error output.
DECODE_ALONE = "import sys, cv2, numpy; cv2.imdecode(numpy.frombuffer(sys.stdin.buffer.read(), numpy.uint8), 1)"


class DecodedImage(NamedTuple):
    """The pixels of a file, HWC uint8 in BGR as OpenCV has them, and the damage in the file, or None."""

    pixels: NDArray[np.uint8]
    damage: str | None


def decode(data: bytes, max_megapixels: int, damaged: Damaged) -> DecodedImage:
    """Return the image of a file, without the turn that its Exif orientation names.

    It does not find damage within WebP files whose length is right.

    Raises:
        CorruptInput: The file is none of the three formats, has more than `max_megapixels`, or cannot be decoded. With
            STRICT also if the file is damaged.
    """
    check_pixels(*size(data), max_megapixels)
    pixels, damage = _inspected(data)
    if damage and damaged is Damaged.STRICT:
        raise CorruptInput(f"it is damaged: {damage}")
    if pixels is None:
        pixels = _by_opencv(data) if damage is None else _salvaged(data, damage)
    return DecodedImage(pixels, damage)


def check_pixels(width: int, height: int, max_megapixels: int) -> None:
    """Raise CorruptInput if an image of this size has more than `max_megapixels`."""
    if width * height > max_megapixels * 10**6:
        raise CorruptInput(
            f"{width}x{height} pixels, by its header, are more than --max-megapixels {max_megapixels}; "
            "make the image smaller or the limit larger"
        )


def damage_of(data: bytes) -> str | None:
    """Return the damage of a JPEG, PNG or WebP file, or None. Raises CorruptInput for a JPEG file of too many scans."""
    return _inspected(data)[1]


def _inspected(data: bytes) -> tuple[NDArray[np.uint8] | None, str | None]:
    """Return the pixels of a file, or None if the search for damage gives none, and its damage."""
    if data.startswith(PNG_SIGNATURE):
        return None, _png_damage(data)
    if data.startswith(b"RIFF"):
        whole = 8 + struct.unpack_from("<I", data, 4)[0] <= len(data)
        return None, None if whole else "the file is shorter than it says"
    if data.count(bytes([0xFF, SOS])) > MAX_SCANS:
        raise CorruptInput(f"a JPEG file of more than {MAX_SCANS} scans; write it anew")
    return _jpeg(data)


def size(data: bytes) -> tuple[int, int]:
    """Return (width, height) in pixels from the header of a file. Raises CorruptInput if there is no header."""
    if not data:
        raise CorruptInput("it is empty")
    try:
        if data.startswith(PNG_SIGNATURE):
            return struct.unpack_from(">II", data, 16)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp_size(data)
        if data.startswith(bytes([0xFF, SOI])):
            for marker, start, _ in segments(data):
                if marker in FRAMES:
                    height, width = struct.unpack_from(">HH", data, start + 5)
                    return width, height
    except struct.error:
        pass
    else:
        raise CorruptInput("it is no JPEG, PNG or WebP file with a header; give a file in one of these formats")
    raise CorruptInput("the file ends within its header")


def _webp_size(data: bytes) -> tuple[int, int]:
    """Return the size from the first chunk (RFC 9649, Section 2; RFC 6386, Section 9.1, for lossy images)."""
    chunk = data[12:16]
    if chunk == b"VP8X":
        width, height = struct.unpack_from("<I", data, 24)[0], struct.unpack_from("<I", data, 26)[0] >> 8
        return (width & 0xFFFFFF) + 1, height + 1
    if chunk == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk != b"VP8 ":
        raise CorruptInput("the first chunk of the WebP file is not an image; write it anew")
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield marker, start and end of each segment of a JPEG file, up to the header of the first scan.

    It skips bytes between segments, as libjpeg does. Raises struct.error if the file ends first."""
    at = 2
    while (start := data.find(0xFF, at)) >= 0:
        at = start + 1
        while data[at : at + 1] == b"\xff":
            at += 1
        marker = data[at] if at < len(data) else 0
        at += 1
        if marker == EOI:
            return
        if marker == 0:  # garbage
            continue
        end = at if marker in ALONE or marker == SOI else at + struct.unpack_from(">H", data, at)[0]
        yield marker, at - 2, end
        if marker == SOS:
            return
        at = end


def _jpeg(data: bytes) -> tuple[NDArray[np.uint8] | None, str | None]:
    """Return the pixels and the damage of a JPEG file.

    The pixels are None unless TurboJPEG decodes the file without a warning. The damage is None if there is none."""
    pixels, warning = _by_turbojpeg(data)
    if warning and any(
        words in warning for words in HARMLESS
    ):  # only the first warning is passed on; there may be others
        pixels, warning = _by_turbojpeg(_tidied(data))
    if warning and UNKNOWN_SAMPLING in warning:
        warning = _opencvs_warning(data)
        if warning and any(words in warning for words in HARMLESS):
            warning = _opencvs_warning(_tidied(data))
    return pixels, warning


def _has_scan(data: bytes) -> bool:
    """Return whether a JPEG file goes on to the header of a scan."""
    try:
        return any(marker == SOS for marker, *_ in segments(data))
    except struct.error:
        return False


def _opencvs_warning(data: bytes) -> str | None:
    """Return the first warning of libjpeg within OpenCV, or None.

    The file is decoded in a new process, which takes some 0.2 s. A file without a scan needs none, because OpenCV
    refuses it."""
    if not _has_scan(data):
        return REFUSED
    command = [sys.executable, "-P", "-c", DECODE_ALONE]
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=ALONE_S)
    except subprocess.TimeoutExpired:
        return f"OpenCV has not decoded it within {ALONE_S:g} s"
    if done.returncode:
        return REFUSED
    own = ("[", " ")  # OpenCV's own log lines begin with these
    lines = done.stderr.decode(errors="replace").splitlines()
    return next((line for line in lines if line and not line.startswith(own)), None)


def _by_turbojpeg(data: bytes) -> tuple[NDArray[np.uint8] | None, str | None]:
    try:
        return simplejpeg.decode_jpeg(data, "BGR", strict=True), None
    except ValueError as error:
        return None, str(error)


def _salvaged(data: bytes, damage: str) -> NDArray[np.uint8]:
    """Return the image that OpenCV or libjpeg still makes from a damaged file. Raises CorruptInput if there is none.

    OpenCV decodes most such files. It refuses a JPEG file that is cut off, and libjpeg decodes the rows that are there.
    The other rows are grey. Pillow and browsers show the same image."""
    try:
        return _by_opencv(data)
    except CorruptInput as error:
        if CUT_OFF not in damage:
            raise
        width, height = size(data)
        rows = np.full((height, width, 3), GREY, np.uint8)  # libjpeg leaves rows that it does not reach as they are
        try:
            simplejpeg.decode_jpeg(data, "BGR", strict=False, buffer=rows)
        except ValueError:
            raise error from None
        return rows


def has_harmless_faults(data: bytes) -> bool:
    """Return whether a JPEG file has faults that do not concern its pixels.

    Such faults are garbage between the segments before its scan, and a version of JFIF other than 1."""
    try:
        return _tidied(data) != data
    except struct.error:
        return False


def _tidied(data: bytes) -> bytes:
    """Return the same JPEG file in JFIF version 1 and without garbage between the segments before its scan."""
    kept = [data[:2]]
    for marker, start, end in segments(data):
        segment = bytearray(b"\xff" + bytes([marker]) + data[start + 2 : end])
        if marker == APP0 and segment[4:9] == b"JFIF\0":
            segment[9] = 1
        kept.append(bytes(segment))
    return b"".join([*kept, data[end:]])


def _png_damage(data: bytes) -> str | None:
    """Return the damage of a PNG file, or None.

    It checks the checksums and the order of the chunks that every file has, and the checksum and length of the data."""
    at, kinds, inflate, inflated = len(PNG_SIGNATURE), [], zlib.decompressobj(), 0
    try:
        while not kinds or kinds[-1] != b"IEND":
            length, kind = struct.unpack_from(">I4s", data, at)
            body = data[at + 8 : at + 8 + length]
            if zlib.crc32(kind + body) != struct.unpack_from(">I", data, at + 8 + length)[0]:
                return f"the checksum of chunk {len(kinds)} is wrong"
            if not kinds and kind != b"IHDR":
                return "its first chunk is not IHDR"
            while kind == b"IDAT" and not inflate.eof:
                part = inflate.decompress(body, INFLATED_AT_ONCE)
                inflated += len(part)
                body = inflate.unconsumed_tail
                if inflated > _png_bytes(data):
                    return "it has more data than the image needs"
                if not body and len(part) < INFLATED_AT_ONCE:
                    break
            kinds.append(kind)
            at += 12 + length
    except struct.error:
        return "the file ends too early"
    except zlib.error as error:
        return f"its data is corrupt ({error})"
    if not inflate.eof or inflated < _png_bytes(data):
        return "it has less data than the image needs"
    return None


def _png_bytes(data: bytes) -> int:
    """Return the bytes of the filtered rows of all passes, with one filter byte for each row."""
    width, height, depth, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    bits = depth * PNG_SAMPLES.get(colour, 0)
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    total = 0
    for x, y, step_x, step_y in passes:
        columns, rows = -(-(width - x) // step_x), -(-(height - y) // step_y)
        total += rows * (1 + -(-columns * bits // 8)) if columns > 0 and rows > 0 else 0
    return total


def _by_opencv(data: bytes) -> NDArray[np.uint8]:
    try:
        image: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise CorruptInput(f"OpenCV cannot decode it: {error}") from error
    if image is None:
        raise CorruptInput("OpenCV cannot decode it")
    return image
