"""JPEG files whose pixels nobody has decoded yet. The DPU takes such files only."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.MpoImagePlugin import MpoImageFile

from headrace.host.dpu.processors import Size
from headrace.host.dpu.reference import pillow_file

PATH: Final = "headrace_path"  # the attribute of an image that was opened here from a path
SOI, SOS, APP1 = 0xD8, 0xDA, 0xE1


@dataclass(frozen=True, slots=True)
class UnreadJpeg:
    """A JPEG file in place of its pixels.

    Args:
        data: The bytes of the file. The DPU turns the image by the Exif orientation that they have.
        size: Size of the image after that turn.
        decoded: The function that returns what the library makes of the image.
    """

    data: bytes
    size: Size
    decoded: Callable[[], Any]


def opened(path: str) -> Image.Image | None:
    """Return the image of a path, not decoded, if it is a JPEG file for the DPU."""
    if not os.path.isfile(path):
        return None
    try:
        image = Image.open(path, formats=("JPEG",))
    except Exception:  # no JPEG file: the library says what is wrong with it
        return None
    setattr(image, PATH, path)
    return image


def unread(image: Any, do_convert_rgb: bool | None, decoded: Callable[[], Any]) -> UnreadJpeg | None:
    """Return the file of an image of Pillow that is an RGB or grey JPEG file, of which no pixel was decoded.

    The library does not turn an image of Pillow, but it turns the image of a path."""
    if type(image) not in (JpegImageFile, MpoImageFile) or image.fp is None or not image.tile:
        return None
    if image.mode not in (("RGB", "L") if do_convert_rgb else ("RGB",)) or image.decoderconfig or image.tell() != 0:
        return None
    place = image.fp.tell()
    try:
        image.fp.seek(0)
        data = image.fp.read()
    except (OSError, ValueError):
        return None
    finally:
        image.fp.seek(place)
    size = Size(*image.size)
    if getattr(image, PATH, None) is None:
        return UnreadJpeg(without_exif(data), size, decoded)
    turned = pillow_file.orientation_of(image).exchanges_sides
    return UnreadJpeg(data, Size(size.height, size.width) if turned else size, decoded)


def without_exif(jpeg: bytes) -> bytes:
    """Return a JPEG file without its APP1 segments, one of which may say how to turn the image."""
    kept, place = [jpeg[:2]], 2
    while place + 4 <= len(jpeg) and jpeg[place] == 0xFF and jpeg[place + 1] not in (SOS, 0xFF):
        end = place + 2 + int.from_bytes(jpeg[place + 2 : place + 4], "big")
        if jpeg[place + 1] != APP1:
            kept.append(jpeg[place:end])
        place = end
    return b"".join((*kept, jpeg[place:]))
