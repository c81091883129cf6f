"""mel as a Python function over its implementations, and its reference in float64."""

import ctypes
import itertools
from dataclasses import dataclass, replace
from functools import cache

import csim
import numpy as np
import pytest
import rtlsim
from numpy.typing import NDArray

from headrace.host.dpu.reference.audio import filterbank
from headrace.host.dpu.specs import AudioSpec, Ends, Floor, Lengths, MelScale, Rescale, Window
from headrace.host.dpu.units.audio_cu import registers
from headrace.host.dpu.units.audio_tables import filter_program, window_table
from headrace.host.dpu.units.status import Status

BROKEN, TIMEOUT = 255, 254  # the test benches' words for a unit that breaks the stream contract, or does not end
SAMPLE_SCALE, LOG_SCALE, PREEMPHASIS_SCALE, FLOOR_SCALE = 2.0**21, 2.0**18, 2.0**24, 2.0**40


@cache
def _csim() -> ctypes.CDLL:
    return csim.load("mel")


@cache
def _rtl() -> ctypes.CDLL:
    return rtlsim.load("mel")


class Csim:
    """The C++ as software."""

    name = "csim"

    def mel(self, samples, spec=AudioSpec(), *, program=None, status=0, settings=None):  # noqa: B008
        """`samples` are integers of LSB 2^-21. Returns the status and values of LSB 2^-18, shape (T, n_mels).

        `settings` replace the spec's."""
        samples = np.ascontiguousarray(samples, np.int32)
        program = program_of(spec) if program is None else np.ascontiguousarray(program)
        given = registers(spec) | (settings or {})
        names = ("mels", "preemphasis", "log_floor", "plan", "min_samples", "max_samples")
        out = np.zeros((spec.frames(len(samples)), spec.n_mels), np.int32)
        frames = ctypes.c_uint32()
        code = self._call(
            _pointer(program),
            ctypes.c_uint32(status),
            _pointer(samples),
            ctypes.c_uint32(len(samples)),
            *(ctypes.c_uint32(given[name]) for name in names),
            _pointer(out),
            ctypes.c_uint64(out.size),
            ctypes.byref(frames),
        )
        assert code != BROKEN, "the unit broke the stream contract"
        assert code != TIMEOUT, "the unit did not end"
        assert code != Status.OK or frames.value == len(out)
        return Status(code), out

    def _call(self, *arguments) -> int:
        return _csim().csim_mel(*arguments)


@dataclass(frozen=True)
class Clocks:
    cycles: int  # from the first word of the program to the last value
    held: int  # of them, clocks in which the unit did not take a sample that was there


class Rtlsim(Csim):
    """The SystemVerilog, Verilated. Every call runs twice, without stalls and with random ones on every stream, and
    both must say the same. One model serves all calls, without a reset between them. `clocks` of the last call are
    those without stalls."""

    name = "rtlsim"
    clocks: Clocks
    _seed, _reset_at = 0, 0

    def __init__(self) -> None:
        self._seeds = itertools.count(1)

    def mel(self, *arguments, **keywords):
        self._seed = 0
        status, out = super().mel(*arguments, **keywords)
        self.clocks = self._clocks
        self._seed = next(self._seeds)
        stalled_status, stalled = super().mel(*arguments, **keywords)
        assert status == stalled_status and np.array_equal(out, stalled), f"stalls of seed {self._seed} change it"
        return status, out

    def reset(self, samples, clock: int, spec=AudioSpec()) -> None:  # noqa: B008
        """In that clock of a request."""
        self._seed, self._reset_at = 0, clock
        with pytest.raises(AssertionError, match="did not end"):
            super().mel(samples, spec)
        self._reset_at = 0

    def _call(self, *arguments) -> int:
        numbers = (ctypes.c_uint64 * 2)()
        code = _rtl().rtl_mel(*arguments, ctypes.c_uint32(self._seed), ctypes.c_uint64(self._reset_at), numbers)
        self._clocks = Clocks(*numbers)
        return code


CSIM, RTLSIM = Csim(), Rtlsim()
# Runs a test with each of them as `units`.
on_both = pytest.mark.parametrize("units", [CSIM, RTLSIM], ids=lambda implementation: implementation.name)


