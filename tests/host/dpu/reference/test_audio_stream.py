"""A sound in pieces has the frames and the tensors of the whole sound."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from speech_front_ends import CASES, SOUNDS, noise

from headrace.batching import BadInput, UsageError
from headrace.host.dpu.reference.audio import features, log_mel, named
from headrace.host.dpu.reference.audio_stream import AudioStream
from headrace.host.dpu.specs import AudioSpec, Ends, Lengths

PLANS = {
    "nemo": AudioSpec(),
    "no emphasis": AudioSpec(preemphasis=0),
    "short hop": AudioSpec(n_fft=512, window=400, hop=50),
    "hop of a frame": AudioSpec(n_fft=256, window=200, hop=256),
    "mirrored": AudioSpec(ends=Ends.MIRRORED, normalize_over="all", lengths=Lengths(least=8000)),
    **{name: AudioSpec.from_hf({"feature_extractor_type": kind, **more}) for name, (kind, more) in CASES.items()},
}


def wanted(samples, spec):
    made = features(samples, spec)
    return {"": made} if spec.tensors is None else named(made, spec.valid(len(samples)), spec)


def equal(found, expected):
    """The library of the spectra may round a block of frames otherwise than another block."""
    found = {"": found} if isinstance(found, np.ndarray) else found
    assert set(found) == set(expected)
    for name, each in expected.items():
        assert (found[name].dtype, found[name].shape) == (each.dtype, each.shape)
        np.testing.assert_allclose(found[name].astype(float), each.astype(float), rtol=0, atol=2e-6)


def pieces(samples, lengths):
    """Divide samples into pieces of these lengths, again and again."""
    at = 0
    for length in itertools.cycle(lengths):
        yield samples[at : at + length]
        at += length
        if at >= len(samples):
            return


def check(spec, samples, lengths):
    stream, made = AudioStream(spec), []
    for piece in pieces(samples, lengths):
        made.append(stream.push(piece))
    assert stream.samples == len(samples)
    if spec.mel:
        mel = np.concatenate(made, 1)
        np.testing.assert_allclose(mel, log_mel(samples, spec)[:, : mel.shape[1]], rtol=0, atol=2e-6)
        margin = 0 if spec.ends is Ends.INSIDE else spec.window // 2
        ready = (len(samples) + margin - spec.window) // spec.hop + 1  # whose last sample is there
        assert mel.shape[1] == max(0, ready) or len(samples) <= margin
    else:
        assert np.array_equal(np.concatenate(made), samples)
    equal(stream.end(), wanted(samples, spec))
    assert stream.samples == 0


@pytest.mark.quick(30)
@pytest.mark.parametrize("lengths", [(160,), (1,), (4000, 37, 0, 1601)], ids=str)
@pytest.mark.parametrize("plan", PLANS)
def test_pieces_have_the_frames_of_the_whole(plan, lengths):
    samples = SOUNDS["voice"][: 1000 if lengths == (1,) else None]
    check(PLANS[plan], samples, lengths)


@examples(15, 200)
@given(st.sampled_from(sorted(PLANS)), st.integers(400, 3000), st.lists(st.integers(1, 1000), min_size=1, max_size=9))
def test_any_pieces_of_any_sound_have_its_frames(plan, count, lengths):
    check(PLANS[plan], noise(count).astype(np.float32), lengths)


@pytest.mark.parametrize("plan", ["nemo", "whisper", "qwen3-asr", "wav2vec2"])
@pytest.mark.parametrize("count", [1, 159, 200, 201, 399])
def test_a_sound_that_is_shorter_than_a_frame(plan, count):
    check(PLANS[plan], SOUNDS["voice"][2000 : 2000 + count], (100,))


@pytest.mark.parametrize("count", [0, 399])
def test_a_sound_that_is_too_short_is_refused_at_its_end_and_the_next_is_taken(count):
    stream = AudioStream(PLANS["seamless"])
    stream.push(SOUNDS["voice"][:count])
    with pytest.raises(BadInput, match=f"the audio has {count} samples"):
        stream.end()
    stream.push(SOUNDS["voice"])
    equal(stream.end(), wanted(SOUNDS["voice"], PLANS["seamless"]))


def test_whisper_gives_a_tensor_for_each_30_seconds():
    spec, samples = PLANS["whisper"], SOUNDS["voice of 32 s"]
    stream = AudioStream(spec)
    for number, piece in enumerate(pieces(samples[:480100], (16000,))):
        assert stream.full == (number == 30)
        stream.push(piece)
    assert stream.full and stream.push(samples[480100:480800]).shape[1] == 0
    equal(stream.end(), wanted(samples[:480000], spec))
    assert not stream.full and stream.samples == 800
    mel = stream.push(samples[480800:])  # also the frames of samples that waited
    np.testing.assert_allclose(mel, log_mel(samples[480000:], spec)[:, : mel.shape[1]], rtol=0, atol=2e-6)
    assert mel.shape[1] == (len(samples) - 480000 + 200 - 400) // 160 + 1
    equal(stream.end(), wanted(samples[480000:], spec))


def test_samples_that_wait_for_a_window_are_not_lost_where_none_follow():
    spec = replace(PLANS["whisper"], lengths=Lengths(samples=8000, frames=50))
    samples = SOUNDS["voice"][:20000]
    stream = AudioStream(spec)
    stream.push(samples)
    found = []
    while stream.full:
        found.append(stream.end())
    found.append(stream.end())
    for tensors, part in zip(found, (samples[:8000], samples[8000:16000], samples[16000:]), strict=True):
        equal(tensors, wanted(part, spec))
    assert stream.samples == 0


def test_windows_that_nobody_ends_are_refused_and_what_came_stays():
    spec = replace(PLANS["whisper"], lengths=Lengths(samples=8000, frames=50), longest_s=1.0)
    stream, samples = AudioStream(spec), SOUNDS["voice"]
    stream.push(samples[:16000])
    stream.push(samples[16000:24000])
    with pytest.raises(BadInput, match="more than 1 s wait for the next window; call end when one is full"):
        stream.push(samples[:1])
    for at in (0, 8000, 16000):
        equal(stream.end(), wanted(samples[at : at + 8000], spec))


def test_an_endless_sound_is_refused_and_what_came_stays():
    spec = AudioSpec(longest_s=1.0)
    stream = AudioStream(spec)
    stream.push(SOUNDS["voice"][:16000])
    with pytest.raises(BadInput, match="the stream is longer than 1 s; end it earlier"):
        stream.push(SOUNDS["voice"][:1])
    equal(stream.end(), wanted(SOUNDS["voice"][:16000], spec))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_piece_with_a_value_that_is_no_number_is_refused_and_the_rest_stays(value):
    spec, samples = AudioSpec(), SOUNDS["voice"]
    stream = AudioStream(spec)
    stream.push(samples[:900])
    with pytest.raises(BadInput):
        stream.push(np.array([0, value], np.float32))
    stream.push(samples[900:])
    equal(stream.end(), wanted(samples, spec))


@pytest.mark.parametrize("array", [np.zeros(9, np.int16), np.zeros((9, 2)), [0.0, 0.5]], ids=["int16", "two", "list"])
def test_an_array_that_is_no_audio_is_refused(array):
    with pytest.raises(UsageError, match="is no audio; give"):
        AudioStream(AudioSpec()).push(array)
