"""The bound on a run is compared with the clocks of the cycle model, from which the RTL differs by less than a per
cent."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from headrace.bitstreams.xclbin import Mode
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.specs import AudioSpec, ImageSpec, ImageStage, Lengths
from headrace.host.dpu.units.run_limits import audio_clocks, clocks_per_s, image_clocks
from headrace.sim.hardware.dpu.image import image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work


def test_photos_take_fewer_clocks_than_the_bound():
    for photo in demo_images()[:12]:
        assert 3 * image_cu_cycles(read_jpeg_work(photo.jpeg)) < image_clocks(
            photo.jpeg, ImageSpec(), ImageStage.NORMALIZE
        )


@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("noise", [0, 1, 40])
@pytest.mark.parametrize("size", [(8, 8), (64, 2000), pytest.param((1200, 1200), marks=pytest.mark.slow)])
def test_extreme_files_take_fewer_clocks_than_the_bound(size, noise, progressive):
    pixels = np.random.default_rng(1).normal(128, noise, (*size, 3)).clip(0, 255).astype(np.uint8)
    for quality in (5, 100):
        options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive]
        jpeg = cv2.imencode(".jpg", pixels, options)[1].tobytes()
        clocks = image_cu_cycles(read_jpeg_work(jpeg))
        assert clocks < 3000 + image_clocks(
            jpeg, ImageSpec(), ImageStage.NORMALIZE
        )  # of latencies, which TIMEOUT_S has


def test_the_bound_grows_with_pixels_scans_and_the_resized_image():
    photo = cv2.resize(cv2.imdecode(np.frombuffer(demo_images()[0].jpeg, np.uint8), 1), (500, 375))
    one, several = (
        cv2.imencode(".jpg", photo, [cv2.IMWRITE_JPEG_PROGRESSIVE, progressive])[1].tobytes() for progressive in (0, 1)
    )
    decoded = image_clocks(one, ImageSpec(), ImageStage.DECODE)
    assert decoded == 24 * len(one) + 500 * 375 * 3
    assert image_clocks(several, ImageSpec(), ImageStage.DECODE) == 24 * len(several) + 500 * 375 * 12
    assert image_clocks(one, ImageSpec(resize_short=750), ImageStage.NORMALIZE) == decoded + 2 * 1000 * 750
    assert image_clocks(b"no photo", ImageSpec(), ImageStage.NORMALIZE) == 24 * 8
    assert audio_clocks(bytes(100), AudioSpec()) == 2400
    assert audio_clocks(bytes(100), replace(AudioSpec(), lengths=Lengths(samples=1000))) == 2400 + 48000


def test_a_card_is_taken_to_be_faster_than_an_emulation():
    assert clocks_per_s(Mode.FLAT) > clocks_per_s(Mode.SW_EMU) > clocks_per_s(Mode.HW_EMU)
