"""mel x {csim, rtlsim} against the definition in float64."""

import runpy
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import librosa
import numpy as np
import pytest
from mel_unit import (
    CSIM,
    LOG_SCALE,
    RTLSIM,
    SAMPLE_SCALE,
    fitting,
    fixed,
    kaldi,
    on_both,
    phi4,
    program_of,
    reference,
    whisper,
)

from headrace.bitstreams.sources import hls_folder
from headrace.host.dpu.specs import AudioSpec, Ends, Floor, Window
from headrace.host.dpu.units.audio_tables import PROGRAM_STEPS, log_offset, plan_of
from headrace.host.dpu.units.status import Status
from headrace.sim.hardware.dpu.audio import MelPlan, mel_cycles

DEFAULT = AudioSpec()
# Bounds in natural-log units, in docs/explanation/exactness.md, too.
ERROR_999 = 5e-5
ERROR_HIGH = 5e-4
ERROR_ALL = 2e-3
# Those of Whisper's features, in their own units
WHISPER_999 = 2e-5
WHISPER_ALL = 1e-4
# Those of Kaldi's plans and Phi-4's, in natural-log units, of bands at most 60 dB below the greatest one of their frame
KALDI_999 = 2e-5
KALDI_ALL = 1e-4
KALDI_DEPTH = 1e-6
LENGTHS = (0, 1, 2, 159, 160, 161, 199, 200, 201, 255, 256, 257, 319, 320, 400, 511, 512, 513)
TIME = np.arange(16000) / 16000
RANDOM = np.random.default_rng(16)
# A quarter of a sound of `sounds` has what is special in it; the whole of each is for `make test-all`.
QUARTER, WHOLE = slice(4800, 8800), slice(None)
on_parts = pytest.mark.parametrize(
    "part", [pytest.param(QUARTER, id="quarter"), pytest.param(WHOLE, id="whole", marks=pytest.mark.slow)]
)


def voice(pitch: float) -> np.ndarray:
    """Speech-like: a gliding pulse train through three formants, with pauses and breath."""
    phase = np.cumsum(pitch * (1 + 0.2 * np.sin(2 * np.pi * 3 * TIME)) / 16000)
    sound = np.diff(np.floor(phase), prepend=0) + RANDOM.normal(0, 0.003, len(TIME))
    for hertz, width in ((600, 80), (1400, 110), (2700, 170)):
        radius = np.exp(-np.pi * width / 16000)
        a, b = 2 * radius * np.cos(2 * np.pi * hertz / 16000), -(radius**2)
        for i in range(2, len(sound)):
            sound[i] += a * sound[i - 1] + b * sound[i - 2]
    sound *= np.clip(2 * np.sin(2 * np.pi * 1.7 * TIME), 0, 1)
    return sound / np.abs(sound).max() * 0.7


@cache
def sounds() -> dict[str, np.ndarray]:
    """What the error table is of; 16-bit samples, but for the last ones."""
    every = {f"voice at {pitch} Hz": voice(pitch) for pitch in (95, 210)}
    every |= {f"noise of {level:g}": RANDOM.normal(0, level, 16000) for level in (0.3, 0.01, 0.0005)}
    for level in (1, 0.03, 0.001):
        every |= {
            f"sine of {hertz} Hz, {level:g}": level * np.sin(2 * np.pi * hertz * TIME) for hertz in (55, 1000, 7500)
        }
    every["sweep"] = np.sin(2 * np.pi * 4000 * TIME**2)
    every["clipped sweep"] = np.clip(8 * every["sweep"], -1, 1)
    every["full-scale square wave"] = np.sign(np.sin(2 * np.pi * 100.3 * TIME))
    every["click"] = 0.9 * (np.arange(16000) == 5001)
    every["DC"] = np.ones(16000)
    every["silence"] = np.zeros(16000)
    every = {name: np.clip(np.rint(x * 32768), -32768, 32767) / 32768 for name, x in every.items()}
    every["square wave of 2.5, as resampling may give"] = 2.5 * every["full-scale square wave"]
    every["noise between 16-bit steps"] = np.rint(RANDOM.normal(0, 0.05, 16000) * SAMPLE_SCALE) / SAMPLE_SCALE
    return {name: fixed(x) for name, x in every.items()}


