"""The work of audio settings for a sound of some length, as the cycle model takes it."""

from headrace.host.dpu.specs import AudioSpec
from headrace.sim.hardware.dpu.audio import NEMO, TARGET_HZ, MelPlan, mel_cu_cycles, norm_cycles


def mel_plan(spec: AudioSpec) -> MelPlan:
    """Return how the mel unit makes the frames of a spec."""
    max_samples = NEMO.max_samples if spec.lengths.samples is None else spec.lengths.samples
    return MelPlan(spec.n_fft == 400, spec.ends.value, spec.padded(0), max_samples)


def mel_cu_clocks(spec: AudioSpec, samples: int, rate: int = TARGET_HZ) -> int:
    """Return the clocks of CU A for a WAV file of `samples` sample frames at `rate` Hz.

    CU A loads the taps of a rate other than 16 kHz."""
    return mel_cu_cycles(samples, rate, spec.n_mels, loads_taps=rate != TARGET_HZ, plan=mel_plan(spec))


def norm_cu_clocks(spec: AudioSpec, samples: int, rate: int = TARGET_HZ) -> int:
    """Return the clocks of CU B for the frames of such a file."""
    frames = spec.frames(spec.resampled(samples, rate))
    return norm_cycles(frames, spec.n_mels, element_bytes=4 if spec.dtype == "float32" else 2)
