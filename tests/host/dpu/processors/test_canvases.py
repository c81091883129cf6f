"""Test that canvases, and the images on them, are those of transformers, by its own functions."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples
from transformers import image_processing_utils as llava
from transformers.image_utils import SizeDict
from transformers.models.cohere2_vision import image_processing_cohere2_vision as cohere2
from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics3
from transformers.models.llama4 import image_processing_llama4 as llama4
from transformers.models.mllama import image_processing_pil_mllama as mllama
from transformers.models.ovis2 import image_processing_pil_ovis2 as ovis2

import headrace.host.workers.networks.models  # noqa: F401 (defines operators that torchvision needs)
from headrace.batching import UsageError
from headrace.host.dpu.processors import (
    ClosestCanvas,
    CoveringCanvas,
    Fit,
    GridCanvas,
    ListedCanvas,
    MultiplesCanvas,
    Size,
)

SIDES = st.one_of(st.integers(1, 40), st.integers(1, 3000))
SOURCES = st.builds(Size, SIDES, SIDES)
MANY = examples(120, 300)


def square(side):
    return Size(side, side)


@MANY
@given(source=SOURCES, side=st.integers(1, 700), high=st.integers(1, 16))
def test_the_canvas_of_mllama(source, side, high):
    canvas = mllama.get_optimal_tiled_canvas(source.height, source.width, high, side)
    size = mllama.get_image_size_fit_to_canvas(source.height, source.width, *canvas, side)
    rule = ClosestCanvas(high, Fit.INNER)
    assert rule.of(source, square(side)) == canvas[::-1]
    assert rule.fitted(source, Size(*map(int, canvas[::-1])), square(side)) == size[::-1]


@MANY
@given(source=SOURCES, side=st.integers(1, 700), high=st.integers(1, 24))
def test_the_canvas_of_cohere(source, side, high):
    grid = cohere2.get_optimal_tiled_canvas(source[::-1], (side, side), 1, high)
    assert ClosestCanvas(high, Fit.STRETCHED).of(source, square(side)) == (grid[0] * side, grid[1] * side)


def of_llama4(source, side, high, largest):
    """The canvas, and the size of the image by the two functions that its processor calls."""
    listed = torch.tensor(llama4.find_supported_resolutions(high, SizeDict(height=side, width=side)))
    canvas = llama4.get_best_fit(source[::-1], listed, resize_to_max_canvas=largest)
    limit = canvas if largest else tuple(min(max(source[1 - n], side), canvas[n]) for n in range(2))
    height, width = llama4.get_max_res_without_distortion(source[::-1], limit)
    return (int(canvas[1]), int(canvas[0])), (max(int(width), 1), max(int(height), 1))


@MANY
@given(source=SOURCES, side=st.integers(1, 700), high=st.integers(1, 20), largest=st.booleans())
@example(source=Size(336, 336), side=336, high=16, largest=False)
@example(source=Size(2999, 1), side=336, high=16, largest=False)
def test_the_canvas_of_llama4(source, side, high, largest):
    canvas, size = of_llama4(source, side, high, largest)
    rule = ClosestCanvas(high, Fit.FULL if largest else Fit.INNER, single=True, largest=largest)
    assert rule.of(source, square(side)) == canvas
    assert rule.fitted(source, Size(*canvas), square(side)) == size


@pytest.mark.parametrize("source", [Size(2686, 1896), Size(861, 2460), Size(2880, 960), Size(1557, 2768)])
def test_the_sides_of_llama4_have_single_precision(source):
    """In double precision, images of these sizes would be a pixel larger or smaller."""
    single, double = (ClosestCanvas(16, Fit.INNER, single=each) for each in (True, False))
    canvas, size = of_llama4(source, 336, 16, False)
    assert single.fitted(source, Size(*canvas), square(336)) == size
    assert double.fitted(source, Size(*canvas), square(336)) != size


CANVASES = st.lists(st.builds(Size, st.integers(1, 1500), st.integers(1, 1500)), min_size=1, max_size=6)


@MANY
@given(source=SOURCES, canvases=CANVASES)
@example(source=Size(1, 3000), canvases=[Size(672, 672), Size(336, 672)])  # no pixel of it is held
@example(source=Size(100, 100), canvases=[Size(900, 900), Size(300, 200), Size(200, 300)])  # all of them are held
def test_the_canvas_of_llava(source, canvases):
    image = np.broadcast_to(np.uint8(0), (3, source.height, source.width))
    best = llava.select_best_resolution(source[::-1], [each[::-1] for each in canvases])
    height, width = llava.get_patch_output_size(image, best, "channels_first")
    rule = ListedCanvas(tuple(canvases))
    assert rule.of(source, square(1)) == best[::-1]
    assert rule.fitted(source, Size(best[1], best[0]), square(1)) == (width, height)


@MANY
@given(source=SOURCES, side=st.integers(1, 700), high=st.integers(1, 16))
def test_the_covering_canvas_of_ovis2(source, side, high):
    grid = ovis2.get_min_tile_covering_grid(source[::-1], side, high)
    assert CoveringCanvas(high).of(source, square(side)) == (grid[0] * side, grid[1] * side)


@MANY
@given(
    source=SOURCES,
    tile=st.builds(Size, st.integers(1, 500), st.integers(1, 500)),
    low=st.integers(1, 12),
    more=st.integers(0, 12),
)
@example(source=Size(200, 200), tile=Size(100, 200), low=1, more=7)  # exactly half the pixels of four tiles
@example(source=Size(201, 201), tile=Size(100, 200), low=1, more=7)
@example(source=Size(3000, 1), tile=Size(100, 100), low=7, more=0)
def test_the_grid_canvas_of_ovis2(source, tile, low, more):
    high = low + more
    grid = ovis2.get_optimal_tiled_canvas(source[::-1], tile[::-1], low, high)
    assert GridCanvas(low, high).of(source, tile) == (grid[0] * tile.width, grid[1] * tile.height)


@given(source=st.builds(Size, st.integers(1, 400), st.integers(1, 400)), side=st.integers(1, 128))
@example(source=Size(400, 1), side=128)
@example(source=Size(3, 400), side=7)
def test_the_canvas_of_idefics3(source, side):
    image = np.zeros((3, source.height, source.width), np.uint8)
    try:
        canvas = MultiplesCanvas(64).of(source, square(side))
    except UsageError:
        return
    theirs = idefics3.Idefics3ImageProcessorPil().resize_for_vision_encoder(image, side)
    assert canvas == (theirs.shape[2], theirs.shape[1])


@given(source=SOURCES, side=st.integers(1, 300), high=st.integers(1, 64))
def test_multiples_hold_the_longer_side_or_are_too_many(source, side, high):
    try:
        canvas = MultiplesCanvas(high).of(source, square(side))
    except UsageError as error:
        assert f"1 to {high} are possible" in str(error)
        return
    longer = 0 if source.width >= source.height else 1
    assert 0 <= canvas[longer] - source[longer] < side
    assert canvas.width * canvas.height <= high * side**2


@pytest.mark.parametrize("fit", Fit)
@given(source=SOURCES, side=st.integers(1, 500), high=st.integers(1, 16), single=st.booleans())
def test_an_image_fits_on_its_canvas(fit, source, side, high, single):
    rule = ClosestCanvas(high, fit, single=single)
    canvas = rule.of(source, square(side))
    size = rule.fitted(source, canvas, square(side))
    assert 1 <= size.width <= canvas.width and 1 <= size.height <= canvas.height
    assert canvas.width % side == canvas.height % side == 0
    assert canvas.width * canvas.height <= high * side**2
    assert fit is not Fit.STRETCHED or size == canvas
