"""The features of speech models are those of transformers' feature extractors, and of a computation in float64.

transformers computes in float32, and divides by small deviations. So where it differs from float64 by more than the
bound, the features here may differ from its features by as much.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sounds import int16, wav, written
from speech_front_ends import CASES, SOUNDS, exact, noise, theirs

from headrace.batching import BadInput, HeadraceError
from headrace.host.dpu.reference.audio import features, filterbank, log_mel, named, prepare, preprocess, process
from headrace.host.dpu.specs import AudioSpec, AudioStage, Ends, Lengths, Rescale, Statistics, Window

NEMO = ("ParakeetFeatureExtractor", "CohereAsrFeatureExtractor")
LIKE_WHISPER = ("WhisperFeatureExtractor", "Qwen3ASRFeatureExtractor")
SPECS = {
    case: AudioSpec.from_hf({"feature_extractor_type": name, **settings}) for case, (name, settings) in CASES.items()
}
BOUND = 1e-4  # between two of: these features, float64 and transformers
LONG = ("voice of 30 s", "voice of 32 s")
PAIRS = [
    (case, sound)
    for case, sound in itertools.product(CASES, SOUNDS)
    if sound not in LONG or case in ("whisper", "whisper-large-v3", "qwen3-asr", "seamless", "ast", "phi-4")
]


def tensors(case: str, sound: str):
    """Return the tensors of a sound, or None if it is too short for a frame."""
    spec, samples = SPECS[case], SOUNDS[sound]
    if (spec.mel and spec.lengths.frames is None and not spec.frames(len(samples))) or (
        not spec.mel and not len(samples)
    ):
        with pytest.raises(BadInput, match="send at least"):
            features(samples, spec)
        return None
    made = features(samples, spec)
    assert made.shape == spec.shape(len(samples)) and made.dtype == np.float32 and np.isfinite(made).all()
    return named(made, spec.valid(len(samples)), spec)


@pytest.mark.quick(120)
@pytest.mark.parametrize("case, sound", [pair for pair in PAIRS if CASES[pair[0]][0] not in NEMO])
def test_features_are_those_of_float64(case, sound):
    name, options = CASES[case]
    if (made := tensors(case, sound)) is None:
        return
    expected = exact(name, options, SOUNDS[sound])
    changes = np.isfinite(expected) & (np.abs(expected) > 1e-6)  # a constant band has no deviation without a floor
    if name == "Speech2TextFeatureExtractor" and sound in ("constant", "silence"):
        changes[:] = False
    error = np.abs(made[SPECS[case].tensors.features][0] - expected)[changes]
    assert error.max(initial=0) < BOUND
    if name in LIKE_WHISPER:
        assert np.isfinite(expected).all() and np.quantile(error, 0.999) < 2e-5


@pytest.mark.quick(150)
@pytest.mark.parametrize("case, sound", PAIRS)
def test_tensors_are_those_of_transformers(case, sound):
    name, options = CASES[case]
    samples = SOUNDS[sound]
    made = tensors(case, sound)
    try:
        expected = theirs(name, options, samples)
    except (ValueError, RuntimeError):  # of sounds that are shorter than a frame
        assert len(samples) < 400
        return
    feature = SPECS[case].tensors.features
    if made is None:
        assert expected[feature].size == 0
        return
    assert set(made) == set(expected)
    for key, values in made.items():
        assert values.shape == expected[key].shape and values.dtype == expected[key].dtype
        if key != feature and (name not in NEMO or len(samples) >= 160):  # of no frame, NeMo's features are no numbers
            assert np.array_equal(values, expected[key])
    with np.errstate(invalid="ignore"):
        inexact = np.abs(expected[feature][0] - exact(name, options, samples))
        difference = np.abs(made[feature] - expected[feature])[0]
    numbers = np.isfinite(expected[feature][0]) & np.isfinite(inexact)
    allowed = inexact + BOUND if name not in NEMO else 2 * inexact + 2e-3  # float32 in both
    assert (difference <= allowed)[numbers].all()
    assert numbers.all() or len(samples) < 600 or sound in ("constant", "silence")
    if name in LIKE_WHISPER:
        assert difference.max() < BOUND


@pytest.mark.parametrize("case", CASES)
def test_a_file_becomes_the_tensors_of_its_samples(case):
    spec = SPECS[case]
    samples = int16(noise(16100))
    for data in (wav(samples, 16000), written(samples, 16000, "FLAC", "PCM_16")):
        first, by_name = process(data, spec)
        expected = features(samples.astype(np.float32) / 32768, spec)
        assert first is by_name[spec.tensors.features] and np.array_equal(first[0], expected)
        assert np.array_equal(preprocess(data, spec), first)
        mel, nothing = process(data, spec, AudioStage.MEL)
        assert not nothing and mel.dtype == np.float32
        assert mel.shape == ((spec.n_mels, spec.frames(16100)) if spec.mel else (16100,))
        half, by_name = process(data, replace(spec, dtype="float16"))
        assert half.dtype == np.float16 and np.array_equal(half[0], expected.astype(np.float16))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rate", [8000, 22050, 44100, 44056])
def test_a_file_of_any_rate_is_resampled_first(case, rate):
    samples = int16(noise(rate))
    at_16k = preprocess(wav(samples, rate), SPECS[case], AudioStage.RESAMPLE)
    assert len(at_16k) == 16000
    assert np.array_equal(preprocess(wav(samples, rate), SPECS[case])[0], features(at_16k, SPECS[case]))


@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, max_examples=25)
@given(count=st.integers(0, 9000), seed=st.integers(0, 9), loudness=st.sampled_from([0.0, 1e-4, 0.3, 1.0]))
def test_any_length_gives_its_shape_or_an_error(case, count, seed, loudness):
    spec = (
        replace(SPECS[case], lengths=replace(SPECS[case].lengths, samples=8000)) if "whisper" in case else SPECS[case]
    )
    samples = np.random.default_rng(seed).uniform(-loudness, loudness, count).astype(np.float32)
    try:
        made = features(samples, spec)
    except BadInput as error:
        assert count < 400 and "send at least" in str(error)
        return
    assert made.shape == spec.shape(count) and np.isfinite(made).all()
    assert 0 <= spec.valid(count) <= max(made.shape if not spec.mel else made.shape[:: -1 if spec.bands_first else 1])


@pytest.mark.parametrize("case", CASES)
def test_frames_do_not_depend_on_the_zeros_that_are_left_out(case):
    """Frames of the padding alone are not computed. Frames with a part of the sound are."""
    spec = SPECS[case]
    if not spec.mel:
        return
    for count in (161, 559, 560, 641, 8123):
        sound = np.ones(count, np.float32)
        alone = log_mel(sound, spec) if spec.frames(count) or spec.lengths.frames else None
        longer = log_mel(np.append(sound, np.zeros(32000, np.float32)), spec)
        if alone is not None and spec.padded(count) > count:
            last = min(alone.shape[1], longer.shape[1]) - 3  # where the end is mirrored
            assert np.allclose(alone[:, :last], longer[:, :last], atol=1e-6)


BAD = {
    "17 channels": (wav(np.zeros((800, 17), np.int16), 16000), "17 channels"),
    "1 Hz": (wav(np.zeros(8, np.int16), 1), "1 Hz; resample"),
    "10 MHz": (wav(np.zeros(800, np.int16), 10_000_000), "10000000 Hz; resample"),
    "NaN": (written(np.array([0.0, math.nan, 0.5] * 900), 16000, "WAV", "FLOAT"), "no numbers"),
    "infinite": (written(np.array([0.0, math.inf, 0.5] * 900), 16000, "WAV", "FLOAT"), "no numbers"),
    "6 hours": (wav(np.zeros(800, np.int16), 16000)[:40] + (6 * 3600 * 32000).to_bytes(4, "little"), ""),
    "cut off": (wav(np.zeros(800, np.int16), 16000)[:30], "cannot decode"),
    "no sound": (b"", "it is empty"),
}


@pytest.mark.parametrize("case", ["whisper", "qwen3-asr", "parakeet", "seamless", "ast", "phi-4", "wav2vec2"])
@pytest.mark.parametrize("bad", BAD)
def test_bad_files_are_an_error(case, bad):
    """A header that claims more samples than there are is read to its end: here it has none."""
    data, told = BAD[bad]
    try:
        made = preprocess(data, SPECS[case])
    except HeadraceError as error:
        assert told in str(error)
    else:
        assert bad == "6 hours" and np.array_equal(made[0], features(np.zeros(0, np.float32), SPECS[case]))


def test_a_sound_that_is_too_long_is_refused_before_it_is_decoded():
    silence = wav(np.zeros(8000 * 61, np.int16), 8000)
    for case in ("whisper", "wav2vec2"):
        with pytest.raises(BadInput, match=r"is 61\.0 s long; cut it into pieces of at most 60 s"):
            preprocess(silence, SPECS[case])
    with pytest.raises(BadInput, match="at most 35 s"):
        preprocess(silence, SPECS["cohere"])
    assert preprocess(silence, replace(SPECS["whisper"], longest_s=61.0)).shape == (1, 80, 3000)


@pytest.mark.parametrize("case", CASES)
def test_tables_are_made_before_the_first_request(case, monkeypatch):
    from headrace.host.dpu.reference import audio

    prepare(SPECS[case])
    for name in ("mel_filters", "kaldi_filters"):
        monkeypatch.setattr(audio, name, None)
    features(SOUNDS["8000 samples"], SPECS[case])


def test_a_plan_of_ones_own():
    """Fields that no class of transformers has together give what their formulas say."""
    spec = AudioSpec(
        ends=Ends.INSIDE,
        window_shape=Window.POVEY,
        normalize=Rescale(2.0, 1.0, 3.0),
        normalize_over="all",
        lengths=Lengths(samples=3200, multiple=8, pad_value=-1.0, stack=3),
    )
    samples = SOUNDS["noise"]
    x = np.append(samples[:1], samples[1:3200] - 0.97 * samples[:3199].astype(np.float64))
    frames = np.stack([x[160 * t : 160 * t + 400] for t in range(18)]) * np.hanning(400) ** 0.85
    power = np.abs(np.fft.rfft(frames, 512)) ** 2
    from transformers.audio_utils import mel_filter_bank

    mel = np.log(power @ mel_filter_bank(257, 80, 0, 8000, 16000, "slaney", "slaney") + 2.0**-24).T
    mel = (np.maximum(mel, mel.max() - 2) + 1) * 3
    expected = np.pad(mel, ((0, 0), (0, 6)), constant_values=-1).T.reshape(8, 240).T
    assert spec.shape(100) == (240, 8) and np.abs(features(samples, spec) - expected).max() < 2e-6


def test_mean_and_deviation_may_leave_out_the_mean_of_one_frame():
    spec = replace(SPECS["speech2text"], normalize=Statistics(ddof=1, variance_floor=0.0))
    assert not features(SOUNDS["400 samples"], spec).any()


@pytest.mark.parametrize("count", [201, 202, 319, 399, 400, 401])
def test_a_mirrored_sound_may_be_shorter_than_a_window(count):
    spec = AudioSpec(ends=Ends.MIRRORED, preemphasis=0.0, normalize_over="all", lengths=Lengths(least=201))
    samples = np.random.default_rng(count).normal(0, 0.1, count).astype(np.float32)
    every = np.lib.stride_tricks.sliding_window_view(np.pad(samples.astype(float), 200, mode="reflect"), 400)[::160]
    powers = np.abs(np.fft.rfft(every[: count // 160] * np.hanning(400), 512)) ** 2
    expected = np.log(powers @ filterbank(spec).T.astype(float) + spec.log_floor).T
    np.testing.assert_allclose(log_mel(samples, spec), expected, atol=1e-5)
