"""Test how the feature extractor of a model is found, and that `headrace.preprocess` makes its tensors."""

import asyncio
import json

import numpy as np
import pytest
import transformers
from sounds import int16, wav
from speech_front_ends import SOUNDS, theirs

import headrace
from headrace.batching.errors import BadInput, CorruptInput
from headrace.bitstreams.build import build_sw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.hugging_face.description import known_audio
from headrace.host.dpu.hugging_face.names import audio_names, audio_processor, config, image_processor, names
from headrace.host.dpu.preprocessor import Fallback
from headrace.host.dpu.specs import AudioSpec
from headrace.host.dpu.specs.feature_extractors import MODELS

VOICE = SOUNDS["voice"]
FILE = wav(int16(VOICE.astype(np.float64)), 16000)


def same(found, expected):
    """Tell whether tensors agree within the bound of float32."""
    assert set(found) == set(expected)
    return all(np.abs(found[name].astype(float) - expected[name]).max() < 1e-4 for name in found)


@pytest.mark.parametrize("name", audio_names())
def test_a_known_model_has_the_tensors_of_transformers(name):
    settings = dict(MODELS[name])
    expected = theirs(settings.pop("feature_extractor_type"), settings, VOICE)
    assert same(headrace.preprocess(FILE, name), expected)
    assert not {*names()} & {*audio_names()} and isinstance(headrace.processor(name), AudioSpec)


@pytest.mark.parametrize("form", ["path", "text", "bytes", "array", "float64"])
def test_each_form_of_audio_gives_the_same_tensors(form, tmp_path):
    (tmp_path / "voice.wav").write_bytes(FILE)
    given = {
        "path": tmp_path / "voice.wav",
        "text": str(tmp_path / "voice.wav"),
        "bytes": FILE,
        "array": VOICE,
        "float64": VOICE.astype(np.float64),
    }[form]
    found = headrace.preprocess(given, headrace.processor("qwen3-asr"))
    assert all(np.array_equal(found[name], each) for name, each in headrace.preprocess(VOICE, "qwen3-asr").items())


@pytest.mark.parametrize("array", [SOUNDS["click"][None], np.zeros(9, np.int16), np.zeros((9, 2))])
def test_an_array_that_is_no_audio_is_refused(array):
    with pytest.raises(headrace.UsageError, match=r"is no audio; give floats \(samples,\) of -1 to 1 at 16000 Hz"):
        headrace.preprocess(array, "whisper-tiny")


def test_what_is_no_audio_is_refused(tmp_path):
    with pytest.raises(headrace.UsageError, match="int is no audio; give a path, bytes or an array of samples"):
        headrace.preprocess(3, "whisper-tiny")
    with pytest.raises(headrace.UsageError, match=r"has no names for its tensors; give one of AudioSpec\.from_hf"):
        headrace.preprocess(VOICE, AudioSpec())
    with pytest.raises(BadInput, match="no numbers"):
        headrace.preprocess(np.array([np.nan] * 900), "whisper-tiny")
    with pytest.raises(BadInput, match="60 s"):
        headrace.preprocess(np.zeros(16000 * 61), "whisper-tiny")
    (tmp_path / "text.wav").write_text("none")
    with pytest.raises(CorruptInput, match=r"text\.wav: neither a WAV nor a FLAC file"):
        headrace.preprocess(tmp_path / "text.wav", "whisper-tiny")


@pytest.fixture
def model(tmp_path):
    """Return the folder of Whisper as transformers saves it."""
    transformers.WhisperFeatureExtractor(feature_size=128).save_pretrained(tmp_path)
    return tmp_path


def test_a_file_and_the_folder_that_has_it_are_the_processor(model):
    expected = headrace.processor("whisper-large-v3")
    assert headrace.processor(model) == headrace.processor(str(model)) == expected
    assert headrace.processor(model / "preprocessor_config.json") == expected
    assert headrace.processor(model, dtype="float16").dtype == "float16"


def test_a_folder_may_have_the_settings_of_all_inputs_in_one_file(model):
    of_audio = json.loads((model / "preprocessor_config.json").read_text())
    (model / "preprocessor_config.json").unlink()
    (model / "processor_config.json").write_text(json.dumps({"feature_extractor": of_audio}))
    assert headrace.processor(model) == headrace.processor("whisper-large-v3")
    both = {"feature_extractor": of_audio, "image_processor": config("qwen2-vl")}
    (model / "processor_config.json").write_text(json.dumps(both))
    assert headrace.processor(model) == image_processor("qwen2-vl")
    assert audio_processor(model) == headrace.processor("whisper-large-v3")
    (model / "processor_config.json").write_text(json.dumps({"feature_extractor": {**of_audio, "dither": 1}}))
    with pytest.raises(
        headrace.UsageError, match=r"processor_config\.json: WhisperFeatureExtractor: dither is 1; give 0"
    ):
        headrace.processor(model)


