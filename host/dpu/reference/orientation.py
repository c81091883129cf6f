"""Read the orientation of an image from its Exif data (CIPA DC-008, tag 0x0112).

JPEG files hold Exif data in a segment. PNG (third edition, 11.3.4.5) and WebP (RFC 9649, 2.7.1.5) hold it in a chunk.
"""

import contextlib
import struct
from collections.abc import Iterator

from headrace.host.dpu.reference.image_file import PNG_SIGNATURE, SOI, segments
from headrace.host.dpu.specs import Orientation

APP1 = 0xE1
EXIF = b"Exif\0\0"
ORIENTATION_TAG = 0x0112
PNG_CHUNK, WEBP_CHUNK = ">I4s", "<4sI"  # after the data, PNG has a checksum and WebP pads to an even length
KINDS = {3: "H", 4: "I", 8: "h", 9: "i"}  # the integer types: SHORT, LONG, SSHORT, SLONG


def orientation(file: bytes) -> Orientation:
    """Return the orientation that the first Exif data of a file name, or NONE if they name none.

    It never fails, because the decoder decides whether a file is valid."""
    with contextlib.suppress(struct.error):  # the file ends within its header
        return _of_tiff((_exif(file) or b"").removeprefix(EXIF))
    return Orientation.NONE


def _exif(file: bytes) -> bytes | None:
    """Return the first Exif data of a JPEG, PNG or WebP file. Raises struct.error if the file ends early."""
    if file.startswith(bytes([0xFF, SOI])):
        for marker, start, end in segments(file):
            segment = file[start + 4 : end]  # after marker and length
            if marker == APP1 and segment.startswith(EXIF):
                return segment
    elif file.startswith(PNG_SIGNATURE):
        for kind, start, end in _chunks(file, len(PNG_SIGNATURE), PNG_CHUNK):
            if kind == b"eXIf":
                return file[start:end]
    elif file[:4] + file[8:12] == b"RIFFWEBP":
        for kind, start, end in _chunks(file, 12, WEBP_CHUNK):
            if kind == b"EXIF":
                return file[start:end]
    return None


def _chunks(file: bytes, at: int, head: str) -> Iterator[tuple[bytes, int, int]]:
    """Yield the kind, start and end of the data of each chunk. Raises struct.error if the file ends early."""
    while at < len(file):
        first, second = struct.unpack_from(head, file, at)
        kind, length, padding = (second, first, 4) if head == PNG_CHUNK else (first, second, second % 2)
        start = at + 8
        yield kind, start, start + length
        at = start + length + padding


def _of_tiff(tiff: bytes) -> Orientation:
    """Return the orientation that the first directory of the Exif data names."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return Orientation.NONE
    try:
        magic, directory = struct.unpack_from(order + "HI", tiff, 2)
        (entries,) = struct.unpack_from(order + "H", tiff, directory)
        for entry in range(entries):
            at = directory + 2 + 12 * entry
            tag, kind, count = struct.unpack_from(order + "HHI", tiff, at)
            if tag == ORIENTATION_TAG:
                if magic != 42 or kind not in KINDS or count != 1:
                    return Orientation.NONE
                return Orientation(struct.unpack_from(order + KINDS[kind], tiff, at + 8)[0])
    except (struct.error, ValueError):
        pass
    return Orientation.NONE