def errors(units, samples, spec=DEFAULT):
    """Absolute, in natural-log units: at all points, and at those that lie 3 or more above the floor."""
    status, values = units.mel(samples, spec)
    assert status == Status.OK
    wanted = reference(samples, spec)
    off = np.abs(values / LOG_SCALE + log_offset(spec) - wanted)
    return off, off[wanted >= np.log(spec.log_floor) + 3]


@on_both
@on_parts
def test_errors_are_a_hundredth_of_what_is_allowed(units, part):
    """Allowed are 1e-2 at 99.9 % and 5e-2 at all points 3 or more above the floor. Prints both of each sound."""
    above = []
    for name, samples in sounds().items():
        off, high = errors(units, samples[part])
        above.append(high)
        worst, usual = (high.max(), np.quantile(high, 0.999)) if len(high) else (0, 0)
        print(f"{name:42} {len(high):5} points: {usual:.1e}, {worst:.1e}; with those near the floor {off.max():.1e}")
        assert off.max() < ERROR_ALL
    every = np.concatenate(above)
    print(f"{'all':42} {len(every):5} points: {np.quantile(every, 0.999):.1e}, {every.max():.1e}")
    assert np.quantile(every, 0.999) < ERROR_999 and every.max() < ERROR_HIGH


def whispers(logarithms: np.ndarray) -> np.ndarray:
    """What normalize makes of natural logarithms."""
    tens = logarithms / np.log(10)
    return (np.maximum(tens, tens.max() - 8) + 4) / 4


def quiet_sounds() -> dict[str, np.ndarray]:
    """Down to less than a step of 16 bits, and clicks at the edge of a window."""
    every = {f"noise of {level:g}": fixed(RANDOM.normal(0, level, 16000)) for level in (1e-4, 1e-5, 2e-6)}
    every |= {f"click {at} samples into a hop": fixed(0.9 * (np.arange(16000) == 4960 + at)) for at in (120, 121, 122)}
    every["loud, then quiet"] = fixed(RANDOM.normal(0, 1, 16000) * np.where(TIME < 0.5, 0.3, 3e-5))
    return every


@pytest.mark.quick(2)
@on_both
@on_parts
@pytest.mark.parametrize("n_mels", [80, 128])
def test_values_of_whisper_are_within_its_bounds(units, n_mels, part):
    """All within 1e-4, and 99.9 % of each sound within 2e-5. Prints both of each sound."""
    spec = whisper(n_mels)
    for name, sound in (sounds() | quiet_sounds()).items():
        samples = sound[part]
        status, values = units.mel(samples, spec)
        assert status == Status.OK
        off = np.abs(whispers(values / LOG_SCALE) - whispers(reference(samples, spec)))
        print(f"{name:42} {off.size:5} points: {np.quantile(off, 0.999):.1e}, {off.max():.1e}")
        assert off.max() < WHISPER_ALL and np.quantile(off, 0.999) < WHISPER_999, name


@on_both
@pytest.mark.parametrize("length", [*LENGTHS, 1599, 1600, 1601])
def test_mirrored_ends_and_zeros_up_to_a_length(units, length):
    samples = fixed(np.random.default_rng(length).normal(0, 0.1, length))
    for spec in (whisper(), whisper(samples=1601), whisper(samples=480)):
        status, values = units.mel(samples, spec)
        assert status == Status.OK and len(values) == spec.padded(length) // 160
        assert np.abs(values / LOG_SCALE - reference(samples, spec)).max() < 5e-4


@on_both
@pytest.mark.parametrize("length", [400, 401, 559, 560, 561, 1500])
def test_frames_inside_a_sound(units, length):
    spec = AudioSpec(ends=Ends.INSIDE, window_shape=Window.HAMMING, normalize_over="all")
    samples = fixed(np.random.default_rng(length).normal(0, 0.1, length))
    status, values = units.mel(samples, spec)
    assert status == Status.OK and len(values) == (length - 400) // 160 + 1
    assert np.abs(values / LOG_SCALE - reference(samples, fitting(spec))).max() < 5e-4