def test_a_file_that_names_no_class_has_that_of_the_model(model):
    (model / "preprocessor_config.json").write_text('{"feature_size": 128}')
    (model / "config.json").write_text('{"model_type": "whisper"}')
    assert headrace.processor(model) == headrace.processor("whisper-large-v3")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: headrace.processor("whisper"), "no processor 'whisper'; did you mean whisper-tiny, whisper-small"),
        (lambda: headrace.processor("whisper-tiny", "pillow12"), "whisper-tiny is for audio, and engine is for images"),
        (lambda: headrace.processor("whisper-tiny", channels_last=True), "and channels_last is for images; leave out"),
        (lambda: headrace.processor("whisper-tiny", dtype="bfloat16"), "tensor type 'bfloat16' is not one of float32"),
        (lambda: image_processor("whisper-tiny"), "whisper-tiny is for audio, and images are given; name a model"),
        (lambda: audio_processor("qwen2-vl"), "qwen2-vl is for images, and audio is given; name a model that takes a"),
        (lambda: audio_processor("no/file.json"), "no/file.json: No such file"),
        (lambda: audio_processor("zzz"), "there is no processor 'zzz'; known are ast-finetuned-audioset, "),
    ],
)
def test_what_is_no_processor_is_refused(call, told):
    with pytest.raises(headrace.UsageError, match=told):
        call()


def test_a_class_that_is_not_known_is_refused_by_name(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text('{"feature_extractor_type": "ClapFeatureExtractor"}')
    with pytest.raises(headrace.UsageError, match="ClapFeatureExtractor has no counterpart here; known are Whisper"):
        headrace.processor(tmp_path)


def test_the_list_has_the_tensors_of_each_model():
    found = {row["name"]: row for row in known_audio(2)}
    assert set(found) == set(audio_names())
    for name, row in found.items():
        made = headrace.preprocess(np.zeros(32000), name)
        assert row["class"] == MODELS[name]["feature_extractor_type"]
        assert row["tensors"] == {key: {"shape": each.shape, "dtype": str(each.dtype)} for key, each in made.items()}


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "audio.xclbin"
    build_sw_emu(path, image_cus=0, mel_cus=1, norm_cus=1)
    return path


def test_the_dpu_does_nemos_plan_with_its_names(xclbin):
    async def run():
        async with Dpu(xclbin, headrace.processor("parakeet-ctc-1.1b")) as dpu:
            done = await dpu.process(FILE)
            assert dpu.counters.done == 1 and done.refused is None
            return done

    done = asyncio.run(run())
    expected = headrace.preprocess(FILE, "parakeet-ctc-1.1b")
    assert np.array_equal(done.tensors["attention_mask"], expected["attention_mask"])
    assert done.tensor is done.tensors["input_features"]
    assert np.abs(done.tensor - expected["input_features"]).max() < 5e-3


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "name", [name for name in audio_names() if "Whisper" in MODELS[name]["feature_extractor_type"]]
)
def test_the_dpu_does_whispers_plan(xclbin, name):
    async def run():
        async with Dpu(xclbin, headrace.processor(name)) as dpu:
            done = await dpu.process(FILE)
            assert dpu.counters.done == 1 and done.refused is None
            return done

    done = asyncio.run(run())
    expected = headrace.preprocess(FILE, name)
    assert set(done.tensors) == set(expected)
    for key, tensor in done.tensors.items():
        assert tensor.dtype == expected[key].dtype and tensor.shape == expected[key].shape
        assert np.abs(tensor - expected[key]).max() < 1e-4


def test_what_the_dpu_cannot_do_goes_to_the_cpu_with_the_reason(xclbin):
    name, reason = "wav2vec2-base-960h", "Wav2Vec2FeatureExtractor: mel is False; the DPU takes True only"

    async def run():
        async with Dpu(xclbin, headrace.processor(name)) as dpu:
            done = await dpu.process(FILE)
            assert dpu.counters.refused == dpu.counters.on_cpu == 1 and done.unit == "cpu" and done.refused == reason
        async with Dpu(xclbin, headrace.processor(name), fallback=Fallback.RAISE) as dpu:
            with pytest.raises(headrace.UnsupportedInput, match=reason.replace(".", r"\.")):
                await dpu.process(FILE)
        return done.tensors

    made = asyncio.run(run())
    assert all(np.array_equal(made[key], each) for key, each in headrace.preprocess(FILE, name).items())
