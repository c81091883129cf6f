"""audio_mel_cu, csim x rtlsim: the same bytes in memory, and the CPU path's values within fixed point's bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mel_cu import MEL, RESAMPLE, SPEC, MelResult, mel_csim, mel_rtlsim
from mel_unit import kaldi, phi4, whisper
from sounds import int16, speechlike, wav, written

from headrace.host.dpu.reference import audio
from headrace.host.dpu.specs import RATES, AudioSpec, AudioStage, Ends
from headrace.host.dpu.units.audio_tables import filter_program, log_offset
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import MemoryModel
from headrace.sim.hardware.dpu.audio import NEMO, MelPlan, mel_cu_cycles

BY_STAGE = pytest.mark.parametrize("stage", [RESAMPLE, MEL], ids=["resample", "mel"])
LENGTHS = (0, 1, 2, 3, 4, 5, 159, 160, 161, 255, 256, 257, 400, 511, 512, 513, 1000)


def both(data: bytes, stage: int = MEL, spec: AudioSpec = SPEC, **options) -> MelResult:
    """What C++ and RTL agree upon, down to each byte of the output buffer. The RTL may have more options."""
    only_rtl = {name: options.pop(name) for name in ("behind", "model") if name in options}
    cpp = mel_csim(data, stage, spec, **options)
    rtl = mel_rtlsim(data, stage, spec, **options, **only_rtl)
    assert rtl.told == cpp.told, (rtl.status, cpp.status, rtl.count, cpp.count)
    return rtl


def speech(seconds: float, rate: int, channels: int = 1):
    samples = [int16(speechlike(seconds, rate, seed)) for seed in range(channels)]
    return samples[0] if channels == 1 else np.stack(samples, 1)


@BY_STAGE
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", RATES)
def test_files_of_every_rate_give_the_same_bytes(rate, channels, stage):
    samples = speech(0.15, rate, channels)
    result = both(wav(samples, rate), stage, taps_rate=rate)
    count = SPEC.resampled(len(samples), rate)
    assert result.source == (len(samples), rate)
    assert result.count == (SPEC.frames(count) if stage == MEL else count)
    result.bands(80) if stage == MEL else result.samples()


@BY_STAGE
def test_16_khz_files_give_what_the_cpu_gives(stage):
    data = wav(speech(0.5, 16000), 16000)
    if stage == MEL:
        found, expected = both(data).bands(80).T, audio.preprocess(data, SPEC, AudioStage.MEL)
        np.testing.assert_allclose(found, expected, atol=1e-2)
    else:
        assert np.array_equal(both(data, stage).samples(), audio.preprocess(data, SPEC, AudioStage.RESAMPLE))


@pytest.mark.parametrize("rate", [16000, 8000, 44100])
def test_frames_of_400_samples_give_the_same_bytes_and_the_greatest_value(rate):
    """With zeros up to a length, cut at one, and with pauses of memory."""
    samples = speech(0.3, rate)
    for length, spec in (
        (0, whisper(samples=1700)),
        (1, whisper(4)),
        (len(samples), whisper(128)),
        (len(samples), whisper(80, 1999)),
        (len(samples) // 3, whisper(80, 4800)),
    ):
        data, behind = wav(samples[:length], rate), MemoryModel(stall=0.4, seed=length)
        result = both(data, MEL, spec, taps_rate=rate, behind=behind)
        count = spec.resampled(length, rate)
        assert result.count == spec.frames(count)
        bands = result.bands(spec.n_mels, 0)
        assert result.greatest == np.rint(bands.max() * 2**18)
        wanted = audio.preprocess(data, spec, AudioStage.MEL).T * np.log(10)
        assert np.abs(np.maximum(bands, bands.max() - 18) - np.maximum(wanted, wanted.max() - 18)).max() < 0.02


def test_a_sound_without_a_frame_is_taken_whole_and_refused():
    inside = AudioSpec(ends=Ends.INSIDE, normalize_over="all")
    for length in (0, 1, 239, 399):
        result = both(wav(speech(0.1, 16000)[:length], 16000), MEL, inside)
        assert result.status == Status.BAD_ARGUMENT and result.source == (length, 16000)
        assert (result.memory == 0xA5).all()
    # As many samples behind the last frame as there can be
    for length in (400, 559, 560, 719):
        assert both(wav(speech(0.1, 16000)[:length], 16000), MEL, inside).bands(80, 0).shape == (
            (length - 400) // 160 + 1,
            80,
        )


@pytest.mark.parametrize("rate", [16000, 11025, 48000])
def test_lengths_around_hop_and_window_give_the_same_bytes(rate):
    samples = speech(0.2, 48000)
    for length in LENGTHS:
        for stage in (RESAMPLE, MEL):
            result = both(wav(samples[:length], rate), stage, taps_rate=rate)
            count = SPEC.resampled(length, rate)
            assert result.count == (count // 160 + 1 if stage == MEL else count)


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(700),
        np.full(700, 32767),
        np.full(700, -32768),
        np.eye(1, 700, 350)[0] * 32767,
        np.where(np.arange(700) % 80 < 40, 32767, -32768),
    ],
    ids=["silence", "DC", "lowest", "click", "square"],
)
def test_extreme_sounds_give_the_same_bytes(samples):
    for rate in (16000, 44100, 8000):
        both(wav(samples.astype(np.int16), rate), taps_rate=rate).bands(80)
    both(wav(np.stack([samples, samples], 1).astype(np.int16), 16000)).bands(80)


@pytest.mark.parametrize(
    "change",
    [{"n_mels": 128}, {"n_mels": 4}, {"preemphasis": 0}, {"log_floor": 2.0**-10}, {"normalize_over": "all"}],
    ids=str,
)
def test_other_specs_give_the_same_bytes(change):
    spec = AudioSpec(**change)
    data = wav(speech(0.3, 16000), 16000)
    found = both(data, spec=spec).bands(spec.n_mels, spec.left_out).T
    np.testing.assert_allclose(found, audio.preprocess(data, spec, AudioStage.MEL), atol=2e-2)


@pytest.mark.parametrize("spec", [kaldi(80), kaldi(128, gain=1.0), phi4()], ids=["gain", "no gain", "Phi-4"])
def test_frames_with_steps_of_their_own_give_the_same_bytes(spec):
    data = wav(speech(0.3, 44100), 44100)
    found = both(data, spec=spec, taps_rate=44100).bands(spec.n_mels, spec.left_out).T + log_offset(spec)
    np.testing.assert_allclose(found, audio.preprocess(data, spec, AudioStage.MEL), atol=2e-2)


def test_taps_stay_loaded_until_those_of_another_rate_are_asked_for():
    """A run tells by its clocks whether it loaded them: 441 words of 22 from memory."""
    data = {rate: wav(speech(0.05, rate), rate) for rate in (16000, 44100, 8000)}

    def loads(rate: int, taps_rate: int) -> bool:
        result = mel_rtlsim(data[rate], RESAMPLE, taps_rate=taps_rate)
        assert result.told == mel_csim(data[rate], RESAMPLE, taps_rate=taps_rate).told
        return result.counters["tables"] > 100

    loads(8000, 8000)
    assert loads(44100, 44100) and not loads(44100, 44100)
    assert not loads(16000, 16000) and not loads(44100, 44100)
    assert loads(8000, 8000) and loads(16000, 44100) and not loads(44100, 44100)


def test_a_file_of_a_rate_without_its_taps_is_refused_with_what_it_is():
    data = wav(speech(0.1, 22050), 22050)
    for stage in (RESAMPLE, MEL):
        result = both(data, stage, taps_rate=44100)
        assert (result.status, result.count, result.bytes) == (Status.BAD_ARGUMENT, 0, 0)
        assert result.source == (2205, 22050)


@pytest.mark.parametrize(
    "wrong",
    [
        {"stage": 2},
        {"stage": 0x80000001},
        {"mels": 0},
        {"mels": 2},
        {"mels": 82},
        {"mels": 132},
        {"mels": 0x150},
        {"preemphasis": 1 << 24},
        {"left_out": 2},
        {"left_out": 1 << 31},
        {"plan": 3 << 1},
        {"plan": 1 << 4},
        {"plan": 1 << 5 | 1 << 1},
        {"plan": 1 << 6 | 2 << 1},
        {"plan": 1 << 7},
        {"plan": 1 << 16},
        {"min_samples": 11, "max_samples": 10},
        {"max_samples": 65535 * 160},
        {"min_samples": 1 << 31, "max_samples": 1 << 31},
        {"taps_rate": 0},
        {"taps_rate": 16001},
        {"taps_rate": 0x10000 + 16000},
    ],
    ids=str,
)
def test_odd_arguments_are_refused_and_nothing_is_written(wrong):
    result = both(wav(speech(0.1, 16000), 16000), scalars=wrong)
    assert result.status == Status.BAD_ARGUMENT and (result.memory == 0xA5).all()
    assert (result.count, result.source, result.bytes) == (0, (0, 0), 0)


def test_what_only_mel_needs_does_not_count_in_front_of_it():
    result = both(
        wav(speech(0.1, 16000), 16000),
        RESAMPLE,
        scalars={"mels": 3, "preemphasis": 1 << 30, "left_out": 7, "plan": 255},
    )
    assert result.status == Status.OK


@pytest.mark.parametrize("name", ["wav", "mel", "tables", "result"])
def test_an_unaligned_address_is_refused(name):
    data = wav(speech(0.1, 16000), 16000)
    result = mel_rtlsim(data, addresses={name: (1 << 40) + 8})
    assert result.status == Status.BAD_ARGUMENT and (result.memory == 0xA5).all()
    assert mel_rtlsim(data).status == Status.OK


@BY_STAGE
def test_a_buffer_that_is_too_small_is_left_alone_and_the_size_is_told(stage):
    data = wav(speech(0.1, 16000), 16000)
    needed = (11 + 4) * 80 * 4 if stage == MEL else 6400
    result = both(data, stage, capacity=needed - 1)
    assert (result.status, result.bytes) == (Status.BUFFER_TOO_SMALL, needed) and (result.memory == 0xA5).all()
    assert result.count == (11 if stage == MEL else 1600) and result.source == (1600, 16000)
    assert both(data, stage, capacity=needed, memory=needed).status == Status.OK


@pytest.mark.parametrize("name", ["wav", "mel", "tables", "result"])
def test_an_error_of_memory_ends_in_a_status(name):
    data = wav(speech(0.1, 44100), 44100)
    mel_rtlsim(wav(speech(0.1, 8000), 8000), taps_rate=8000)  # so that tables are wanted
    result = mel_rtlsim(data, taps_rate=44100, addresses={name: 1 << 40})
    assert result.status == Status.BUS_ERROR
    assert both(data, taps_rate=44100).status == Status.OK  # whatever taps the run before left


@BY_STAGE
def test_memory_may_stall_as_it_likes(stage):
    random = np.random.default_rng(stage)
    for seed in range(6):
        rate = RATES[int(random.integers(8))]
        samples = speech(0.3, 48000)[: int(random.integers(0, 4000))]
        behind = MemoryModel(latency=int(random.integers(0, 300)), stall=0.4, seed=seed)
        both(wav(samples, rate), stage, taps_rate=rate, behind=behind)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", Status.NOT_WAV),
        (b"RIFF", Status.NOT_WAV),
        (wav(np.zeros(9, np.int16), 16000)[:43], Status.TRUNCATED),
        (wav(np.zeros(9, np.int16), 12000), Status.RATE),
        (wav(np.zeros((9, 3), np.int16), 16000), Status.CHANNELS),
        (written(np.zeros(99), 16000, "WAV", "PCM_24"), Status.SOUND_FORMAT),
        (written(np.zeros(99), 16000, "WAV", "FLOAT"), Status.SOUND_FORMAT),
        (written(np.zeros(99), 16000, "WAV", "ALAW"), Status.SOUND_FORMAT),
        (written(np.zeros(99), 16000, "FLAC", "PCM_16"), Status.NOT_WAV),
    ],
)
def test_files_that_are_not_for_the_dpu_end_in_their_status(data, status):
    for stage in (RESAMPLE, MEL):
        result = both(data, stage)
        assert result.status == status and (result.memory == 0xA5).all()


def damaged(count: int, seed: int):
    """WAV files of a few hundred samples with bytes changed, cut out or cut off."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        rate = RATES[int(random.integers(8))]
        shape = (int(random.integers(0, 300)), int(random.integers(1, 3)))
        data = bytearray(wav(random.integers(-32768, 32768, shape).astype(np.int16), rate))
        for _ in range(int(random.integers(1, 4))):
            kind, at = random.integers(3), int(random.integers(0, min(len(data), 60)))
            if kind == 0:
                data[at] = int(random.integers(256))
            elif kind == 1:
                del data[at : at + int(random.integers(1, 9))]
            else:
                del data[int(random.integers(0, len(data) + 1)) :]
            if not data:
                break
        yield bytes(data), rate


