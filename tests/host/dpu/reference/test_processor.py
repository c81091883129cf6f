"""Test that a processor's tensors are those of transformers, to the bit, with both of its back ends."""

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import headrace.host.workers.networks.models  # noqa: F401 (defines operators that torchvision needs)
from headrace.batching import UsageError
from headrace.host.dpu.hugging_face import CLASSES, from_hf
from headrace.host.dpu.processors import (
    Engine,
    MergedPatches,
    PaddedPatches,
    PatchImages,
    Planes,
    Size,
    StackedTiles,
    TileRows,
)
from headrace.host.dpu.reference.processor import cropped, laid_out, process

ENGINES = {Engine.TORCHVISION: "", Engine.PILLOW13: "Pil"}  # with the ending of the class
SIZES = [
    (640, 427),
    (299, 450),
    (100, 91),
    (61, 333),
    (224, 224),
    (801, 600),
    (33, 57),
    (512, 200),
    (20, 24),
    (20, 100),
    (100, 13),
]

# Other settings than those of the class, which change what it does.
SETTINGS = {
    "CLIPImageProcessor": [
        {"size": {"shortest_edge": 97}, "crop_size": {"height": 121, "width": 90}},
        {"do_center_crop": False, "do_normalize": False, "resample": 1},
        {"do_rescale": False, "do_normalize": False, "resample": 2},
        {"do_rescale": False},
        {"do_resize": False, "rescale_factor": 0.01},
    ],
    "SiglipImageProcessor": [{"size": {"height": 384, "width": 378}, "image_mean": [0.1, 0.2, 0.3]}],
    "ViTImageProcessor": [{"size": {"height": 33, "width": 65}, "resample": 1}],
    "ConvNextImageProcessor": [{"size": {"shortest_edge": 224}}, {"size": {"shortest_edge": 200}, "crop_pct": 0.95}],
    "Qwen2VLImageProcessor": [
        {"size": {"shortest_edge": 256 * 256, "longest_edge": 300 * 300}, "patch_size": 16, "image_mean": [0.5] * 3},
        {"size": {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 9}, "merge_size": 1, "temporal_patch_size": 1},
    ],
}
SETTINGS["Glm4vImageProcessor"] = [
    {"size": {"shortest_edge": 200 * 200, "longest_edge": 300 * 300}, "patch_size": 16, "temporal_patch_size": 1},
]
SETTINGS["PaddleOCRVLImageProcessor"] = [{"size": {"shortest_edge": 28 * 28, "longest_edge": 200 * 200}}]
SETTINGS["Siglip2ImageProcessor"] = [{"max_num_patches": 60, "patch_size": 14}]
SETTINGS["PixtralImageProcessor"] = [
    {"size": {"longest_edge": 200}, "patch_size": {"height": 14, "width": 28}},
    {"size": {"height": 100, "width": 300}},
]
SETTINGS["JanusImageProcessor"] = [
    {"do_pad": False},
    {"size": {"height": 200, "width": 200}, "image_mean": [0.2, 0.5, 0.9]},
]
SETTINGS["LlavaNextImageProcessor"] = [
    {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},  # as published models have it
    {"size": {"height": 98, "width": 98}, "crop_size": 98, "image_grid_pinpoints": [[98, 196], [196, 98], [196, 294]]},
]
SETTINGS["LlavaOnevisionImageProcessor"] = [
    {"size": {"height": 112, "width": 112}, "image_grid_pinpoints": [[112, 112], [224, 224], [336, 112]]},
]
SETTINGS["GotOcr2ImageProcessor"] = [
    {"crop_to_patches": True, "size": {"height": 90, "width": 60}},
    {"crop_to_patches": True, "size": {"height": 60, "width": 60}, "min_patches": 3, "max_patches": 5},
    {"crop_to_patches": True, "size": {"height": 50, "width": 50}, "max_patches": 1},
]
CASES = [(name, {}) for name in CLASSES if name != "LlavaNextImageProcessor"] + [
    (name, each) for name, many in SETTINGS.items() for each in many
]


def picture(width, height, seed=0):
    """Return smooth colours with noise, as photos have."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 7, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    return np.clip(smooth + rng.integers(-30, 31, smooth.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("sizes", [SIZES[::3], pytest.param(SIZES, marks=pytest.mark.slow)], ids=["few", "all"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_tensors_are_those_of_transformers(name, settings, engine, sizes):
    theirs = getattr(transformers, name + ENGINES[engine])(**settings)
    spec = from_hf({"image_processor_type": name, **settings}, engine)
    for number, size in enumerate(sizes):
        image = picture(*size, number)
        if settings.get("do_resize") is False:
            image = picture(*SIZES[0], number)
        expected = theirs(Image.fromarray(image), return_tensors="np")
        found = process(image, spec)
        assert set(found) == set(expected)
        for key, values in found.items():
            assert values.dtype == expected[key].dtype and np.array_equal(values, expected[key]), (size, key)


@pytest.mark.parametrize("resample", [4, 5])
def test_filters_of_pillow_alone_are_those_of_its_path_and_no_torchvisions(resample):
    settings = {"image_processor_type": "ViTImageProcessor", "resample": resample}
    theirs, image = transformers.ViTImageProcessorPil(resample=resample), picture(301, 200)
    found = process(image, from_hf(settings, Engine.PILLOW13))["pixel_values"]
    assert np.array_equal(found, theirs(Image.fromarray(image), return_tensors="np")["pixel_values"])
    with pytest.raises(UsageError, match=r"torchvision has no filter .*; choose the engine pillow13"):
        from_hf(settings)


@given(width=st.integers(1, 40), height=st.integers(1, 40), crop=st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_a_crop_has_the_middle_and_zeros_around_it(width, height, crop):
    image = np.full((height, width, 3), 7, np.uint8)
    for engine in ENGINES:
        found = cropped(image, Size(*crop), engine)
        assert found.shape == (crop[1], crop[0], 3)
        assert int((found == 7).all(2).sum()) == min(width, crop[0]) * min(height, crop[1])


LAYOUTS = st.one_of(
    st.builds(MergedPatches, st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    st.builds(PatchImages, st.integers(1, 3), st.integers(1, 2)),
    st.builds(PaddedPatches, st.integers(1, 3), st.just(40)),
    st.builds(Planes, st.booleans()),
    st.builds(StackedTiles, st.booleans()),
    st.just(TileRows()),
)


@given(down=st.integers(1, 3), across=st.integers(1, 3), by=LAYOUTS)
def test_every_value_is_in_one_place_for_each_frame(down, across, by):
    multiple = getattr(by, "side", 1) * getattr(by, "merge", 1)
    planes = np.arange(1, 1 + 3 * down * across * multiple**2).reshape(3, down * multiple, across * multiple)
    values = laid_out(planes[None], by, Size(1, 1))["pixel_values"]
    there = values[values > 0]  # the rest is padding
    assert np.array_equal(np.sort(there), np.repeat(np.arange(1, 1 + planes.size), getattr(by, "frames", 1)))


@pytest.mark.parametrize(
    ("size", "told"),
    [((1, 201), "1x201 is too long for this processor"), ((9000, 9000), "CLIPImageProcessor .* to 9000x9000")],
)
def test_an_image_that_the_processor_does_not_take_is_refused(size, told):
    name = "Qwen2VLImageProcessor" if size[0] == 1 else "CLIPImageProcessor"
    spec = from_hf({"image_processor_type": name} | ({"do_resize": False} if size[0] > 1 else {}))
    with pytest.raises(UsageError, match=told):
        process(np.zeros((size[1], size[0], 3), np.uint8), spec)
