"""image_cu in the configuration `small`, in C++ and in RTL: what it takes, and the status of what it does not take."""

import ctypes
from functools import cache

import cu_rtlsim
import cv2
import numpy as np
import pytest
import test_decode as jpegs
import units

from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageSpec, ImageStage
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelModel

SPEC = ImageSpec(resize_short=64, crop_width=60, crop_height=50)


@cache
def model() -> KernelModel:
    file = cu_rtlsim.model_file("image_cu", configuration="small")
    return KernelModel(ctypes.CDLL(str(file)), seed=1)


def in_cpp(jpeg: bytes, **more):
    return units.image_cu(jpeg, configuration="small", **more)


def in_rtl(jpeg: bytes, **more):
    return cu_rtlsim.image_cu(jpeg, model=model(), **more)


on_both = pytest.mark.parametrize(
    "cu", [pytest.param(in_cpp, id="csim"), pytest.param(in_rtl, id="rtlsim", marks=pytest.mark.slow)]
)


def image(width: int, height: int) -> np.ndarray:
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    return cv2.GaussianBlur(noise, (5, 5), 0)


@on_both
@pytest.mark.parametrize("stage", list(ImageStage))
def test_a_baseline_file_is_the_references(cu, stage):
    jpeg = jpegs.encode(image(150, 110), 90, "4:2:0")
    expected = preprocess(jpeg, SPEC, stage)
    done = cu(jpeg, stage=int(stage), resize_short=64, crop=(60, 50), tables=SPEC.tables())
    assert done.status == Status.OK and done.bytes == expected.nbytes
    assert np.array_equal(done.memory[: expected.nbytes], expected.reshape(-1).view(np.uint8))


@on_both
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"jpeg": jpegs.encode(image(2049, 16), 90, "4:2:0")}, Status.TOO_LARGE),
        ({"jpeg": jpegs.encode(image(64, 48), 90, "4:1:1")}, Status.SAMPLING),
        (
            {"jpeg": cv2.imencode(".jpg", image(64, 48), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()},
            Status.PROGRESSIVE,
        ),
        ({"stage": 4}, Status.BAD_ARGUMENT),
        ({"ring_entries": 4}, Status.BAD_ARGUMENT),
    ],
    ids=["wide", "4:1:1", "progressive", "program", "queue"],
)
def test_what_it_does_not_take_ends_in_a_status(cu, settings, expected):
    good = jpegs.encode(image(64, 48), 90, "4:4:4")
    done = cu(**{"jpeg": good, "stage": 0} | settings)
    assert (done.status, done.bytes) == (expected, 0)
    assert cu(good, stage=0).status == Status.OK
