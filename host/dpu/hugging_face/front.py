"""This module makes the tensors of one image or of one audio file, for `headrace.preprocess`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, UsageError
from headrace.host.dpu.hugging_face.names import processor
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.reference import audio, pillow_file
from headrace.host.dpu.reference.processor import process
from headrace.host.dpu.specs import MAX_MEGAPIXELS, AudioSpec, Damaged

if TYPE_CHECKING:
    from PIL.Image import Image


def preprocess(
    source: "str | os.PathLike[str] | bytes | NDArray[Any] | Image",
    spec: ProcessorSpec | AudioSpec | str | Path,
    *,
    max_megapixels: int = MAX_MEGAPIXELS,
    damaged: Damaged | str = Damaged.STRICT,
) -> dict[str, NDArray[Any]]:
    """Return the tensors that a model takes for one image, bit for bit as transformers makes them, or for audio.

    An image file is read as `transformers.image_utils.load_image` does: upright by its Exif orientation, in RGB,
    without its alpha channel. It is a JPEG, PNG, WebP, GIF, TIFF or BMP file. An audio file is a WAV or FLAC file of
    any usual rate, which becomes mono at the rate of the model.

    Args:
        source: The path of a file, or its bytes. An image may also be one of Pillow, or RGB pixels of uint8, shape
            (rows, columns, 3). Audio may also be samples of -1 to 1 at the model's rate, shape (samples,).
        spec: The processor, or the name, file or folder of a model as `headrace.processor` takes it.
        max_megapixels: Largest image of a file, in megapixels. The header tells the size before anything is decoded.
        damaged: "strict" refuses a damaged image. "lenient" takes what Pillow makes of it.

    Returns:
        `pixel_values`, or the features of audio, and what else the model takes, by the names of transformers.

    Raises:
        CorruptInput: The file is damaged, too large, or of no known format.
        UsageError: The file cannot be opened, an argument is wrong, or the processor does not take this size.
    """
    found = processor(spec) if isinstance(spec, str | Path) else spec
    if isinstance(found, AudioSpec):
        return _of_audio(source, found)
    if isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3 or 0 in source.shape:
            raise UsageError(
                f"an array of {source.dtype} with shape {source.shape} is no image; give uint8 (rows, columns, 3)"
            )
        return process(source, found)
    if isinstance(source, bytes):
        return _of_file(source, found, max_megapixels, _rule(damaged))
    if not isinstance(source, str | os.PathLike):
        if not hasattr(source, "convert"):
            raise UsageError(f"{type(source).__name__} is no image; give a path, bytes, an array or an image of Pillow")
        return process(pillow_file.pixels(source, found.on_white), found)
    rule = _rule(damaged)
    return _of_path(source, lambda data: _of_file(data, found, max_megapixels, rule))


def _of_path(path: str | os.PathLike[str], make: Callable[[bytes], dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return what `make` makes of the bytes of a file. Errors name the file."""
    try:
        return make(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except HeadraceError as error:
        raise type(error)(f"{path}: {error}") from error


def _of_audio(source: Any, spec: AudioSpec) -> dict[str, NDArray[Any]]:
    if spec.tensors is None:
        raise UsageError("the spec has no names for its tensors; give one of AudioSpec.from_hf or headrace.processor")
    if isinstance(source, str | os.PathLike):
        return _of_path(source, lambda data: dict(audio.process(data, spec)[1]))
    if isinstance(source, bytes):
        return dict(audio.process(source, spec)[1])
    if not isinstance(source, np.ndarray):
        raise UsageError(f"{type(source).__name__} is no audio; give a path, bytes or an array of samples")
    samples = audio.of_array(source, spec)
    return audio.named(audio.features(samples, spec), spec.valid(len(samples)), spec)


def _of_file(data: bytes, spec: ProcessorSpec, max_megapixels: int, damaged: Damaged) -> dict[str, NDArray[Any]]:
    return process(pillow_file.read(data, max_megapixels, damaged, spec.on_white).pixels, spec)


def _rule(damaged: Damaged | str) -> Damaged:
    try:
        return Damaged(damaged)
    except ValueError:
        raise UsageError(f"damaged is {damaged!r}; give strict or lenient") from None
