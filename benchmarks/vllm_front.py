"""vLLM with a small Qwen2-VL: who makes the patches, vLLM or Headrace, and what that costs.

    scripts/setup_vllm
    .venv/bin/python -m benchmarks.vllm_front [--rounds 7] [--json [FILE]]

The ways take turns, one request at a time:

- vllm: vLLM's own processor, and with the plugin, Headrace's CPU path within vLLM.
- render: `headrace render` in front of vLLM, with the CPU path and with the emulated DPU.

Each request has an image that was not sent before, and asks for two tokens. The first table has the time to the first
token, and the seconds of a core of all of vLLM's processes, and of the front end. For the second one, several clients
send requests, each the next one after its answer. The third table has the longest answer of `/health` of the server
that takes images, while it takes a request of 250 images, which the model then refuses for its length. The network is
tiny and runs on the CPU, so the times show preprocessing and transport.

The last table is simulated: the processor of Qwen2-VL before a ViT-B/16 on an H100, by cores or by a card's image CUs.
"""

import argparse
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from benchmarks.harness import IMAGE_FILE, ROOT, Report, arguments, main, measure, progress, spread, summary, table
from benchmarks.vllm_servers import PYTHON, front, vllm
from headrace import MigGpu, Poisson, Preprocess, simulate
from headrace.batching import UsageError

T = TypeVar("T")
SIZES = ((600, 400), (2048, 2048))
MANY = 250
CLIENTS = 4
SENT = 12
THROUGHPUT_ROUNDS = 2
RATE = 1.0  # requests/s of the simulation, so few that no image waits for another
SIMULATED = ("cpu:16", "cpu:32", "dpu:1", "dpu:4")
UNCACHED = "--no-enable-prefix-caching"


def _picture(width: int, height: int, seed: int) -> str:
    """Return a data URL of the example image in a size, with noise that no other seed has."""
    pixels = np.asarray(Image.open(IMAGE_FILE).resize((width, height)), np.int16)
    noise = np.random.default_rng(seed).integers(-6, 7, pixels.shape, np.int16)
    file = io.BytesIO()
    Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _chat(images: list[str], **more: Any) -> bytes:
    content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": each}} for each in images]
    content.append({"type": "text", "text": "What is it?"})
    settings = {"model": "tiny", "max_tokens": 2, "temperature": 0, "ignore_eos": True}
    return json.dumps({**settings, "messages": [{"role": "user", "content": content}], **more}).encode()


def _post(url: str, body: bytes) -> Any:
    head = {"Content-Type": "application/json"}
    return urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, head), timeout=300)


def _first_token_s(url: str, image: str) -> float:
    began = time.perf_counter()
    with _post(url, _chat([image], stream=True, return_token_ids=True)) as response:
        for line in response:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0].get("token_ids"):
                took = time.perf_counter() - began
                response.read()
                return took
    raise UsageError(f"{url} answered without a token")


