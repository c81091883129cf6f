"""normalize x {csim, rtlsim}: numpy's (x / 255 - mean) / std bit for bit, through the host's tables."""

import numpy as np
import pytest
from units import RTLSIM, on_both

from headrace.host.dpu.specs import ImageSpec
from headrace.host.dpu.units.status import Status
from headrace.sim.hardware.dpu.image import normalize_cycles

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 51, 3), np.uint8)


@on_both
def test_float32_is_numpys_formula_bit_for_bit(units):
    every = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    status, words = units.normalize(every, ImageSpec().tables().view(np.uint32))
    expected = (every.astype(np.float32) / 255 - mean) / std
    assert status == Status.OK and np.array_equal(words, expected.view(np.uint32))


@on_both
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_each_channel_has_its_own_table(units, dtype):
    tables = ImageSpec(dtype=dtype, mean=(0.1, 0.5, 0.9), std=(1.0, 0.5, 0.1)).tables()
    words = tables.view(f"u{tables.itemsize}").astype(np.uint32)
    for image in (IMAGE, IMAGE[:, :50], IMAGE[:, :1], IMAGE[:1, :2]):
        status, out = units.normalize(image, words)
        assert status == Status.OK
        for channel in range(3):
            assert np.array_equal(out[..., channel], words[channel][image[..., channel]])


@on_both
def test_an_early_end_passes_its_status_on(units):
    assert units.normalize(IMAGE, np.zeros((3, 256)), end_status=Status.TRUNCATED)[0] == Status.TRUNCATED


@pytest.mark.parametrize("width", [1, 2, 50, 51])
def test_clocks_are_those_of_the_cycle_model(width):
    assert RTLSIM.normalize(IMAGE[:, :width], np.zeros((3, 256)))[0] == Status.OK
    assert RTLSIM.clocks.cycles == pytest.approx(normalize_cycles(width, 40), rel=0.02)
