"""Read image files as `transformers.image_utils.load_image` does: by Pillow, upright, and converted to RGB.

`image_file.py` reads files as OpenCV does, with other pixels for transparency, 16-bit samples and CMYK. Both have the
same limits, which hold before anything is decoded, and the same search for damage.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    ImageOps,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from PIL.Image import Image
from PIL.Image import new as new_image

from headrace.batching import CorruptInput
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.reference.orientation import ORIENTATION_TAG
from headrace.host.dpu.specs import Damaged, Orientation

T = TypeVar("T")

# The readers of Pillow by the first bytes of their files. `Image.open` has more formats, some of which run programs,
# and a limit of its own for all users of Pillow in a process.
READERS: Final[tuple[tuple[bytes, str, Callable[..., Any]], ...]] = (
    (b"\xff\xd8\xff", "JPEG", JpegImagePlugin.jpeg_factory),
    (image_file.PNG_SIGNATURE, "PNG", PngImagePlugin.PngImageFile),
    (b"RIFF", "WebP", WebPImagePlugin.WebPImageFile),
    (b"GIF8", "GIF", GifImagePlugin.GifImageFile),
    (b"II*\0", "TIFF", TiffImagePlugin.TiffImageFile),
    (b"MM\0*", "TIFF", TiffImagePlugin.TiffImageFile),
    (b"II+\0", "TIFF", TiffImagePlugin.TiffImageFile),
    (b"MM\0+", "TIFF", TiffImagePlugin.TiffImageFile),
    (b"BM", "BMP", BmpImagePlugin.BmpImageFile),
)
CHECKED: Final = ("JPEG", "PNG", "WebP")  # for damage that Pillow does not report


class ReadImage(NamedTuple):
    """The pixels of a file, (rows, columns, 3) uint8 RGB, its damage or None, and the orientation in its Exif data.

    The pixels are upright already."""

    pixels: NDArray[np.uint8]
    damage: str | None
    orientation: Orientation


def read(data: bytes, max_megapixels: int, damaged: Damaged = Damaged.STRICT, on_white: bool = False) -> ReadImage:
    """Return the image of a file, turned upright, in RGB. An animation, or a TIFF file of pages, gives the first one.

    An alpha channel is dropped. With `on_white`, a colour that the file names as transparent becomes white.

    Raises:
        CorruptInput: The file is of no known format, has more than `max_megapixels`, or Pillow cannot decode it. With
            STRICT also if the file is damaged. Damage within WebP, GIF, TIFF and BMP files is often not found.
    """
    image = opened(data, max_megapixels)
    kind = _reader(data)[0]
    damage = image_file.damage_of(data) if kind in CHECKED else None
    if damage and damaged is Damaged.STRICT:
        raise CorruptInput(f"it is damaged: {damage}")
    orientation = _by_pillow(lambda: orientation_of(image), kind)
    rgb = _by_pillow(lambda: upright(image).convert("RGB"), kind)
    return ReadImage(pixels(rgb, on_white), damage, orientation)


def opened(data: bytes, max_megapixels: int) -> Image:
    """Return the image of a file, which Pillow has not yet decoded.

    Raises CorruptInput if the file is of no known format, has more than `max_megapixels`, or a bad header."""
    kind, reader = _reader(data)
    image: Image = _by_pillow(lambda: reader(BytesIO(data)), kind)
    image_file.check_pixels(*image.size, max_megapixels)
    return image


def _reader(data: bytes) -> tuple[str, Callable[..., Any]]:
    """Return the format of a file, and its reader. Raises CorruptInput if there is none."""
    if not data:
        raise CorruptInput("it is empty")
    for first, kind, reader in READERS:
        if data.startswith(first):
            return kind, reader
    known = ", ".join(dict.fromkeys(kind for _, kind, _ in READERS))
    raise CorruptInput(f"it is no image file of a known format; give one of {known}")


def pixels(image: Image, on_white: bool = False) -> NDArray[np.uint8]:
    """Return the pixels of an image of Pillow, upright and in RGB. `in_rgb` tells what becomes of transparency.

    Raises CorruptInput if Pillow has not yet decoded its file, and cannot."""
    return _by_pillow(lambda: np.asarray(in_rgb(upright(image), on_white)), image.format or "image")


def in_rgb(image: Image, on_white: bool) -> Image:
    """Return an image in RGB. Transparency is dropped, or white is behind it.

    transformers.image_transforms.convert_to_rgb does the latter."""
    if on_white and is_transparent(image):
        seen = image.convert("RGBA")
        image = new_image("RGBA", seen.size, (255, 255, 255, 255))
        image.alpha_composite(seen)
    return image if image.mode == "RGB" else image.convert("RGB")


def is_transparent(image: Image) -> bool:
    """Tell whether an image has an alpha channel, or names a colour that is transparent."""
    return "A" in image.getbands() or image.info.get("transparency") is not None


def upright(image: Image) -> Image:
    """Return an image turned by its orientation. It raises errors of many classes for a damaged file."""
    image.load()  # some files name their orientation behind the pixels
    return image if orientation_of(image) is Orientation.NONE else ImageOps.exif_transpose(image)


def orientation_of(image: Image) -> Orientation:
    """Return the orientation in the Exif data of an image, NONE without a valid one."""
    value = image.getexif().get(ORIENTATION_TAG, 1)
    return Orientation(value) if value in list(Orientation) else Orientation.NONE


def _by_pillow(call: Callable[[], T], kind: str) -> T:
    """Return the result of a call of Pillow, whose readers raise errors of many classes for a damaged file."""
    try:
        return call()
    except Exception as error:
        raise CorruptInput(f"Pillow cannot decode this {kind} file: {error or type(error).__name__}") from error
