"""Test that a resize has the bits of Pillow and of torchvision."""

import subprocess
import sys

import numpy as np
import PIL
import pytest
import torch
from hypothesis import example, given, reject
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

import headrace.host.workers.networks.models  # noqa: F401 (defines operators that torchvision needs)
from headrace.batching import UsageError
from headrace.host.dpu.processors import MAX_SIDE, Engine, Filter
from headrace.host.dpu.reference.resampler import BITS, TAP_LIMIT, WITH_TAPS, columns_first, resize, taps

OF_PILLOW = {
    Filter.BOX: Image.Resampling.BOX,
    Filter.BILINEAR: Image.Resampling.BILINEAR,
    Filter.HAMMING: Image.Resampling.HAMMING,
    Filter.BICUBIC: Image.Resampling.BICUBIC,
    Filter.LANCZOS: Image.Resampling.LANCZOS,
}
OF_TORCHVISION = {
    Filter.BILINEAR: InterpolationMode.BILINEAR,
    Filter.BICUBIC: InterpolationMode.BICUBIC,
    Filter.LANCZOS: InterpolationMode.LANCZOS,
}
INSTALLED = Engine.PILLOW13 if int(PIL.__version__.partition(".")[0]) >= 13 else Engine.PILLOW12
SIDES = st.one_of(st.integers(1, 24), st.integers(1, 320))


@st.composite
def images(draw):
    """Noise, black and white alone (which overshoots most), or one colour."""
    height, width = draw(SIDES), draw(SIDES)
    noise = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, (height, width, 3), dtype=np.uint8)
    kind = draw(st.sampled_from(("noise", "extremes", "flat")))
    if kind == "extremes":
        return np.where(noise > 127, 255, 0).astype(np.uint8)
    return np.full_like(noise, noise[0, 0]) if kind == "flat" else noise


def by_pillow(image, width, height, by):
    return np.asarray(Image.fromarray(image).resize((width, height), OF_PILLOW[by]))


def by_torchvision(image, width, height, by):
    planes = torch.from_numpy(image.transpose(2, 0, 1).copy())
    resized = functional.resize(planes, [height, width], OF_TORCHVISION[by], antialias=True)
    return resized.numpy().transpose(1, 2, 0)


@pytest.mark.parametrize("by", Filter)
@given(image=images(), width=SIDES, height=SIDES)
@example(image=np.full((400, 3, 3), 255, np.uint8), width=300, height=2)  # columns come first
def test_the_bits_are_pillows(by, image, width, height):
    assert np.array_equal(resize(image, width, height, by, INSTALLED), by_pillow(image, width, height, by))


@pytest.mark.parametrize("by", OF_TORCHVISION)
@given(image=images(), width=SIDES, height=SIDES)
def test_the_bits_are_torchvisions(by, image, width, height):
    try:
        expected = by_torchvision(image, width, height, by)
    except RuntimeError:  # an internal assertion of torch 2.13 fails for some images that are one pixel wide
        reject()
    assert np.array_equal(resize(image, width, height, by, Engine.TORCHVISION), expected)


@pytest.mark.slow
@pytest.mark.parametrize("by", Filter)
def test_two_thousand_sizes_have_the_libraries_bits(by):
    rng = np.random.default_rng(5)
    for _ in range(2000):
        rows, columns, height, width = (int(side) for side in rng.integers(2, rng.choice([40, 200, 700], 4) + 1))
        image = rng.integers(0, 256, (rows, columns, 3), dtype=np.uint8)
        assert np.array_equal(resize(image, width, height, by, INSTALLED), by_pillow(image, width, height, by))
        if by in OF_TORCHVISION:
            found = resize(image, width, height, by, Engine.TORCHVISION)
            assert np.array_equal(found, by_torchvision(image, width, height, by))


@pytest.mark.parametrize("by", [Filter.BICUBIC, Filter.LANCZOS])
def test_a_photo_of_a_camera_becomes_the_tile_that_libraries_make(by):
    image = np.random.default_rng(3).integers(0, 256, (1365, 2048, 3), dtype=np.uint8)
    assert np.array_equal(resize(image, 1092, 728, by, INSTALLED), by_pillow(image, 1092, 728, by))
    assert np.array_equal(resize(image, 1092, 728, by, Engine.TORCHVISION), by_torchvision(image, 1092, 728, by))


