"""Bytes of a JPEG, PNG or WebP file to pixels on the CPU, within bounds that are checked before anything is decoded.

The pixels are OpenCV's. OpenCV does not tell when it had to invent some: libjpeg goes on behind damage with a warning,
libpng leaves rows as they are, and both end in an image. What is damaged is therefore found beside it: in JPEG by
libjpeg-turbo's own warnings, which TurboJPEG passes on (it is the library that OpenCV has, so the pixels are equal), or
what OpenCV's writes to the error output of a process of its own where TurboJPEG does not know the sampling factors; in
PNG by the checksums of chunks and data; in WebP, which has none, by its length, beside what libwebp refuses.
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
MAX_SCANS = 100  # of a JPEG: progressive files have about ten, and each takes libjpeg a pass over the whole image
# What libjpeg warns of and has no part in the pixels (jerror.h), by the words of its messages.
HARMLESS = ("unknown JFIF revision", "extraneous bytes before marker")
CUT_OFF = "Premature end of JPEG file"  # libjpeg's warning, behind which it goes on
GREY = 128
UNKNOWN_SAMPLING = "Could not determine subsampling level"  # TurboJPEG's: it does not decode these, OpenCV does
ALONE_S = 120.0  # far beyond what a file within the limits of pixels and scans takes
# Of a process of its own, since the error output is that of all threads.
DECODE_ALONE = "import sys, cv2, numpy; cv2.imdecode(numpy.frombuffer(sys.stdin.buffer.read(), numpy.uint8), 1)"


class Photo(NamedTuple):
    """`pixels`: HWC uint8, BGR as OpenCV has them. `damage`: what is wrong with the file, or None."""

    pixels: NDArray[np.uint8]
    damage: str | None


def decode(data: bytes, max_megapixels: int, damaged: Damaged) -> Photo:
    """The image, not turned as its Exif orientation says.

    Raises CorruptInput for what is none of the three formats, has more than `max_megapixels`, cannot be decoded, or,
    with STRICT, is damaged. Damage is not found within WebP files whose length is right."""
    width, height = size(data)
    if width * height > max_megapixels * 10**6:
        raise CorruptInput(
            f"{width}x{height} pixels, by its header, are more than --max-megapixels {max_megapixels}; "
            "make the photo smaller or the limit larger"
        )
    if data.startswith(PNG_SIGNATURE):
        pixels, damage = None, _png_damage(data)
    elif data.startswith(b"RIFF"):
        whole = 8 + struct.unpack_from("<I", data, 4)[0] <= len(data)
        pixels, damage = None, None if whole else "the file is shorter than it says"
    elif data.count(bytes([0xFF, SOS])) > MAX_SCANS:
        raise CorruptInput(f"a JPEG file of more than {MAX_SCANS} scans; write it anew")
    else:
        pixels, damage = _jpeg(data)
    if damage and damaged is Damaged.STRICT:
        raise CorruptInput(f"it is damaged: {damage}")
    if pixels is None:
        pixels = _by_opencv(data) if damage is None else _salvaged(data, damage)
    return Photo(pixels, damage)


def size(data: bytes) -> tuple[int, int]:
    """(width, height) in pixels, as the header has them. Raises CorruptInput if there is none."""
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
        raise CorruptInput("OpenCV is given JPEG, PNG and WebP files, and this is none with a header; is it an image?")
    raise CorruptInput("it ends within its header")


def _webp_size(data: bytes) -> tuple[int, int]:
    """By the first chunk (RFC 9649, section 2; RFC 6386, section 9.1, for lossy images)."""
    chunk = data[12:16]
    if chunk == b"VP8X":
        width, height = struct.unpack_from("<I", data, 24)[0], struct.unpack_from("<I", data, 26)[0] >> 8
        return (width & 0xFFFFFF) + 1, height + 1
    if chunk == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk != b"VP8 ":
        raise CorruptInput("a WebP file whose first chunk is no image's")
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, start and end of each of a JPEG file's segments up to the first scan's header, which libjpeg finds by
    skipping what stands between them. Raises struct.error where the file ends first."""
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
    """The pixels, if TurboJPEG decodes the file without a warning, or the damage, if it is that that it warns of."""
    pixels, warning = _by_turbojpeg(data)
    if warning and any(words in warning for words in HARMLESS):  # only the first warning is told: others may hide
        pixels, warning = _by_turbojpeg(_tidied(data))
    if warning and UNKNOWN_SAMPLING in warning:
        warning = _opencvs_warning(data)
        if warning and any(words in warning for words in HARMLESS):
            warning = _opencvs_warning(_tidied(data))
    return pixels, warning


def _opencvs_warning(data: bytes) -> str | None:
    """The first that libjpeg has within OpenCV, by decoding once more: some 0.2 s for the start of a process."""
    command = [sys.executable, "-P", "-c", DECODE_ALONE]
    try:
        done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=ALONE_S)
    except subprocess.TimeoutExpired:
        return f"OpenCV has not decoded it within {ALONE_S:g} s"
    if done.returncode:
        return "OpenCV cannot decode it"
    own = ("[", " ")  # how OpenCV's log begins
    lines = done.stderr.decode(errors="replace").splitlines()
    return next((line for line in lines if line and not line.startswith(own)), None)


def _by_turbojpeg(data: bytes) -> tuple[NDArray[np.uint8] | None, str | None]:
    try:
        return simplejpeg.decode_jpeg(data, "BGR", strict=True), None
    except ValueError as error:
        return None, str(error)


def _salvaged(data: bytes, damage: str) -> NDArray[np.uint8]:
    """Return the image that a damaged file still gives. Raises CorruptInput if it gives none.

    OpenCV decodes most such files. It refuses a JPEG file that is cut off, and libjpeg decodes the rows that are there.
    The other rows are grey. Pillow and browsers show the same image."""
    try:
        return _by_opencv(data)
    except CorruptInput as error:
        if CUT_OFF not in damage:
            raise
        width, height = size(data)
        rows = np.full((height, width, 3), GREY, np.uint8)  # its own memory: libjpeg leaves what it does not reach
        try:
            simplejpeg.decode_jpeg(data, "BGR", strict=False, buffer=rows)
        except ValueError:
            raise error from None
        return rows


def has_harmless_faults(data: bytes) -> bool:
    """Tell whether a JPEG file has faults of those that have no part in its pixels: garbage between the segments before
    its scan, or a version of JFIF other than 1."""
    try:
        return _tidied(data) != data
    except struct.error:
        return False


def _tidied(data: bytes) -> bytes:
    """The same image without garbage between the segments before its scan, and of JFIF version 1."""
    kept = [data[:2]]
    for marker, start, end in segments(data):
        segment = bytearray(b"\xff" + bytes([marker]) + data[start + 2 : end])
        if marker == APP0 and segment[4:9] == b"JFIF\0":
            segment[9] = 1
        kept.append(bytes(segment))
    return b"".join([*kept, data[end:]])


def _png_damage(data: bytes) -> str | None:
    """By the chunks' checksums, the order of those that every file has, and the data's own checksum and length."""
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
    """Of the filtered rows, one filter byte each, of every pass."""
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
