"""The work of audio settings for a sound of some length, as the cycle model and the simulator take it."""

import math
from functools import cache

from headrace.batching import UsageError
from headrace.host.dpu.reference.audio import forms
from headrace.host.dpu.specs import AudioSpec
from headrace.host.dpu.units.audio_cu import check, max_samples, unit_frames
from headrace.sim.hardware.dpu.audio import NEMO, TARGET_HZ, MelPlan, mel_cu_cycles, norm_cycles
from headrace.sim.hardware.inputs import AudioWork


def mel_plan(spec: AudioSpec) -> MelPlan:
    """Return how the mel unit makes the frames of a spec."""
    return MelPlan(spec.n_fft == 400, spec.ends.value, spec.padded(0), _max_samples(spec), spec.remove_mean)


def _max_samples(spec: AudioSpec) -> int:
    """Return those of CU A, or the greatest number of the model where there is no limit."""
    unlimited = spec.lengths.samples is None and spec.lengths.frames is None
    return NEMO.max_samples if unlimited else max_samples(spec)


def mel_cu_clocks(spec: AudioSpec, samples: int, rate: int = TARGET_HZ) -> int:
    """Return the clocks of CU A for a WAV file of `samples` sample frames at `rate` Hz.

    CU A loads the taps of a rate other than 16 kHz."""
    return mel_cu_cycles(samples, rate, spec.n_mels, loads_taps=rate != TARGET_HZ, plan=mel_plan(spec))


def norm_cu_clocks(spec: AudioSpec, samples: int, rate: int = TARGET_HZ) -> int:
    """Return the clocks of CU B for the frames of such a file."""
    frames = unit_frames(spec, spec.resampled(samples, rate))
    return norm_cycles(frames, spec.n_mels, element_bytes=value_bytes(spec), by_frames=not spec.bands_first)


def value_bytes(spec: AudioSpec) -> int:
    """Return the bytes of a value that CU B writes."""
    return 4 if spec.dtype == "float32" else 2


def audio_work(spec: AudioSpec) -> AudioWork:
    """Return the work of a feature extractor in the simulator, whose sounds have 16 kHz."""

    alike = math.gcd(spec.hop, spec.window) if spec.mel else 1  # samples that do not change the number of frames

    @cache
    def bytes_of(samples: int) -> int:
        return sum(math.prod(form.shape) * form.dtype.itemsize for form in forms(spec, samples).values())

    def tensor_bytes(samples: int) -> int:
        return bytes_of(spec.resampled(samples, TARGET_HZ) // alike * alike)

    try:
        check(spec)
    except UsageError as error:
        return AudioWork(tensor_bytes, str(error), longest_s=spec.longest_s)
    by_frames = not spec.bands_first
    return AudioWork(tensor_bytes, mel_plan(spec), spec.n_mels, value_bytes(spec), spec.longest_s, by_frames)
