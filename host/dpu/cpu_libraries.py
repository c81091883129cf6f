"""Preprocess on the CPU with the libraries that servers use, so that their costs can be measured.

`headrace profile --cpu-preprocessing NAME` measures one of LIBRARIES. Every library makes the same tensors as the
default ImageSpec and AudioSpec describe, in the way of its own documentation. Values differ where a library resizes or
resamples by another filter. A library for one kind of input is paired with another library for the other kind, as a
server would have both.

| name | images | audio |
| --- | --- | --- |
| ours | the project's CPU path | the project's CPU path |
| opencv | OpenCV | the project's CPU path |
| pillow | Pillow and numpy | the project's CPU path |
| torchvision | torchvision's transforms of a Pillow image | the project's CPU path |
| librosa | OpenCV | librosa, resampling by soxr_hq |
| librosa-kaiser_best | OpenCV | librosa, resampling by kaiser_best of resampy |

librosa resampled by kaiser_best up to release 0.9.2 (June 2022), and by soxr_hq since 0.10.0 (February 2023).
"""

import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.reference import audio, image
from headrace.host.dpu.specs import IMAGENET_MEAN, IMAGENET_STD, AudioSpec, ImageSpec

IMAGE: Final = ImageSpec()
AUDIO: Final = AudioSpec()
EXTRA: Final = "libraries"
MEAN: Final = np.array(IMAGENET_MEAN, np.float32)
STD: Final = np.array(IMAGENET_STD, np.float32)

Preprocess = Callable[[bytes], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Library:
    """One way to preprocess on the CPU.

    Attributes:
        image: Makes the tensor, float32 (3, 224, 224), of a JPEG file.
        audio: Makes the normalized log-mel spectrogram, float32 (80, frames), of a WAV or FLAC file.
        packages: The packages that both need beyond those of Headrace itself.
    """

    image: Preprocess
    audio: Preprocess
    packages: tuple[str, ...] = ()


def opencv_image(jpeg: bytes) -> NDArray[np.float32]:
    """Return the tensor of a JPEG file by OpenCV, float32 (3, 224, 224). Raises UsageError for another file."""
    pixels = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise UsageError("OpenCV decodes no image from these bytes; give JPEG files")
    size = image.resized_size(pixels.shape[1], pixels.shape[0], IMAGE.resize_short)
    pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)
    return _normalized(_cropped(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)))


def pillow_image(jpeg: bytes) -> NDArray[np.float32]:
    """Return the tensor of a JPEG file by Pillow, float32 (3, 224, 224)."""
    pillow = importlib.import_module("PIL.Image")
    with pillow.open(io.BytesIO(jpeg)) as file:
        pixels = file.convert("RGB")
    resized = pixels.resize(image.resized_size(*pixels.size, IMAGE.resize_short), pillow.Resampling.BILINEAR)
    return _normalized(_cropped(np.asarray(resized)))


def torchvision_image(jpeg: bytes) -> NDArray[np.float32]:
    """Return the tensor of a JPEG file by torchvision's transforms, float32 (3, 224, 224)."""
    transform, pillow = _torchvision()
    with pillow.open(io.BytesIO(jpeg)) as file:
        tensor: NDArray[np.float32] = transform(file.convert("RGB")).numpy()
    return tensor


@cache
def _torchvision() -> tuple[Any, Any]:
    """Return torchvision's transforms of a photo for classification, on one thread, and the module PIL.Image.

    Raises UsageError if torchvision does not load."""
    try:
        # A torchvision that was built for CUDA loads with a torch without it only after this module.
        importlib.import_module("headrace.host.workers.networks.zoo.torchvision_operators")
        transforms = importlib.import_module("torchvision.transforms")
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"torchvision does not load here ({error}); install the release that belongs to this torch: pip install "
            f"'headrace[{EXTRA}]'"
        ) from error
    importlib.import_module("torch").set_num_threads(1)
    chain = transforms.Compose(
        [
            transforms.Resize(IMAGE.resize_short),
            transforms.CenterCrop((IMAGE.crop_height, IMAGE.crop_width)),
            transforms.ToTensor(),
            transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    return chain, importlib.import_module("PIL.Image")


def librosa_audio(data: bytes, resampler: str) -> NDArray[np.float32]:
    """Return the normalized log-mel spectrogram of a WAV or FLAC file by librosa, float32 (80, frames).

    `resampler` is librosa's `res_type`."""
    librosa = importlib.import_module("librosa")
    samples, rate = librosa.load(io.BytesIO(data), sr=AUDIO.rate, res_type=resampler)
    samples = librosa.effects.preemphasis(samples, coef=AUDIO.preemphasis, zi=[0.0])
    power = librosa.feature.melspectrogram(
        y=samples,
        sr=rate,
        n_fft=AUDIO.n_fft,
        hop_length=AUDIO.hop,
        win_length=AUDIO.window,
        window=AUDIO.hann(),
        pad_mode="constant",
        n_mels=AUDIO.n_mels,
    )
    normalized: NDArray[np.float32] = audio.normalize(np.log(power + np.float32(AUDIO.log_floor)), AUDIO)
    return normalized


def our_image(jpeg: bytes) -> NDArray[np.float32]:
    """Return the tensor of a JPEG file by the project's CPU path."""
    return image.preprocess(jpeg, IMAGE)


def our_audio(data: bytes) -> NDArray[np.float32]:
    """Return the normalized log-mel spectrogram of a WAV or FLAC file by the project's CPU path."""
    return audio.preprocess(data, AUDIO)


def _cropped(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    top = round((pixels.shape[0] - IMAGE.crop_height) / 2)
    left = round((pixels.shape[1] - IMAGE.crop_width) / 2)
    return pixels[top : top + IMAGE.crop_height, left : left + IMAGE.crop_width]


def _normalized(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    values = (pixels.astype(np.float32) / np.float32(255) - MEAN) / STD
    return np.ascontiguousarray(values.transpose(2, 0, 1))


LIBRARIES: Final = {
    "ours": Library(our_image, our_audio),
    "opencv": Library(opencv_image, our_audio),
    "pillow": Library(pillow_image, our_audio, ("PIL",)),
    "torchvision": Library(torchvision_image, our_audio, ("PIL", "torch", "torchvision")),
    "librosa": Library(opencv_image, partial(librosa_audio, resampler="soxr_hq"), ("librosa",)),
    "librosa-kaiser_best": Library(
        opencv_image, partial(librosa_audio, resampler="kaiser_best"), ("librosa", "resampy")
    ),
}


def library(name: str) -> Library:
    """Return a library by its name in LIBRARIES. Raises UsageError for another name, or if a package is missing."""
    if name not in LIBRARIES:
        raise UsageError(f"there is no preprocessing by {name!r}; choose from {', '.join(LIBRARIES)}")
    found = LIBRARIES[name]
    missing = [package for package in found.packages if find_spec(package) is None]
    if missing:
        raise UsageError(f"{name} needs {' and '.join(missing)}: pip install 'headrace[{EXTRA}]'")
    return found
