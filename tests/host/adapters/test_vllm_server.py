"""The front end before a real vLLM: what it generates is token for token what it generates of its own features.

`make test-vllm` makes the environment and runs these tests.
"""

import asyncio
import os
import subprocess

import openai
import pytest
from chats import FILES, chat
from tiny_qwen2_vl import qwen2_vl

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


@pytest.fixture(scope="module", params=["cpu", "sw_emu"])
def served(request, engine, folder, tmp_path_factory):
    logs = tmp_path_factory.mktemp("front")
    options = []
    if request.param == "sw_emu":
        build_sw_emu(logs / "dpu.xclbin", image_cus=2, mel_cus=0, norm_cus=0)
        options = ["--xclbin", str(logs / "dpu.xclbin")]
    with front(engine, folder, logs / "log", *options) as (url, _):
        yield url


def asked(url, request, stream=False):
    """Return the tokens, the text and the usage of an answer."""
    extra = {"return_token_ids": True, "ignore_eos": True}
    settings = {**request, "model": "tiny", "max_tokens": 24, "temperature": 0, "extra_body": extra}

    async def run():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as client:
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


REQUESTS = {
    **{name: chat("a", data, "b") for name, data in FILES.items()},
    "two images": chat("first", FILES["JPEG"], "second", FILES["PNG with alpha"], "Compare them."),
    "text": chat("hello"),
    "a system": {"messages": [{"role": "system", "content": "Be brief."}, *chat(FILES["JPEG"])["messages"]]},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_tokens_are_those_that_vllm_generates_of_its_own_features(name, stream, engine, served):
    request = {key: value for key, value in REQUESTS[name].items() if key != "model"}
    tokens, text, usage = asked(served, request, stream)
    expected = asked(engine, request)
    assert len(tokens) == 24 and (tokens, text) == expected[:2]
    assert usage.prompt_tokens == expected[2].prompt_tokens


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
