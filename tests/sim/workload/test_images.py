import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.workload.images import draw, parse_sizes, read_images

HEADER = "width,height\n"


def test_pixels_are_read_whatever_other_columns_there_are(tmp_path):
    file = tmp_path / "images.csv"
    file.write_text("name,height,width\na.jpg,375,500\nb.jpg,1,2\n")
    assert read_images(file).pixels.tolist() == [187_500.0, 2.0]


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
            pixels = read_images(file).pixels
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


def test_a_file_may_have_weights_and_bytes(tmp_path):
    file = tmp_path / "images.csv"
    file.write_text("width,height,weight,file_bytes\n500,375,3,90000\n4032,3024,0.5,4000000\n")
    sizes = read_images(file)
    assert (sizes.weight.tolist(), sizes.file_bytes.tolist()) == ([3.0, 0.5], [90_000.0, 4_000_000.0])
    file.write_text(HEADER + "500,375\n")
    assert (read_images(file).weight.tolist(), read_images(file).file_bytes) == ([1.0], None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("width,height,weight\n1,1,0\n", "line 2: a weight of 0; give a number above 0"),
        ("width,height,weight\n1,1,nan\n", "line 2: a weight of nan"),
        ("width,height,file_bytes\n1,1,5\n1,1,0\n", "line 3: file_bytes must be 1 to"),
        ("width,height,file_bytes\n1,1,5\n1,1,\n", "line 3: file_bytes must be 1 to .* in every row, or in none"),
        ("width,height,file_bytes\n1,1,\n1,1,5\n", "line 3: file_bytes"),
    ],
)
def test_broken_weights_and_bytes_are_refused_with_the_line(tmp_path, text, message):
    file = tmp_path / "images.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_images(file)


def test_sizes_have_weights_of_1_if_they_have_none():
    sizes = parse_sizes("500x375, 1024x768:2,4032x3024:0.5")
    assert sizes.width.tolist() == [500, 1024, 4032] and sizes.height.tolist() == [375, 768, 3024]
    assert sizes.weight.tolist() == [1, 2, 0.5]


@pytest.mark.parametrize("text", ["", "500", "500x", "500x375,", "500x375:", "5e2x375", "-1x5", "500x375:1:1", "1x2.5"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UsageError, match="is no size of an image; give sizes such as 500x375,1024x768:2"):
        parse_sizes(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0x5", "give 1 to 100000000 pixels"),
        ("20000x20000", "give 1 to"),
        ("5x5:0", "a weight of 0; give a number above 0"),
    ],
)
def test_impossible_sizes_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse_sizes(text)


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    st.lists(st.integers(0, 50), max_size=10),
    st.integers(0, 99),
)
def test_weighted_images_drawn_in_blocks_are_those_drawn_at_once(weights, blocks, seed):
    images = np.arange(len(weights), dtype=np.float64)
    one, many = np.random.default_rng(seed), np.random.default_rng(seed)
    whole = draw(images, sum(blocks), one, np.array(weights))
    parts = [draw(images, block, many, np.array(weights)) for block in blocks]
    assert whole.tolist() == np.concatenate([np.empty(0), *parts]).tolist()


@given(st.lists(st.floats(0.05, 20), min_size=2, max_size=5), st.integers(0, 99))
def test_the_shares_of_images_are_those_of_their_weights(weights, seed):
    drawn = draw(np.arange(len(weights), dtype=float), 20_000, np.random.default_rng(seed), np.array(weights))
    for number, share in enumerate(np.array(weights) / sum(weights)):
        assert abs((drawn == number).mean() - share) < 6 * math.sqrt(share * (1 - share) / len(drawn)) + 1e-9
