"""Test that files of models, as they are published, are read as transformers reads them."""

import io
import json

import pytest
import transformers
from like_transformers import ENGINES, assert_equal, check, engines, picture, tensors, theirs
from PIL import Image
from transformers.image_utils import load_image

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.front import preprocess
from headrace.host.dpu.hugging_face.reading import CLASSES, COMMON, from_hf
from headrace.host.dpu.reference import pillow_file
from headrace.host.dpu.reference.processor import process

CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
STEPS = {"do_normalize": True, "do_rescale": True, "do_resize": True, "rescale_factor": 0.00392156862745098}
KEYS = [
    "images",
    "do_resize",
    "size",
    "resample",
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
    "return_tensors",
    "data_format",
    "input_data_format",
    "do_convert_rgb",
]
# All keys of the base class, which the classes named "Fast" of transformers 4 saved.
FAST = {
    **STEPS,
    **dict.fromkeys(("crop_size", "device", "disable_grouping", "do_center_crop", "do_pad", "input_data_format")),
    **dict.fromkeys(("pad_size", "return_tensors", "size_divisor")),
    "data_format": "channels_first",
    "default_to_square": True,
    "do_convert_rgb": True,
}
PUBLISHED = {
    "CLIP of 2022": ("CLIPImageProcessor", {**CLIP, "crop_size": 448, "do_center_crop": True, "do_normalize": True}
        | {"do_resize": True, "feature_extractor_type": "CLIPFeatureExtractor", "resample": 3, "size": 448}),
    "Florence-2": ("CLIPImageProcessor", {**IMAGENET, "auto_map": {"AutoProcessor": "processing_florence2"}}
        | {"_valid_processor_keys": KEYS, "do_convert_rgb": None, "do_normalize": True, "do_rescale": True}
        | {"do_resize": True, "do_center_crop": False, "image_seq_length": 577, "resample": 3}
        | {"size": {"height": 768, "width": 768}, "crop_size": {"height": 768, "width": 768}}),
    "PaliGemma": ("SiglipImageProcessor", {**HALF, **STEPS, "_valid_processor_keys": KEYS, "do_convert_rgb": None}
        | {"image_seq_length": 1024, "resample": 3, "size": {"height": 448, "width": 448}}),
    "ViT of 2022": ("ViTImageProcessor", {**HALF, "do_normalize": True, "do_resize": True, "size": 224}),
    "ConvNext of 2022": ("ConvNextImageProcessor", {**IMAGENET, "crop_pct": 0.875, "do_normalize": True, "size": 224}
        | {"do_resize": True, "feature_extractor_type": "ConvNextFeatureExtractor", "resample": 3}),
    "Donut": ("DonutImageProcessor", {**HALF, "do_align_long_axis": False, "do_normalize": True, "do_pad": True}
        | {"do_resize": True, "do_thumbnail": True, "feature_extractor_type": "DonutFeatureExtractor"}
        | {"processor_class": "DonutProcessor", "resample": 2, "size": [720, 960]}),
    "LLaVA-NeXT": ("LlavaNextImageProcessor", {**CLIP, **STEPS, "aspect_ratio_setting": "anyres", "do_pad": True}
        | {"crop_size": {"height": 336, "width": 336}, "do_center_crop": True, "do_convert_rgb": True, "resample": 3}
        | {"image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]}
        | {"size": {"shortest_edge": 336}, "processor_class": "LlavaNextProcessor"}),
    "Qwen2-VL of 2024": ("Qwen2VLImageProcessor", {**CLIP, **STEPS, "max_pixels": 602112, "min_pixels": 3136}
        | {"do_convert_rgb": True, "merge_size": 2, "patch_size": 14, "temporal_patch_size": 2, "resample": 3}
        | {"size": {"max_pixels": 602112, "min_pixels": 3136}}),
    "Qwen2.5-VL, saved by Fast": ("Qwen2VLImageProcessor", {**CLIP, **FAST, "max_pixels": 602112, "min_pixels": 3136}
        | {"merge_size": 2, "patch_size": 14, "temporal_patch_size": 2, "resample": 3}
        | {"size": {"longest_edge": 602112, "shortest_edge": 3136}}),
    "Qwen3-VL": ("Qwen2VLImageProcessor", {**HALF, **FAST, "max_pixels": 1310720, "min_pixels": 4096, "patch_size": 16}
        | {"merge_size": 2, "temporal_patch_size": 2, "size": {"longest_edge": 1310720, "shortest_edge": 4096}}),
    "GLM-4.6V": ("Glm46VImageProcessor", {**CLIP, **STEPS, "merge_size": 2, "patch_size": 14, "temporal_patch_size": 2}
        | {"size": {"longest_edge": 9633792, "shortest_edge": 12544}, "processor_class": "Glm46VProcessor"}),
    "InternVL3": ("GotOcr2ImageProcessor", {**IMAGENET, **FAST, "crop_to_patches": False, "max_patches": 12}
        | {"_valid_processor_keys": KEYS, "model_valid_processing_keys": KEYS, "processor_class": "InternVLProcessor"}
        | {"video_processor_type": "InternVLVideoProcessor"}
        | {"min_patches": 1, "resample": 3, "size": {"height": 448, "width": 448}}),
    "Llama 3.2 Vision": ("MllamaImageProcessor", {**CLIP, **STEPS, "do_convert_rgb": True, "do_pad": True}
        | {"max_image_tiles": 4, "resample": 2, "size": {"height": 560, "width": 560}}),
    "Gemma 4": ("Gemma4ImageProcessor", {**STEPS, "do_convert_rgb": True, "do_normalize": False, "patch_size": 16}
        | {"image_mean": [0.0] * 3, "image_std": [1.0] * 3, "image_seq_length": 280, "max_soft_tokens": 280}
        | {"pooling_kernel_size": 3, "resample": 3, "size": {"height": 224, "width": 224}}),
    "LLaVA 1.5": ("LlavaImageProcessor", {**CLIP, **STEPS, "do_center_crop": True, "do_convert_rgb": True}
        | {"crop_size": {"height": 336, "width": 336}, "resample": 3, "size": {"shortest_edge": 336}}),
}  # fmt: skip

# The classes whose own sizes do not fit together, or are too large for a short test.
SMALL = {
    "AriaImageProcessor": {"max_image_size": 490},
    "DonutImageProcessor": {"size": {"height": 128, "width": 96}},
    "Gemma4ImageProcessor": {"max_soft_tokens": 70},
    "Idefics3ImageProcessor": {"size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 64}},
    "LlavaNextImageProcessor": {
        "size": {"shortest_edge": 42},
        "crop_size": {"height": 42, "width": 42},
        "image_grid_pinpoints": [[42, 84], [84, 42], [84, 84]],
    },
    "LlavaOnevisionImageProcessor": {
        "size": {"height": 56, "width": 56},
        "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]],
    },
}
SMALL["SmolVLMImageProcessor"] = SMALL["Idefics3ImageProcessor"]
SIZES = [(50, 40), (130, 91), (180, 240)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "settings"), PUBLISHED.values(), ids=PUBLISHED)
def test_a_published_file_has_the_tensors_of_transformers(name, settings, engine):
    check(name, settings, engine, [picture(*size) for size in SIZES[1:]])


BOTH = [(name, engine) for name in CLASSES for engine in engines(name)]


@pytest.mark.parametrize(("name", "engine"), BOTH)
def test_what_transformers_saves_is_read(name, engine, tmp_path):
    settings = SMALL.get(name, {})
    getattr(transformers, name + ENGINES[engine])(**settings).save_pretrained(tmp_path)
    saved = tmp_path / "preprocessor_config.json"
    assert json.loads(saved.read_text())["image_processor_type"].startswith(name)
    assert from_hf(saved, engine) == from_hf({"image_processor_type": name, **settings}, engine)


@pytest.mark.parametrize(("name", "engine"), [each for each in BOTH if each[0] not in SMALL])
def test_the_settings_of_a_class_are_its_own_in_transformers(name, engine, tmp_path):
    getattr(transformers, name + ENGINES[engine])().save_pretrained(tmp_path)
    assert from_hf(tmp_path / "preprocessor_config.json") == from_hf({"image_processor_type": name})


@pytest.mark.parametrize("name", CLASSES)
def test_each_setting_that_transformers_has_for_a_class_is_known(name):
    keys = set(getattr(transformers, name).valid_kwargs.__annotations__)
    assert keys >= COMMON
    assert keys - set(transformers.CLIPImageProcessor.valid_kwargs.__annotations__) <= CLASSES[name].keys


def keyed(mode: str) -> bytes:
    """Return a PNG file of two colours, of which one is transparent."""
    two = Image.fromarray(picture(90, 60)).convert("L").point(lambda level: 200 if level > 127 else 30)
    image, key = (two.convert("RGB"), (200, 200, 200)) if mode == "RGB" else (two.quantize(2), 1)
    file = io.BytesIO()
    image.save(file, "PNG", transparency=key)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "P"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_transparent_colour_becomes_what_it_is_in_transformers(name, mode, tmp_path):
    (tmp_path / "keyed.png").write_bytes(keyed(mode))
    settings = SMALL.get(name, {})
    spec = from_hf({"image_processor_type": name, **settings})
    expected = tensors(theirs(name, settings, spec.engine), load_image(str(tmp_path / "keyed.png")))
    pixels = pillow_file.read(keyed(mode), 1, on_white=spec.on_white).pixels
    assert spec.on_white == (pixels == 255).all(axis=-1).any()
    assert_equal(process(pixels, spec), expected, mode)


@pytest.mark.parametrize("name", [name for name in CLASSES if CLASSES[name].defaults["do_convert_rgb"]])
def test_an_alpha_channel_of_an_image_of_pillow_shows_white(name):
    image = Image.fromarray(picture(90, 60))
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    settings = SMALL.get(name, {})
    spec = from_hf({"image_processor_type": name, **settings})
    assert_equal(preprocess(image, spec), tensors(theirs(name, settings, spec.engine), image), name)


BOX, SQUARE = {"height": 30, "width": 40}, {"height": 90, "width": 90}
CHANGES = [
    {"do_center_crop": True, "crop_size": BOX},
    {"do_center_crop": True, "crop_size": 30},
    {"do_center_crop": False, "crop_size": BOX},
    {"crop_size": [30, 40]},
    {"do_pad": True},
    {"do_pad": False},
    {"do_pad": True, "pad_size": {"height": 1000, "width": 1000}},
    {"pad_size": {"height": 1000, "width": 1000}},
    {"size": 100},
    {"size": [100, 90]},
    {"size": 100, "default_to_square": False},
    {"size": 100, "default_to_square": True},
    {"default_to_square": False},
    {"size": {"height": 100, "width": 90}},
    {"size": SQUARE},
    {"size": {"shortest_edge": 100}},
    {"size": {"longest_edge": 100}},
    {"size": {"shortest_edge": 60, "longest_edge": 90}},
    {"size": {"shortest_edge": 3136, "longest_edge": 40000}},
    {"size": {"max_height": 100, "max_width": 90}},
    {"size": {"min_pixels": 3136, "max_pixels": 9000}},
    {"size": {"min_pixels": 3136, "max_pixels": 9000}, "min_pixels": 3136, "max_pixels": 9000},
    {"min_pixels": 50000},
    {"max_pixels": 9000},
    {"do_resize": False},
    {"do_rescale": False},
    {"do_normalize": False},
    {"do_rescale": False, "do_normalize": False},
    {"image_mean": 0.4},
    {"image_mean": [0.1, 0.2, 0.3], "rescale_factor": 0.01},
    *({"resample": number} for number in range(6)),
    {"do_convert_rgb": False, "data_format": "channels_first", "disable_grouping": True, "device": "cpu"},
    {"aspect_ratio_setting": "anyres", "image_seq_length": 5, "split_ratio": [[1, 2]]},
    {"patch_size": 8},
    {"crop_pct": 0.5},
    {"min_patches": 2, "max_patches": 3},
    {"crop_to_patches": True},
    {"crop_to_patches": True, "do_resize": False},
    {"crop_to_patches": False, "do_resize": False},
    {"crop_to_patches": False, "size": {"shortest_edge": 60}},
    {"merge_size": 1, "temporal_patch_size": 1},
    {"do_image_splitting": False},
    {"min_size": 20, "max_image_tiles": 2},
    {"do_pan_and_scan": True},
    {"return_row_col_info": True},
    {"background_color": [1, 2, 3], "video_sampling": {}},
]
FEW = [change for change in CHANGES if set(change) & {"do_center_crop", "do_pad", "min_pixels", "max_pixels"}]


@pytest.mark.quick(12)
@pytest.mark.parametrize("changes", [FEW, pytest.param(CHANGES, marks=pytest.mark.slow)], ids=["few", "all"])
@pytest.mark.parametrize(("name", "engine"), BOTH)
def test_a_setting_is_read_as_transformers_reads_it_or_refused_if_it_has_an_effect(name, engine, changes):
    images = [picture(*size) for size in SIZES]
    unchanged = [tensors(theirs(name, SMALL.get(name, {}), engine), image) for image in images]
    for change in changes:
        settings = {**SMALL.get(name, {}), **change}
        try:
            processor = theirs(name, settings, engine)
            expected = [tensors(processor, image) for image in images]
        except (ValueError, TypeError, KeyError, RuntimeError, AttributeError):
            continue  # transformers itself does not take it
        try:
            spec = from_hf({"image_processor_type": name, **settings}, engine)
        except UsageError:
            assert not _equal(expected, unchanged), change
            continue
        for image, wanted in zip(images, expected, strict=True):
            assert_equal(process(image, spec), wanted, change)


def _equal(some, others):
    try:
        for found, wanted in zip(some, others, strict=True):
            assert_equal(found, wanted, "")
    except AssertionError:
        return False
    return True
