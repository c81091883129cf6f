"""Sixty small files through decode's C++ against OpenCV, for `make check`; test_decode and test_progressive go further.

Baseline files have each sampling with sizes around the edges of MCUs, restart intervals and optimised tables.
Progressive ones have each sampling twice, and scripts of scans. Of what is refused, each status has a file.
"""

from itertools import product

import numpy as np
import pytest
from scan_script import Scan, libjpeg_script, random_image, to_jpeg
from test_decode import REFUSED, SAMPLINGS, STATUS, csim_decode, encode, golden, picture
from test_progressive import assert_equal_to_opencv
from test_progressive import encode as encode_progressive

# Width, height, quality, optimised tables, restart interval.
BASELINE = [
    (1, 1, 90, False, 0),
    (16, 16, 30, True, 0),
    (17, 33, 75, False, 1),
    (83, 61, 95, True, 7),
    (130, 9, 5, False, 2),
]
PROGRESSIVE = [(40, 40, 75, 0), (57, 23, 95, 3)]
SEQUENTIAL = {"one by one": [Scan((c,)) for c in range(3)], "chroma together": [Scan((0,)), Scan((1, 2))]}
ONE_OF_EACH_STATUS = {status: name for name, (status, _) in reversed(REFUSED.items())}


@pytest.mark.parametrize(("sampling", "kind"), list(product((*SAMPLINGS, "gray"), BASELINE)))
def test_baseline_files_equal_opencv(sampling, kind):
    width, height, quality, optimize, restart = kind
    image = picture(np.random.default_rng(width), width, height, 1 if sampling == "gray" else 3)
    jpeg = encode(image, quality, "4:2:0" if sampling == "gray" else sampling, optimize, restart)
    status, *size, rgb = csim_decode(jpeg)
    assert (status, size) == (STATUS["OK"], [width, height])
    np.testing.assert_array_equal(rgb[: 3 * width * height].reshape(height, width, 3), golden(jpeg))


@pytest.mark.parametrize(("sampling", "kind"), list(product(SAMPLINGS, PROGRESSIVE)))
def test_progressive_files_equal_opencv(sampling, kind):
    width, height, quality, restart = kind
    assert_equal_to_opencv(
        encode_progressive(picture(np.random.default_rng(height), width, height), quality, sampling, restart)
    )


@pytest.mark.parametrize("sampling", ["4:2:0", "4:1:0", "4x2 1x1 1x1", "2x2 1x2 1x1"])
def test_scans_by_a_script_equal_opencv(sampling):
    assert_equal_to_opencv(to_jpeg(random_image(np.random.default_rng(3), 45, 37, sampling), libjpeg_script(3)))


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_sequential_scans_equal_opencv(name):
    image = random_image(np.random.default_rng(4), 50, 30, "4:2:0")
    assert_equal_to_opencv(to_jpeg(image, SEQUENTIAL[name], progressive=False))


@pytest.mark.parametrize("status", ONE_OF_EACH_STATUS)
def test_a_file_that_cannot_be_decoded_ends_in_its_status(status):
    _, build = REFUSED[ONE_OF_EACH_STATUS[status]]
    assert csim_decode(build())[0] == STATUS[status]
