"""Every photo through OpenCV and through the DPU, one at a time: the tensors, and whether they are the same."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import CorruptInput, UsageError
from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.inputs.images import Photo
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.reference import image


@dataclass(frozen=True, slots=True)
class Equality:
    """How the DPU's tensors compare with OpenCV's and numpy's, over the distinct photos that it could take."""

    photos: int = 0
    on_dpu: int = 0
    equal: int = 0
    max_difference: float = 0.0
    unsupported: dict[str, int] = field(default_factory=dict)

    @classmethod
    def total(cls, parts: Iterable["Equality"]) -> "Equality":
        whole = cls()
        for part in parts:
            whole = cls(
                whole.photos + part.photos,
                whole.on_dpu + part.on_dpu,
                whole.equal + part.equal,
                max(whole.max_difference, part.max_difference),
                dict(Counter(whole.unsupported) + Counter(part.unsupported)),
            )
        return whole


@dataclass(frozen=True, slots=True)
class Clocks:
    """What a clocked DPU took for the photos that it compared, one at a time; `cycles` from start to done of a CU."""

    images: int
    cycles: int
    pixels: int
    counters: dict[str, int]  # sums over the images

    @classmethod
    def total(cls, parts: Iterable["Clocks | None"]) -> "Clocks | None":
        """None if no part has any."""
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
        """Of one CU at the card's clock."""
        return self.images * CLOCK_MHZ * 1e6 / self.cycles


@dataclass(frozen=True, slots=True)
class Seen:
    """What the DPU tells of a photo: its pixels, and the cycles that it took if it is clocked."""

    pixels: int
    cycles: int | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The photos that can be used, each with its tensor by OpenCV and by the DPU (by the CPU where the DPU does not
    take it). `skipped` are the others, with the reason. `images_per_s` is of one photo at a time, by "cpu" on one
    thread and by "dpu"; 0 of a DPU that took none. `seen` has None for a photo that the DPU does not take."""

    photos: Sequence[Photo]
    references: Sequence[NDArray[Any]]
    tensors: Sequence[NDArray[Any]]
    skipped: dict[str, str]
    equality: Equality
    clocks: Clocks | None  # None: the DPU has no clock to tell of
    images_per_s: dict[str, float]
    seen: Sequence[Seen | None] = ()


def compare(tensor: NDArray[Any], reference: NDArray[Any]) -> tuple[bool, float]:
    """Whether the two are equal, and their largest difference."""
    if np.array_equal(tensor, reference):
        return True, 0.0
    return False, float(np.abs(tensor.astype(np.float64) - reference.astype(np.float64)).max())


async def prepare(dpu: Dpu, photos: Sequence[Photo], step: Callable[[], None]) -> Prepared:
    """Through both, with what `dpu` makes of a photo; `step` is called after each. Raises UsageError if none of the
    photos can be used."""
    usable: list[Photo] = []
    references: list[NDArray[Any]] = []
    tensors: list[NDArray[Any]] = []
    skipped: dict[str, str] = {}
    seen: list[Seen | None] = []
    cpu_s = dpu_s = 0.0
    equality, clocks = Equality(), Clocks(0, 0, 0, {})
    unsupported: Counter[str] = Counter()
    for photo in photos:
        step()
        started = time.monotonic()
        try:
            reference = image.preprocess(photo.jpeg, dpu.spec)
        except (CorruptInput, UsageError) as error:
            skipped[photo.name] = str(error)
            continue
        cpu_s += time.monotonic() - started
        done = await dpu.process(photo.jpeg)
        usable.append(photo)
        references.append(reference)
        tensors.append(done.tensor)
        if done.unit == "cpu":
            unsupported[done.dpu_status or "no CU in service"] += 1
            seen.append(None)
            continue
        cycles = None if done.counters is None else done.counters["cycles"]
        seen.append(Seen(done.source_pixels or 1, cycles))
        dpu_s += done.finished - done.started
        same, difference = compare(done.tensor, reference)
        equality = replace(
            equality,
            on_dpu=equality.on_dpu + 1,
            equal=equality.equal + same,
            max_difference=max(equality.max_difference, difference),
        )
        if done.counters is not None and done.source_pixels:
            one = Clocks(1, done.counters["cycles"], done.source_pixels, dict(done.counters))
            clocks = Clocks.total((clocks, one)) or one
    if not usable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(skipped.items())[:3])
        raise UsageError(f"none of the {len(photos)} photos can be used ({reasons})")
    return Prepared(
        usable,
        references,
        tensors,
        skipped,
        replace(equality, photos=len(usable), unsupported=dict(unsupported)),
        clocks if clocks.images else None,
        {"cpu": len(usable) / cpu_s, "dpu": equality.on_dpu / dpu_s if dpu_s else 0.0},
        seen,
    )