@on_both
def test_a_sound_without_a_frame_is_taken_and_refused(units):
    inside = AudioSpec(ends=Ends.INSIDE, normalize_over="all")
    for spec, length in ((inside, 0), (inside, 1), (inside, 239), (inside, 399)):
        status, _ = units.mel(np.full(length, 2**22, np.int32), spec)
        assert status == Status.BAD_ARGUMENT
    status, _ = units.mel(np.zeros(159, np.int32), inside, settings={"plan": 1 << 1})  # mirrored, nothing to mirror
    assert status == Status.BAD_ARGUMENT
    assert units.mel(np.zeros(5, np.int32))[0] == Status.OK


@on_both
def test_the_least_value_is_the_floor(units):
    status, values = units.mel(np.zeros(800, np.int32), whisper())
    assert status == Status.OK and np.all(values == round(np.log(1e-10) * LOG_SCALE))


@on_both
def test_powers_count_as_often_as_the_exponent_says(units):
    samples = fixed(RANDOM.normal(0, 0.01, 1000))
    given = units.mel(samples, whisper())[1]
    for exponent in (-20, 7, 30):
        plan = plan_of(whisper()) | exponent % 256 << 8
        values = units.mel(samples, whisper(), settings={"plan": plan, "log_floor": -32 * 2**18})[1]
        wanted = np.minimum(given + exponent * np.log(2) * LOG_SCALE, 2**23 - 1)
        assert np.abs(values - wanted)[given > np.log(1e-10) * LOG_SCALE].max() <= 1


