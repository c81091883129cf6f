"""Image processors and feature extractors in the simulator: the work of the compute units, the bytes of the tensors,
and the time of a core.

The simulator does not know any of them. Packages that do have an entry point in the group `headrace.processors`: a
function that takes a name and returns the work, as a function of width and height or as AudioWork.
"""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.named import installed, own
from headrace.sim.hardware.cpu import MEASURED
from headrace.sim.hardware.dpu.processor import DecodeEstimate, ScalerPass, processor_cycles
from headrace.sim.hardware.inputs import (
    Audio,
    AudioWork,
    Inputs,
    KnownImage,
    KnownImages,
    Values,
    decode_clocks,
    usual_file_bytes,
)
from headrace.sim.workload.images import ImageSizes

GROUP: Final = "headrace.processors"
OWN: Final = "headrace"  # the name of the entry point of Headrace's own package
# `python -m benchmarks.image_processors --costs` and `python -m benchmarks.front_ends --costs` write the file.
COSTS: Final = Path(__file__).with_name("processor_costs.csv")
OURS: Final = "ours"
MAX_SIZES: Final = 100_000


@dataclass(frozen=True, slots=True)
class ImageWork:
    """The work of an image processor for an image of one size.

    Attributes:
        tensor_bytes: Bytes of all tensors.
        passes: The passes of the image CU, or the reason why it does not take the image.
        tokens: The tokens of the prompt that the image becomes, where the model merges patches; None for others.
    """

    tensor_bytes: int
    passes: tuple[ScalerPass, ...] | str
    tokens: int | None = None


ImageWorkOf = Callable[[int, int], ImageWork]  # by width and height


def work_of(processor: str) -> ImageWorkOf | AudioWork:
    """Return the work of an image processor or of a feature extractor. Raises UsageError for an unknown name."""
    if OWN not in installed(GROUP):
        raise UsageError(f"--processor {processor!r}: no installed package knows processors; install headrace")
    found: ImageWorkOf | AudioWork = own("--processor", OWN, GROUP)(processor)
    return found


def check_kind(processor: str, kind: str) -> None:
    """Raise UsageError for an unknown name, and for a processor of other inputs than those of `kind`."""
    takes = "audio" if isinstance(work_of(processor), AudioWork) else "image"
    if takes != kind:
        words = {"image": "images", "audio": "audio"}
        raise UsageError(
            f"--processor {processor} is for {words[takes]}, and --model takes {words[kind]}; name a processor for "
            f"{words[kind]}"
        )


def inputs_of(processor: str, kind: str, sizes: ImageSizes | None, preprocess: str) -> Inputs:
    """Return the inputs of a processor: an image for each of the sizes, or sounds of any length.

    Args:
        processor: A name that `headrace preprocess processors` lists, a file, or the folder of a model.
        kind: "image" or "audio", what the network takes.
        sizes: The sizes of images.
        preprocess: The preprocessor, as `preprocessors.parse` takes it.

    Raises:
        UsageError: The processor is not known, or is for other inputs. Or it does not take a size, or cannot be
            simulated on this preprocessor.
    """
    return _inputs_of(processor, kind, sizes, preprocess.strip().split(":")[0])


@lru_cache(maxsize=4)  # a search asks for the same ones again and again
def _inputs_of(processor: str, kind: str, sizes: ImageSizes | None, device: str) -> Inputs:
    check_kind(processor, kind)
    if device == "nvjpg":
        raise UsageError("--processor: nvjpg only decodes; give --preprocess dpu or cpu")
    if device == "cpu" and processor not in measured_processors(kind):
        raise UsageError(
            f"--processor {processor}: the time of a core is not measured for it, only for "
            f"{', '.join(measured_processors(kind))}; give one of them, or --preprocess dpu"
        )
    work, core_s = work_of(processor), core_seconds(processor)
    if isinstance(work, AudioWork):
        if device == "dpu" and isinstance(work.plan, str):
            instead = "give --preprocess cpu" if processor in measured_processors(kind) else "name another one"
            raise UsageError(f"--processor {processor}: the audio CUs do not have it: {work.plan}; {instead}")
        return Audio(work, core_s)
    if sizes is None:
        raise UsageError(f"--processor {processor} works by width and height; give --image-sizes")
    if len(sizes.width) > MAX_SIZES:
        raise UsageError(f"--processor takes at most {MAX_SIZES} sizes of images, and here are {len(sizes.width)}")
    file_bytes = usual_file_bytes(sizes.pixels) if sizes.file_bytes is None else sizes.file_bytes
    seconds = {label: of(sizes.pixels).tolist() for label, of in core_s.items()}
    return KnownImages(
        tuple(
            KnownImage(
                int(width) * int(height),
                max(1, int(data)),
                *_work(processor, work, int(width), int(height), max(1, int(data)), device == "dpu"),
                {label: each[number] for label, each in seconds.items()},
            )
            for number, (width, height, data) in enumerate(zip(sizes.width, sizes.height, file_bytes, strict=True))
        )
    )


def _work(
    processor: str, work: ImageWorkOf, width: int, height: int, file_bytes: int, on_card: bool
) -> tuple[int, int]:
    """Return the clocks of the image CU, 1 without a card, and the bytes of the tensors."""
    made = work(width, height)
    if not on_card:
        return 1, made.tensor_bytes
    if isinstance(made.passes, str):
        raise UsageError(f"--processor {processor}: the image CU does not take {width}x{height}: {made.passes}")
    estimate = DecodeEstimate(width, height, decode_clocks(width * height, file_bytes))
    return processor_cycles(estimate, made.passes), made.tensor_bytes


# ---- Times of a core ----


@dataclass(frozen=True, slots=True)
class CoreTime:
    """Measured times of a core by the amount of an input, in rising order: pixels, or seconds of audio.

    Between two of them the time lies on a line. Below the smallest it grows with the amount, and above the largest as
    between the last two."""

    amounts: tuple[float, ...]
    seconds: tuple[float, ...]

    def __call__(self, amounts: Values) -> Values:
        at, seconds = np.array([0.0, *self.amounts]), np.array([0.0, *self.seconds])
        slope = max(0.0, (seconds[-1] - seconds[-2]) / (at[-1] - at[-2]))
        found: Values = np.interp(amounts, at, seconds) + slope * np.maximum(amounts - at[-1], 0.0)
        return found


def amount_of(size: str) -> tuple[str, float]:
    """Return the kind and the amount of an input of the file: "500x375" is an image and "2.5" are seconds of audio."""
    width, by, height = size.partition("x")
    return ("image", float(width) * float(height)) if by else ("audio", float(width))


@cache
def _costs() -> Mapping[tuple[str, str, str], CoreTime]:
    """Return the times by kind, processor and library."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with COSTS.open(newline="") as file:
        for row in csv.DictReader(file):
            kind, amount = amount_of(row["size"])
            found.setdefault((kind, row["processor"], row["library"]), []).append((amount, float(row["ms"]) / 1e3))
    return {key: CoreTime(*zip(*sorted(points), strict=True)) for key, points in found.items()}


def measured_processors(kind: str) -> list[str]:
    """Return the processors of a kind for which the time of a core was measured."""
    return sorted({processor for each, processor, _ in _costs() if each == kind})


def core_seconds(processor: str) -> dict[str, CoreTime]:
    """Return the times of a core by library. There are none for a processor that was not measured."""
    found = {library: time for (_, name, library), time in _costs().items() if name == processor}
    if OURS in found:
        found[MEASURED.label] = found[OURS]  # the costs that count by default are those of our path, too
    return found