def check_damaged(count: int, seed: int) -> None:
    """C++ and RTL agree; clocks are bounded by the file, by what it may give, and by the tables."""
    told = set()
    for number, (data, rate) in enumerate(damaged(count, seed)):
        rtl = mel_rtlsim(data, number % 2, taps_rate=rate, memory=1 << 16)
        assert rtl.told == mel_csim(data, number % 2, taps_rate=rate, memory=1 << 16).told
        assert rtl.cycles < 4 * len(data) + 6 * 600 + 32_000
        told.add(rtl.status)
    assert len(told) >= 6


def test_damaged_files_end_in_a_status_or_in_values():
    check_damaged(60, 1)


@pytest.mark.slow
def test_thousands_of_damaged_files_end_in_a_status_or_in_values():
    check_damaged(2000, 2)


def test_clocks_at_16_khz_are_within_5_per_cent_and_2000():
    for seconds in (0.01, 0.5, 3.0):
        data = wav(speech(seconds, 16000), 16000)
        result = mel_rtlsim(data, memory=1 << 21)
        assert result.cycles <= 1.05 * len(data) // 2 + 2000


def test_an_input_sample_is_taken_a_clock_at_44_1_khz():
    samples = speech(1.0, 44100)
    mel_rtlsim(wav(samples[:100], 44100), taps_rate=44100)
    assert mel_rtlsim(wav(samples, 44100), taps_rate=44100).cycles <= len(samples) + 2500