@on_both
@pytest.mark.parametrize("length", LENGTHS)
def test_any_length_gives_its_frames_with_zeros_beyond_both_ends(units, length):
    samples = fixed(np.random.default_rng(length).normal(0, 0.1, length))
    off, _ = errors(units, samples)
    assert off.shape == (length // 160 + 1, 80) and off.max() < 5e-4


SETTINGS = [
    {"n_mels": 128},
    {"n_mels": 4},
    {"n_mels": 64, "preemphasis": 0.0},
    {"preemphasis": 0.999},
    {"log_floor": 2.0**-16},
    {"log_floor": 2.0**-27},
]


@on_both
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_setting_is_the_definitions(units, settings):
    spec = fitting(AudioSpec(**settings))
    for samples in (fixed(RANDOM.normal(0, 0.1, 1000)), fixed(np.clip(3 * TIME[:1000] * 16 - 1, -1, 1))):
        _, high = errors(units, samples, spec)
        assert high.max() < 5e-4


@on_both
def test_silence_is_the_floor_exactly(units):
    status, values = units.mel(np.zeros(800, np.int32))
    assert status == Status.OK and np.all(values == round(np.log(2.0**-24) * LOG_SCALE))


@on_both
def test_the_logarithm_is_exact_but_for_its_rounding_and_the_interpolation(units):
    """Of silence the floor is all that there is, so it can be any number."""
    program = program_of(AudioSpec(n_mels=4))  # which has no floor in it
    for bits in (*range(33), *RANDOM.uniform(0, 32, 60)):
        floor = min(round(2.0**bits), 2**32 - 1) / 2.0**40
        _, values = units.mel(np.zeros(0, np.int32), AudioSpec(n_mels=4, log_floor=floor), program=program)
        assert np.all(values == values[0, 0])
        assert -(2.0**-19) - 1e-7 < np.log(floor) - values[0, 0] / LOG_SCALE < 2.0**-19 + 6e-7


@on_both
def test_without_a_floor_silence_is_the_least_that_there_is(units):
    """A floor too small for the register is none; -32 stands for what has no logarithm."""
    _, values = units.mel(np.zeros(200, np.int32), AudioSpec(log_floor=2.0**-60))
    assert np.all(values == -32 * LOG_SCALE)


@on_both
@pytest.mark.parametrize("period", [1, 2, 3, 4, 8, 64, 256, 512])
def test_extremes_of_the_format_do_not_overflow(units, period):
    """Full scale of 24 bits, 4 times that of 16-bit sound, with the signs that a bin adds up."""
    samples = np.where(np.cos(2 * np.pi * (np.arange(1200) + 0.1) / period) < 0, -(2**23), 2**23 - 1).astype(np.int32)
    _, high = errors(units, samples)
    assert high.max() < 5e-3


@on_both
def test_no_stage_overflows_with_points_as_large_as_they_can_be(units):
    """A window of ones, and samples with the signs that a bin adds up."""
    program = program_of(whisper()).copy()
    program[256:] |= np.uint64(0x3FFFFFF_03FFFFFF)
    flat = np.ones(400)
    for period in (1, 2, 3, 4, 5, 8, 16, 25, 50, 400):
        samples = np.where(np.cos(2 * np.pi * (np.arange(1200) + 0.1) / period) < 0, -(2**22), 2**22 - 1)
        for spec in (whisper(), AudioSpec(preemphasis=0.0)):
            given = program if spec.n_fft == 400 else np.concatenate([program_of(spec)[:256], program[256:]])
            status, values = units.mel(samples.astype(np.int32), spec, program=given)
            wanted = reference(samples.astype(np.int32), spec, weights=flat)
            assert status == Status.OK
            high = wanted > wanted.max() - 14  # within some 60 dB
            assert np.abs(values / LOG_SCALE - wanted)[high].max() < 1e-3, (period, spec.n_fft)


@on_both
def test_a_frame_does_not_depend_on_what_was_before_its_window(units):
    late = fixed(RANDOM.normal(0, 0.2, 1600))
    early = np.append(fixed(RANDOM.normal(0, 0.2, 1600)), late[-1:] * 0)
    whole = np.concatenate([early[:1599], late[:1], late])
    other = np.concatenate([np.full(1599, 2**22, np.int32), late[:1], late])
    a, b = (units.mel(samples)[1] for samples in (whole, other))
    first = next(t for t in range(len(a)) if 160 * t - 200 > 1600)
    assert not np.array_equal(a[first - 2], b[first - 2]) and np.array_equal(a[first:], b[first:])


@on_both
def test_requests_do_not_depend_on_each_other(units):
    loud, quiet = fixed(RANDOM.normal(0, 0.9, 700)), fixed(RANDOM.normal(0, 1e-3, 333))
    alone = units.mel(quiet)[1]
    for before in (loud, np.zeros(0, np.int32), np.zeros(161, np.int32)):
        units.mel(before, AudioSpec(n_mels=128))
        assert np.array_equal(units.mel(quiet)[1], alone)


@on_both
def test_an_upstream_status_passes_without_values(units):
    for status in (Status.NOT_WAV, Status.TOO_LONG):
        assert units.mel(np.zeros(0, np.int32), status=status)[0] == status
    assert units.mel(np.zeros(5, np.int32))[0] == Status.OK


def test_the_reference_is_librosas(units=CSIM):
    samples = sounds()["voice at 95 Hz"]
    x = samples / SAMPLE_SCALE
    power = librosa.feature.melspectrogram(
        y=np.append(x[:1], x[1:] - DEFAULT.preemphasis * x[:-1]),
        sr=16000,
        n_fft=512,
        hop_length=160,
        win_length=400,
        window=DEFAULT.hann(),
        center=True,
        pad_mode="constant",
        power=2.0,
        n_mels=80,
    )
    wanted = np.log(power + DEFAULT.log_floor).T
    assert np.abs(reference(samples, DEFAULT) - wanted).max() < 1e-9


def test_the_constants_are_those_of_their_formulas():
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "mel_tables.py"))
    for text, name in ((script["header"](), "mel_tables.hpp"), (script["package"](), "mel_tables_pkg.sv")):
        assert (hls_folder() / "mel" / name).read_text() == text, "run scripts/mel_tables.py"


