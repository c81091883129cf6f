"""Preprocessing on the host's cores: what a photo and a second of sound cost, and the cores that are left for it.

Costs come from `headrace profile --cpu-preprocessing`, which writes a file that this reads; MEASURED are those of one
such run. They always carry a label, as PREBA's server was slower by far than what is measured here (preba_cpu.py): a
result is of one labelled set of costs, and never of a mixture.

Of PREBA's server (EPYC 7502, 32 cores; Section 5) some cores do other work: each server process launches kernels while
its batch runs, for which an eager framework takes a core. `taken` cores are kept free for that. The paper's Fig. 9 has
the CPU's utilization end at some 90 %, which is observed and nothing that a model may be given: a machine that shares
all its cores out reaches 100 %. Utilization ends below that where cores are kept for processes that do not use them all
the time. With n processes that are busy for a share s of it, it ends at (cores - n + n s) / cores (`utilization`): 90 %
of 32 cores takes seven cores that are busy for 54 % of the time, or three that are not busy at all.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.inputs import Inputs, Photo, Values
from headrace.sim.hardware.pcie import A100_LINK, Link, to_device
from headrace.sim.preprocessing import Preprocessor, Step

FORMAT: Final = "headrace-cpu-preprocessing"
VERSION: Final = 1
MAX_CORES: Final = 4096


@dataclass(frozen=True, slots=True)
class ImageCost:
    """Seconds of one core, nothing else running: `image_s` for any image, and for each pixel and byte of its file.
    `contention` is how many times as long it takes with every core at work."""

    image_s: float
    pixel_s: float = 0.0
    byte_s: float = 0.0
    contention: float = 1.0


@dataclass(frozen=True, slots=True)
class AudioCost:
    """As ImageCost: for any sound, and for each of its seconds."""

    clip_s: float
    second_s: float
    contention: float = 1.0


@dataclass(frozen=True, slots=True)
class CpuCosts:
    """`label` is what results are told by; `source` says where the numbers are from. Raises UsageError."""

    label: str
    image: ImageCost
    sound: AudioCost
    source: str

    def __post_init__(self) -> None:
        for what, cost in (("image", self.image), ("sound", self.sound)):
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
        """Of a core, for each request, with every core at work: at low load that is rather too much."""
        if inputs.kind == "image":
            work = self.image.pixel_s * inputs.pixels(sizes) + self.image.byte_s * inputs.file_bytes(sizes)
            return self.image.contention * (self.image.image_s + work)
        return self.sound.contention * (self.sound.clip_s + self.sound.second_s * inputs.seconds(sizes))

    def to_json(self, **more: Any) -> str:
        """A file for `from_json`, which ignores `more` (the machine, how well rounds agree)."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self), **more}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "CpuCosts":
        """What `to_json` wrote. Raises UsageError that names what is wrong."""
        try:
            body = json.loads(text)
            if body["format"] != FORMAT:
                raise UsageError(f"format is {body['format']!r}, not {FORMAT!r}")
            if body["version"] != VERSION:
                raise UsageError(f"version {body['version']!r} is not {VERSION}; measure it again")
            image = ImageCost(**{name: _number(value) for name, value in body["image"].items()})
            sound = AudioCost(**{name: _number(value) for name, value in body["sound"].items()})
            return cls(_text(body["label"]), image, sound, _text(body["source"]))
        except UsageError as error:
            raise UsageError(f"not what `headrace profile --cpu-preprocessing` wrote: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise UsageError(f"not what `headrace profile --cpu-preprocessing` wrote: {error!r}") from error


# `headrace profile --cpu-preprocessing`, medians of three runs on two cores of a virtual machine (AMD EPYC, family 26),
# 2026-11-22: 36 photos, whose times these costs are off by 12 % (median), and 32 sounds, 3 %. Rounds differed by 9 and
# 22 %; contention was 1.008 to 1.044 and 1.000 to 1.028. What 32 cores do to each other cannot be measured on two.
# Since then a sparse filterbank takes some fifth off a sound's time; cores of this cost never were what bound sounds.
MEASURED: Final = CpuCosts(
    "measured",
    ImageCost(image_s=93e-6, pixel_s=2.17e-9, byte_s=9.43e-9, contention=1.015),
    AudioCost(clip_s=67e-6, second_s=150e-6, contention=1.0),
    "headrace profile --cpu-preprocessing, AMD EPYC (family 26), 2 cores, 2026-11-22",
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
    kind: str,
    cores: int,
    costs: CpuCosts,
    *,
    taken: int = 0,
    photos: tuple[Photo, ...] = (),
    gpu_link: Link = A100_LINK,
) -> Preprocessor:
    """`cores` of the machine, of which `taken` are kept for other work; then the tensor's way to the GPU. Raises
    UsageError."""
    if not 1 <= cores <= MAX_CORES:
        raise UsageError(f"{cores} CPU cores; give 1 to {MAX_CORES}")
    if not 0 <= taken < cores:
        raise UsageError(f"{taken} of {cores} CPU cores are taken by other work: leave at least 1 for preprocessing")
    inputs = Inputs(kind, photos)

    def seconds(sizes: Values) -> Values:
        return costs.seconds(inputs, sizes)

    steps = (Step("cpu", cores - taken, seconds), to_device("host to gpu", gpu_link, inputs.tensor_bytes))
    return Preprocessor(f"cpu:{cores}:{costs.label}", steps)


def utilization(cores: int, preprocessing: float, other: float) -> float:
    """Of all cores of a CPU, `preprocessing` and `other` being cores that are busy on average. Raises UsageError."""
    if not (preprocessing >= 0 and other >= 0 and preprocessing + other <= cores * (1 + 1e-9)):
        raise UsageError(f"{preprocessing:g} + {other:g} cores are busy of {cores}: there are no more than that")
    return min(1.0, (preprocessing + other) / cores)