def whisper(n_mels: int = 80, samples: int | None = None) -> AudioSpec:
    """Whisper's front end; of a sound with zeros up to so many samples, or to half a window and a sample."""
    return AudioSpec(
        n_fft=400,
        n_mels=n_mels,
        preemphasis=0.0,
        ends=Ends.MIRRORED,
        window_shape=Window.PERIODIC_HANN,
        floor=Floor.LEAST,
        log_floor=1e-10,
        log10=True,
        normalize_over="all",
        normalize=Rescale(span=8.0, offset=4.0, factor=0.25),
        lengths=Lengths(least=201) if samples is None else Lengths(samples=samples),
    )


def kaldi(n_mels: int = 80, **settings) -> AudioSpec:
    """Kaldi's front end, as SeamlessM4T has it, but for normalize."""
    fields = {
        "n_mels": n_mels,
        "ends": Ends.INSIDE,
        "window_shape": Window.POVEY,
        "gain": 32768.0,
        "remove_mean": True,
        "preemphasis_per_frame": True,
        "mel_scale": MelScale.KALDI,
        "low_hz": 20.0,
        "floor": Floor.LEAST,
        "log_floor": 2.0**-23,
        "normalize_over": "all",
        "normalize": None,
    }
    return AudioSpec(**(fields | settings))


def phi4(n_mels: int = 80) -> AudioSpec:
    """Phi-4's front end: Kaldi's without the mean, with another window and floor."""
    return kaldi(n_mels, window_shape=Window.HAMMING, remove_mean=False, low_hz=0.0, high_hz=7690.0, log_floor=1.0)


@cache
def program_of(spec: AudioSpec) -> NDArray[np.uint64]:
    """The program of the filterbank and the window, shape (384, 2), to read only."""
    program = np.concatenate([filter_program(spec), np.ascontiguousarray(window_table(spec)).view(np.uint64)])
    program.flags.writeable = False
    return program


def fixed(samples: NDArray[np.float64]) -> NDArray[np.int32]:
    """-1..1 to what resample gives: LSB 2^-21 in 24 bits."""
    return np.clip(np.rint(samples * SAMPLE_SCALE), -(2**23), 2**23 - 1).astype(np.int32)


def reference(
    samples: NDArray[np.int32], spec: AudioSpec, weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The definition in float64, shape (T, n_mels). Natural logarithms of the spec, without the unit's `log_offset`.

    `weights` replace the spec's window."""
    x = np.zeros(spec.padded(len(samples)))
    given = samples[: len(x)] / SAMPLE_SCALE
    x[: len(given)] = given
    if not spec.preemphasis_per_frame:
        x[: len(given)] = np.append(given[:1], given[1:] - spec.preemphasis * given[:-1])
    if spec.ends is Ends.MIRRORED:
        x = np.pad(x, 200, mode="reflect")
    elif spec.ends is Ends.ZEROS:
        x = np.pad(x, (200, 360))
    weights, before = spec.window_weights() if weights is None else weights, (spec.n_fft - spec.window) // 2
    every = np.lib.stride_tricks.sliding_window_view(x, 400)[::160][: spec.frames(len(samples))]
    if spec.remove_mean:
        every = every - every.mean(1, keepdims=True)
    if spec.preemphasis_per_frame:
        every = every - spec.preemphasis * np.concatenate((every[:, :1], every[:, :-1]), 1)
    spectra = np.fft.rfft(np.pad(spec.gain * every * weights, ((0, 0), (before, before))), spec.n_fft)
    energies = np.abs(spectra) ** 2 @ filterbank(spec).T.astype(np.float64)
    if spec.floor is Floor.LEAST:
        return np.log(np.maximum(energies, spec.log_floor))
    return np.log(energies + spec.log_floor)


def fitting(spec: AudioSpec) -> AudioSpec:
    """With the settings that the unit's registers hold exactly."""
    return replace(spec, preemphasis=round(spec.preemphasis * PREEMPHASIS_SCALE) / PREEMPHASIS_SCALE)


def _pointer(array) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)
