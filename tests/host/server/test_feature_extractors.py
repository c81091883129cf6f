"""Test a server whose networks take the features of Hugging Face's speech models: audio files in, outputs out."""

import json
import re

import numpy as np
import pytest
import torch
import transformers
import tritonclient.grpc
import tritonclient.http
from command import headrace
from running import IMAGE_FILE, serving, write_profile
from sounds import int16, speechlike, wav, written
from tritonclient.utils import InferenceServerException

TRANSPORTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}
SOURCE = '''
import torch
from headrace import AudioSpec

class Encoder(torch.nn.Module):
    """The start of Whisper: two convolutions, the second with a stride of 2, and the mean of all steps."""

    def __init__(self, bands, transform=None):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Conv1d(bands, 8, 3, padding=1)
        self.second = torch.nn.Conv1d(8, 4, 3, stride=2, padding=1)
        if transform is None:
            self.input_shape = {"input_features": f"{bands}x3000"}
        else:
            self.transform = transform

    def forward(self, input_features):
        steps = torch.nn.functional.gelu(self.first(input_features))
        return {"state": torch.nn.functional.gelu(self.second(steps)).mean(2)}

class Masked(torch.nn.Module):
    """The mean of the frames that count, for any length."""

    def __init__(self, transform):
        super().__init__()
        self.transform = transform

    def forward(self, input_features, attention_mask):
        mask = attention_mask.to(torch.float32)
        return {"mean": (input_features * mask[:, None]).sum(2) / mask.sum(1, keepdim=True)}

class Samples(torch.nn.Module):
    input_shape = "1..32000"

    def forward(self, values):
        return values.square().sum(1, keepdim=True)

def whisper():
    return Encoder(80)

def own():
    return Encoder(128, AudioSpec.from_hf({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128}))

def qwen():
    return Masked(AudioSpec.from_hf({"feature_extractor_type": "Qwen3ASRFeatureExtractor"}))

samples = Samples
'''
VOICE = int16(speechlike(1.3, 16000))
CLIPS = {
    "WAV": wav(VOICE, 16000),
    "FLAC": written(VOICE, 16000, "FLAC", "PCM_16"),
    "long": wav(np.tile(VOICE, 25), 16000),
}


def samples_of(clip: str) -> np.ndarray:
    return np.tile(VOICE, 25 if clip == "long" else 1).astype(np.float32) / 32768


def alone(name: str, **tensors) -> np.ndarray:
    """Return the only output of a network for tensors of transformers."""
    made: dict = {}
    exec(SOURCE, made)
    with torch.inference_mode():
        found = made[name]().eval()(**{key: torch.from_numpy(np.asarray(each)) for key, each in tensors.items()})
    return (found if isinstance(found, torch.Tensor) else next(iter(found.values()))).numpy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the module of the networks, and with weights of Whisper beside its file."""
    made = tmp_path_factory.mktemp("speech")
    (made / "speech.py").write_text(SOURCE)
    (made / "whisper").mkdir()
    transformers.WhisperFeatureExtractor().save_pretrained(made / "whisper")
    network: dict = {}
    exec(SOURCE, network)
    torch.save(network["whisper"]().state_dict(), made / "whisper" / "weights.pt")
    return made


@pytest.fixture(scope="module")
def server(folder):
    table = '[[models]]\nname = "{0}"\nsource = "speech:{1}"\nprofile = "{2}"\npolicy = "work-conserving"\n{3}\n'
    models = {
        "named": ("whisper", 'processor = "whisper-tiny"'),
        "found": ("whisper", f'weights = "{folder}/whisper/weights.pt"'),
        "own": ("own", ""),
        "qwen": ("qwen", ""),
        "samples": ("samples", 'processor = "wav2vec2-base-960h"'),
        "card": ("whisper", 'processor = "whisper-tiny"\npreprocess = "dpu"'),
        "cardless": ("samples", 'processor = "wav2vec2-base-960h"\npreprocess = "dpu"'),
    }
    tables = (table.format(name, made, write_profile(folder, name), more) for name, (made, more) in models.items())
    (folder / "server.toml").write_text("".join(tables))
    with serving("--config", str(folder / "server.toml"), models=(), profiled=False, within=folder) as running:
        yield running


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture
def client(server, transport):
    with TRANSPORTS[transport].InferenceServerClient(server.url(transport)) as found:
        yield found


def audio(transport, *clips: bytes):
    given = TRANSPORTS[transport].InferInput("AUDIO", [len(clips), 1], "BYTES")
    given.set_data_from_numpy(np.array(clips, object)[:, None])
    return [given]


@pytest.mark.quick(12)
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("name", ["named", "found", "own", "card"])
def test_a_network_like_whisper_answers_as_it_does_with_transformers(name, clip, client, transport):
    """A file of 32.5 s is cut at 30 s, as transformers does."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=128 if name == "own" else 80)
    features = extractor(samples_of(clip), sampling_rate=16000, return_tensors="np")["input_features"]
    found = client.infer(name, audio(transport, CLIPS[clip])).as_numpy("state")
    assert features.shape[1:] == ((128 if name == "own" else 80), 3000)
    np.testing.assert_allclose(found, alone("own" if name == "own" else "whisper", input_features=features), atol=1e-4)


