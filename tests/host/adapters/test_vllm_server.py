"""The front end before a real vLLM: what it generates is token for token what it generates of its own features.

`make test-vllm` makes the environment and runs these tests.
"""

import asyncio
import contextlib
import os
import subprocess

import pytest
from chats import FILES, SOUNDS, chat, sound, voice
from fronts import openais_client
from tiny_qwen2_5_omni import qwen2_5_omni
from tiny_qwen2_vl import qwen2_vl
from tiny_whisper import whisper

from benchmarks.vllm_servers import PYTHON, SETTINGS, front, vllm
from headrace.bitstreams.build import build_sw_emu

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip("vLLM is not installed; make test-vllm installs it")
    return qwen2_vl(tmp_path_factory.mktemp("models") / "tiny", weights=True)


@pytest.fixture(scope="module")
def engine(folder, tmp_path_factory):
    with vllm(folder, tmp_path_factory.mktemp("vllm") / "log") as (url, _):
        yield url


@contextlib.contextmanager
def fronted(way, engine, folder, logs, **cus):
    """Serve the front end of an engine by the CPU, by an emulated DPU with these CUs, or with a policy."""
    options = []
    if way == "sw_emu":
        build_sw_emu(logs / "dpu.xclbin", **{"image_cus": 0, "mel_cus": 0, "norm_cus": 0, **cus})
        options = ["--xclbin", str(logs / "dpu.xclbin")]
    if way == "policy":
        options = ["--policy", "graph", "--set", "max_batch=4", "--places", "2"]
    with front(engine, folder, logs / "log", *options) as (url, _):
        yield url


@pytest.fixture(scope="module", params=["cpu", "sw_emu", "policy"])
def served(request, engine, folder, tmp_path_factory):
    with fronted(request.param, engine, folder, tmp_path_factory.mktemp("front"), image_cus=2) as url:
        yield url


def asked(url, request, stream=False):
    """Return the tokens, the text and the usage of an answer."""
    extra = {"return_token_ids": True, "ignore_eos": True}
    settings = {**request, "model": "tiny", "max_tokens": 24, "temperature": 0, "extra_body": extra}

    async def run():
        async with openais_client(url, timeout=120) as client:
            if not stream:
                found = await client.chat.completions.create(**settings)
                return found.choices[0].token_ids, found.choices[0].message.content, found.usage
            tokens, text, usage = [], "", None
            options = {"include_usage": True}
            async for chunk in await client.chat.completions.create(**settings, stream=True, stream_options=options):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    tokens += getattr(choice, "token_ids", None) or []
            return tokens, text, usage

    return asyncio.run(run())


def assert_same_answer(chat, stream, engine, served):
    """Compare the answer of a front end with that of its engine alone."""
    request = {key: value for key, value in chat.items() if key != "model"}
    tokens, text, usage = asked(served, request, stream)
    expected = asked(engine, request)
    assert len(tokens) == 24 and (tokens, text) == expected[:2]
    assert usage.prompt_tokens == expected[2].prompt_tokens


