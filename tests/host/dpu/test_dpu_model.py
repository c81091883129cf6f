"""The simulated DPU against the emulated one: a CU's time in simulation is the number of clocks that hw_emu counts."""

import asyncio
import io

import containers
import numpy as np
import pytest
import soundfile
from sounds import int16, wav

from headrace.host.demo.inputs.audio import recorded_audio, spoken_audio
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.reference.audio import preprocess
from headrace.host.dpu.specs import AudioSpec, AudioStage, ImageSpec
from headrace.sim.hardware.inputs import Audio, Inputs, KnownImages, image_of
from headrace.sim.system.dpu_server import CLOCK_HZ, START_S, dpu_preprocessor

WITHIN = 0.01
PHOTOS = demo_images()
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Return a function that gives the counters of one file on an emulated DPU."""
    folder = tmp_path_factory.mktemp("dpu")
    units = {ImageSpec: {"image_cus": 2}, AudioSpec: {"image_cus": 0, "mel_cus": 1, "norm_cus": 1}}

    def counters(data: bytes, spec: ImageSpec | AudioSpec) -> dict[str, int]:
        path = folder / f"{type(spec).__name__}.xclbin"
        if not path.exists():
            containers.hw_emu(path, **units[type(spec)])

        async def run():
            async with Dpu(path, spec) as dpu:
                return (await dpu.process(data)).counters

        return asyncio.run(run())

    return counters


def clocks(inputs: Inputs, size: float) -> dict[str, float]:
    """Return the clocks of the CUs in the simulator, by step, without their start."""
    steps = dpu_preprocessor(inputs, 1).steps
    return {
        step.name: (step.service_s(np.array([size]))[0] - START_S["kernel"]) * CLOCK_HZ
        for step in steps
        if step.name.endswith(" cu")
    }


def sixteen_khz(data: bytes, longest_s: float) -> tuple[bytes, float]:
    """Return a WAV file with audio as in LibriSpeech, and its seconds."""
    samples = preprocess(data, AudioSpec(), AudioStage.RESAMPLE)[: round(16000 * longest_s)]
    return wav(int16(samples), 16000), len(samples) / 16000


@pytest.mark.parametrize(
    "photo", [pytest.param(p, id=p.name, marks=() if i % 12 == 0 else SLOW) for i, p in enumerate(PHOTOS)]
)
def test_a_photo_takes_the_clocks_that_hw_emu_counts(counted, photo):
    model = clocks(KnownImages((image_of(photo.jpeg),)), 0)
    assert model["image cu"] == pytest.approx(counted(photo.jpeg, ImageSpec())["cycles"], rel=WITHIN)


@pytest.mark.parametrize(
    "source, sounds, longest_s",
    [
        (spoken_audio, 1, 0.4),
        pytest.param(spoken_audio, 1, 1.5, marks=SLOW),
        pytest.param(spoken_audio, 3, 6.0, marks=SLOW),
        pytest.param(recorded_audio, 3, 6.0, marks=SLOW),
    ],
)
def test_speech_takes_the_clocks_that_hw_emu_counts(counted, source, sounds, longest_s):
    for sound in source()[:sounds]:
        data, seconds = sixteen_khz(sound.data, longest_s)
        assert soundfile.info(io.BytesIO(data)).samplerate == 16000
        found, model = counted(data, AudioSpec()), clocks(Audio(), seconds)
        assert model["mel cu"] == pytest.approx(found["mel_cycles"], rel=WITHIN)
        assert model["norm cu"] == pytest.approx(found["norm_cycles"], rel=WITHIN)
