"""The CPU path is the reference of all other code, so it is checked against direct calls of OpenCV and numpy."""

import re

import cv2
import numpy as np
import pytest

from headrace.batching import CorruptInput, UsageError
from headrace.host.dpu.reference.image import preprocess, resized_size
from headrace.host.dpu.specs import IMAGENET_MEAN, IMAGENET_STD, Damaged, ImageSpec, ImageStage


def jpeg(width: int, height: int, channels: int = 3) -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, channels), np.uint8)
    return cv2.imencode(".jpg", cv2.GaussianBlur(pixels, (5, 5), 0))[1].tobytes()


def test_the_stages_are_opencv_and_numpy():
    data = jpeg(300, 200)
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    resized = cv2.resize(decoded, (384, 256), interpolation=cv2.INTER_LINEAR_EXACT)
    cropped = resized[16:240, 80:304, ::-1]
    normal = (cropped.astype(np.float32) / 255 - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)
    assert np.array_equal(preprocess(data, ImageSpec(), ImageStage.DECODE), decoded[..., ::-1])
    assert np.array_equal(preprocess(data, ImageSpec(), ImageStage.RESIZE), resized[..., ::-1])
    assert np.array_equal(preprocess(data, ImageSpec(), ImageStage.CROP), cropped)
    tensor = preprocess(data, ImageSpec())
    assert tensor.dtype == np.float32 and np.array_equal(tensor, normal.transpose(2, 0, 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_looking_up_the_tables_is_normalizing(dtype):
    spec = ImageSpec(dtype=dtype)
    tables = spec.tables()
    cropped = preprocess(jpeg(260, 256), spec, ImageStage.CROP)
    expected = np.stack([tables[channel][cropped[..., channel]] for channel in range(3)])
    assert np.array_equal(preprocess(jpeg(260, 256), spec), expected) and tables.dtype == np.dtype(dtype)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(("crop", "offset"), [((224, 224), (None, None)), ((37, 51), (3, 5)), ((1, 1), (0, 255))])
def test_every_type_and_crop_is_numpys(channels, dtype, crop, offset):
    step = 0.03 if dtype == "int8" else None
    spec = ImageSpec(256, *crop, *offset, dtype=dtype, int8_step=step)
    data = jpeg(301, 257, channels)
    cropped = preprocess(data, spec, ImageStage.CROP)
    assert cropped.shape == (crop[1], crop[0], 3) and cropped.flags.c_contiguous
    values = (cropped.astype(np.float32) / 255 - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)
    if dtype == "int8":
        values = np.clip(np.rint(values / np.float32(step)), -127, 127)
    tensor = preprocess(data, spec)
    assert tensor.dtype == dtype and tensor.shape == spec.tensor_shape and tensor.flags.c_contiguous
    assert np.array_equal(tensor, values.transpose(2, 0, 1).astype(dtype))


@pytest.mark.parametrize(
    ("crop", "offset", "place"),
    [
        ((224, 224), (161, 32), "(161, 32)"),
        ((224, 224), (160, 33), "(160, 33)"),
        ((386, 224), (None, None), "(-1, 16)"),
        ((224, 258), (None, None), "(80, -1)"),
    ],
    ids=["right", "below", "wider", "higher"],
)
def test_a_window_outside_the_image_is_refused_on_each_side(crop, offset, place):
    """The resized image has 384x256 pixels."""
    data = jpeg(300, 200)
    assert preprocess(data, ImageSpec(256, 224, 224, 160, 32), ImageStage.CROP).shape == (224, 224, 3)
    with pytest.raises(UsageError, match=re.escape(f"at {place} is not inside the 384x256 image")):
        preprocess(data, ImageSpec(256, *crop, *offset))


@pytest.mark.parametrize("files", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_files_become_a_tensor_or_are_refused(files):
    random = np.random.default_rng(5)
    whole = np.frombuffer(jpeg(90, 70), np.uint8)
    spec = ImageSpec(64, 48, 48, damaged=Damaged.LENIENT)
    refused = 0
    for _ in range(files):
        damaged = whole[: random.integers(1, len(whole) + 1)].copy()
        damaged[random.integers(0, len(damaged), random.integers(0, 8))] = random.integers(0, 256)
        try:
            tensor = preprocess(damaged.tobytes(), spec)
        except (CorruptInput, UsageError):
            refused += 1
        else:
            assert tensor.shape == (3, 48, 48) and np.isfinite(tensor).all()
    assert 0 < refused < files


def test_int8_covers_every_value_of_the_tables():
    spec = ImageSpec(dtype="int8")
    float_tables = ImageSpec().tables()
    step = np.abs(float_tables).max() / 127
    assert np.abs(spec.tables() * step - float_tables).max() <= step / 2 * 1.001


@pytest.mark.parametrize(
    ("size", "expected"), [((500, 375), (341, 256)), ((375, 500), (256, 341)), ((64, 64), (256, 256))]
)
def test_the_shorter_side_is_resized_and_the_longer_rounds_down(size, expected):
    assert resized_size(*size, 256) == expected


def test_what_is_no_image_is_refused():
    for data in (b"", b"no image", jpeg(10, 10)[:20]):
        with pytest.raises(CorruptInput):
            preprocess(data, ImageSpec())


def test_a_crop_outside_the_image_says_what_to_change():
    with pytest.raises(UsageError, match="smaller or resize_short larger"):
        preprocess(jpeg(300, 200), ImageSpec(resize_short=100))


@pytest.mark.parametrize(
    "change",
    [{"dtype": "float64"}, {"resize_short": 0}, {"crop_width": 70000}, {"std": (1, 0, 1)}, {"int8_step": -1.0}],
)
def test_impossible_specs_are_refused(change):
    with pytest.raises(UsageError):
        ImageSpec(**change)
