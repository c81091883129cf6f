"""The definition of audio preprocessing, checked against librosa, torch as NeMo uses it, soxr and scipy themselves."""

import math

import librosa
import numpy as np
import pytest
import scipy  # its parts are large, and load when they are used
import soxr
import torch
from hypothesis import given
from hypothesis import strategies as st
from sounds import int16, speechlike, wav

from headrace.batching import UsageError
from headrace.host.dpu.reference import audio, resampling
from headrace.host.dpu.reference.audio import log_mel, normalize, prepare, preprocess, resample
from headrace.host.dpu.specs import RATES, AudioSpec, AudioStage

SPEC = AudioSpec()
BY_SOXR = AudioSpec(resampler="soxr")
OVER_ALL = AudioSpec(normalize_over="all")
FLOOR = math.log(2.0**-24)


def librosas(samples, spec=SPEC):
    """Return the log-mel spectrogram in float64, shape (n_mels, T)."""
    samples = samples.astype(np.float64)
    samples = np.append(samples[:1], samples[1:] - spec.preemphasis * samples[:-1])
    power = librosa.feature.melspectrogram(
        y=samples,
        sr=16000,
        n_fft=512,
        hop_length=160,
        win_length=400,
        window=scipy.signal.windows.hann(400),
        center=True,
        pad_mode="constant",
        power=2.0,
        n_mels=spec.n_mels,
        dtype=np.float64,
    )
    return np.log(power + 2.0**-24)


def nemos(samples):
    """Return NeMo's `FilterbankFeatures.forward` and `normalize_batch` for one input, in float64 and without dither.

    The ends are those of its late releases. All frames count, as in its early releases."""
    x = torch.from_numpy(samples.astype(np.float64))[None]
    x = torch.cat((x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]), 1)
    window = torch.hann_window(400, periodic=False, dtype=torch.float64)
    x = torch.stft(x, 512, 160, 400, window, center=True, pad_mode="constant", return_complex=True)
    power = torch.sqrt(torch.view_as_real(x).pow(2).sum(-1)).pow(2.0)
    filters = torch.tensor(librosa.filters.mel(sr=16000, n_fft=512, n_mels=80, fmin=0, fmax=8000), dtype=torch.float64)
    mel = torch.log(torch.matmul(filters, power) + 2.0**-24)[0]
    mean = mel.mean(1, keepdim=True)
    return ((mel - mean) / (mel.std(1, keepdim=True) + 1e-5)).numpy()


def far_from_floor(mel):
    return mel >= FLOOR + 3


@pytest.mark.parametrize("n_mels", [80, 128])
@pytest.mark.parametrize("preemphasis", [0.97, 0.0])
def test_log_mel_is_librosas(n_mels, preemphasis):
    spec = AudioSpec(n_mels=n_mels, preemphasis=preemphasis)
    samples = (int16(speechlike(3, 16000)) / 32768).astype(np.float32)
    expected = librosas(samples, spec)
    mel = log_mel(samples, spec)
    assert mel.shape == (n_mels, 301) and mel.dtype == np.float32 and mel.flags.c_contiguous
    assert np.abs(mel - expected)[far_from_floor(expected)].max() < 1e-3


def test_over_all_frames_it_is_what_early_nemo_computes():
    samples = int16(speechlike(3.7, 16000))
    expected = nemos(samples / 32768)
    tensor = preprocess(wav(samples, 16000), OVER_ALL)
    assert tensor.dtype == np.float32 and tensor.shape == expected.shape
    assert np.sqrt(np.square(tensor - expected).mean()) < 1e-4
    half = preprocess(wav(samples, 16000), AudioSpec(normalize_over="all", dtype="float16"))
    assert half.dtype == np.float16 and np.array_equal(half, tensor.astype(np.float16))


