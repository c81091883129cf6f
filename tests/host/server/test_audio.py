"""Test AUDIO: audio files in, the outputs of a speech network out, through real clients."""

import json

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from running import IMAGE_FILE, SOURCE, serving
from sounds import int16, speechlike, wav, written
from tritonclient.utils import InferenceServerException

from headrace.host.dpu.reference.audio import preprocess
from headrace.host.dpu.specs import AudioSpec

AUDIO_FILE = wav(int16(speechlike(1.3, 16000)), 16000)
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


def infer(transport, client, *clips):
    given = transport.InferInput("AUDIO", [len(clips), 1], "BYTES")
    given.set_data_from_numpy(np.array(clips, object).reshape(-1, 1))
    answer = client.infer("talk", [given])
    return answer.as_numpy("log_probs"), answer.as_numpy("lengths")


def alone(clip, spec=SPEC):
    """Return the output of the network for one audio file by itself. NeMo does not count the last frame."""
    made: dict = {}
    exec(SOURCE, made)
    torch.manual_seed(0)
    network = made["talk"]().eval()
    features = torch.from_numpy(preprocess(clip, spec))[None]
    with torch.inference_mode():
        return [output.numpy() for output in network(features, torch.tensor([features.shape[2] - 1]))]


@pytest.mark.parametrize("clip", [AUDIO_FILE, STEREO, FLAC], ids=["16 kHz", "stereo at 44.1 kHz", "FLAC at 22.05 kHz"])
def test_an_audio_file_gives_what_the_network_makes_of_its_features(transport, client, clip):
    found, steps = infer(transport, client, clip)
    expected, lengths = alone(clip)
    assert steps == lengths and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_audio_files_of_a_request_may_have_any_lengths(transport, client):
    found, steps = infer(transport, client, AUDIO_FILE, FLAC, STEREO, FLAC)
    assert len(found) == 4 and found.shape[1] == max(steps)
    for row, count, clip in zip(found, steps, (AUDIO_FILE, FLAC, STEREO, FLAC), strict=True):
        expected, lengths = alone(clip)
        assert count == lengths
        np.testing.assert_allclose(row[:count], expected[0][:count], atol=2e-4)


def test_its_own_tensors_are_taken_as_well(transport, client):
    features = preprocess(AUDIO_FILE, SPEC)[None]
    inputs = [transport.InferInput("features", features.shape, "FP32"), transport.InferInput("lengths", [1], "INT64")]
    inputs[0].set_data_from_numpy(features)
    inputs[1].set_data_from_numpy(np.array([features.shape[2] - 1]))
    np.testing.assert_allclose(client.infer("talk", inputs).as_numpy("log_probs"), alone(AUDIO_FILE)[0], atol=2e-4)


@pytest.mark.parametrize(
    ("clip", "text"),
    [
        (b"", "not a WAV or FLAC file"),
        (b"OggS" + bytes(100), "not a WAV or FLAC file"),
        (AUDIO_FILE[:30], "cannot decode"),
        (wav(int16(np.zeros(36 * 8000)), 8000), "at most 35 s"),
        (wav(int16(np.zeros((8000, 17))), 8000), "17 channels"),
    ],
)
def test_a_file_that_is_no_audio_is_refused_with_what_to_change(transport, client, clip, text):
    with pytest.raises(InferenceServerException, match=text) as refused:
        infer(transport, client, clip)
    assert refused.value.status() in (None, "400", "StatusCode.INVALID_ARGUMENT")
    assert infer(transport, client, FLAC)[1] > 0


def test_metadata_have_both_inputs_and_the_page_takes_no_image_for_the_model(server):
    metadata = json.loads(server.request("GET", "/v2/models/talk")[2])
    assert [(each["name"], each["datatype"], each["shape"]) for each in metadata["inputs"]] == [
        ("features", "FP32", [-1, 80, -1]),
        ("lengths", "INT64", [-1]),
        ("AUDIO", "BYTES", [-1, 1]),
    ]
    status, error = server.error("POST", "/photo/talk", AUDIO_FILE)
    assert status == 400 and "takes no images" in error
    status, error = server.error("POST", "/v2/models/talk/infer", IMAGE_FILE)
    assert status == 400 and "no input 'IMAGE'; it takes features, lengths, or files as AUDIO" in error


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
            for clip in (AUDIO_FILE, STEREO, FLAC):
                found, steps = infer(tritonclient.http, client, clip)
                expected, lengths = alone(clip)
                assert steps == lengths
                np.testing.assert_allclose(found, expected, atol=5e-3)
        metrics = server.metrics()
    assert 'headrace_dpu_fallbacks_total{reason="NOT_WAV"} 1.0' in metrics and "audio_norm_cu_1" in metrics
