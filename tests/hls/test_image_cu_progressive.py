"""image_cu x csim with a workspace: files of several scans through the compute unit against OpenCV and numpy."""

import cv2
import numpy as np
import pytest
import units
from test_image_cu import check
from test_progressive import encode, picture

from headrace.host.dpu.image import FORMATS, ImageSpec, Stage
from headrace.host.dpu.status import Status


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0"])
@pytest.mark.parametrize("dtype", FORMATS)
def test_a_progressive_file_becomes_opencvs_tensor(sampling, dtype):
    jpeg = encode(picture(np.random.default_rng(1), 300, 200), 80, sampling)
    check(
        units.image_cu, jpeg, ImageSpec(resize_short=100, crop_width=70, crop_height=60, dtype=dtype), Stage.NORMALIZE
    )


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_can_be_the_last(stage):
    jpeg = encode(picture(np.random.default_rng(2), 150, 230), 90, restart=3)
    check(units.image_cu, jpeg, ImageSpec(resize_short=100, crop_width=50, crop_height=60), stage)


def test_a_workspace_that_is_too_small_is_told_apart_from_the_tensor():
    jpeg = encode(picture(np.random.default_rng(3), 160, 160), 90, "4:4:4")
    needed = 3 * 160 * 160 * 2
    for workspace_bytes in (16, needed - 16):
        small = units.image_cu(jpeg, stage=0, workspace_bytes=workspace_bytes)
        assert (small.status, small.out_size, small.bytes) == (Status.BUFFER_TOO_SMALL, (0, 0), needed)
        assert (small.memory == 0xA5).all()
    tensor = units.image_cu(jpeg, stage=0, capacity=1000, workspace_bytes=needed)
    assert (tensor.status, tensor.out_size, tensor.bytes) == (Status.BUFFER_TOO_SMALL, (160, 160), 3 * 160 * 160)
    assert units.image_cu(jpeg, stage=0, workspace_bytes=needed).status == Status.OK


def test_without_a_workspace_progressive_files_are_refused_and_others_taken():
    image = picture(np.random.default_rng(4), 60, 50)
    assert units.image_cu(encode(image), stage=0, workspace_bytes=0).status == Status.PROGRESSIVE
    assert units.image_cu(cv2.imencode(".jpg", image)[1].tobytes(), stage=0, workspace_bytes=0).status == Status.OK
