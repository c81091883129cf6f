"""AUDIO: sound files in, a speech network's outputs out, through real clients."""

import json

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from running import SOURCE, serving
from sounds import int16, speechlike, wav, written
from tritonclient.utils import InferenceServerException

from headrace.host.dpu.reference.audio import preprocess
from headrace.host.dpu.specs import AudioSpec

SOUND = wav(int16(speechlike(1.3, 16000)), 16000)
STEREO = wav(np.stack([int16(speechlike(0.8, 44100, seed)) for seed in (1, 2)], 1), 44100)
FLAC = written(speechlike(0.5, 22050), 22050, "FLAC", "PCM_16")
SPEC = AudioSpec()


@pytest.fixture(scope="module")
def server():
    with serving(models=("talk", "scale")) as server:
        yield server


@pytest.fixture(scope="module", params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def transport(request):
    return request.param


@pytest.fixture
def client(server, transport):
    port = "http" if transport is tritonclient.http else "grpc"
    with transport.InferenceServerClient(server.url(port)) as client:
        yield client


def infer(transport, client, *sounds):
    given = transport.InferInput("AUDIO", [len(sounds), 1], "BYTES")
    given.set_data_from_numpy(np.array(sounds, object).reshape(-1, 1))
    answer = client.infer("talk", [given])
    return answer.as_numpy("log_probs"), answer.as_numpy("lengths")


def alone(sound, spec=SPEC):
    """Return what the network makes of a sound by itself. NeMo does not count the last frame."""
    made: dict = {}
    exec(SOURCE, made)
    torch.manual_seed(0)
    network = made["talk"]().eval()
    features = torch.from_numpy(preprocess(sound, spec))[None]
    with torch.inference_mode():
        return [output.numpy() for output in network(features, torch.tensor([features.shape[2] - 1]))]


@pytest.mark.parametrize("sound", [SOUND, STEREO, FLAC], ids=["16 kHz", "stereo at 44.1 kHz", "FLAC at 22.05 kHz"])
def test_a_sound_gives_what_the_network_makes_of_its_features(transport, client, sound):
    found, steps = infer(transport, client, sound)
    expected, lengths = alone(sound)
    assert steps == lengths and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_sounds_of_a_request_may_be_of_any_lengths(transport, client):
    found, steps = infer(transport, client, SOUND, FLAC, STEREO, FLAC)
    assert len(found) == 4 and found.shape[1] == max(steps)
    for row, count, sound in zip(found, steps, (SOUND, FLAC, STEREO, FLAC), strict=True):
        expected, lengths = alone(sound)
        assert count == lengths
        np.testing.assert_allclose(row[:count], expected[0][:count], atol=2e-4)


def test_its_own_tensors_are_taken_as_well(transport, client):
    features = preprocess(SOUND, SPEC)[None]
    inputs = [transport.InferInput("features", features.shape, "FP32"), transport.InferInput("lengths", [1], "INT64")]
    inputs[0].set_data_from_numpy(features)
    inputs[1].set_data_from_numpy(np.array([features.shape[2] - 1]))
    np.testing.assert_allclose(client.infer("talk", inputs).as_numpy("log_probs"), alone(SOUND)[0], atol=2e-4)


@pytest.mark.parametrize(
    ("sound", "text"),
    [
        (b"", "no WAV or FLAC file"),
        (b"OggS" + bytes(100), "no WAV or FLAC file"),
        (SOUND[:30], "cannot decode"),
        (wav(int16(np.zeros(36 * 8000)), 8000), "at most 35 s"),
        (wav(int16(np.zeros((8000, 17))), 8000), "17 channels"),
    ],
)
def test_what_is_no_sound_is_refused_with_what_to_change(transport, client, sound, text):
    with pytest.raises(InferenceServerException, match=text) as refused:
        infer(transport, client, sound)
    assert refused.value.status() in (None, "400", "StatusCode.INVALID_ARGUMENT")
    assert infer(transport, client, FLAC)[1] > 0


def test_metadata_tell_both_ways_and_the_page_takes_no_photo_for_it(server):
    metadata = json.loads(server.request("GET", "/v2/models/talk")[2])
    assert [(each["name"], each["datatype"], each["shape"]) for each in metadata["inputs"]] == [
        ("features", "FP32", [-1, 80, -1]),
        ("lengths", "INT64", [-1]),
        ("AUDIO", "BYTES", [-1, 1]),
    ]
    status, error = server.error("POST", "/photo/talk", SOUND)
    assert status == 400 and "takes no photos" in error


def test_the_option_resampler_replaces_that_of_the_models():
    with (
        serving("--resampler", "soxr", models=("talk",)) as server,
        tritonclient.http.InferenceServerClient(server.url("http")) as client,
    ):
        found = infer(tritonclient.http, client, FLAC)[0]
    expected, others = (alone(FLAC, AudioSpec(resampler=resampler))[0] for resampler in ("soxr", "fir"))
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert np.abs(found - others).max() > 2e-3


def test_the_dpu_does_what_it_can_take_and_the_cpu_the_rest():
    with serving("--preprocess", "dpu", "--image-cus", "1", models=("talk",)) as server:
        with tritonclient.http.InferenceServerClient(server.url("http")) as client:
            for sound in (SOUND, STEREO, FLAC):
                found, steps = infer(tritonclient.http, client, sound)
                expected, lengths = alone(sound)
                assert steps == lengths
                np.testing.assert_allclose(found, expected, atol=5e-3)
        metrics = server.metrics()
    assert 'headrace_dpu_fallbacks_total{reason="NOT_WAV"} 1.0' in metrics and "audio_norm_cu_1" in metrics
