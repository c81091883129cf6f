"""The front end for vLLM makes the features of sounds as the engine does, within the rounding of float32."""

import asyncio
import json
import struct

import numpy as np
import pytest
from chats import FILES, SOUNDS, chat, sound, sound_url, voice
from engine_double import WORDS, OmniDouble
from fronts import (
    BOUND_OF_SOUNDS,
    answered,
    assert_same_features,
    counts,
    front_of,
    openais_client,
    refused,
    with_front,
)
from tiny_qwen2_5_omni import qwen2_5_omni
from tiny_qwen2_vl import qwen2_vl

from headrace.batching import UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.host.adapters.render.audio import Spectrogram, _meaning
from headrace.host.adapters.render.items import Form
from headrace.host.dpu.processors import to_bfloat16

LONGEST_S = 10  # of a sound that the model hears


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return qwen2_5_omni(tmp_path_factory.mktemp("model"), chunk_length=LONGEST_S)


REQUESTS = {
    **{name: chat("a", sound(data), "b") for name, data in SOUNDS.items()},
    "a URL of data": chat(sound_url(SOUNDS["FLAC"])),
    "two images and a sound": chat("a", FILES["JPEG"], "b", FILES["PNG"], sound(SOUNDS["WAV"]), "c"),
    "sounds around an image": chat(sound(SOUNDS["WAV"]), FILES["JPEG"], sound(SOUNDS["FLAC"])),
    "the longest sound": chat(sound(voice(LONGEST_S))),
    "a short sound": chat(sound(voice(0.03))),
}


def test_the_engine_gets_the_tokens_and_features_that_it_would_make(folder):
    async def body(post, double):
        for request in REQUESTS.values():
            found = answered(await post(request))
            assert found["choices"][0]["message"]["content"].startswith("".join(WORDS))
            assert_same_features(double.requests[-1], double.rendered(request["messages"]))

    with_front(folder, body, OmniDouble(folder))


def test_the_emulated_dpu_makes_the_features_of_images_and_sounds(folder, tmp_path):
    build_sw_emu(tmp_path / "dpu.xclbin", image_cus=1, mel_cus=1, norm_cus=1)

    async def body(post, double):
        before = {noun: await counts(post.session, noun) for noun in ("images", "sounds")}
        request = chat("a", FILES["JPEG"], sound(SOUNDS["WAV"]), sound(SOUNDS["FLAC"]))
        answered(await post(request))
        assert_same_features(double.requests[-1], double.rendered(request["messages"]))
        made = {
            noun: {unit: number - before[noun][unit] for unit, number in (await counts(post.session, noun)).items()}
            for noun in before
        }
        assert made == {"images": {"dpu": 1, "cpu": 0}, "sounds": {"dpu": 1, "cpu": 1}}

    with_front(folder, body, OmniDouble(folder), xclbin=tmp_path / "dpu.xclbin")


def test_openais_client_streams_an_answer_to_two_images_and_a_sound(folder):
    async def run():
        async with (
            front_of(folder, OmniDouble(folder)) as url,
            openais_client(url) as client,
        ):
            parts = await client.chat.completions.create(**REQUESTS["two images and a sound"], stream=True)
            return [choice.delta.content async for chunk in parts for choice in chunk.choices]

    assert "".join(asyncio.run(run())).startswith("".join(WORDS))


# ---- Bad input


def claiming(data, seconds):
    """Return a WAV file whose header claims another length."""
    size = struct.pack("<I", 2 * 16000 * seconds)
    return data[:4] + size + data[8:40] + size + data[44:]


def flac_claiming(data, seconds):
    """Return a FLAC file whose header claims another length."""
    samples = 16000 * seconds
    return data[:21] + bytes([data[21] & 0xF0 | samples >> 32]) + struct.pack(">I", samples & 0xFFFFFFFF) + data[26:]


