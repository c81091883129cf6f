"""Preprocessing on the host's cores: the cost of an image and of a second of audio, and the cores that are left for it.

`headrace profile --cpu-preprocessing NAME` measures the costs of a library and writes the file that this module reads.
MEASURED and LIBRARY_COSTS have the costs of such runs. Costs always carry a label, because PREBA's server was slower by
far than the machine measured here (preba_cpu.py). A result is of one labelled set of costs, and never of a mixture.

Some cores of PREBA's server (EPYC 7502, 32 cores; Section 5) do other work. Each server process launches kernels while
its batch runs, and an eager framework needs a core for that. The model keeps `taken` cores free for these processes.

In the paper's Fig. 9 the CPU's utilization ends at some 90 %. That is an observation, and no parameter of this model: a
machine that shares out all its cores reaches 100 %. Utilization ends below that where cores are kept for processes that
do not use them all the time. With n processes, busy for a share s of the time, it ends at (cores - n + n s) / cores
(`utilization`). For 90 % of 32 cores, seven kept cores are busy for 54 % of the time, or three are not busy at all.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.inputs import Inputs, Values
from headrace.sim.hardware.pcie import A100_LINK, Link, to_device
from headrace.sim.preprocessing import Preprocessor, Step

FORMAT: Final = "headrace-cpu-preprocessing"
VERSION: Final = 2
MAX_CORES: Final = 4096


@dataclass(frozen=True, slots=True)
class ImageCost:
    """Seconds of one core while nothing else runs: a fixed part for each image, and a part for each pixel and byte of
    its file.

    `contention` is the factor by which this grows with every core at work."""

    image_s: float
    pixel_s: float = 0.0
    byte_s: float = 0.0
    contention: float = 1.0


@dataclass(frozen=True, slots=True)
class AudioCost:
    """Seconds of one core: a fixed part for each clip, and a part for each second of audio. `contention` is as in
    ImageCost."""

    clip_s: float
    second_s: float
    contention: float = 1.0


@dataclass(frozen=True, slots=True)
class CpuCosts:
    """A labelled set of costs. Results report the `label`, and `source` says where the numbers come from. Raises
    UsageError for numbers that cannot be."""

    label: str
    image: ImageCost
    audio: AudioCost
    source: str

    def __post_init__(self) -> None:
        for what, cost in (("image", self.image), ("audio", self.audio)):
            numbers = asdict(cost)
            for name, value in numbers.items():
                if not (math.isfinite(value) and 0 <= value < 1e6):
                    raise UsageError(f"costs of the CPU: {what}.{name} is {value}; give a number of 0 or more")
            if not 1 <= cost.contention <= 1000:
                raise UsageError(f"costs of the CPU: {what}.contention is {cost.contention}; give 1 (none) to 1000")
            if sum(numbers.values()) == cost.contention:
                raise UsageError(f"costs of the CPU: {what} takes no time at all; measure it again")
        if not self.label.strip():
            raise UsageError("costs of the CPU need a label, such as measured")

    def seconds(self, inputs: Inputs, sizes: Values) -> Values:
        """Return the seconds of a core for each request, with every core at work. At low load this is too much."""
        cost = self.image if inputs.kind == "image" else self.audio
        known = inputs.core_seconds(sizes, self.label) if inputs.labels else self._usual_seconds(inputs, sizes)
        return cost.contention * known

    def _usual_seconds(self, inputs: Inputs, sizes: Values) -> Values:
        if inputs.kind == "image":
            work = self.image.pixel_s * inputs.amount(sizes) + self.image.byte_s * inputs.file_bytes(sizes)
            return self.image.image_s + work
        return self.audio.clip_s + self.audio.second_s * inputs.amount(sizes)

    def scaled(self, factor: float) -> "CpuCosts":
        """Return the costs of cores that take `factor` times as long. Raises UsageError for a factor below 0."""
        image, audio = self.image, self.audio
        return replace(
            self,
            image=replace(
                image,
                image_s=factor * image.image_s,
                pixel_s=factor * image.pixel_s,
                byte_s=factor * image.byte_s,
            ),
            audio=replace(audio, clip_s=factor * audio.clip_s, second_s=factor * audio.second_s),
        )

    def to_json(self, **more: Any) -> str:
        """Return the text of a file for `from_json`, which ignores `more` (the machine, how well rounds agree)."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self), **more}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "CpuCosts":
        """Return the costs that `to_json` wrote. Raises UsageError that names the error in the text."""
        try:
            body = json.loads(text)
            if body["format"] != FORMAT:
                raise UsageError(f"format is {body['format']!r}, not {FORMAT!r}")
            if body["version"] != VERSION:
                raise UsageError(f"version {body['version']!r} is not {VERSION}; measure it again")
            image = ImageCost(**{name: _number(value) for name, value in body["image"].items()})
            audio = AudioCost(**{name: _number(value) for name, value in body["audio"].items()})
            return cls(_text(body["label"]), image, audio, _text(body["source"]))
        except UsageError as error:
            raise UsageError(f"not what `headrace profile --cpu-preprocessing` wrote: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise UsageError(f"not what `headrace profile --cpu-preprocessing` wrote: {error!r}") from error


# `headrace profile --cpu-preprocessing`, medians of three runs on two cores of a virtual machine (AMD EPYC, family 26),
# 2026-11-22. The costs are off by 12 % (median) for 36 images, and by 3 % for 32 clips. Rounds differed by 9 and 22 %;
# contention was 1.008 to 1.044 and 1.000 to 1.028. Two cores cannot show how 32 cores slow each other down. Since then
# a sparse filterbank takes about a fifth off a clip's time. At this cost, cores never limited audio. The clips had the
# network's 16 kHz, so that nothing was resampled.
MEASURED: Final = CpuCosts(
    "measured",
    ImageCost(image_s=93e-6, pixel_s=2.17e-9, byte_s=9.43e-9, contention=1.015),
    AudioCost(clip_s=67e-6, second_s=150e-6, contention=1.0),
    "headrace profile --cpu-preprocessing, AMD EPYC (family 26), 2 cores, 2026-11-22",
)


def _library(label: str, image: ImageCost, audio: AudioCost) -> CpuCosts:
    source = f"headrace profile --cpu-preprocessing {label}, AMD EPYC (family 26), 2 cores, 2026-11-26"
    return CpuCosts(label, image, audio, source)


# The libraries of host/dpu/cpu_libraries.py, with clips of 22,050 Hz that become 16 kHz: librosa 0.11 with soxr 1.1 and
# resampy 0.4.3, OpenCV 5.0, Pillow 13, torchvision 0.28. Each has its fastest run of two or three with nine rounds.
# The others, with more programs at work on the machine, gave up to 24 % more for a photo of 500x375, and up to 32 %
# more for a clip of 2.5 s. Rounds of a file differed by 5 to 17 %. The costs are off by 7 to 11 % (median) for an
# image, and by 2 to 3 % for a clip.
LIBRARY_COSTS: Final = (
    _library("ours", ImageCost(170e-6, 1.38e-9, 8.38e-9, 1.03), AudioCost(180e-6, 173e-6, 1.08)),
    _library("opencv", ImageCost(285e-6, 1.91e-9, 7.47e-9, 1.09), AudioCost(181e-6, 176e-6, 1.13)),
    _library("pillow", ImageCost(319e-6, 6.10e-9, 6.87e-9, 1.07), AudioCost(177e-6, 173e-6, 1.08)),
    _library("torchvision", ImageCost(32e-6, 6.56e-9, 6.75e-9, 1.05), AudioCost(181e-6, 177e-6, 1.05)),
    _library("librosa", ImageCost(292e-6, 1.88e-9, 7.61e-9, 1.03), AudioCost(671e-6, 387e-6, 1.07)),
    _library("librosa-kaiser_best", ImageCost(296e-6, 1.92e-9, 7.69e-9, 1.05), AudioCost(1899e-6, 5833e-6, 1.09)),
)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def cpu_preprocessor(
    inputs: Inputs,
    cores: int,
    costs: CpuCosts,
    *,
    taken: int = 0,
    gpu_link: Link = A100_LINK,
) -> Preprocessor:
    """Return a preprocessor of CPU cores, followed by the tensor's way to the GPU.

    Args:
        inputs: The inputs.
        cores: The cores of the machine.
        costs: The seconds that a core takes.
        taken: The cores that are kept for other work.
        gpu_link: The PCIe link of the GPU.

    Raises:
        UsageError: No core is left for preprocessing.
    """
    if not 1 <= cores <= MAX_CORES:
        raise UsageError(f"{cores} CPU cores; give 1 to {MAX_CORES}")
    if not 0 <= taken < cores:
        raise UsageError(f"{taken} of {cores} CPU cores are taken by other work: leave at least 1 for preprocessing")

    def seconds(sizes: Values) -> Values:
        return costs.seconds(inputs, sizes)

    steps = (Step("cpu", cores - taken, seconds), to_device("host to gpu", gpu_link, inputs.tensor_bytes))
    return Preprocessor(f"cpu:{cores}:{costs.label}", steps)


def utilization(cores: int, preprocessing: float, other: float) -> float:
    """Return the utilization of a CPU. On average, `preprocessing` and `other` of its `cores` are busy.

    Raises UsageError if that is more than there are."""
    if not (preprocessing >= 0 and other >= 0 and preprocessing + other <= cores * (1 + 1e-9)):
        raise UsageError(f"{preprocessing:g} + {other:g} cores are busy; the CPU has only {cores}")
    return min(1.0, (preprocessing + other) / cores)
