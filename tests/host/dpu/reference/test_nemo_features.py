"""The features of a sound are NeMo's, as transformers' `ParakeetFeatureExtractor` has them, on the CPU and the DPU.

Both have the same pre-emphasis, window, zeros beyond the ends, mel filters and guard of the logarithm, and neither has
dither. So features are compared as a whole. The extractor gives no numbers for sounds with fewer than two frames that
count, where the deviation is 0 / 0; here such features are 0."""

import asyncio

import numpy as np
import pytest
from sounds import int16, speechlike, wav
from transformers import ParakeetFeatureExtractor

from headrace.bitstreams.build import build_sw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.reference.audio import normalize, preprocess
from headrace.host.dpu.specs import AudioSpec, AudioStage

SPEC = AudioSpec()
CPU_BOUND, CPU_RMS = 1e-3, 1e-4  # of float32 in another order
DPU_BOUND, DPU_RMS = 2e-3, 2e-4  # of log-mels in fixed point, divided by small deviations


def noise(count, loudness=0.3):
    return loudness * np.random.default_rng(count).standard_normal(count)


SECONDS = np.arange(32000) / 16000
SOUNDS = {
    "voice": speechlike(3.7, 16000),
    "loud sine": np.clip(3 * np.sin(2 * np.pi * 764 * SECONDS), -1, 1),
    "loud square": np.where(np.arange(32000) // 18 % 2, 1.0, -1.0),
    "loud noise": noise(32000),
    **{f"{count} samples": noise(count) for count in (320, 321, 400, 479, 480, 481, 1600, 1601, 1759, 20479, 20480)},
}


def nemos(samples):
    """Return features (n_mels, T) and the mask (T,) of the frames that count."""
    made = ParakeetFeatureExtractor()(int16(samples).astype(np.float32) / 32768, sampling_rate=16000)
    return made["input_features"][0].numpy().T, made["attention_mask"][0].numpy().astype(bool)


def check(features, name, bound, rms):
    expected, counts = nemos(SOUNDS[name])
    assert features.shape == expected.shape and counts.sum() == len(SOUNDS[name]) // 160
    error = features.astype(np.float64) - expected
    assert np.abs(error).max() < bound and np.sqrt(np.square(error).mean()) < rms
    assert not features[:, ~counts].any() and counts[:-1].all() and not counts[-1]


@pytest.mark.parametrize("name", SOUNDS)
def test_the_cpu_gives_nemos_features(name):
    check(preprocess(wav(int16(SOUNDS[name]), 16000), SPEC), name, CPU_BOUND, CPU_RMS)


@pytest.fixture(scope="module")
def on_dpu(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "audio.xclbin"
    build_sw_emu(path, image_cus=0, mel_cus=1, norm_cus=1)

    async def run():
        async with Dpu(path, SPEC) as dpu:
            done = {name: await dpu.process(wav(int16(samples), 16000)) for name, samples in SOUNDS.items()}
            assert dpu.counters.on_cpu == 0
            return {name: each.tensor for name, each in done.items()}

    return asyncio.run(run())


@pytest.mark.parametrize("name", SOUNDS)
def test_the_dpu_gives_nemos_features(name, on_dpu):
    check(on_dpu[name], name, DPU_BOUND, DPU_RMS)


@pytest.mark.parametrize("name", ["voice", "loud sine"])
def test_over_all_frames_features_are_others(name):
    """The two rules give features that differ by more than the bounds above."""
    features = preprocess(wav(int16(SOUNDS[name]), 16000), AudioSpec(normalize_over="all"))
    assert np.abs(features - nemos(SOUNDS[name])[0]).max() > 0.3


@pytest.mark.parametrize("count", [0, 1, 159, 160, 161, 319])
def test_of_fewer_than_two_frames_that_count_all_is_zero(count):
    data = wav(int16(noise(count)), 16000)
    assert not preprocess(data, SPEC).any() and preprocess(data, SPEC).shape == (80, count // 160 + 1)
    if count > 0:
        assert np.isnan(nemos(noise(count))[0]).all()


def test_the_frames_that_count_do_not_depend_on_the_last_one():
    mel = preprocess(wav(int16(SOUNDS["voice"]), 16000), SPEC, AudioStage.MEL)
    other = mel.copy()
    other[:, -1] += 10
    assert np.array_equal(normalize(mel, SPEC), normalize(other, SPEC))
    over_all = AudioSpec(normalize_over="all")
    assert not np.array_equal(normalize(mel, over_all), normalize(other, over_all))
    assert np.array_equal(normalize(mel, SPEC)[:, :-1], normalize(mel[:, :-1], over_all))
