"""Sounds as a medium: their features are equal to the engine's within the rounding of float32.

Models take features under many names: whole spectrograms with a mask, or the frames that count with their number. The
front end makes each of these, and takes for each of the engine's tensors the one that fits all samples.
"""

import io
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.adapters.render.items import Form, Item
from headrace.host.adapters.render.media import AUDIO, Source, audio_as_vllm_reads
from headrace.host.adapters.render.medium import (
    Content,
    Maker,
    Medium,
    Ready,
    Rendered,
    differs,
    files_of,
)
from headrace.host.adapters.render.prompt import learned_of_frames
from headrace.host.dpu.hugging_face.names import audio_processor
from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.dpu.processors import BFLOAT16, of_bfloat16, to_bfloat16
from headrace.host.dpu.specs import AudioSpec, Statistics, Tensors, Tokens

COUNT: Final = "headrace_frames"  # the tensor with the number of frames that count
# Greatest difference of a value, as docs/explanation/exactness.md has it. Statistics divide by small deviations.
BOUND, BOUND_OF_STATISTICS = 1e-4, 2e-3
STEPS: Final = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # between neighbours at 1, for values that are rounded
RATE: Final = 16000  # Hz, of the samples
HOP: Final = 160  # samples of a frame, in which the samples' lengths differ
# Lengths of the samples in frames. Those in a row show after how many frames a token follows, and the others the rate.
FRAMES: Final = (400, *range(100, 109), 997)
COMPARED: Final = 2  # samples whose features are compared, from the first on


class Spectrogram(NamedTuple):
    """The features of a sound, the axis of its frames, and the number of frames that count."""

    values: NDArray[Any]
    axis: int
    valid: int


# What a tensor of an engine may be.
MEANINGS: Final[Mapping[str, Callable[[Spectrogram], NDArray[Any]]]] = {
    "features": lambda made: made.values,
    "frames that count": lambda made: made.values.take(range(made.valid), made.axis),
    "mask": lambda made: np.arange(made.values.shape[made.axis]) < made.valid,
    "number": lambda made: np.array(made.valid),
    "numbers": lambda made: np.array([made.valid]),
}


class Audio(Medium[AudioSpec]):
    """Makes the features of sounds.

    A sound that is longer than the model hears is refused, where vLLM leaves its end out."""

    kind = AUDIO

    def __init__(self, rendered: Sequence[Rendered], maker: Maker) -> None:
        """Read the feature extractor of the model. Raises UsageError."""
        super().__init__(_counted(audio_processor(maker.folder)), rendered, maker)
        self.forms = rendered[0].forms
        self._meanings: dict[str, str] = {}

    @staticmethod
    def samples() -> Sequence[Content]:
        """Return messages with one sound each, whose lengths differ."""
        return [[sample(frames)] for frames in FRAMES]

    async def check(self, rendered: Sequence[Rendered]) -> None:
        """Learn what the engine's tensors are, and how many tokens stand for a sound. Raises UsageError."""
        counts = [self.spec.valid(frames * HOP) for frames in FRAMES]
        lengths = [length for each in rendered for length in each.lengths]
        self.placeholder = learned_of_frames(list(zip(counts, lengths, strict=True)), rendered[0].token)
        files = [data for content in self.samples()[:COMPARED] for data in files_of(content)]
        ours = [self._spectrogram(await self._process(data)) for data in files]
        theirs = [item for each in rendered[:COMPARED] for item in each.items]
        bound = BOUND_OF_STATISTICS if isinstance(self.spec.normalize, Statistics) else BOUND
        for name, form in self.forms.items():
            self._meanings[name] = _meaning(name, form, ours, theirs, bound)

    def _as_vllm_reads(self, data: bytes) -> bytes:
        return audio_as_vllm_reads(data, self.spec.longest_s)

    def _spectrogram(self, done: Preprocessed) -> Spectrogram:
        tensors = self.spec.tensors
        assert tensors is not None
        axis = 1 if self.spec.mel and self.spec.bands_first else 0
        return Spectrogram(done.tensors[tensors.features][0], axis, int(done.tensors[COUNT][0]))

    def _ready(self, done: Preprocessed) -> Ready:
        made = self._spectrogram(done)
        item: Item = {
            name: _cast(MEANINGS[meaning](made), self.forms[name].dtype) for name, meaning in self._meanings.items()
        }
        return Ready(item, self.placeholder.length(item, made.valid))


def _counted(spec: AudioSpec) -> AudioSpec:
    """Return a spec with the number of frames that count among its tensors, and with the length that the model hears.

    Raises UsageError for a spec without names for its tensors."""
    if spec.tensors is None:
        raise UsageError("the feature extractor has no names for its tensors")
    heard_s = spec.longest_s if spec.lengths.samples is None else spec.lengths.samples / spec.rate
    tensors = Tensors(spec.tensors.processor, spec.tensors.features, ((COUNT, Tokens(1)),))
    return replace(spec, tensors=tensors, longest_s=heard_s)


def _cast(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    if dtype == "bfloat16":
        return to_bfloat16(np.ascontiguousarray(values, np.float32))
    return values.astype(dtype, copy=False)


def _meaning(name: str, form: Form, ours: Sequence[Spectrogram], theirs: Sequence[Item], bound: float) -> str:
    """Return what a tensor of the engine is. Raises UsageError if it is nothing that Headrace makes."""
    worst: float | None = None
    for meaning, make in MEANINGS.items():
        pairs = [(_cast(make(mine), form.dtype), item[name]) for mine, item in zip(ours, theirs, strict=True)]
        if any(found.shape != expected.shape for found, expected in pairs):
            continue
        shares = [_share(found, expected, bound, form.dtype) for found, expected in pairs]
        if not any(shares):
            return meaning
        worst = max(shares)
    if worst is not None:
        raise differs(name, worst)
    shape = theirs[0][name].shape
    raise UsageError(f"the engine wants {name} of the shape {shape} for a sound, which Headrace does not make")


def _share(found: NDArray[Any], expected: NDArray[Any], bound: float, dtype: str) -> float:
    """Return the share of values that differ by more than the bound, and by more than the rounding to the type."""
    if "float" not in dtype:
        return float((found != expected).mean())
    mine, theirs = (of_bfloat16(each) if each.dtype == BFLOAT16 else each for each in (found, expected))
    allowed = bound + STEPS.get(dtype, 0.0) * np.abs(theirs.astype(np.float64))
    return float((np.abs(mine.astype(np.float64) - theirs) > allowed).mean())


@cache
def sample(frames: int) -> Source:
    """Return a sound of so many frames: a tone that rises, and noise that comes and goes."""
    time = np.arange(frames * HOP) / RATE
    noise = np.random.default_rng(frames).standard_normal(len(time)) * np.sin(9 * time) ** 2
    values = 0.3 * np.sin(2 * np.pi * (200 + 300 * time) * time) + 0.1 * noise
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes((values * 20000).astype("<i2").tobytes())
    return Source(AUDIO, "a sample", data=file.getvalue())
