"""normalize x csim: numpy's (x / 255 - mean) / std bit for bit, through the host's tables."""

import numpy as np
import pytest
import units

from headrace.host.image import ImageSpec
from headrace.host.status import Status

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)


def test_float32_is_numpys_formula_bit_for_bit():
    every = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    status, words = units.normalize(every, ImageSpec().tables().view(np.uint32))
    expected = (every.astype(np.float32) / 255 - mean) / std
    assert status == Status.OK and np.array_equal(words, expected.view(np.uint32))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_each_channel_has_its_own_table(dtype):
    tables = ImageSpec(dtype=dtype, mean=(0.1, 0.5, 0.9), std=(1.0, 0.5, 0.1)).tables()
    words = tables.view(f"u{tables.itemsize}").astype(np.uint32)
    status, out = units.normalize(IMAGE, words)
    assert status == Status.OK
    for channel in range(3):
        assert np.array_equal(out[..., channel], words[channel][IMAGE[..., channel]])


def test_an_early_end_passes_its_status_on():
    assert units.normalize(IMAGE, np.zeros((3, 256)), end_status=Status.TRUNCATED)[0] == Status.TRUNCATED
