"""Hypotheses about a front end for audio, in the order of the stages."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import soxr
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.compare.hypotheses.search import Arrangement, Hypothesis
from headrace.host.compare.stages import AudioRun, Samples, Tensors, Waveform, headrace_features, mono, resample
from headrace.host.dpu.reference import resampling
from headrace.host.dpu.specs import AudioSpec, MelScale

ROUNDING: Final = 1e-3  # of a feature: transformers and Headrace differ by up to 1e-4
ARRANGEMENTS: Final = (
    Arrangement("bands and frames are exchanged", lambda values: np.swapaxes(values, -1, -2)),
    Arrangement("the batch axis is missing", lambda values: values[0]),
    Arrangement("the batch axis is missing, and bands and frames are exchanged", lambda values: values[0].T),
    Arrangement("there is one axis of length 1 more", lambda values: values[None]),
)


def hypotheses(
    run: AudioRun, features: Callable[[Samples], Tensors], rate: int, main: str, spec: AudioSpec | None
) -> Iterator[Hypothesis]:
    """Yield what another front end may do with one file. `run` and `features` are the reference's."""

    def of_samples(stage: str, text: str, samples: Callable[[], Samples]) -> Hypothesis:
        return Hypothesis(stage, text, lambda: features(samples())[main])

    yield of_samples("decode", "16-bit integers, not values of -1 to 1", lambda: run.samples * np.float32(32768))
    if run.decoded.samples.shape[1] > 1:
        for text, made in (
            ("the first channel alone", run.decoded.samples[:, :1]),
            ("the last channel alone", run.decoded.samples[:, -1:]),
            ("the sum of the channels", run.decoded.samples.sum(1, keepdims=True)),
        ):
            yield of_samples("convert", text, lambda made=made: resample(Waveform(made, run.mono.rate), rate))  # type: ignore[misc]
        flat = run.decoded.samples.reshape(-1, 1)
        yield of_samples(
            "convert", "the channels are read as one", lambda: resample(Waveform(flat, run.mono.rate), rate)
        )
    if run.mono.rate != rate:
        for text, by in RESAMPLERS:
            yield of_samples("resample", text, lambda by=by: by(run.mono, rate))  # type: ignore[misc]
    if spec is not None:
        for text, other in _other_specs(spec):
            yield Hypothesis("features", text, lambda other=other: headrace_features(other)(run.samples)[main])  # type: ignore[misc]


def _linear(waveform: Waveform, rate: int) -> Samples:
    samples = mono(waveform).samples[:, 0]
    count = -(-len(samples) * rate // waveform.rate)
    made: Samples = np.interp(np.arange(count) * waveform.rate / rate, np.arange(len(samples)), samples).astype(
        np.float32
    )
    return made


def _polyphase(waveform: Waveform, rate: int) -> Samples:
    from math import gcd

    from scipy.signal import resample_poly  # large

    common = gcd(waveform.rate, rate)
    made: Samples = resample_poly(waveform.samples[:, 0], rate // common, waveform.rate // common).astype(np.float32)
    return made


def _by_fir(waveform: Waveform, rate: int) -> Samples:
    if not resampling.has_fir(waveform.rate, rate):
        raise UsageError("there is no FIR between these rates")
    return resampling.by_fir(waveform.samples[:, 0], waveform.rate, rate)


def _by_soxr(quality: str) -> Callable[[Waveform, int], Samples]:
    def made(waveform: Waveform, rate: int) -> Samples:
        samples: Samples = soxr.resample(waveform.samples[:, 0], waveform.rate, rate, quality)
        return samples

    return made


RESAMPLERS: Final[tuple[tuple[str, Callable[[Waveform, int], Samples]], ...]] = (
    ("the rate is ignored", lambda waveform, _: waveform.samples[:, 0]),
    ("linear interpolation", _linear),
    ("SciPy's resample_poly", _polyphase),
    ("the FIR of Headrace's compute units", _by_fir),
    ("soxr in its quality VHQ", _by_soxr("VHQ")),
    ("soxr in its quality MQ", _by_soxr("MQ")),
    ("soxr in its quality LQ", _by_soxr("LQ")),
    ("soxr in its quality QQ", _by_soxr("QQ")),
)


def _other_specs(spec: AudioSpec) -> Iterator[tuple[str, AudioSpec]]:
    changes: list[tuple[str, dict[str, Any]]] = [
        ("features are not normalized", {"normalize": None}),
        ("the natural logarithm, not that to the base of 10", {"log10": False})
        if spec.log10
        else ("the logarithm to the base of 10, not the natural one", {"log10": True}),
        ("the mel scale of Kaldi", {"mel_scale": MelScale.KALDI})
        if spec.mel_scale is MelScale.SLANEY
        else ("the mel scale of Slaney", {"mel_scale": MelScale.SLANEY}),
        ("no pre-emphasis", {"preemphasis": 0.0}),
    ]
    for text, change in changes:
        try:
            other = replace(spec, **change)
        except UsageError:  # the plan does not allow it
            continue
        if other != spec:
            yield text, other


def as_matrix(features: NDArray[Any]) -> NDArray[Any]:
    """Return features as a picture, with frames from left to right."""
    flat = features.reshape(-1, features.shape[-1]) if features.ndim > 1 else features[np.newaxis]
    return flat if flat.shape[1] >= flat.shape[0] else flat.T