OLDER = """
import sys
import numpy as np
from PIL import Image
for name in sys.argv[1:]:
    case = np.load(name)
    width, height, by = (int(number) for number in case["to"])
    np.save(name + ".npy", np.asarray(Image.fromarray(case["image"]).resize((width, height), by)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("release", "engine"), [("12.1.1", Engine.PILLOW12), ("13.0.0", Engine.PILLOW13)])
def test_the_bits_are_those_of_a_release(release, engine, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv"], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", f"pillow=={release}"]
    subprocess.run(install, check=True, timeout=300)
    rng, cases = np.random.default_rng(8), []
    for number in range(200):
        by = list(Filter)[number % len(Filter)]
        rows, columns, height, width = (int(side) for side in rng.integers(1, 200, 4))
        path = tmp_path / f"{number}.npz"
        image = rng.integers(0, 256, (rows, columns, 3), dtype=np.uint8)
        np.savez(path, image=image, to=(width, height, OF_PILLOW[by]))
        cases.append((path, image, width, height, by))
    subprocess.run([python, "-c", OLDER, *(case[0] for case in cases)], check=True, timeout=300)
    for path, image, width, height, by in cases:
        assert np.array_equal(np.load(f"{path}.npy"), resize(image, width, height, by, engine)), (width, height, by)


def test_the_middle_of_hammings_window_is_one():
    """Its constants add up to more than 1, and then a tap of this pass would be one unit less."""
    assert taps(99, 3, Filter.HAMMING, Engine.PILLOW13).weights[0, 13] == 155083


def test_columns_come_first_in_pillow_13_alone_and_only_where_that_saves_work():
    assert columns_first(3, 400, 300, 2, Engine.PILLOW13)
    assert not columns_first(3, 400, 300, 2, Engine.PILLOW12)
    assert not columns_first(3, 400, 300, 2, Engine.TORCHVISION)
    assert not columns_first(300, 400, 100, 2, Engine.PILLOW13)  # the height shrinks by 398, the width by 200
    assert columns_first(300, 402, 101, 2, Engine.PILLOW13)
    assert not columns_first(100, 40, 300, 40, Engine.PILLOW13)


@pytest.mark.parametrize("by", Filter)
@given(source=st.integers(1, 5000), target=st.integers(1, 5000))
def test_taps_lie_within_the_image_and_add_up_to_one(by, source, target):
    for engine in WITH_TAPS:
        found = taps(source, target, by, engine)
        assert found.first.min() >= 0 and (found.first + found.counts).max() <= source and found.counts.min() >= 1
        assert (np.diff(found.first) >= 0).all()  # so a unit may stream
        beyond = np.arange(found.weights.shape[1]) >= found.counts[:, None]
        assert not found.weights[beyond].any()
        assert abs(found.weights.sum(1) - (1 << found.bits)).max() <= found.weights.shape[1]
        highest = 255 * int(np.maximum(found.weights, 0).sum(1).max()) + (1 << (found.bits - 1))
        assert highest < 1 << 31  # accumulators are 31 bits and sign
        if engine is Engine.TORCHVISION:
            assert abs(found.weights).max() < TAP_LIMIT and 1 <= found.bits <= BITS
        else:
            assert found.bits == BITS


@pytest.mark.parametrize(("source", "target"), [(0, 5), (5, 0), (MAX_SIDE + 1, 5), (5, MAX_SIDE + 1)])
def test_sizes_outside_the_range_are_refused(source, target):
    with pytest.raises(UsageError, match=f"give 1 to {MAX_SIDE}"):
        taps(source, target, Filter.BICUBIC, Engine.PILLOW13)


def test_an_image_of_the_same_size_is_left_as_it_is():
    image = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    assert np.array_equal(resize(image, 7, 9, Filter.LANCZOS, Engine.TORCHVISION), image)
