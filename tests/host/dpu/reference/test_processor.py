"""Test that a processor's tensors are those of transformers, to the bit, with each of its back ends."""

import cv2
import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from like_transformers import ENGINES, check, engines, picture
from PIL import Image

from headrace.batching import UnsupportedInput, UsageError
from headrace.host.dpu.hugging_face.names import names, processor
from headrace.host.dpu.hugging_face.reading import CLASSES, from_hf
from headrace.host.dpu.processors import (
    Engine,
    Images,
    MergedPatches,
    PaddedPatches,
    PatchImages,
    Placement,
    Size,
)
from headrace.host.dpu.processors.spec import Crop
from headrace.host.dpu.reference.processor import forms, laid_out, process, tiled
from headrace.host.dpu.units.program import program

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
    (1, 1),
    (900, 30),
    (7, 300),
    (1024, 1025),
]
QUICK = [(640, 427), (33, 57), (1, 1), (900, 30)]

# Other settings than those of the class, which change what it does.
SETTINGS = {
    "CLIPImageProcessor": [
        {"size": {"shortest_edge": 97}, "crop_size": {"height": 121, "width": 90}},
        {"do_center_crop": False, "do_normalize": False, "resample": 1},
        {"do_rescale": False, "do_normalize": False, "resample": 2},
        {"do_rescale": False},
        {"do_resize": False, "rescale_factor": 0.01},
    ],
    "BitImageProcessor": [{"size": 97}, {"size": 97, "default_to_square": True, "do_center_crop": False}],
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
SETTINGS["Glm46VImageProcessor"] = SETTINGS["Glm4vImageProcessor"]
SETTINGS["LlavaImageProcessor"] = [{"size": {"shortest_edge": 97}, "crop_size": {"height": 121, "width": 90}}]
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
SETTINGS["Gemma3ImageProcessor"] = [{"size": {"height": 77, "width": 31}}, {"do_resize": False}]
SETTINGS["Idefics3ImageProcessor"] = [
    {"do_image_splitting": False},
    {"do_resize": False, "max_image_size": {"longest_edge": 191}},
    {"size": {"longest_edge": 333}, "max_image_size": {"longest_edge": 128}},
    {"size": {"height": 300, "width": 200}, "max_image_size": {"longest_edge": 100}, "do_normalize": False},
]
SETTINGS["SmolVLMImageProcessor"] = [{"size": {"longest_edge": 512}, "max_image_size": {"longest_edge": 256}}]
SETTINGS["Llama4ImageProcessor"] = [
    {"size": {"height": 64, "width": 64}},
    {"size": {"height": 100, "width": 100}, "max_patches": 5, "resize_to_max_canvas": True},
    {"image_mean": [0.1, 0.45, 0.7], "image_std": [0.3, 0.2, 0.7], "rescale_factor": 0.0078},
    {"do_normalize": False},
    {"do_normalize": False, "do_rescale": False},
]
SETTINGS["MllamaImageProcessor"] = [
    {"size": {"height": 56, "width": 56}},
    {"size": {"height": 100, "width": 100}, "max_image_tiles": 9, "do_normalize": False},
]
SETTINGS["Gemma4ImageProcessor"] = [
    {"max_soft_tokens": 70},
    {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "max_soft_tokens": 140},
    {"patch_size": 8, "pooling_kernel_size": 2, "do_rescale": False},
]
SETTINGS["Cohere2VisionImageProcessor"] = [
    {"size": {"height": 100, "width": 100}},
    {"size": {"height": 100, "width": 60}, "crop_to_patches": False},
    {"size": {"height": 60, "width": 60}, "max_patches": 1},
]
SETTINGS["Ovis2ImageProcessor"] = [
    {"crop_to_patches": True, "size": {"height": 100, "width": 100}},
    {"crop_to_patches": True, "size": {"height": 150, "width": 150}, "max_patches": 6},
    {"crop_to_patches": True, "size": {"height": 60, "width": 90}, "use_covering_area_grid": False},
]
SETTINGS["AriaImageProcessor"] = [{"max_image_size": 490, "min_image_size": 100}]
SETTINGS["DonutImageProcessor"] = [
    {"size": {"height": 256, "width": 192}},
    {"size": {"height": 192, "width": 256}},
    {"size": [192, 256], "do_pad": False},  # width and height, as in published files
    {"size": {"height": 64, "width": 48}, "do_thumbnail": False, "do_pad": False},
]
OF_NO_DEFAULT = (
    "LlavaNextImageProcessor",  # its own settings contradict each other
    "DonutImageProcessor",  # has a test of its own: its pages are large
)
CASES = [(name, {}) for name in CLASSES if name not in OF_NO_DEFAULT] + [
    (name, each) for name, many in SETTINGS.items() for each in many
]
CASES_OF_ENGINES = [(name, each, engine) for name, each in CASES for engine in engines(name)]


@pytest.mark.quick(100)
@pytest.mark.parametrize("sizes", [QUICK, pytest.param(SIZES, marks=pytest.mark.slow)], ids=["few", "all"])
@pytest.mark.parametrize(("name", "settings", "engine"), CASES_OF_ENGINES)
def test_tensors_are_those_of_transformers(name, settings, engine, sizes):
    check(name, settings, engine, (picture(*size, number) for number, size in enumerate(sizes)))


@pytest.mark.parametrize(
    "sizes", [[(641, 427)], pytest.param([(427, 640), (30, 57), (2000, 3000), (900, 900)], marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_page_of_donut_is_that_of_transformers(engine, sizes):
    check("DonutImageProcessor", {}, engine, (picture(*size, number) for number, size in enumerate(sizes)))


@pytest.mark.parametrize("name", [name for name, known in CLASSES.items() if not known.pillow])
def test_a_class_without_a_pillow_path_is_refused_for_pillow(name):
    assert not hasattr(transformers, f"{name}Pil")
    with pytest.raises(UsageError, match=f"{name}: transformers has no Pillow path for it; choose the engine torch"):
        from_hf({"image_processor_type": name}, Engine.PILLOW12)


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
        (found,) = tiled(image, Crop(Size(*crop)).of(Size(width, height), engine))
        assert found.shape == (crop[1], crop[0], 3)
        assert int((found == 7).all(2).sum()) == min(width, crop[0]) * min(height, crop[1])


@given(
    tile=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    place=st.tuples(st.integers(-9, 19), st.integers(-9, 19)),
)
def test_tiles_in_rows_give_the_canvas_back(tile, grid, place):
    image = np.random.default_rng(1).integers(1, 256, (7, 8, 3), dtype=np.uint8)
    canvas = Size(tile[0] * grid[0], tile[1] * grid[1])
    found = tiled(image, Placement(canvas, Size(*tile), *place, (9, 8, 7)))
    rows = [np.concatenate(found[start : start + grid[0]], 1) for start in range(0, len(found), grid[0])]
    whole = np.concatenate(rows)
    assert whole.shape == (canvas.height, canvas.width, 3)
    for y, x in np.ndindex(whole.shape[:2]):
        row, column = y - place[1], x - place[0]
        there = 0 <= row < 7 and 0 <= column < 8
        assert whole[y, x].tolist() == (image[row, column].tolist() if there else [9, 8, 7])


LAYOUTS = st.one_of(
    st.builds(MergedPatches, st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    st.builds(PatchImages, st.integers(1, 3), st.integers(1, 2)),
    st.builds(PaddedPatches, st.integers(1, 3), st.just(40)),
    st.builds(Images, st.integers(0, 2), st.none() | st.integers(1, 3)),
)


@given(down=st.integers(1, 3), across=st.integers(1, 3), by=LAYOUTS)
def test_every_value_is_in_one_place_for_each_frame(down, across, by):
    multiple = getattr(by, "side", 1) * getattr(by, "merge", 1)
    planes = np.arange(1, 1 + 3 * down * across * multiple**2).reshape(3, down * multiple, across * multiple)
    values = laid_out(planes[None], by)
    there = values[values > 0]  # the rest is padding
    assert np.array_equal(np.sort(there), np.repeat(np.arange(1, 1 + planes.size), getattr(by, "frames", 1)))


@pytest.mark.parametrize(
    ("name", "settings", "size", "told"),
    [
        ("Qwen2VL", {}, (1, 201), "1x201 is too long for this processor"),
        ("CLIP", {"do_resize": False, "do_center_crop": False}, (70000, 1), "CLIPImageProcessor .* to 70000x1;"),
        ("Donut", {}, (900, 20), "DonutImageProcessor resizes 900x20 to 86400x1920; each side must be 1 to 65535"),
        ("Donut", {"do_thumbnail": False}, (900, 800), "does not fit into 1920x2560; give settings with which it shri"),
        ("Donut", {"size": [10, 20]}, (1, 60), "DonutImageProcessor resizes 1x60 to 0x20"),
        ("Idefics3", {"do_resize": False}, (5000, 5000), "5000x5000 gives 196 tiles of 364x364; 1 to 64 are possible"),
        ("Qwen2VL", {"temporal_patch_size": 10**9}, (100, 100), "makes a tensor of 12544000000000 pixels of 100x100"),
    ],
)
def test_an_image_that_the_processor_does_not_take_is_refused(name, settings, size, told):
    spec = from_hf({"image_processor_type": f"{name}ImageProcessor", **settings})
    with pytest.raises(UsageError, match=told):
        process(np.zeros((size[1], size[0], 3), np.uint8), spec)


@pytest.mark.parametrize("name", names())
def test_the_forms_are_those_of_the_tensors(name):
    spec = processor(name)
    for width, height in QUICK[:2]:
        made = process(np.zeros((height, width, 3), np.uint8), spec)
        found = forms(spec, Size(width, height))
        assert {key: (form.shape, form.dtype) for key, form in found.items()} == {
            key: (values.shape, values.dtype) for key, values in made.items()
        }


@pytest.mark.parametrize("size", [(640, 427), (33, 57), (224, 224)])
def test_the_engine_opencv_resizes_as_opencv(size):
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 200}}
    spec = from_hf({**settings, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]}, Engine.OPENCV)
    image = np.asarray(picture(*size))
    resized = cv2.resize(image, (200, 224), interpolation=cv2.INTER_LINEAR_EXACT)
    values = (resized * np.float64(1 / 255)).astype(np.float32)
    values = (values - np.float32([0.1, 0.2, 0.3])) / np.float32([0.5, 0.6, 0.7])
    assert np.array_equal(process(image, spec)["pixel_values"], values.transpose(2, 0, 1)[None])


def test_the_compute_unit_has_no_engine_opencv():
    spec = from_hf({"image_processor_type": "ViTImageProcessor"}, Engine.OPENCV)
    with pytest.raises(UnsupportedInput, match="ViTImageProcessor: the CU's scaler has no engine opencv"):
        program(spec, Size(640, 480))
