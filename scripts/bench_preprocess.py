"""Images/s of CPU preprocessing and of the emulated DPU on the demo's photos, side by side, and seconds of audio that
one core preprocesses in a second, with the machine named.

    .venv/bin/python scripts/bench_preprocess.py [--image-cus 4] [--seconds 5] [--json FILE]

All take turns, three rounds each, and the median is printed: machines are shared and drift. The DPU is C++ on this
machine's cores, so its figure bounds the emulation, not a card. The audio is noise, as what it is does not change the
time that it takes: 15 s in 16-bit PCM, in one call, with BLAS kept to one thread by OPENBLAS_NUM_THREADS.
"""

import argparse
import asyncio
import io
import json
import os
import statistics
import tempfile
import time
import wave
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy

import numpy as np

from headrace.bitstreams.build import build_sw_emu
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CpuPreprocessor
from headrace.host.dpu.reference import audio
from headrace.host.dpu.specs import RESAMPLERS, AudioSpec, AudioStage, ImageSpec
from headrace.host.workers.profiling.batches import machine

ROUNDS = 3
AUDIO_S = 15.0
SOUNDS = ((16000, 1), (44100, 1), (48000, 2))  # Hz, channels


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


def noise(rate: int, channels: int) -> bytes:
    """A WAV file of AUDIO_S."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((channels, 2, rate, 0, "NONE", ""))
        out.writeframes(np.random.default_rng(1).integers(-9000, 9000, int(AUDIO_S * rate) * channels, "<i2").tobytes())
    return file.getvalue()


def audio_per_s(data: bytes, spec: AudioSpec, stage: AudioStage, seconds: float) -> float:
    """Return the seconds of audio that this thread's core preprocesses in a second."""
    done, started = 0, time.monotonic()
    while time.monotonic() < started + seconds:
        audio.preprocess(data, spec, stage)
        done += 1
    return done * AUDIO_S / (time.monotonic() - started)


def measure_audio(seconds: float) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {}
    sounds = {sound: noise(*sound) for sound in SOUNDS}
    specs = [AudioSpec(resampler=resampler) for resampler in RESAMPLERS]
    for spec in specs:
        audio.prepare(spec)
    for _ in range(ROUNDS):
        for (rate, channels), data in sounds.items():
            for stage in AudioStage:
                for spec in specs if rate != specs[0].rate else specs[:1]:
                    by = f" by {spec.resampler}" if rate != spec.rate else ""
                    rates = figures.setdefault(f"{rate} Hz{by}, {channels} channels, to {stage.name.lower()}", [])
                    rates.append(audio_per_s(data, spec, stage, seconds / ROUNDS))
    return figures


def by_round(figures: dict[str, list[float]]) -> dict:
    return {name: {"median": statistics.median(rates), "rounds": rates} for name, rates in figures.items()}


async def measure(xclbin: Path, seconds: float) -> dict:
    photos = demo_images()
    figures: dict[str, list[float]] = {}
    async with Dpu(xclbin, ImageSpec()) as dpu, CpuPreprocessor(ImageSpec(), machine()["cores"]) as cpu:
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
        "images_per_s": by_round(figures),
        "audio_s_per_s": by_round(measure_audio(seconds)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image-cus", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure, over all rounds")
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
    for kind, unit in (("images_per_s", "images/s"), ("audio_s_per_s", "s of audio/s")):
        for name, rates in result[kind].items():
            rounds = ", ".join(f"{rate:.1f}" for rate in rates["rounds"])
            print(f"{name:36s} {rates['median']:8.1f} {unit}   (rounds: {rounds})")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
