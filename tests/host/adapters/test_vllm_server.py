"""The front end before a real vLLM: what it generates is token for token what it generates of its own features.

`make test-vllm` makes the environment and runs these tests.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import openai
import pytest
from chats import FILES, chat
from tiny_qwen2_vl import qwen2_vl

from headrace.bitstreams.build import build_sw_emu

PYTHON = Path(__file__).parents[3] / "build" / "vllm" / "bin" / "python"
PATIENCE_S = 240.0
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}
HEADRACE = ["-c", "from headrace.host.cli.main import main; main()"]

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip("vLLM is not installed; make test-vllm installs it")
    return qwen2_vl(tmp_path_factory.mktemp("models") / "tiny", weights=True)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextlib.contextmanager
def process(arguments, log, **settings):
    """Run a process, and end it and its children."""
    with log.open("wb") as file:
        started = subprocess.Popen(
            arguments, stdout=file, stderr=file, env={**os.environ, **settings}, start_new_session=True
        )
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


@contextlib.contextmanager
def vllm(folder, log, *options, **settings):
    """Serve a model by vLLM, and give its address."""
    port = free_port()
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", folder.name, "--port", str(port)]
    command += ["--enable-scale-out", "--dtype", "float32", "--max-model-len", "4096", "--enforce-eager", *options]
    before = Path.cwd()
    os.chdir(folder.parent)
    try:
        with process(command, log, **SETTINGS, **settings) as engine:
            url = f"http://127.0.0.1:{port}"
            until(lambda: ready(url), engine, log)
            yield url
    finally:
        os.chdir(before)


def ready(url):
    try:
        return urllib.request.urlopen(f"{url}/health", timeout=5).status == 200
    except OSError:
        return False


def until(done, of, log):
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert of.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.2)


@contextlib.contextmanager
def front(url, folder, log, *options):
    """Serve the front end, and give its address."""
    command = [sys.executable, *HEADRACE, "render", "--engine", url, "--model", folder, "--http", "127.0.0.1:0"]
    with process([*map(str, command), *map(str, options)], log) as started:
        until(lambda: "ready: " in log.read_text(), started, log)
        yield re.search(r"ready: .* at (http://\S+)/v1", log.read_text())[1]


@pytest.fixture(scope="module")
def engine(folder, tmp_path_factory):
    with vllm(folder, tmp_path_factory.mktemp("vllm") / "log") as url:
        yield url


@pytest.fixture(scope="module", params=["cpu", "sw_emu"])
def served(request, engine, folder, tmp_path_factory):
    logs = tmp_path_factory.mktemp("front")
    options = []
    if request.param == "sw_emu":
        build_sw_emu(logs / "dpu.xclbin", image_cus=2, mel_cus=0, norm_cus=0)
        options = ["--xclbin", logs / "dpu.xclbin"]
    with front(engine, folder, logs / "log", *options) as url:
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
        vllm(folder, tmp_path / "vllm", "--no-mm-device-do-normalize") as engine,
        front(engine, folder, tmp_path / "front") as served,
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
    with vllm(folder, tmp_path / "log", HEADRACE_TARGET="cpu") as other:
        assert "headrace makes the inputs of models; target cpu" in (tmp_path / "log").read_text()
        for request in REQUESTS.values():
            asked_for = {"messages": request["messages"]}
            assert asked(other, asked_for)[:2] == asked(engine, asked_for)[:2]