def _core_s(group: int) -> float:
    """Return the seconds of a core of all processes of a session, of those too that have ended within it."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == group:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _delay_s(url: str, images: list[str]) -> float:
    """Return the longest answer of /health while a request of many images is served or refused."""
    longest = 0.0
    done = threading.Event()

    def ask() -> None:
        with contextlib.suppress(urllib.error.HTTPError):
            _post(url, _chat(images)).read()
        done.set()

    sender = threading.Thread(target=ask)
    sender.start()
    while not done.is_set():
        began = time.perf_counter()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/health", timeout=120).read()
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.005)
    sender.join()
    return longest


def _per_s(url: str, images: list[str]) -> float:
    """Return the requests per second of CLIENTS clients in a closed loop, a request for each image."""

    def ask(image: str) -> None:
        with _post(url, _chat([image])) as response:
            response.read()

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(ask, images))
    return len(images) / (time.perf_counter() - began)


def _by_size(found: Mapping[str, T]) -> list[tuple[tuple[str, str, str], T]]:
    """Return the values of cases, with the parts of their names."""
    return [(name.rpartition(", "), value) for name, value in found.items()]


def _simulated(size: tuple[int, int], preprocess: str) -> dict[str, float]:
    """Simulate the processor before an H100. Returns the ms that an image takes alone, and the requests/s at which
    preprocessing has no time left."""
    settings = Preprocess(preprocess, processor="qwen2-vl", image_sizes=f"{size[0]}x{size[1]}")
    found = simulate(
        "vit_b_16",
        on=MigGpu("h100", partition="7g.80gb:1"),
        workload=Poisson(rate_rps=RATE, requests=500),
        policy="serial",
        preprocess=settings,
    ).to_dict()
    busiest = max(found["preprocess_utilization"].values())
    return {"ms": found["preprocess_ms"]["p50"], "rps": found["throughput_rps"] / busiest}


def run(options: argparse.Namespace) -> Report:
    if not PYTHON.exists():
        raise UsageError("there is no vLLM; run scripts/setup_vllm")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        limit = str(1280 * 28 * 28)  # pixels of an image: 1,280 tokens
        program = (
            "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import tiny_qwen2_vl; "
            "tiny_qwen2_vl.qwen2_vl(Path('tiny'), weights=True, max_pixels=int(sys.argv[2]))"
        )
        subprocess.run([sys.executable, "-c", program, str(ROOT / "examples"), limit], cwd=folder, check=True)
        progress("starting two vLLM servers and two front ends")
        model, logs = folder / "tiny", iter(folder / f"log{number}" for number in range(4))
        own, own_pid = stack.enter_context(vllm(model, next(logs), UNCACHED))
        plugin, plugin_pid = stack.enter_context(vllm(model, next(logs), UNCACHED, HEADRACE_TARGET="cpu"))
        cpu, cpu_pid = stack.enter_context(front(own, model, next(logs)))
        dpu, dpu_pid = stack.enter_context(front(own, model, next(logs), "--target", "sw_emu"))
        ways = {
            "vllm": (own, own_pid, None),
            "vllm, plugin": (plugin, plugin_pid, None),
            "render, cpu": (cpu, own_pid, cpu_pid),
            "render, sw_emu": (dpu, own_pid, dpu_pid),
        }
        seeds = iter(range(1 << 30))

        def case(way: str, size: tuple[int, int]) -> Any:
            url, engine, before_it = ways[way]

            def once(_: int) -> dict[str, float]:
                image = _picture(*size, next(seeds))
                before = [_core_s(each) if each else 0.0 for each in (engine, before_it)]
                first = _first_token_s(url, image)
                time.sleep(0.2)  # what is left to do after the answer
                after = [_core_s(each) if each else 0.0 for each in (engine, before_it)]
                return {"first_s": first, "engine_s": after[0] - before[0], "front_s": after[1] - before[1]}

            return once

        def loop(way: str, size: tuple[int, int]) -> Any:
            return lambda _: _per_s(ways[way][0], [_picture(*size, next(seeds)) for _ in range(SENT)])

        cases = {f"{way}, {size[0]}x{size[1]}": case(way, size) for size in SIZES for way in ways}
        found = measure(cases, options.rounds, warm_up=2)
        images = [_picture(*SIZES[0], next(seeds)) for _ in range(MANY)]
        per_s = measure(
            {f"{way}, {size[0]}x{size[1]}": loop(way, size) for size in SIZES for way in ways}, THROUGHPUT_ROUNDS
        )
        delays = measure({way: lambda _, url=ways[way][0]: _delay_s(url, images) for way in ways}, 3)
        simulated = {
            f"{preprocess}, {size[0]}x{size[1]}": _simulated(size, preprocess)
            for size in SIZES
            for preprocess in SIMULATED
        }
    rows = []
    for (way, _, size), values in _by_size(found):
        of = {key: [1e3 * each[key] for each in values] for key in values[0]}
        rows.append(f"{size} | {way} | {spread(of['first_s'])} | {spread(of['engine_s'])} | {spread(of['front_s'])}")
    text = table("image | who makes patches | ms to the first token | core ms of vLLM | of the front end", rows)
    lines = [f"{size} | {way} | {spread(values, '.1f')}" for (way, _, size), values in _by_size(per_s)]
    text += "\n\n" + table(f"image | who makes patches | requests/s of {CLIENTS} clients", lines)
    lines = [f"{way} | {spread([1e3 * each for each in values])}" for way, values in delays.items()]
    text += "\n\n" + table(f"who makes patches | longest ms of /health, {MANY} images", lines)
    lines = [f"{size} | {way} | {each['ms']:.2f} | {each['rps']:,.0f}" for (way, _, size), each in _by_size(simulated)]
    text += "\n\n" + table("image | simulated preprocessing | ms of an image | at most requests/s", lines)
    figures = {"requests": found, "per_s": summary(per_s), "delay_s": summary(delays), "simulated": simulated}
    return Report(figures, text)


if __name__ == "__main__":
    main(arguments(__doc__, rounds=7), run)
