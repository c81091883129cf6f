"""Photos as JPEG bytes: the photos that scikit-learn and scikit-image bundle, or a folder of the user's own."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import cv2

from headrace.batching import UsageError

# Each package with the folder and the names of its bundled photos (no drawings, no textures of a single frame).
BUNDLED = {
    "sklearn": ("datasets/images", ("china.jpg", "flower.jpg")),
    "skimage": (
        "data",
        (
            "astronaut.png",
            "camera.png",
            "chelsea.png",
            "coffee.png",
            "hubble_deep_field.jpg",
            "ihc.png",
            "moon.png",
            "motorcycle_left.png",
            "retina.jpg",
            "rocket.jpg",
        ),
    ),
}

# ImageNet has no class for what these show, so its networks cannot name it.
NAMELESS = ("astronaut", "hubble_deep_field", "ihc", "moon", "retina")

LONG_SIDES = (640, 500, 384, 1024)  # pixels; 500 is the typical long side of an ImageNet photo
QUALITIES = (90, 75, 95, 60)
SAMPLINGS = {
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A JPEG file: its name and its bytes.

    Files with the same `picture` show the same. It is None if networks that know ImageNet's classes cannot name it."""

    name: str
    jpeg: bytes
    picture: str | None


def bundled_images() -> list[Path]:
    """Return the photo files of the installed packages. Raises UsageError if there are none."""
    paths = []
    for package, (folder, names) in BUNDLED.items():
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or []) if spec else []:
            paths += [path for name in names if (path := Path(root) / folder / name).is_file()]
    if not paths:
        raise UsageError(
            "no photos: install scikit-learn and scikit-image, which bundle some (`pip install headrace[demo]`), "
            "or name a folder of your own with --images"
        )
    return paths


def demo_images() -> list[ImageFile]:
    """Return the bundled photos, re-encoded at several sizes, qualities and subsamplings. Gray photos stay gray.

    Every photo comes once before one comes again in another form. They are made once in a process."""
    return list(_demo_images())


@functools.cache
def _demo_images() -> tuple[ImageFile, ...]:
    variants: Iterator[tuple[int, int, str]] = itertools.cycle(
        zip(
            itertools.islice(itertools.cycle(LONG_SIDES), 60),
            itertools.islice(itertools.cycle(QUALITIES), 60),
            itertools.islice(itertools.cycle(SAMPLINGS), 60),
            strict=True,
        )
    )
    forms: list[list[ImageFile]] = [[], [], []]
    for path in bundled_images():
        original = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        for images, (long_side, quality, sampling) in zip(forms, variants, strict=False):
            scale = min(1.0, long_side / max(original.shape[:2]))
            scaled = cv2.resize(original, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
            options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling]]
            jpeg = cv2.imencode(".jpg", scaled, options)[1].tobytes()
            size = f"{scaled.shape[1]}x{scaled.shape[0]}"
            picture = None if path.stem in NAMELESS else path.stem
            images.append(ImageFile(f"{path.stem} {size} {sampling} q{quality}", jpeg, picture))
    return tuple(image for images in forms for image in images)


def folder_images(folder: Path) -> list[ImageFile]:
    """Return every JPEG file below `folder`, in the order of the names.

    Raises UsageError if `folder` is not a folder, or holds no JPEG file."""
    if not folder.is_dir():
        raise UsageError(f"--images {folder}: there is no such folder")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg") and path.is_file())
    if not paths:
        raise UsageError(f"--images {folder}: it holds no .jpg or .jpeg files")
    names = {path: str(path.relative_to(folder)) for path in paths}
    return [ImageFile(name, path.read_bytes(), name) for path, name in names.items()]
