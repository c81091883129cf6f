"""Preprocess every audio clip once on the CPU and once on the DPU, and compare the tensors with the definition.

The definition computes in floating point and resamples with the DPU's own FIR taps. Bands that hold almost no signal
are compared separately: normalize divides their rounding errors by a standard deviation that is just as small.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.host.demo.inputs.audio import AudioClip
from headrace.host.demo.inputs.prepared_files import FileSource, PreparedFiles, prepare_files
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CuRun, Preprocessor
from headrace.host.dpu.reference import audio, audio_file
from headrace.host.dpu.specs import AudioSpec
from headrace.host.memory.layout import TensorSpec

MAX_RMS = 1e-3  # the bound of a tensor's RMS error; a tensor's values have a standard deviation of 1
# A band is faint if its log energy stays within this distance of the logarithm of the floor. The bands beyond the
# Nyquist frequency of a file at 8 kHz are faint, for example.
FAINT = 3.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How the DPU's tensors compare with the definition.

    `clips` counts the distinct clips, `on_dpu` those that the DPU took, and `good` those of them within MAX_RMS.
    `largest_rms` and `max_difference` leave out the faint bands; `faint_rms` is the largest RMS error of these."""

    clips: int = 0
    on_dpu: int = 0
    good: int = 0
    largest_rms: float = 0.0
    max_difference: float = 0.0
    faint_rms: float = 0.0


@dataclass(frozen=True, slots=True)
class Reference:
    """A clip's tensor by the definition. `audible` (n_mels,) says which bands are not faint throughout the clip."""

    tensor: NDArray[Any]
    audible: NDArray[np.bool_]

    def errors(self, tensor: NDArray[Any]) -> tuple[float, float, float]:
        """Return the RMS error and the largest error of the audible bands, and the RMS error of the faint bands.

        All three are infinite if the shapes differ."""
        if tensor.shape != self.tensor.shape:
            return math.inf, math.inf, math.inf
        difference = np.abs(tensor.astype(np.float64) - self.tensor.astype(np.float64))
        audible, faint = difference[self.audible], difference[~self.audible]
        return _rms(audible), float(audible.max(initial=0.0)), _rms(faint)


def _rms(difference: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.square(difference).mean())) if difference.size else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedAudio(PreparedFiles):
    """The clips with their tensors and references.

    `cycles` and `samples` (at 16 kHz) are sums over the clips that a clocked DPU took. `dpu_s` is the DPU's time for
    the clips one after another, as a single CU with all stages would take it. `together_s` is its time for all clips
    at once, and `together` has the CU runs of each clip then."""

    spec: AudioSpec
    references: Sequence[Reference]
    accuracy: Accuracy
    cycles: int = 0
    samples: int = 0
    together_s: float = 0.0
    together: Sequence[tuple[str, Sequence[CuRun]]] = ()

    @property
    def frames(self) -> list[int]:
        """The number of frames of each clip."""
        return [file.tensor.shape[1] for file in self.files]

    @property
    def seconds(self) -> list[float]:
        """The length of each clip."""
        return [frames * self.spec.hop / self.spec.rate for frames in self.frames]

    def source(
        self, preprocessor: Preprocessor[AudioSpec] | None, order: Sequence[int], inputs: Sequence[TensorSpec]
    ) -> FileSource:
        """Return a source that sends the clips in `order`, through `preprocessor` or as the tensors made beforehand.

        `inputs` are the network's two inputs: the features, and how many of their frames count."""
        features, frames = inputs

        def model_input(tensor: NDArray[Any]) -> dict[str, NDArray[Any]]:
            return {features.name: tensor, frames.name: np.array(self.spec.counted(tensor.shape[1]), frames.dtype)}

        return FileSource(self.files, preprocessor, order, model_input, self._compare)

    def _compare(self, index: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        rms, difference, _ = self.references[index].errors(tensor)
        return rms < MAX_RMS, difference


async def prepare_audio(
    dpu: Dpu[AudioSpec] | None, spec: AudioSpec, clips: Sequence[AudioClip], step: Callable[[], None]
) -> PreparedAudio:
    """Preprocess the clips on the CPU and, if there is one, on `dpu`: one at a time, then all at once.

    `step` is called for each clip. Raises UsageError if no clip can be used."""
    prepared = await prepare_files(
        "sounds", [(clip.name, clip.data) for clip in clips], partial(audio.preprocess, spec=spec), dpu, step
    )
    references = [by_definition(file.data, spec) for file in prepared.files]
    accuracy = Accuracy(len(prepared.files))
    cycles = samples = 0
    for file, reference in zip(prepared.files, references, strict=True):
        if file.dpu is None or not file.on_dpu:
            continue
        rms, difference, faint_rms = reference.errors(file.tensor)
        accuracy = replace(
            accuracy,
            on_dpu=accuracy.on_dpu + 1,
            good=accuracy.good + (rms < MAX_RMS),
            largest_rms=max(accuracy.largest_rms, rms),
            max_difference=max(accuracy.max_difference, difference),
            faint_rms=max(accuracy.faint_rms, faint_rms),
        )
        if file.dpu.counters is not None:
            cycles += file.dpu.counters["cycles"]
            samples += spec.resampled(*audio_file.length(file.data, spec.rates))
    together, together_s = [], 0.0
    if dpu is not None and accuracy.on_dpu:
        on_dpu = [file for file in prepared.files if file.on_dpu]
        started = time.monotonic()
        answers = await asyncio.gather(*(dpu.process(file.data) for file in on_dpu))
        together_s = time.monotonic() - started
        together = [(file.name, answer.runs) for file, answer in zip(on_dpu, answers, strict=True)]
    return PreparedAudio(
        prepared.files,
        prepared.skipped,
        prepared.cpu_s,
        spec=spec,
        references=references,
        accuracy=accuracy,
        cycles=cycles,
        samples=samples,
        together_s=together_s,
        together=together,
    )


def by_definition(data: bytes, spec: AudioSpec) -> Reference:
    """Return a file's tensor by the definition, and which bands are audible. Raises as `audio.preprocess` does."""
    samples = audio.resample(*audio_file.decode(data, spec.rates, spec.longest_s), spec)
    mel = audio.log_mel(samples, spec)
    return Reference(audio.normalize(mel, spec), mel.max(1) >= math.log(spec.log_floor) + FAINT)
