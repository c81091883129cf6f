"""This module makes the tensors of an image with an image processor, for `headrace.preprocess`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, UsageError
from headrace.host.dpu.hugging_face.names import processor
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.reference import pillow_file
from headrace.host.dpu.reference.processor import process
from headrace.host.dpu.specs import MAX_MEGAPIXELS, Damaged

if TYPE_CHECKING:
    from PIL.Image import Image


def preprocess(
    image: "str | os.PathLike[str] | bytes | NDArray[np.uint8] | Image",
    spec: ProcessorSpec | str | Path,
    *,
    max_megapixels: int = MAX_MEGAPIXELS,
    damaged: Damaged | str = Damaged.STRICT,
) -> dict[str, NDArray[Any]]:
    """Return the tensors that a model takes for one image, bit for bit as transformers makes them.

    A file is read as `transformers.image_utils.load_image` does: upright by its Exif orientation, in RGB, without its
    transparency. It is a JPEG, PNG, WebP, GIF, TIFF or BMP file.

    Args:
        image: The path of a file, its bytes, an image of Pillow, or RGB pixels of uint8, shape (rows, columns, 3).
        spec: The processor, or the name, file or folder of a model as `headrace.processor` takes it.
        max_megapixels: Largest image of a file, in megapixels. The header tells the size before anything is decoded.
        damaged: "strict" refuses a damaged file. "lenient" takes what Pillow makes of it.

    Returns:
        `pixel_values`, and what else the model takes, by the names of transformers.

    Raises:
        CorruptInput: The file is damaged, too large, or of no known format.
        UsageError: The file cannot be opened, an argument is wrong, or the processor does not take this size.
    """
    found = spec if isinstance(spec, ProcessorSpec) else processor(spec)
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise UsageError(
                f"an array of {image.dtype} with shape {image.shape} is no image; give uint8 (rows, columns, 3)"
            )
        return process(image, found)
    if isinstance(image, bytes):
        return _of_file(image, found, max_megapixels, _rule(damaged))
    if not isinstance(image, str | os.PathLike):
        if not hasattr(image, "convert"):
            raise UsageError(f"{type(image).__name__} is no image; give a path, bytes, an array or an image of Pillow")
        return process(pillow_file.pixels(image), found)
    path = Path(image)
    try:
        return _of_file(path.read_bytes(), found, max_megapixels, _rule(damaged))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except HeadraceError as error:
        raise type(error)(f"{path}: {error}") from error


def _of_file(data: bytes, spec: ProcessorSpec, max_megapixels: int, damaged: Damaged) -> dict[str, NDArray[Any]]:
    return process(pillow_file.read(data, max_megapixels, damaged)[0], spec)


def _rule(damaged: Damaged | str) -> Damaged:
    try:
        return Damaged(damaged)
    except ValueError:
        raise UsageError(f"damaged is {damaged!r}; give strict or lenient") from None
