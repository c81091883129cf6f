"""Image processors in the simulator: the work of the image CU, the bytes of the tensor, and the time of a core.

The simulator does not know any processor. Packages that do have an entry point in the group
`headrace.image_processors`: a function that takes a name and returns a function of width and height.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.named import installed, own
from headrace.sim.hardware.cpu import MEASURED
from headrace.sim.hardware.dpu.processor import DecodeEstimate, ScalerPass, processor_cycles
from headrace.sim.hardware.inputs import KnownImage, decode_clocks, usual_file_bytes
from headrace.sim.workload.images import ImageSizes

GROUP: Final = "headrace.image_processors"
OWN: Final = "headrace"  # the name of the entry point of Headrace's own package
# `python -m benchmarks.image_processors --costs` writes the file.
COSTS: Final = Path(__file__).with_name("processor_costs.csv")
OURS: Final = "ours"
MAX_SIZES: Final = 100_000


@dataclass(frozen=True, slots=True)
class ProcessorWork:
    """The work of a processor for an image of one size.

    Attributes:
        tensor_bytes: Bytes of all tensors.
        passes: The passes of the image CU, or the reason why it does not take the image.
    """

    tensor_bytes: int
    passes: tuple[ScalerPass, ...] | str


Work = Callable[[int, int], ProcessorWork]  # by width and height


def work_of(processor: str) -> Work:
    """Return the function that tells the work of a processor by width and height of an image. Raises UsageError."""
    if OWN not in installed(GROUP):
        raise UsageError(f"--processor {processor!r}: no installed package knows image processors; install headrace")
    found: Work = own("--processor", OWN, GROUP)(processor)
    return found


@lru_cache(maxsize=4)  # a search asks for the same ones again and again
def known_images(processor: str, sizes: ImageSizes, preprocess: str) -> tuple[KnownImage, ...]:
    """Return an image for each of the sizes, with the processor's clocks, bytes and seconds of a core.

    Args:
        processor: A name that `headrace preprocess processors` lists, or the folder of a model.
        sizes: The sizes.
        preprocess: The preprocessor, as `preprocessors.parse` takes it.

    Raises:
        UsageError: The processor is not known, or does not take a size, or cannot be simulated on this preprocessor.
    """
    device = preprocess.strip().split(":")[0]
    if device == "nvjpg":
        raise UsageError("--processor: nvjpg only decodes; give --preprocess dpu or cpu")
    if device == "cpu" and processor not in measured_processors():
        raise UsageError(
            f"--processor {processor}: the time of a core is not measured for it, only for "
            f"{', '.join(measured_processors())}; give one of them, or --preprocess dpu"
        )
    if len(sizes.width) > MAX_SIZES:
        raise UsageError(f"--processor takes at most {MAX_SIZES} sizes of images, and here are {len(sizes.width)}")
    work = work_of(processor)
    file_bytes = usual_file_bytes(sizes.pixels) if sizes.file_bytes is None else sizes.file_bytes
    return tuple(
        _known(processor, work, int(width), int(height), max(1, int(data)), device == "dpu")
        for width, height, data in zip(sizes.width, sizes.height, file_bytes, strict=True)
    )


def _known(processor: str, work: Work, width: int, height: int, file_bytes: int, on_card: bool) -> KnownImage:
    made, pixels = work(width, height), width * height
    clocks = 1
    if on_card:
        if isinstance(made.passes, str):
            raise UsageError(f"--processor {processor}: the image CU does not take {width}x{height}: {made.passes}")
        clocks = processor_cycles(DecodeEstimate(width, height, decode_clocks(pixels, file_bytes)), made.passes)
    return KnownImage(pixels, file_bytes, clocks, made.tensor_bytes, core_seconds(processor, pixels))


@cache
def _costs() -> Mapping[tuple[str, str], Sequence[tuple[float, float]]]:
    """Return pixels and seconds by processor and library, in the order of pixels."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    if COSTS.exists():
        with COSTS.open(newline="") as file:
            for row in csv.DictReader(file):
                pixels = int(row["width"]) * int(row["height"])
                found.setdefault((row["processor"], row["library"]), []).append((pixels, float(row["ms"]) / 1e3))
    return {key: sorted(points) for key, points in found.items()}


def measured_processors() -> list[str]:
    """Return the processors for which the time of a core was measured."""
    return sorted({processor for processor, _ in _costs()})


def core_seconds(processor: str, pixels: int) -> dict[str, float]:
    """Return the seconds of a core by library, between measured sizes on a line through them.

    Below the smallest size the time grows with the pixels, and above the largest one as between the last two."""
    found = {}
    for (name, library), points in _costs().items():
        if name != processor:
            continue
        at, seconds = (np.array(each) for each in zip((0.0, 0.0), *points, strict=True))
        if pixels > at[-1]:
            slope = (seconds[-1] - seconds[-2]) / (at[-1] - at[-2])
            found[library] = float(seconds[-1] + slope * (pixels - at[-1]))
        else:
            found[library] = float(np.interp(pixels, at, seconds))
    if OURS in found:
        found[MEASURED.label] = found[OURS]  # the costs that count by default are those of our path, too
    return found
