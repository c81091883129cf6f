"""Image processors of Hugging Face: clocks of the image CU in the simulated RTL, and times of CPU libraries.

    .venv/bin/python -m benchmarks.image_processors [--sizes 500x375 2048x2048] [--rounds 3] [--json [FILE]]

The image is the example photo, resized and encoded at 4:2:0 and quality 90. A run of the CU decodes it, resizes it and
writes the tensor. Its clocks follow from the file alone, and the tensor must equal that of the CPU path. Images a
second are those of one CU at 250 MHz, without the host's share and without PCIe. The CPU times are of one thread: our
CPU path, and the processors of transformers, all from the bytes of the file to the tensor. They take turns, and the
least of the rounds counts.
"""

import argparse
import asyncio
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

import headrace
from benchmarks.harness import IMAGE_FILE, Report, arguments, main, progress, table
from headrace.batching import HeadraceError, UsageError
from headrace.bitstreams.cache import build
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.hugging_face.names import config, processor

MHZ = 250
MODELS = ("clip-vit-base-patch32", "siglip2-base-patch16-naflex", "qwen2-vl", "pixtral-12b")


def encoded(size: str) -> bytes:
    """Return the example photo as a JPEG file of a size such as 500x375."""
    try:
        width, height = map(int, size.split("x"))
    except ValueError:
        raise UsageError(f"--sizes: {size} is no size; give WIDTHxHEIGHT") from None
    file = io.BytesIO()
    with Image.open(IMAGE_FILE) as image:
        image.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90, subsampling=2)
    return file.getvalue()


def clocks(xclbin: Any, name: str, data: bytes) -> int:
    """Return the clocks of a run. Raises HeadraceError if the tensor is not that of the CPU path."""

    async def run() -> int:
        async with Dpu(xclbin, processor(name)) as dpu:
            done = await dpu.process(data)
        expected = headrace.preprocess(data, name)["pixel_values"]
        if done.counters is None or not np.array_equal(done.tensor, expected):
            raise HeadraceError(f"{name}: the CU did not make the tensor of the CPU path ({done.refused})")
        return done.counters["cycles"]

    return asyncio.run(run())


def libraries(name: str) -> dict[str, Callable[[bytes], Any]]:
    """Return what makes the tensors on the CPU: ours, and transformers with the back ends that are installed."""
    found: dict[str, Callable[[bytes], Any]] = {"ours": lambda data: headrace.preprocess(data, name)}
    try:
        import torch
        import transformers

        import headrace.host.workers.networks.models
    except ImportError:
        return found
    torch.set_num_threads(1)
    settings = dict(config(name))
    stem = settings.pop("image_processor_type")
    for label, ending in (("torchvision", ""), ("Pillow", "Pil")):
        if (of := getattr(transformers, stem + ending, None)) is not None:
            made = of(**settings)
            found[label] = lambda data, made=made: made(_opened(data), return_tensors="np")
    return found


def _opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def run(options: argparse.Namespace) -> Report:
    progress("building the RTL: minutes the first time")
    xclbin = build(target="hw_emu", image_cus=1)
    figures, rows = [], []
    for size in options.sizes:
        data = encoded(size)
        pixels = np.prod([int(side) for side in size.split("x")])
        for name in options.models:
            progress(f"{name}, {size}")
            taken = clocks(xclbin, name, data)
            ways = libraries(name)
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way, function in ways.items():
                    began = time.thread_time()
                    function(data)
                    times[way].append(time.thread_time() - began)
            least = {way: 1e3 * min(each) for way, each in times.items()}
            figures.append({"size": size, "model": name, "clocks": taken, "cpu_ms": least})
            cpu = " | ".join(f"{least[way]:.1f}" if way in least else "-" for way in ("ours", "torchvision", "Pillow"))
            rows.append(f"{size} | {name} | {taken:,} | {taken / pixels:.2f} | {MHZ * 1e6 / taken:,.0f} | {cpu}")
    head = f"image | model | clocks | clocks a pixel | images/s of a CU at {MHZ} MHz"
    return Report({"rows": figures}, table(f"{head} | ours, ms | torchvision, ms | Pillow, ms", rows))


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--sizes", nargs="+", default=["500x375", "1024x768", "2048x2048"], help="widths and heights")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="names of `headrace preprocess processors`")
    main(parser, run)
