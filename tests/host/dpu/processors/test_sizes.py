"""Test that the sizes of images follow the rules of transformers, by its own functions, and hold what they promise."""

import numpy as np
import pytest
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from transformers.image_transforms import get_resize_output_image_size
from transformers.models.gemma4 import image_processing_gemma4 as gemma4
from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics3

from headrace.batching import UsageError
from headrace.host.dpu.processors import (
    EvenLongestSide,
    LongestSide,
    ShortestEdge,
    Size,
    SmartResize,
    SoftTokens,
    Within,
)

SIDES = st.one_of(st.integers(1, 40), st.integers(1, 3000))
SOURCES = st.builds(Size, SIDES, SIDES)


@given(width=st.integers(1, 3000), height=st.integers(1, 3000), multiple=st.integers(1, 64), few=st.integers(1, 500))
def test_a_smart_resize_gives_multiples_within_its_bounds(width, height, multiple, few):
    rule = SmartResize(multiple, few * multiple**2, 4 * few * multiple**2)
    if max(width, height) > 200 * min(width, height):
        with pytest.raises(UsageError):
            rule.of(Size(width, height))
        return
    size = rule.of(Size(width, height))
    assert size.width % multiple == 0 and size.height % multiple == 0 and min(size) >= multiple
    assert size.width * size.height >= rule.min_pixels
    if min(size) > multiple:  # a side that cannot be smaller may leave the image above the bound
        assert size.width * size.height <= rule.max_pixels


@given(source=SOURCES, pixels=st.integers(1, 3000))
def test_the_shortest_edge_is_that_of_transformers(source, pixels):
    image = np.broadcast_to(np.uint8(0), (3, source.height, source.width))
    theirs = get_resize_output_image_size(
        image, size=pixels, default_to_square=False, input_data_format="channels_first"
    )
    assert ShortestEdge(pixels).of(source) == (theirs[1], theirs[0])


@given(source=SOURCES, pixels=st.integers(1, 4096))
@example(source=Size(7, 7), pixels=333)
@example(source=Size(3000, 1), pixels=1456)
def test_the_even_longest_side_is_that_of_idefics3(source, pixels):
    image = np.broadcast_to(np.uint8(0), (3, source.height, source.width))
    height, width = idefics3.get_resize_output_image_size(image, resolution_max_side=pixels)
    assert EvenLongestSide(pixels).of(source) == (width, height)


@given(source=SOURCES, tokens=st.sampled_from([70, 140, 280, 560, 1120]), merge=st.integers(1, 4))
@example(source=Size(3000, 1), tokens=70, merge=3)
@example(source=Size(1, 3000), tokens=280, merge=3)
def test_soft_tokens_are_those_of_gemma4(source, tokens, merge):
    height, width = gemma4.get_aspect_ratio_preserving_size(
        source.height, source.width, patch_size=16, max_patches=tokens * merge**2, pooling_kernel_size=merge
    )
    size = SoftTokens(16 * merge, tokens).of(source)
    assert size == (width, height)
    assert size.width * size.height <= tokens * (16 * merge) ** 2


@given(source=SOURCES, box=st.builds(Size, st.integers(1, 300), st.integers(1, 300)))
def test_an_image_shrinks_into_the_box_of_donut(source, box):
    """The real thumbnail of transformers resizes zeros here, and only its size counts."""
    resized = ShortestEdge(min(box)).of(source)
    image = np.zeros((3, resized.height, resized.width), np.uint8)
    size = Within(box).of(resized)
    assert size.width <= box.width and size.height <= box.height
    if min(size) == 0 or resized.width * resized.height > 1_000_000:
        return
    theirs = transformers.DonutImageProcessorPil()
    found = theirs.thumbnail(image, transformers.image_utils.SizeDict(height=box.height, width=box.width))
    assert found.shape[1:] == (size.height, size.width)


@given(source=SOURCES, pixels=st.integers(1, 1000), least=st.integers(1, 1000))
def test_the_longest_side_has_its_pixels_and_the_other_one_the_aspect(source, pixels, least):
    least = min(least, pixels)
    near, down = LongestSide(pixels, least).of(source), LongestSide(pixels, least, down=True).of(source)
    assert max(near) == max(down) == pixels
    assert min(near) >= least and min(down) >= least
    shorter = pixels * min(source) / max(source)
    assert min(near) == least or abs(min(near) - shorter) <= 0.5 + 1e-9
    assert min(down) == least or shorter - 1 - 1e-9 <= min(down) <= shorter + 1e-9
