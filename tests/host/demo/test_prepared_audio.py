"""Test audio in the demo: the reference, files that cannot be used, the requests, the overlap of CUs A and B."""

import asyncio
import dataclasses
import io
import types

import numpy as np
import pytest
import soundfile

from headrace.batching import UsageError
from headrace.host.demo.inputs.audio import AudioClip, pcm_file
from headrace.host.demo.inputs.prepared_audio import PreparedAudio, Reference, by_definition, prepare_audio
from headrace.host.demo.runs.audio import cu_runs, overlap
from headrace.host.dpu.preprocessor import CpuPreprocessor
from headrace.host.dpu.reference import audio, resampling
from headrace.host.dpu.specs import AudioSpec
from headrace.host.memory.layout import TensorSpec

SPEC = AudioSpec()


def clip(seconds: float, rate: int, seed: int = 0) -> AudioClip:
    noise = 0.1 * np.random.default_rng(seed).standard_normal(round(seconds * rate))
    samples = noise * np.hanning(len(noise))  # a sudden start would contain all frequencies
    return AudioClip(f"{seconds} s {rate} Hz", pcm_file(samples, rate))


def prepared(*clips: AudioClip) -> PreparedAudio:
    return asyncio.run(prepare_audio(None, SPEC, clips, lambda: None))


def test_the_definition_is_the_cpu_path_where_nothing_is_resampled():
    data = clip(1.3, 16_000).data
    assert np.array_equal(by_definition(data, SPEC).tensor, audio.preprocess(data, SPEC))


@pytest.mark.parametrize("rate", [8000, 11025, 44100])
def test_the_definition_resamples_with_the_taps_of_the_spec(rate):
    data = clip(0.1, rate).data
    taps, samples = resampling.taps(rate, SPEC.rate), soundfile.read(io.BytesIO(data))[0]
    up, down = (number // np.gcd(16_000, rate) for number in (16_000, rate))
    half, count = len(taps) // 2, SPEC.resampled(len(samples), rate)
    at = (
        half + np.arange(count)[:, None] * down - np.arange(len(samples)) * up
    )  # the sum of which `taps` has the factors
    summed = (np.where((at >= 0) & (at < len(taps)), taps[np.clip(at, 0, len(taps) - 1)], 0) * samples).sum(1)
    expected = audio.normalize(audio.log_mel(summed.astype(np.float32), SPEC), SPEC)
    reference = by_definition(data, SPEC)
    assert reference.errors(expected)[0] < 1e-4
    assert reference.audible[:60].all() and reference.audible[-5:].all() == (
        rate == 44_100
    )  # no signal beyond 4 or 5.5 kHz


def test_errors_are_separate_for_faint_bands_and_infinite_for_another_shape():
    reference = Reference(np.zeros((2, 2)), np.array([True, False]))
    assert reference.errors(np.zeros((2, 3))) == (np.inf,) * 3
    assert reference.errors(np.array([[3.0, 0.0], [0.0, 1.0]])) == (
        pytest.approx(4.5**0.5),
        3.0,
        pytest.approx(0.5**0.5),
    )
    assert Reference(np.zeros((1, 1)), np.array([False])).errors(np.ones((1, 1))) == (0.0, 0.0, 1.0)


def test_sounds_that_cannot_be_used_are_named_and_the_others_are_kept():
    flac = io.BytesIO()
    soundfile.write(flac, np.zeros(1600), 16_000, format="FLAC")
    clips = prepared(
        AudioClip("text", b"no sound"), clip(0.5, 22_050), AudioClip("flac", flac.getvalue()), clip(36, 8000)
    )
    assert [each.name for each in clips.files] == ["0.5 s 22050 Hz", "flac"] and clips.frames == [51, 11]
    assert set(clips.skipped) == {"text", "36 s 8000 Hz"} and "cut it into pieces" in clips.skipped["36 s 8000 Hz"]
    assert clips.accuracy.clips == 2 and clips.accuracy.on_dpu == 0 and clips.files_per_s["dpu"] == 0
    with pytest.raises(UsageError, match="none of the 1 sounds can be used"):
        prepared(AudioClip("text", b"no sound"))


def test_a_request_sends_features_and_how_many_of_their_frames_count():
    clips = prepared(clip(0.5, 16_000), clip(1.0, 16_000, seed=1))
    inputs = (TensorSpec("features", "float32", (80, -1), 3501), TensorSpec("lengths", "int64", ()))
    source = clips.source(None, [1, 0], inputs)
    value, how = asyncio.run(source.value(0))
    assert value["features"].shape == (80, 101) and value["lengths"] == 100 and how is None
    assert value["lengths"].dtype == np.int64 and source.name(2) == source.name(0) == "1.0 s 16000 Hz"

    async def through_the_cpu():
        async with CpuPreprocessor(SPEC) as cpu:
            return await dataclasses.replace(source, preprocessor=cpu).value(1)

    value, how = asyncio.run(through_the_cpu())
    assert value["lengths"] == 50 and how.unit == "cpu" and source.compare(1, how.tensor) == (True, 0.0)
    assert source.compare(1, how.tensor + 0.01)[0] is False


def test_how_long_both_kinds_of_cus_worked_at_once():
    def record(*spans):
        runs = tuple(types.SimpleNamespace(unit=unit, started=begin, finished=end) for unit, begin, end in spans)
        return types.SimpleNamespace(preprocessed=types.SimpleNamespace(runs=runs))

    run = types.SimpleNamespace(
        records=[
            record(("audio_mel_cu_1", 0.0, 4.0), ("audio_norm_cu_1", 4.0, 6.0)),
            record(("audio_mel_cu_1", 4.0, 5.5), ("audio_norm_cu_1", 6.0, 7.0)),
            record(("audio_mel_cu_2", 4.5, 5.0), ("audio_norm_cu_2", 9.0, 10.0)),
        ]
    )
    assert overlap(cu_runs(run)) == {"mel_s": 5.5, "norm_s": 4.0, "both_s": 1.5}
    assert cu_runs(types.SimpleNamespace(records=[types.SimpleNamespace(preprocessed=None)])) == []
    assert overlap([]) is None