REQUESTS = {
    **{name: chat("a", data, "b") for name, data in FILES.items()},
    "two images": chat("first", FILES["JPEG"], "second", FILES["PNG with alpha"], "Compare them."),
    "text": chat("hello"),
    "a system": {"messages": [{"role": "system", "content": "Be brief."}, *chat(FILES["JPEG"])["messages"]]},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_tokens_are_those_that_vllm_generates_of_its_own_features(name, stream, engine, served):
    assert_same_answer(REQUESTS[name], stream, engine, served)


def test_other_pixels_give_other_tokens(served):
    """Otherwise the test above would hold whatever the features are."""
    first, second = (asked(served, {"messages": chat(FILES[name])["messages"]})[0] for name in ("JPEG", "PNG"))
    assert first != second


def test_an_engine_that_takes_floats_gets_floats(folder, tmp_path):
    """vLLM normalizes on its device unless this setting is off."""
    with (
        vllm(folder, tmp_path / "vllm", "--no-mm-device-do-normalize") as (engine, _),
        front(engine, folder, tmp_path / "front") as (served, _),
    ):
        request = {"messages": REQUESTS["two images"]["messages"]}
        assert asked(served, request)[0] == asked(engine, request)[0]


# ---- A model that takes images and sounds


@pytest.fixture(scope="module")
def omni(folder, tmp_path_factory):
    return qwen2_5_omni(tmp_path_factory.mktemp("omni") / "tiny", weights=True)


@pytest.fixture(scope="module")
def omni_engine(omni, tmp_path_factory):
    with vllm(omni, tmp_path_factory.mktemp("vllm") / "log") as (url, _):
        yield url


@pytest.fixture(scope="module", params=["cpu", "sw_emu"])
def omni_served(request, omni_engine, omni, tmp_path_factory):
    logs = tmp_path_factory.mktemp("front")
    with fronted(request.param, omni_engine, omni, logs, image_cus=1, mel_cus=1, norm_cus=1) as url:
        yield url


WITH_SOUNDS = {
    **{name: chat("a", sound(data), "b") for name, data in SOUNDS.items()},
    "two images and a sound": chat("1", FILES["JPEG"], "2", FILES["PNG with alpha"], sound(SOUNDS["WAV"]), "Compare."),
    "sounds around an image": chat(sound(SOUNDS["WAV"]), FILES["JPEG"], sound(SOUNDS["FLAC"])),
    "the longest sound": chat(sound(voice(30))),
    "an image": chat(FILES["JPEG on its side"]),
    "text": chat("hello"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", WITH_SOUNDS)
def test_tokens_of_sounds_are_those_that_vllm_generates_of_its_own_features(name, stream, omni_engine, omni_served):
    assert_same_answer(WITH_SOUNDS[name], stream, omni_engine, omni_served)


def test_another_sound_gives_other_tokens(omni_served):
    first, second = (
        asked(omni_served, {"messages": chat(sound(SOUNDS[name]))["messages"]})[0] for name in ("WAV", "MP3")
    )
    assert first != second


# ---- Whisper


@pytest.fixture(scope="module")
def whispered(folder, tmp_path_factory):
    """Return a folder, and the address of an engine with the plugin for transcriptions."""
    found = whisper(tmp_path_factory.mktemp("whisper") / "tiny", weights=True)
    log = tmp_path_factory.mktemp("vllm") / "log"
    with vllm(found, log, "--max-model-len", "448", VLLM_PLUGINS="headrace") as (url, _):
        yield found, url


@pytest.fixture(scope="module", params=["cpu", "sw_emu"])
def whisper_served(request, whispered, tmp_path_factory):
    folder, engine = whispered
    with fronted(request.param, engine, folder, tmp_path_factory.mktemp("front"), mel_cus=1, norm_cus=1) as url:
        yield url


def heard(url, data, stream=False, translates=False, **settings):
    """Return the text of a sound."""

    async def run():
        async with openais_client(url, timeout=120) as client:
            calls = client.audio.translations if translates else client.audio.transcriptions
            request = {
                "model": "tiny",
                "file": ("a.wav", data),
                "extra_body": {"max_completion_tokens": 40},
                **settings,
            }
            if not stream:
                return (await calls.create(**request)).text
            events = [each async for each in await calls.create(**request, stream=True)]
            assert "".join(each.delta for each in events[:-1]) == events[-1].text
            return events[-1].text

    return asyncio.run(run())


TRANSCRIBED = {
    **{name: (data, {"language": "de"}) for name, data in SOUNDS.items()},
    "a language to be found": (SOUNDS["WAV"], {}),
    "a text before": (SOUNDS["WAV"], {"language": "en", "prompt": "hello"}),
    "70 s": (voice(70), {"language": "en"}),
}


@pytest.mark.parametrize("name", TRANSCRIBED)
def test_transcripts_are_those_that_vllm_makes_of_its_own_features(name, whispered, whisper_served):
    data, settings = TRANSCRIBED[name]
    expected = heard(whispered[1], data, **settings)
    assert heard(whisper_served, data, **settings) == heard(whisper_served, data, stream=True, **settings) == expected


@pytest.mark.filterwarnings("ignore:deprecated")  # by the client's own code
def test_translations_and_other_sounds_give_other_texts(whispered, whisper_served):
    first = heard(whisper_served, SOUNDS["WAV"], translates=True)
    assert first == heard(whispered[1], SOUNDS["WAV"], translates=True)
    texts = {heard(whisper_served, data, language="en") for data in SOUNDS.values()}
    assert len(texts) > 1


# ---- The plugin

COUNTED = """
import sys
from PIL import Image
from vllm.plugins import load_general_plugins
load_general_plugins()
from transformers import AutoImageProcessor
processor = AutoImageProcessor.from_pretrained(sys.argv[1])
processor(Image.new("RGB", (90, 70)), return_tensors="pt", do_rescale=False, do_normalize=False)
print(getattr(processor, "counts", None))
"""


def test_the_plugin_is_loaded_where_a_target_is_set(folder):
    def counts(**settings):
        command = [PYTHON, "-c", COUNTED, folder]
        given = {**os.environ, **SETTINGS, **settings}
        done = subprocess.run(command, cwd=folder.parent, env=given, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.splitlines()[-1]

    assert counts() == "None"
    assert counts(HEADRACE_TARGET="cpu") == "{'dpu': 0, 'cpu': 1, 'library': 0}"


def test_vllm_generates_the_same_with_the_plugin(folder, engine, tmp_path):
    with vllm(folder, tmp_path / "log", HEADRACE_TARGET="cpu") as (other, _):
        assert "headrace makes the inputs of models; target cpu" in (tmp_path / "log").read_text()
        for request in REQUESTS.values():
            asked_for = {"messages": request["messages"]}
            assert asked(other, asked_for)[:2] == asked(engine, asked_for)[:2]
