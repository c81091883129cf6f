"""Images/s of CPU preprocessing and of the emulated DPU on the demo's photos, side by side, with the machine named.

    .venv/bin/python scripts/bench_preprocess.py [--image-cus 4] [--seconds 5] [--json FILE]

The two take turns, three rounds each, and the median is printed: machines are shared and drift. The DPU is C++ on this
machine's cores, so its figure bounds the emulation, not a card.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from headrace.bitstreams.build import build_sw_emu
from headrace.host.demo.photos import demo_photos
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CpuPreprocessor
from headrace.host.workers.profiling import machine

ROUNDS = 3


async def images_per_s(preprocessor, photos, at_once: int, seconds: float) -> float:
    done = 0
    end = time.monotonic() + seconds

    async def client(first: int) -> None:
        nonlocal done
        number = first
        while time.monotonic() < end:
            await preprocessor.process(photos[number % len(photos)].jpeg)
            number += at_once
            done += 1

    started = time.monotonic()
    await asyncio.gather(*(client(first) for first in range(at_once)))
    return done / (time.monotonic() - started)


async def measure(xclbin: Path, seconds: float) -> dict:
    photos = demo_photos()
    figures: dict[str, list[float]] = {}
    async with Dpu(xclbin) as dpu, CpuPreprocessor(threads=machine()["cores"]) as cpu:
        for _ in range(ROUNDS):
            for name, preprocessor, at_once in (
                ("cpu, 1 at a time", cpu, 1),
                ("cpu, all cores", cpu, machine()["cores"]),
                ("dpu sw_emu, 1 at a time", dpu, 1),
                ("dpu sw_emu, all CUs", dpu, len(dpu.cus)),
            ):
                rate = await images_per_s(preprocessor, photos, at_once, seconds / ROUNDS)
                figures.setdefault(name, []).append(rate)
    mean_bytes = sum(len(photo.jpeg) for photo in photos) / len(photos)
    return {
        "machine": machine(),
        "photos": len(photos),
        "mean_jpeg_bytes": mean_bytes,
        "images_per_s": {n: {"median": statistics.median(rates), "rounds": rates} for n, rates in figures.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image-cus", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each of the four, over all rounds")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        xclbin = Path(folder) / "bench.xclbin"
        build_sw_emu(xclbin, image_cus=options.image_cus)
        result = asyncio.run(measure(xclbin, options.seconds))
    print(
        f"{result['machine']['cpu']}, {result['machine']['cores']} cores; {result['photos']} photos, "
        f"{result['mean_jpeg_bytes'] / 1024:.0f} KiB on average"
    )
    for name, rates in result["images_per_s"].items():
        rounds = ", ".join(f"{rate:.1f}" for rate in rates["rounds"])
        print(f"{name:26s} {rates['median']:8.1f} images/s   (rounds: {rounds})")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