def rounded_noise(seed: int, length: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return fixed(random.normal(0, 10.0 ** random.uniform(-6, 1), length) * np.sin(random.uniform(0, 3) * TIME[:length]))


def any_spec(random: np.random.Generator) -> AudioSpec:
    kind = random.integers(6)
    if kind == 4:
        settings = {"remove_mean": bool(random.integers(2)), "preemphasis": float(random.choice([0, 0.5, 0.97]))}
        return kaldi(4 * int(random.integers(5, 33)), n_fft=int(random.choice([400, 512])), **settings)
    if kind == 5:
        return phi4(4 * int(random.integers(5, 21)))
    if kind == 0:
        samples = int(random.integers(201, 3000)) if random.integers(2) else None
        return whisper(4 * int(random.integers(1, 33)), samples)
    spec = AudioSpec(
        n_mels=4 * int(random.integers(1, 33)),
        preemphasis=float(random.choice([0, 0.5, 0.97, 0.999998])),
        log_floor=2.0 ** -int(random.integers(9, 44)),
    )
    if kind == 1:
        spec = replace(spec, ends=Ends.INSIDE, normalize_over="all", window_shape=Window.HAMMING)
    if kind == 2:
        spec = replace(spec, floor=Floor.LEAST, window_shape=Window.POVEY, n_fft=int(random.choice([400, 512])))
    return spec


@pytest.mark.parametrize("seed", range(24))
def test_both_are_equal_to_the_bit(seed):
    random = np.random.default_rng(seed)
    spec = any_spec(random)
    samples = rounded_noise(seed, int(random.integers(400, 5000)))
    if seed % 4 == 0:
        samples = random.choice(np.array([-(2**23), 2**23 - 1], np.int32), len(samples))
    if seed % 4 == 1:
        samples[: len(samples) // 2] = 0
    (status, values), (also, same) = CSIM.mel(samples, spec), RTLSIM.mel(samples, spec)
    assert status == also == Status.OK and np.array_equal(values, same)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_many_are_equal_to_the_bit(seed):
    test_both_are_equal_to_the_bit(seed)


@pytest.mark.parametrize("seed", range(10))
def test_an_ill_made_program_gives_as_many_values_in_both(seed):
    """Random bits, so a frame of few steps; and without a last one, of all 256."""
    program = np.random.default_rng(seed).integers(0, 2**64, (384, 2), np.uint64)
    if seed % 2:
        program &= ~np.uint64(1 << 50)
    samples, spec = rounded_noise(seed, 1500), whisper(60) if seed % 4 < 2 else DEFAULT
    (status, values), (also, same) = (unit.mel(samples, spec, program=program) for unit in (CSIM, RTLSIM))
    assert status == also == Status.OK and np.array_equal(values, same)


CYCLE_SPECS = {
    **{f"NeMo {n_mels}": AudioSpec(n_mels=n_mels) for n_mels in (4, 80, 128)},
    **{f"Whisper {n_mels}": whisper(n_mels) for n_mels in (4, 80, 128)},
    "Whisper of 4000 samples": whisper(samples=4000),
    "inside": AudioSpec(ends=Ends.INSIDE, normalize_over="all"),
    "Kaldi 80": kaldi(80),
    "Kaldi 128 of 400 points": kaldi(128, n_fft=400),
    "Phi-4": phi4(),
}


@pytest.mark.quick(72)
@pytest.mark.parametrize("length", [*LENGTHS, 1600, 5039, 15999, 16000])
@pytest.mark.parametrize("name", CYCLE_SPECS)
def test_clocks_are_those_of_the_cycle_model(length, name):
    spec = CYCLE_SPECS[name]
    if spec.ends is Ends.INSIDE and length < 400:
        return
    steps = int(np.flatnonzero(program_of(spec)[:PROGRAM_STEPS].any(1))[-1]) + 1
    max_samples = spec.lengths.samples or MelPlan().max_samples
    plan = MelPlan(spec.n_fft == 400, spec.ends.value, spec.padded(0), max_samples, spec.remove_mean)
    assert RTLSIM.mel(np.zeros(length, np.int32), spec)[0] == Status.OK
    cycles = mel_cycles(length, spec.n_mels, steps, plan=plan)
    assert RTLSIM.clocks.cycles == cycles <= plan.count(length) + 1450


def test_a_sample_is_taken_every_clock():
    """But for the program, the window, the sound, and the zeros in front of it where there are some."""
    for spec, front in ((AudioSpec(n_mels=128), 100), (whisper(128), 0)):
        RTLSIM.mel(np.zeros(16000, np.int32), spec)
        assert RTLSIM.clocks.held == 256 + 128 + 33 + front


KALDI = {
    "Kaldi 80": kaldi(),
    "Kaldi 128, without gain": kaldi(128, gain=1.0, window_shape=Window.HANN),
    "Phi-4": phi4(),
}


@on_both
@pytest.mark.parametrize("name", KALDI)
def test_frames_have_the_mean_and_the_pre_emphasis_of_their_own(units, name):
    """Of bands that are not far below the greatest one of their frame. Farther below lie the roundings of the DFT."""
    random = np.random.default_rng(3)
    made = {
        "noise": random.normal(0, 0.1, 8000),
        "quiet noise": random.normal(0, 1e-4, 8000),
        "noise on DC": 0.5 + random.normal(0, 1e-3, 8000),
        "fading noise": random.normal(0, 0.3, 8000) * 10 ** (-3 * TIME[:8000]),
        "voice": sounds()["voice at 95 Hz"][:8000] / SAMPLE_SCALE,
    }
    for sound, samples in made.items():
        given, spec = fixed(np.rint(samples * 32768) / 32768), KALDI[name]
        off, _ = errors(units, given, spec)
        wanted = reference(given, spec)
        near = off[wanted > wanted.max(1, keepdims=True) + np.log(KALDI_DEPTH)]
        assert near.max() < KALDI_ALL and np.quantile(near, 0.999) < KALDI_999, sound


@on_both
@pytest.mark.parametrize("level", [1, 3, -1, -32768, 25075])
def test_a_frame_of_equal_samples_is_silence_once_its_mean_is_gone(units, level):
    status, values = units.mel(fixed(np.full(1000, level / 32768)), kaldi())
    assert status == Status.OK
    assert np.all(values == values[0, 0]) and values[0, 0] / LOG_SCALE + log_offset(kaldi()) == pytest.approx(
        np.log(2.0**-23), abs=2**-18
    )


@on_both
def test_loud_sounds_have_a_place_in_the_logarithm_beside_kaldis_floor(units):
    """Gain of 2^15 gives logarithms from -16 to 36; the unit holds -32 to 32."""
    loud = np.where(np.arange(2000) % 4 < 2, 2.5, -2.5)  # as resampling may give
    off, wanted = errors(units, fixed(loud), kaldi())[0], reference(fixed(loud), kaldi())
    assert wanted.max() > 32 and off[wanted > 32].max() < KALDI_ALL


@pytest.mark.quick(24)
@pytest.mark.parametrize("clock", [1, 2, 100, 256, 384, 386, 400, 418, 420, 520, 700, 900, 1000, 1150, 1300, 2500])
@pytest.mark.parametrize("spec", [DEFAULT, whisper(), kaldi()], ids=["512", "400", "Kaldi"])
def test_after_a_reset_in_mid_request_the_next_one_is_as_ever(clock, spec):
    samples = rounded_noise(3, 1700)
    RTLSIM.reset(fixed(RANDOM.normal(0, 1, 1700)), clock, spec)
    for after in (spec, whisper()):
        assert np.array_equal(RTLSIM.mel(samples, after)[1], CSIM.mel(samples, after)[1])


def test_no_access_lies_outside_an_array_whatever_the_program(csim_executable):
    """Under the address and UB sanitizers, with random programs and settings."""
    program = csim_executable("mel_random")
    done = subprocess.run([program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
