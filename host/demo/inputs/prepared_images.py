"""Preprocess every photo once with OpenCV and once with the DPU, and compare the tensors."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.inputs.images import ImageFile
from headrace.host.demo.inputs.prepared_files import FileSource, PreparedFiles, prepare_files
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Preprocessor
from headrace.host.dpu.reference import image
from headrace.host.dpu.specs import ImageSpec


@dataclass(frozen=True, slots=True)
class Equality:
    """How many of the DPU's tensors equal those of OpenCV and numpy.

    `images` counts the distinct photos, `on_dpu` those that the DPU took, and `unsupported` the others, by status."""

    images: int = 0
    on_dpu: int = 0
    equal: int = 0
    max_difference: float = 0.0
    unsupported: dict[str, int] = field(default_factory=dict)

    @classmethod
    def total(cls, parts: Iterable["Equality"]) -> "Equality":
        whole = cls()
        for part in parts:
            whole = cls(
                whole.images + part.images,
                whole.on_dpu + part.on_dpu,
                whole.equal + part.equal,
                max(whole.max_difference, part.max_difference),
                dict(Counter(whole.unsupported) + Counter(part.unsupported)),
            )
        return whole


@dataclass(frozen=True, slots=True)
class Clocks:
    """The cycles that a DPU emulated clock by clock took for the photos, one at a time.

    `cycles` counts from the start of a CU to its end. `counters` are sums over the images."""

    images: int
    cycles: int
    pixels: int
    counters: dict[str, int]

    @classmethod
    def total(cls, parts: Iterable["Clocks | None"]) -> "Clocks | None":
        """Return the sum of the parts, or None if every part is None."""
        whole = None
        for part in parts:
            if part is not None and whole is not None:
                counters = dict(Counter(whole.counters) + Counter(part.counters))
                part = cls(whole.images + part.images, whole.cycles + part.cycles, whole.pixels + part.pixels, counters)
            whole = part or whole
        return whole

    @property
    def cycles_per_pixel(self) -> float:
        return self.cycles / self.pixels

    @property
    def images_per_s(self) -> float:
        """The rate of one CU at the card's clock."""
        return self.images * CLOCK_MHZ * 1e6 / self.cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedImages(PreparedFiles):
    """The photos with their tensors. `clocks` is None if the DPU does not report cycles."""

    equality: Equality
    clocks: Clocks | None

    def source(self, preprocessor: Preprocessor[ImageSpec] | None) -> FileSource:
        """Return a source that sends the photos in turn, through `preprocessor` or as the tensors made beforehand."""
        return FileSource(self.files, preprocessor, range(len(self.files)), lambda tensor: tensor, self._compare)

    def _compare(self, index: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        return compare(tensor, self.files[index].cpu_tensor)


def compare(tensor: NDArray[Any], reference: NDArray[Any]) -> tuple[bool, float]:
    """Return whether the two tensors are equal, and their largest difference."""
    if np.array_equal(tensor, reference):
        return True, 0.0
    return False, float(np.abs(tensor.astype(np.float64) - reference.astype(np.float64)).max())


async def prepare_images(dpu: Dpu[ImageSpec], images: Sequence[ImageFile], step: Callable[[], None]) -> PreparedImages:
    """Preprocess the photos with OpenCV and with `dpu`, one at a time, and compare the tensors.

    `step` is called for each photo. Raises UsageError if no photo can be used."""
    prepared = await prepare_files(
        "photos", [(each.name, each.jpeg) for each in images], partial(image.preprocess, spec=dpu.spec), dpu, step
    )
    equality = Equality(len(prepared.files), unsupported=prepared.unsupported)
    clocks = None
    for file in prepared.files:
        if file.dpu is None or not file.on_dpu:
            continue
        equal, difference = compare(file.tensor, file.cpu_tensor)
        equality = replace(
            equality,
            on_dpu=equality.on_dpu + 1,
            equal=equality.equal + equal,
            max_difference=max(equality.max_difference, difference),
        )
        counters, pixels = file.dpu.counters, file.dpu.source_pixels
        if counters is not None and pixels:
            clocks = Clocks.total((clocks, Clocks(1, counters["cycles"], pixels, dict(counters))))
    return PreparedImages(prepared.files, prepared.skipped, prepared.cpu_s, equality=equality, clocks=clocks)