def test_features_of_any_length_come_with_their_mask(client, transport):
    clips = [CLIPS["WAV"], CLIPS["long"], wav(VOICE[:5000], 16000)]
    found = client.infer("qwen", audio(transport, *clips)).as_numpy("mean")
    extractor = transformers.Qwen3ASRFeatureExtractor()
    for row, samples in zip(found, (samples_of("WAV"), samples_of("long"), samples_of("WAV")[:5000]), strict=True):
        made = extractor(samples, sampling_rate=16000, padding=True, return_attention_mask=True, return_tensors="np")
        np.testing.assert_allclose(row[None], alone("qwen", **made), atol=1e-4)


def test_samples_are_normalized_for_wav2vec2(client, transport):
    made = transformers.Wav2Vec2FeatureExtractor()(samples_of("WAV"), sampling_rate=16000, return_tensors="np")
    found = client.infer("samples", audio(transport, CLIPS["WAV"])).as_numpy("output")
    np.testing.assert_allclose(found, np.square(made["input_values"]).sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "clip", "text"),
    [
        ("named", b"", "not a WAV or FLAC file"),
        ("named", IMAGE_FILE, "not a WAV or FLAC file"),
        ("named", CLIPS["WAV"][:30], "cannot decode"),
        ("named", wav(np.zeros(61 * 8000, np.int16), 8000), "at most 60 s"),
        ("named", written(np.full(9000, np.nan), 16000, "WAV", "FLOAT"), "no numbers"),
        ("named", wav(np.zeros(900, np.int16), 10_000_000), "10000000 Hz"),
        ("samples", CLIPS["long"], "the audio is 32.5 s long; cut it into pieces of at most 2 s"),
        ("samples", wav(np.zeros(0, np.int16), 16000), "the audio has no samples"),
    ],
)
def test_a_bad_file_is_refused_with_what_to_change(name, clip, text, client, transport):
    with pytest.raises(InferenceServerException, match=text) as refused:
        client.infer(name, audio(transport, clip))
    assert refused.value.status() in (None, "400", "StatusCode.INVALID_ARGUMENT")


def test_tensors_are_taken_as_well_and_metadata_tell_both(client, transport, server):
    features = np.zeros((2, 80, 3000), np.float32)
    given = TRANSPORTS[transport].InferInput("input_features", features.shape, "FP32")
    given.set_data_from_numpy(features)
    expected = alone("whisper", input_features=features)
    np.testing.assert_allclose(client.infer("named", [given]).as_numpy("state"), expected, atol=1e-5)
    metadata = json.loads(server.request("GET", "/v2/models/named")[2])
    assert [(each["name"], each["shape"]) for each in metadata["inputs"]] == [
        ("input_features", [-1, 80, 3000]),
        ("AUDIO", [-1, 1]),
    ]


def test_the_compute_units_make_the_features_of_a_whisper(server, client, transport):
    client.infer("card", audio(transport, CLIPS["WAV"]))
    metrics = server.metrics()
    for unit in ("audio_mel_cu", "audio_norm_cu"):
        busy = re.findall(rf'^headrace_cu_busy_seconds_total\{{cu="{unit}_[^"]*"\}} (\S+)$', metrics, re.MULTILINE)
        assert sum(map(float, busy)) > 0, [line for line in metrics.splitlines() if "_cu_" in line]


def test_the_metrics_count_what_the_dpu_cannot_do(server, client, transport):
    client.infer("cardless", audio(transport, CLIPS["WAV"]))
    assert "headrace_dpu_fallbacks_total{reason=" in server.metrics()


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ("--processor", "whisper-large-v3"),
            "WhisperFeatureExtractor makes input_features of 1x128x3000 float32, and",
        ),
        (("--processor", "qwen2-vl"), "pixel_values"),
        (("--processor", "wisper"), "there is no processor 'wisper'; did you mean whisper-tiny"),
        (("--processor", "whisper-tiny", "--engine", "pillow12"), "--engine is for images, and it takes audio"),
        (("--processor", "qwen3-asr"), "whose shape depends on the audio"),
    ],
)
def test_a_processor_that_is_not_that_of_the_network_is_refused_before_it_serves(options, text, folder):
    command = ["serve", "--model", "own=speech:whisper", "--http", "127.0.0.1:0", *options]
    done = headrace(*command, cwd=folder)
    assert done.returncode == 2 and text in done.stderr, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("headrace: model 'own'")
