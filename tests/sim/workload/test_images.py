import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.workload.images import draw, read_images

HEADER = "width,height\n"


def test_pixels_are_read_whatever_other_columns_there_are(tmp_path):
    file = tmp_path / "images.csv"
    file.write_text("name,height,width\na.jpg,375,500\nb.jpg,1,2\n")
    assert read_images(file).tolist() == [187_500.0, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the header lacks width, height; it must be width,height"),
        ("width\n1\n", "lacks height"),
        (HEADER, "has no images"),
        (HEADER + "1,2\nx,1\n", "line 3: invalid literal"),
        (HEADER + "1\n", "line 2"),
        (HEADER + "1.5,1\n", "line 2: invalid literal"),
        (HEADER + "0,1\n", "line 2: an image of 0x1; give 1 to 100000000 pixels"),
        (HEADER + "-2,-2\n", "line 2: an image of -2x-2"),
        (HEADER + "10001,10000\n", "line 2: an image of 10001x10000"),
        (HEADER + "9" * 5000 + ",1\n", "line 2: Exceeds the limit"),
        (HEADER + '1,"2\n', "unexpected end"),
    ],
    ids=lambda text: text[:30],
)
def test_a_broken_file_is_refused_with_the_line(tmp_path, text, message):
    file = tmp_path / "images.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        read_images(file)
    assert str(file) in str(error.value)


@given(body=st.binary(max_size=200))
def test_any_bytes_are_photos_or_are_refused(body, tmp_path_factory):
    file = tmp_path_factory.mktemp("fuzz") / "file"
    for head in (b"", HEADER.encode()):
        file.write_bytes(head + body)
        try:
            pixels = read_images(file)
        except UsageError as error:
            assert str(file) in str(error)
        else:
            assert len(pixels) and pixels.min() >= 1


@given(
    st.lists(st.integers(1, 10**8), min_size=1, max_size=20),
    st.lists(st.integers(0, 50), max_size=10),
    st.integers(0, 99),
)
def test_photos_drawn_in_blocks_are_those_drawn_at_once(sizes, blocks, seed):
    images = np.array(sizes, np.float64)
    one, many = np.random.default_rng(seed), np.random.default_rng(seed)
    whole = draw(images, sum(blocks), one)
    parts = [draw(images, block, many) for block in blocks]
    assert whole.tolist() == np.concatenate([np.empty(0), *parts]).tolist()
    assert set(whole.tolist()) <= set(images.tolist())


def test_each_photo_is_as_likely_as_the_others():
    images = np.array([1.0, 10.0, 100.0])
    drawn = draw(images, 30_000, np.random.default_rng(1))
    off = 4 * images.std() / math.sqrt(len(drawn))
    assert abs(drawn.mean() - images.mean()) < off
