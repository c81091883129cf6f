"""Images/s of CPU preprocessing and of the emulated DPU, and seconds of audio that one core preprocesses in a second.

    .venv/bin/python -m benchmarks.preprocess [--image-cus 4] [--seconds 5] [--rounds 3] [--only images|audio]
        [--json [FILE]]

The images are the demo's photos. The DPU is C++ on this machine's cores, so its figure bounds the emulation, not a
card. The audio is noise, because its content does not change the time: 15 s in 16-bit PCM, in one call, with BLAS kept
to one thread.
"""

import argparse
import io
import os
import tempfile
import wave
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy

import numpy as np

from benchmarks.harness import (
    Report,
    arguments,
    closed_loop,
    main,
    measure,
    measure_async,
    seconds,
    spread,
    summary,
    table,
)
from headrace.bitstreams.build import build_sw_emu
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CpuPreprocessor
from headrace.host.dpu.reference import audio
from headrace.host.dpu.specs import RESAMPLERS, AudioSpec, AudioStage, ImageSpec
from headrace.host.workers.devices import usable_cores

AUDIO_S = 15.0
FORMATS = ((16000, 1), (44100, 1), (48000, 2))  # Hz, channels


async def images(options: argparse.Namespace) -> dict[str, list[float]]:
    encoded = [image.jpeg for image in demo_images()]
    with tempfile.TemporaryDirectory() as folder:
        xclbin = Path(folder) / "bench.xclbin"
        build_sw_emu(xclbin, image_cus=options.image_cus)
        async with Dpu(xclbin, ImageSpec()) as dpu, CpuPreprocessor(ImageSpec(), usable_cores()) as cpu:
            setups = {
                "cpu, 1 at a time": (cpu, 1),
                "cpu, all cores": (cpu, usable_cores()),
                "dpu sw_emu, 1 at a time": (dpu, 1),
                "dpu sw_emu, all CUs": (dpu, len(dpu.cus)),
            }
            cases = {
                name: lambda _, preprocessor=preprocessor, at_once=at_once: closed_loop(
                    lambda number: preprocessor.process(encoded[number % len(encoded)]),
                    at_once,
                    options.seconds / options.rounds,
                )
                for name, (preprocessor, at_once) in setups.items()
            }
            return await measure_async(cases, options.rounds)


def noise(rate: int, channels: int) -> bytes:
    """Return a WAV file of AUDIO_S."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((channels, 2, rate, 0, "NONE", ""))
        out.writeframes(np.random.default_rng(1).integers(-9000, 9000, int(AUDIO_S * rate) * channels, "<i2").tobytes())
    return file.getvalue()


def recordings(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return by sound and stage the seconds of audio that this thread's core preprocesses in a second."""
    specs = [AudioSpec(resampler=resampler) for resampler in RESAMPLERS]
    for spec in specs:
        audio.prepare(spec)
    cases = {}
    for rate, channels in FORMATS:
        data = noise(rate, channels)
        for stage in AudioStage:
            for spec in specs if rate != specs[0].rate else specs[:1]:
                by = f" by {spec.resampler}" if rate != spec.rate else ""
                name = f"{rate} Hz{by}, {channels} channels, to {stage.name.lower()}"
                cases[name] = lambda _, given=(data, spec, stage): (
                    AUDIO_S / seconds(lambda: audio.preprocess(*given), options.seconds / options.rounds)
                )
    return measure(cases, options.rounds)


async def run(options: argparse.Namespace) -> Report:
    figures, tables = {}, []
    if options.only != "audio":
        rates = await images(options)
        figures["images_per_s"] = summary(rates)
        tables.append(
            table("demo photos | images/s", (f"{name} | {spread(each, '.1f')}" for name, each in rates.items()))
        )
    if options.only != "images":
        rates = recordings(options)
        figures["audio_s_per_s"] = summary(rates)
        tables.append(
            table("audio | s of audio/s", (f"{name} | {spread(each, '.1f')}" for name, each in rates.items()))
        )
    return Report(figures, "\n\n".join(tables))


if __name__ == "__main__":
    parser = arguments(__doc__, only=("images", "audio"), rounds=3, image_cus=4, seconds=5.0)
    main(parser, run)