@pytest.mark.parametrize(
    "samples",
    [
        np.full(8000, 0.5),
        np.where(np.arange(16000) // 18 % 2, 32767, -32768) / 32768,
        np.clip(3 * np.sin(np.arange(16000) * 0.3), -1, 32767 / 32768),
        np.arange(16000) == 8000,
        np.sin(np.arange(16000) * math.pi / 8),
    ],
    ids=["constant", "full-scale square", "clipped", "click", "tone"],
)
def test_what_is_no_speech_is_librosas_too(samples):
    expected = librosas(samples)
    mel = log_mel(samples.astype(np.float32), SPEC)
    assert np.abs(mel - expected)[far_from_floor(expected)].max() < 1e-3
    deviation = expected.std(1, ddof=1, keepdims=True)
    normal = (expected - expected.mean(1, keepdims=True)) / (deviation + 1e-5)
    assert np.sqrt(np.square(normalize(mel, OVER_ALL) - normal).mean()) < 1e-3


@given(st.integers(0, 2000), st.sampled_from(RATES), st.sampled_from([1, 2]))
def test_any_length_at_any_rate_gives_its_frames(n, rate, channels):
    samples = np.random.default_rng(n).integers(-32768, 32768, (n, channels)).astype(np.int16)
    at_16k = preprocess(wav(samples, rate), SPEC, AudioStage.RESAMPLE)
    assert len(at_16k) == math.ceil(n * 16000 / rate) and at_16k.dtype == np.float32
    tensor = preprocess(wav(samples, rate), SPEC)
    assert tensor.shape == (80, len(at_16k) // 160 + 1) and np.isfinite(tensor).all()
    if n > 1:  # each band comes out with mean 0 and deviation 1, but for the little that is added to that
        mel = preprocess(wav(samples, rate), SPEC, AudioStage.MEL)
        tensor, mel = tensor[:, :-1], mel[:, :-1]  # the last frame does not count
        if tensor.shape[1] > 1:
            assert np.abs(tensor.mean(1)).max() < 1e-3
            moving = mel.std(1) > 0.1
            assert tensor[moving].std(1, ddof=1) == pytest.approx(1, abs=1e-3)


@pytest.mark.filterwarnings("ignore:n_fft=512 is too large")  # librosa's advice
@pytest.mark.parametrize("n", [159, 160, 161, 200, 256, 399, 400, 401, 511, 512, 513])
def test_lengths_around_hop_and_window_are_librosas(n):
    samples = (int16(speechlike(1, 16000))[3000 : 3000 + n] / 32768).astype(np.float32)
    assert np.abs(log_mel(samples, SPEC) - librosas(samples)).max() < 1e-2


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_one_frame_and_silence_are_zeros(rate):
    for samples in (np.zeros(0, np.int16), np.full(1, 1000, np.int16), np.zeros(30000, np.int16)):
        tensor = preprocess(wav(samples, rate), SPEC)
        assert not tensor.any()
    assert preprocess(wav(np.zeros(0, np.int16), rate), SPEC).shape == (80, 1)
    assert preprocess(wav(np.zeros(1600, np.int16), rate), SPEC, AudioStage.MEL) == pytest.approx(FLOOR, abs=1e-5)


def test_two_channels_become_their_mean():
    left, right = int16(speechlike(1, 16000, 1)), int16(speechlike(1, 16000, 2))
    mono = preprocess(wav(np.stack((left, right), 1), 16000), SPEC, AudioStage.RESAMPLE)
    assert np.array_equal(mono, (left / 32768 + right / 32768) / 2)


@pytest.mark.parametrize("rate", RATES)
def test_the_taps_pass_and_stop_what_they_are_to(rate):
    taps = resampling.taps(rate, SPEC.rate)
    if rate == 16000:
        assert np.array_equal(taps, [1])
        return
    up, high, low = math.lcm(rate, 16000) // rate, math.lcm(rate, 16000), min(rate, 16000)
    assert len(taps) % 2 == 1 and taps == pytest.approx(taps[::-1], abs=1e-14)
    passed = np.abs(scipy.signal.freqz(taps, worN=np.linspace(0, 0.45 * low, 700), fs=high)[1]) / up
    assert np.abs(20 * np.log10(passed)).max() < 0.03
    stop = np.linspace(low / 2, min(high / 2, 3 * low), 1200)
    stopped = np.abs(scipy.signal.freqz(taps, worN=stop, fs=high)[1]) / up
    spectrum = np.abs(np.fft.rfft(taps, 1 << (16 * len(taps)).bit_length())) / up  # all the way to high / 2, images too
    beyond = spectrum[math.ceil(low / high * (1 << (16 * len(taps)).bit_length()) / 2) :]
    assert 20 * np.log10(max(stopped.max(), beyond.max())) < -90


@pytest.mark.parametrize("rate", RATES)
def test_the_default_resamples_with_the_taps(rate):
    """The result is the sum that `resampling.taps` defines. Each tap is rounded to 2^-23, and the sum to float32."""
    samples = speechlike(0.3, rate).astype(np.float32)
    ours = resample(samples, rate, SPEC)
    up, down, taps = math.lcm(rate, 16000) // rate, math.lcm(rate, 16000) // 16000, resampling.taps(rate, SPEC.rate)
    assert len(ours) == SPEC.resampled(len(samples), rate)
    half = len(taps) // 2
    for m in (0, 1, len(ours) // 3, len(ours) // 2, len(ours) - 1):
        inputs = np.arange(len(samples))
        at = half + m * down - inputs * up
        inside = (at >= 0) & (at < len(taps))
        assert ours[m] == pytest.approx(samples[inside].astype(np.float64) @ taps[at[inside]], abs=8.1e-6)


@pytest.mark.parametrize("rate", RATES)
def test_the_default_resamples_nearly_as_soxr_does(rate):
    samples = speechlike(0.3, rate).astype(np.float32)
    ours, soxrs = resample(samples, rate, SPEC), resample(samples, rate, BY_SOXR)
    assert len(ours) == len(soxrs)
    assert np.sqrt(np.square(ours - soxrs).mean() / np.square(soxrs).mean()) < 0.03


@pytest.mark.parametrize("rate", [rate for rate in RATES if rate != 16000])
def test_where_both_pass_log_mel_by_the_taps_is_that_by_soxr(rate):
    """The two filters differ only above 0.9 of the band."""
    samples = (speechlike(2, rate) + 0.01 * np.random.default_rng(3).standard_normal(2 * rate)).astype(np.float32)
    by_taps, by_soxr = (log_mel(resample(samples, rate, spec), spec) for spec in (SPEC, BY_SOXR))
    passes = librosa.mel_frequencies(82, fmin=0, fmax=8000)[2:] <= 0.45 * min(rate, 16000)
    difference = np.abs(by_taps - by_soxr)[passes][far_from_floor(by_soxr)[passes]]
    assert np.quantile(difference, 0.99) < 1e-2
    normal = (normalize(by_taps, SPEC) - normalize(by_soxr, SPEC))[passes]
    assert np.sqrt(np.square(normal).mean()) < 2e-3
    assert not np.array_equal(by_taps, by_soxr)


@pytest.mark.parametrize(
    ("rate", "spec"), [(8000, BY_SOXR), (11025, BY_SOXR), (44100, BY_SOXR), (48000, BY_SOXR), (44056, SPEC)]
)
def test_resampling_is_soxrs_on_request_and_at_other_rates(rate, spec):
    samples = speechlike(0.5, rate).astype(np.float32)[: rate // 2 - 1]
    ours = resample(samples, rate, spec)
    theirs = soxr.resample(samples, rate, 16000, "HQ")
    length = min(len(ours), len(theirs))
    assert ours[:length] == pytest.approx(theirs[:length], abs=1e-5) and len(ours) - length in (0, 1)


def test_what_is_prepared_is_not_made_again(monkeypatch):
    spec = AudioSpec(rate=24000, n_mels=17)  # of no other test
    prepare(spec)

    def refuse(*_):
        raise AssertionError("a request makes a table")

    for module, name in ((resampling, "fixed_taps"), (audio, "mel_filters")):
        monkeypatch.setattr(module, name, refuse)
    for rate in RATES:
        assert preprocess(wav(np.zeros(100, np.int16), rate), spec).shape[0] == 17
    with pytest.raises(AssertionError, match="makes a table"):
        preprocess(wav(np.zeros(100, np.int16), 16000), AudioSpec(rate=24000, n_mels=18))


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "int8"},
        {"rate": 0},
        {"rates": ()},
        {"rates": (100,)},
        {"preemphasis": 1.0},
        {"n_fft": 500},
        {"window": 513},
        {"window": 1},
        {"window": 600},
        {"hop": 0},
        {"hop": 513},
        {"n_mels": 0},
        {"n_mels": 300},
        {"log_floor": 0.0},
        {"std_floor": -1.0},
        {"longest_s": math.inf},
        {"resampler": "sinc"},
        {"normalize_over": "last"},
    ],
)
def test_impossible_specs_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change)) if "dtype" not in change else "tensor type"):
        AudioSpec(**change)