BAD = {
    "no sound": (b"text", "neither a WAV nor a FLAC file"),
    "an empty file": (b"", "it is empty"),
    "no samples": (voice(0), "it is so short that no token stands for it"),
    "one sample": (voice(1 / 16000), "it is so short that no token stands for it"),
    "a damaged FLAC file": (SOUNDS["FLAC"][:300], "libsndfile cannot decode it"),
    "a damaged MP3 file": (b"ID3" + bytes(50), "libsndfile cannot decode it"),
    "six hours": (flac_claiming(SOUNDS["FLAC"], 6 * 3600), "the audio is 21600.0 s long; cut it into pieces"),
    "more than the model hears": (voice(11), "the audio is 11.0 s long; cut it into pieces of at most 10 s"),
    "too long as MP3": (
        voice(11, "MP3", "MPEG_LAYER_III"),
        "the audio is 11.0 s long; cut it into pieces of at most 10 s",
    ),
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_sound_has_one_clear_error_and_the_rest_is_served(folder, stream):
    async def body(post, double):
        for data, text in BAD.values():
            refused(await post(chat(FILES["PNG"], sound(data), stream=stream)), 400, f"messages[0].content[1]: {text}")
            answered(await post(chat(sound(SOUNDS["WAV"]))))
        answered(await post(chat(sound(claiming(SOUNDS["WAV"], 6 * 3600)))))  # it is as long as its samples
        part = {"type": "audio_url", "audio_url": {"url": "https://a/b.wav"}}
        refused(await post(chat(part, stream=stream)), 400, "messages[0].content[0]: files are not fetched here")
        refused(await post(chat({"type": "input_audio"})), 400, "messages[0].content[0]: give")
        refused(await post(chat("<|AUDIO|>", FILES["PNG"])), 400, "1 places for 0 sounds; leave <|AUDIO|> out")
        refused(await post(chat(*[sound(voice(LONGEST_S))] * 17)), 400, "more than the 4096 tokens")

    with_front(folder, body, OmniDouble(folder))


# ---- What is wrong at the start


def test_an_engine_of_another_feature_extractor_is_refused(folder, tmp_path):
    double = OmniDouble(folder)
    double.processor.feature_extractor.mel_filters *= 1.5
    with pytest.raises(UsageError, match=r"% of input_audio_features differ from the engine's; name the folder"):
        with_front(folder, None, double)
    with pytest.raises(UsageError, match=r"the engine wants feature_attention_mask of the shape \(3000,\)"):
        engine = OmniDouble(qwen2_5_omni(tmp_path / "engine"))
        with_front(qwen2_5_omni(tmp_path / "front", chunk_length=20), None, engine)


def edited(folder, path, edit):
    """Return a copy of a model's folder with other settings of its processor."""
    for file in folder.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((path / "processor_config.json").read_text())
    edit(settings)
    (path / "processor_config.json").write_text(json.dumps(settings))
    return path


def test_sounds_that_headrace_does_not_make_are_refused_and_images_are_served(folder, tmp_path, caplog):
    def edit(settings):
        settings["feature_extractor"]["feature_extractor_type"] = "ClapFeatureExtractor"

    async def body(post, double):
        refused(await post(chat(sound(SOUNDS["WAV"]))), 400, "ClapFeatureExtractor has no counterpart here")
        answered(await post(chat(FILES["PNG"])))

    with_front(edited(folder, tmp_path, edit), body, OmniDouble(folder))
    assert "sounds are refused: " in caplog.text


def test_a_folder_without_a_processor_is_refused(folder, tmp_path):
    def edit(settings):
        del settings["feature_extractor"], settings["image_processor"]

    with pytest.raises(UsageError, match=r"has no preprocessor_config.json; name the folder of a model that takes"):
        with_front(edited(folder, tmp_path, edit), None, OmniDouble(folder))


def test_a_model_for_images_refuses_sounds(tmp_path):
    async def body(post, double):
        refused(await post(chat(sound(SOUNDS["WAV"]))), 400, "messages[0].content[0]: the model tiny takes no sounds")

    with_front(qwen2_vl(tmp_path), body)


# ---- What a tensor of an engine is


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_what_a_tensor_is_shows_in_its_values(dtype):
    rng = np.random.default_rng(1)
    ours = [Spectrogram(rng.normal(size=(4, 30)).astype(np.float32), 1, count) for count in (7, 11)]
    make = to_bfloat16 if dtype == "bfloat16" else lambda values: values.astype(dtype)
    form = Form(dtype, "batched")
    cut = [{"x": make(np.ascontiguousarray(values[:, :count]) + np.float32(3e-5))} for values, _, count in ours]
    assert _meaning("x", form, ours, cut, BOUND_OF_SOUNDS) == "frames that count"
    whole = [{"x": make(values)} for values, _, _ in ours]
    assert _meaning("x", form, ours, whole, BOUND_OF_SOUNDS) == "features"
    with pytest.raises(UsageError, match=r"50.0% of x differ|100.0% of x differ"):
        _meaning("x", form, ours, [whole[0], {"x": make(ours[1].values + np.float32(0.1))}], BOUND_OF_SOUNDS)
    with pytest.raises(UsageError, match=r"the engine wants x of the shape \(3,\) for a sound"):
        _meaning("x", form, ours, [{"x": make(np.zeros(3, np.float32))}] * 2, BOUND_OF_SOUNDS)