@pytest.mark.parametrize(
    "rate",
    [rate if rate in (8000, 44100) else pytest.param(rate, marks=pytest.mark.slow) for rate in RATES],
)
@pytest.mark.parametrize("longest", [5000, pytest.param(20000, marks=pytest.mark.slow)])
def test_clocks_are_as_the_model_computes_them(rate, longest):
    """Within 1 %, from no sample on, with the taps loaded in the run or before."""
    mel_rtlsim(wav(speech(0.1, 44100), 44100), taps_rate=44100)
    loaded = 44100
    for spec in (AudioSpec(), AudioSpec(n_mels=128), whisper(), whisper(128, 8000), kaldi(), phi4()):
        n_mels, plan = spec.n_mels, NEMO
        if spec.n_fft == 400:
            plan = MelPlan(True, "mirrored", spec.padded(0), spec.lengths.samples or NEMO.max_samples)
        elif spec.ends is Ends.INSIDE:
            plan = MelPlan(ends="inside", mean_removed=spec.remove_mean)
        last = filter_program(spec)[:, 0] >> np.uint64(50) & np.uint64(1)
        for samples in (0, 1, 300, longest):
            if not spec.frames(spec.resampled(samples, rate)):
                continue
            data = wav(speech(longest / rate, rate)[:samples], rate)
            found = mel_rtlsim(data, MEL, spec, taps_rate=rate, stagger=0).counters["cycles"]
            loads = rate not in (16000, loaded)
            loaded = rate if loads else loaded
            model = mel_cu_cycles(samples, rate, n_mels, int(last.argmax()) + 1, loads_taps=loads, plan=plan)
            assert abs(model - found) <= 0.01 * found, (samples, n_mels, model, found)


@settings(max_examples=15, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(RATES))
def test_any_bytes_behind_a_riff_header_end_alike(body, rate):
    both(b"RIFF\0\0\0\0WAVE" + body, taps_rate=rate, memory=1 << 14)
