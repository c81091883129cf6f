"""Image processors of Hugging Face: clocks of the image CU in the simulated RTL, and times of CPU libraries.

    .venv/bin/python -m benchmarks.image_processors [--sizes 500x375 2048x2048] [--rounds 5] [--json [FILE]]
    .venv/bin/python -m benchmarks.image_processors --costs  # writes sim/system/processor_costs.csv, too

The image is the example photo, resized and encoded at 4:2:0 and quality 90. A run of the CU decodes it, resizes it and
writes the tensor, which must equal that of the CPU path. Its clocks follow from the file alone. "model" is the
deviation of the cycle model (sim/hardware/dpu/processor.py) from them. "estimate" is that of the model where only the
size and the bytes of the file are known, as in `headrace simulate`.

Images/s are at the clock that the estimate of the delays supports (sim/system/card.py). Those of a CU have neither the
host's share nor PCIe. Those of a card are the least of its limits (sim/system/limits.py): its CUs, and PCIe each way.

The CPU times are those of one core, from the bytes of the file to the tensor: our CPU path, and the processors of
transformers with torchvision and with Pillow. They take turns, and the least of the rounds counts. It is processor
time, which other work on the machine still makes longer.
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
from benchmarks.core_costs import Cost, write_costs
from benchmarks.harness import IMAGE_FILE, Report, arguments, main, progress, table
from headrace.batching import HeadraceError, UsageError
from headrace.bitstreams.cache import build
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.hugging_face.names import config, image_processor
from headrace.host.dpu.processor_work import image_work, scaler_passes
from headrace.host.dpu.processors import Size
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work
from headrace.sim.hardware.dpu.processor import DecodeEstimate, processor_cycles
from headrace.sim.hardware.inputs import decode_clocks
from headrace.sim.system.card import CUS, MASTERS, estimated_mhz
from headrace.sim.system.limits import Cu, limits

MHZ = estimated_mhz("image cu")
MODELS = (
    "clip-vit-base-patch32",
    "siglip2-base-patch16-naflex",
    "qwen2-vl",
    "pixtral-12b",
    "llava-next",
    "internvl3",
)
WAYS = {"ours": "", "torchvision": "", "pillow": "Pil"}  # and how the class of transformers ends


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
        async with Dpu(xclbin, image_processor(name)) as dpu:
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
    for way, ending in list(WAYS.items())[1:]:
        if (of := getattr(transformers, stem + ending, None)) is not None:
            made = of(**settings)
            found[way] = lambda data, made=made: made(_opened(data), return_tensors="np")
    return found


def _opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def predicted(name: str, data: bytes) -> tuple[int, int]:
    """Return the clocks of the cycle model: for the file, and for its size and its bytes alone."""
    work = read_jpeg_work(data)
    passes = scaler_passes(image_processor(name), Size(work.width, work.height))
    estimate = DecodeEstimate(work.width, work.height, decode_clocks(work.width * work.height, len(data)))
    return processor_cycles(work, passes), processor_cycles(estimate, passes)


def of_card(taken: int, file_bytes: int, tensor_bytes: int) -> tuple[float, str]:
    """Return the images/s of a card and the limit that they reach first. Starts are queued on the card."""
    cu = Cu(CUS["image cu"], MASTERS["image cu"], taken, MHZ * 1e6)
    first = limits(cu, 0.0, file_bytes, tensor_bytes)[0]
    return first.images_s, first.name if first.cus is None else f"{first.cus} CUs"


def least_ms(name: str, data: bytes, rounds: int) -> dict[str, float]:
    """Return the least processor time of each library."""
    ways = libraries(name)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(-1, rounds):  # the first one warms up
        for way, function in ways.items():
            began = time.process_time()
            function(data)
            if number >= 0:
                times[way].append(1e3 * (time.process_time() - began))
    return {way: min(each) for way, each in times.items()}


def run(options: argparse.Namespace) -> Report:
    progress("building the RTL: minutes the first time")
    xclbin = build(target="hw_emu", image_cus=1, mel_cus=0, norm_cus=0)
    figures, rows, times = [], [], []
    for name in options.models:
        for size in options.sizes:
            progress(f"{name}, {size}")
            data = encoded(size)
            width, height = (int(side) for side in size.split("x"))
            taken = clocks(xclbin, name, data)
            by_file, by_size = predicted(name, data)
            tensor_bytes = image_work(image_processor(name), width, height).tensor_bytes
            card, limit = of_card(taken, len(data), tensor_bytes)
            cpu = least_ms(name, data, options.rounds)
            figures.append(
                {
                    "model": name,
                    "size": size,
                    "file_bytes": len(data),
                    "tensor_bytes": tensor_bytes,
                    "clocks": taken,
                    "model_deviation": by_file / taken - 1,
                    "estimate_deviation": by_size / taken - 1,
                    "cpu_ms": cpu,
                    "card_images_s": card,
                    "card_limit": limit,
                }
            )
            rows.append(
                f"{name} | {size} | {tensor_bytes / 1e6:.2f} | {taken / width / height:.3f}"
                f" | {100 * (by_file / taken - 1):+.2f} % | {100 * (by_size / taken - 1):+.1f} %"
                f" | {MHZ * 1e6 / taken:,.0f} | {card:,.0f} | {limit}"
            )
            shown = " | ".join(f"{cpu[way]:.1f}" if way in cpu else "-" for way in WAYS)
            cores = card * min(value for way, value in cpu.items() if way != "ours") / 1e3 if len(cpu) > 1 else None
            times.append(f"{name} | {size} | {shown} | {'-' if cores is None else f'{cores:.1f}'}")
    if options.costs:
        write_costs(
            Cost(each["model"], way, each["size"], ms) for each in figures for way, ms in each["cpu_ms"].items()
        )
    head = "processor | image | tensor, MB | clocks a pixel | model | estimate | images/s of a CU | images/s of a card"
    text = (
        f"Clocks of the RTL, and images/s at {MHZ} MHz\n\n{table(f'{head} | its limit', rows)}\n\n"
        "Processor time of one core, in ms, and how many cores with the faster library give the images/s of a card\n\n"
        f"{table('processor | image | ours | torchvision | Pillow | cores', times)}"
    )
    return Report({"rows": figures}, text)


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--sizes", nargs="+", default=["500x375", "1024x768", "2048x2048"], help="widths and heights")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="names of `headrace preprocess processors`")
    parser.add_argument("--costs", action="store_true", help="also write the times of a core for `headrace simulate`")
    main(parser, run)
