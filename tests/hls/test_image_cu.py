"""image_cu x csim: whole files through the compute unit against OpenCV and numpy, and what it does to memory."""

import cv2
import numpy as np
import pytest
import units

from headrace.host.image import FORMATS, ImageSpec, Stage, preprocess
from headrace.host.photos import demo_photos
from headrace.host.status import Status

PHOTOS = demo_photos()


def jpeg(width: int, height: int, quality: int = 90) -> bytes:
    pixels = cv2.GaussianBlur(np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8), (3, 3), 0)
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def check(data: bytes, spec: ImageSpec, stage: Stage, memory: int = 4 << 20) -> None:
    expected = preprocess(data, spec, stage)
    done = units.image_cu(
        data, stage=stage, format=FORMATS.index(spec.dtype), resize_short=spec.resize_short,
        crop=(spec.crop_width, spec.crop_height), tables=spec.tables(), memory=memory,
    )  # fmt: skip
    assert done.status == Status.OK and done.bytes == expected.nbytes
    height, width = expected.shape[1:] if stage == Stage.NORMALIZE else expected.shape[:2]
    assert done.out_size == (width, height)
    assert np.array_equal(done.memory[: expected.nbytes], expected.reshape(-1).view(np.uint8))
    written = -(-expected.nbytes // 16) * 16
    assert (done.memory[written:] == 0xA5).all(), "bytes beyond the output's last word were written"


@pytest.mark.parametrize("photo", PHOTOS, ids=lambda photo: photo.name)
def test_every_photo_becomes_opencvs_tensor(photo):
    check(photo.jpeg, ImageSpec(), Stage.NORMALIZE)


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_can_be_the_last(stage):
    check(PHOTOS[0].jpeg, ImageSpec(), stage)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (3, 1), (5, 3), (7, 7), (13, 9), (16, 16), (33, 17), (224, 224)])
def test_planes_of_any_size_are_packed_without_gaps(dtype, size):
    check(
        jpeg(64, 48),
        ImageSpec(resize_short=256, crop_width=size[0], crop_height=size[1], dtype=dtype),
        Stage(3),
    )


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 1), (17, 31), (130, 7), (4096, 5)])
def test_small_and_odd_images(size):
    for stage in (Stage.DECODE, Stage.RESIZE):
        check(jpeg(*size), ImageSpec(resize_short=9), stage)


def test_a_buffer_that_is_too_small_is_left_alone_and_the_size_is_told():
    data = PHOTOS[0].jpeg
    needed = 3 * 224 * 224 * 4
    done = units.image_cu(data, capacity=needed - 1)
    assert done.status == Status.BUFFER_TOO_SMALL
    assert (done.bytes, done.out_size) == (needed, (224, 224))
    assert (done.memory == 0xA5).all()
    assert units.image_cu(data, capacity=needed).status == Status.OK


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"stage": 4}, Status.BAD_ARGUMENT),
        ({"format": 3}, Status.BAD_ARGUMENT),
        ({"resize_short": 0}, Status.RESIZE_LIMIT),
        ({"resize_short": 65536 + 256}, Status.RESIZE_LIMIT),
        ({"resize_short": 60000}, Status.RESIZE_LIMIT),
        ({"crop": (300, 300)}, Status.CROP_OUTSIDE),
        ({"crop": (0, 1)}, Status.CROP_OUTSIDE),
        ({"at": (400, 0)}, Status.CROP_OUTSIDE),
    ],
)
def test_impossible_settings_end_in_their_status_and_write_nothing(settings, status):
    done = units.image_cu(PHOTOS[0].jpeg, **settings)
    assert done.status == status and done.out_size == (0, 0) and (done.memory == 0xA5).all()


@pytest.mark.parametrize(
    ("data", "status"), [(b"", 1), (b"\xff", 1), (b"not a jpeg at all", 1), (PHOTOS[0].jpeg[:3000], 2)]
)
@pytest.mark.parametrize("stage", list(Stage))
def test_bad_files_end_in_decodes_status_at_every_stage(data, status, stage):
    assert units.image_cu(data, stage=stage).status == status


def test_a_run_leaves_nothing_behind_for_the_next():
    good, bad = PHOTOS[0].jpeg, PHOTOS[0].jpeg[:5000]
    first = units.image_cu(good, stage=1)
    assert units.image_cu(bad, stage=1).status == Status.TRUNCATED
    assert np.array_equal(units.image_cu(good, stage=1).memory, first.memory)
