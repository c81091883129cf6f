"""Test which files of processors are read, and what a file that is wrong is told."""

import json
import math

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.reading import CLASSES, COMMON, REFUSED, from_hf
from headrace.host.dpu.processors import (
    Crop,
    Engine,
    EvenLongestSide,
    FixedSize,
    Pad,
    ShortestEdge,
    Size,
    SmartResize,
    Within,
)

LLAVA = {"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 336}, "crop_size": 336}
WITHOUT_LLAVA = [name for name in CLASSES if name != "LlavaNextImageProcessor"]


@pytest.mark.parametrize("ending", ["ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor"])
def test_a_class_is_known_by_each_of_its_names(ending):
    assert from_hf({"image_processor_type": f"CLIP{ending}"}) == from_hf({}, base="CLIPImageProcessor")


def test_the_file_of_an_older_release_is_read():
    """It has numbers where newer files have objects."""
    old = from_hf({"feature_extractor_type": "CLIPFeatureExtractor", "crop_size": 336, "size": {"shortest_edge": 336}})
    assert (old.sizes, old.place) == ((ShortestEdge(336),), Crop(Size(336, 336)))
    pixels = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12845056}
    assert from_hf(pixels).sizes == (SmartResize(28, 3136, 12845056),)
    assert from_hf({"image_processor_type": "ViTFeatureExtractor", "size": 384}).sizes == (FixedSize(384, 384),)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"image_processor_type": "NougetImageProcessor"},
            "NougetImageProcessor has no counterpart here; known are CLIP",
        ),
        ({"default_to_square": "no"}, 'default_to_square is "no"; give true or false'),
        ({"crop_size": {"height": 10**9, "width": 5}}, "crop_size is"),
        ({"crop_size": 8193}, "give at most 67108864 pixels in all"),
        ({"image_processor_type": 5}, "name its class in transformers"),
        ({"sise": 224}, "CLIPImageProcessor: the setting sise is unknown here"),
        ({"size": {"shortest_edge": 0}}, 'size is {"shortest_edge": 0}; give {"shortest_edge": ...}'),
        ({"size": {"height": 224}}, 'size is {"height": 224}; give {"height": ..., "width": ...}'),
        ({"size": [224, 224, 3]}, "size is [224, 224, 3]; give"),
        ({"size": [224, 0]}, "size is [224, 0]; give"),
        ({"do_pad": True, "pad_size": 300}, "pad_size is 300; give null, because transformers pads after the normal"),
        ({"crop_size": {"height": 224, "width": True}}, "crop_size is"),
        ({"resample": 0}, "resample is 0; give 1 (lanczos)"),
        ({"resample": "bicubic"}, 'resample is "bicubic"; give'),
        ({"image_mean": [0.5, 0.5]}, "image_mean is [0.5, 0.5]; give three numbers"),
        ({"image_std": [0.5, 0.5, 0]}, "image_std is [0.5, 0.5, 0.0]; each value must be above 0"),
        ({"rescale_factor": float("inf")}, "rescale_factor is Infinity; give a number"),
        ({"image_mean": [0.5, 0.5, float("nan")]}, "image_mean is [0.5, 0.5, NaN]; give three numbers"),
        ({"image_processor_type": "JanusImageProcessor", "image_mean": [0.5, 5, 0.5]}, "numbers from 0 to 1, because"),
        ({"rescale_factor": "1/255"}, 'rescale_factor is "1/255"; give a number'),
        ({"do_resize": "yes"}, 'do_resize is "yes"; give true or false'),
        (
            {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 9}, "crop_pct": 0},
            "crop_pct is 0",
        ),
        ({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 0}, "patch_size is 0; give a whole number"),
        (
            {"image_processor_type": "Qwen2VLImageProcessor", "do_resize": False},
            "do_resize is false; give true, because",
        ),
    ],
)
def test_a_wrong_setting_is_named(changed, told):
    with pytest.raises(UsageError) as refused:
        from_hf({"image_processor_type": "CLIPImageProcessor", **changed})
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        ("Gemma3", {"do_pan_and_scan": True}, "do_pan_and_scan is true; give false, because"),
        ("Gemma3", {"do_center_crop": 3}, "do_center_crop is 3; give true or false"),
        ("Llava", {"do_pad": True}, "do_pad is true; give false, because it makes the source a square"),
        ("ConvNext", {"do_center_crop": True, "crop_size": 5}, "do_center_crop is true; give false, because no other"),
        ("Pixtral", {"do_center_crop": True, "crop_size": 5}, "do_center_crop is true; give false, because no other"),
        ("Ovis2", {"do_center_crop": True, "crop_size": 5}, "do_center_crop is true; give false, because no other"),
        ("Qwen2VL", {"size": {"min_pixels": 1, "max_pixels": 2}}, 'give {"shortest_edge": ..., "longest_edge": ...}'),
        ("Qwen2VL", {"min_pixels": 0}, "min_pixels is 0; give a whole number above 0"),
        (
            "Idefics3",
            {"size": {"longest_edge": 4097}},
            'size is {"longest_edge": 4097}; give a longest_edge of at most',
        ),
        ("Idefics3", {"max_image_size": {"height": 5}}, 'give {"longest_edge": ...}'),
        ("Idefics3", {"max_image_size": 364}, 'max_image_size is 364; give {"longest_edge": ...}'),
        ("Idefics3", {"do_image_splitting": "all"}, 'do_image_splitting is "all"; give true or false'),
        ("Idefics3", {"do_pad": False}, "do_pad is false; give true, because"),
        ("SmolVLM", {"return_row_col_info": True}, "return_row_col_info is true; give false, because"),
        ("SmolVLM", {"do_rescale": False, "do_normalize": False}, "do_rescale is false; give true, or do_normalize"),
        ("Llama4", {"do_resize": False}, "do_resize is false; give true, because a tile has a size of its own"),
        ("Llama4", {"do_rescale": False}, "do_rescale is false; give true, because bytes are not normalized"),
        ("Llama4", {"max_patches": 65}, "max_patches is 65; give a whole number from 1 to 64"),
        ("Llama4", {"resize_to_max_canvas": 2}, "resize_to_max_canvas is 2; give true or false"),
        ("Llama4", {"size": {"height": 5, "width": 6}}, "give the same height and width"),
        ("Mllama", {"max_image_tiles": 0}, "max_image_tiles is 0; give a whole number from 1 to 64"),
        ("Mllama", {"do_pad": False}, "do_pad is false; give true, because"),
        ("Mllama", {"do_resize": False}, "do_resize is false; give true, because"),
        ("Mllama", {"do_rescale": False, "do_normalize": False}, "do_rescale is false; give true, or do_normalize"),
        ("Mllama", {"size": {"shortest_edge": 5}}, 'give {"height": ..., "width": ...}'),
        ("Gemma4", {"max_soft_tokens": 100}, "max_soft_tokens is 100; give 70, 140, 280, 560 or 1120"),
        ("Gemma4", {"max_soft_tokens": 70.0}, "max_soft_tokens is 70.0; give 70, 140"),
        ("Gemma4", {"patch_size": 65}, "patch_size is 65; give a whole number from 1 to 64"),
        ("Gemma4", {"pooling_kernel_size": -1}, "pooling_kernel_size is -1; give a whole number from 1 to 16"),
        ("Gemma4", {"patch_size": 64, "pooling_kernel_size": 16}, "patch_size is 64; give a number with which 280 tok"),
        ("Gemma4", {"do_resize": False}, "do_resize is false; give true, because patches"),
        ("Siglip2", {"max_num_patches": 10**9}, "max_num_patches is 1000000000; give a whole number from 1 to 262144"),
        ("Siglip2", {"patch_size": 10**9}, "patch_size is 1000000000; give a whole number from 1 to 1024"),
        ("Cohere2Vision", {"max_patches": 65}, "max_patches is 65; give a whole number from 1 to 64"),
        ("Cohere2Vision", {"size": {"height": 5, "width": 6}}, "give the same height and width"),
        ("Cohere2Vision", {"crop_to_patches": 5}, "crop_to_patches is 5; give true or false"),
        ("Ovis2", {"crop_to_patches": True, "max_patches": 65}, "max_patches is 65; give a whole number from 1 to 64"),
        ("Ovis2", {"crop_to_patches": True, "size": {"height": 5, "width": 6}}, "give the same height and width"),
        ("Ovis2", {"use_covering_area_grid": "x"}, 'use_covering_area_grid is "x"; give true or false'),
        ("Aria", {"max_image_size": 500}, "max_image_size is 500; give 490 or 980"),
        ("Aria", {"max_image_size": [490]}, "max_image_size is [490]; give 490 or 980"),
        ("Aria", {"min_image_size": 981}, "min_image_size is 981; give a whole number from 1 to 980"),
        ("Aria", {"split_image": True}, "split_image is true; give false, because"),
        ("Donut", {"do_align_long_axis": True}, "do_align_long_axis is true; give false, because"),
        ("Donut", {"do_thumbnail": 3}, "do_thumbnail is 3; give true or false"),
        ("Donut", {"do_pad": []}, "do_pad is []; give true or false"),
        ("Donut", {"size": [5, 0]}, 'size is [5, 0]; give [width, height] or {"height": ..., "width": ...}'),
        ("Donut", {"size": {"height": 9000, "width": 9000}}, "give at most 67108864 pixels in all"),
        ("Donut", {"do_center_crop": True, "crop_size": 5}, "do_center_crop is true; give false, because no other"),
        ("Pixtral", {"do_resize": False, "resample": 4}, "torchvision has no filter box"),
    ],
)
def test_a_wrong_setting_of_a_class_is_named(name, changed, told):
    with pytest.raises(UsageError) as refused:
        from_hf({"image_processor_type": f"{name}ImageProcessor", **changed})
    assert told in str(refused.value)
    assert f"{name}ImageProcessor: " in str(refused.value)


@pytest.mark.parametrize("name", REFUSED)
def test_a_class_that_does_not_fit_is_refused_with_the_reason(name):
    assert hasattr(transformers, name)
    with pytest.raises(UsageError, match=f"{name} has no counterpart here, because it.*; call transformers itself"):
        from_hf({"image_processor_type": name})


@pytest.mark.parametrize("name", CLASSES)
def test_nulls_and_steps_that_are_off_change_nothing(name):
    """Files have such keys, because transformers saves all settings of its base class."""
    base = (
        {"image_processor_type": name, **LLAVA} if name == "LlavaNextImageProcessor" else {"image_processor_type": name}
    )
    nulls = dict.fromkeys(("do_resize", "size", "image_mean", "do_normalize", "do_center_crop", "pad_size", "of_later"))
    more = {key: value for key, value in nulls.items() if key not in base}
    if not CLASSES[name].defaults.get("do_center_crop"):
        more["do_center_crop"] = False
    assert from_hf({**base, **more}) == from_hf(base)


@pytest.mark.parametrize("name", [name for name in WITHOUT_LLAVA if CLASSES[name].defaults["size"]])
def test_a_size_of_one_number_is_what_transformers_reads(name):
    """It is a square or a shortest edge, and not every class takes both."""
    for changed in ({"size": 224}, {"size": 224, "default_to_square": False}, {"size": 224, "default_to_square": True}):
        try:
            theirs = getattr(transformers, name)(**changed).size
        except ValueError:
            continue
        given = {key: getattr(theirs, key) for key in ("height", "width", "shortest_edge") if getattr(theirs, key)}
        try:
            expected = from_hf({"image_processor_type": name, "size": given})
        except UsageError:
            with pytest.raises(UsageError):
                from_hf({"image_processor_type": name, **changed})
            continue
        assert from_hf({"image_processor_type": name, **changed}) == expected


def test_chained_resizes_are_a_tuple_of_rules():
    donut = from_hf({"feature_extractor_type": "DonutFeatureExtractor", "size": [1920, 2560]})
    assert donut.sizes == (ShortestEdge(1920), Within(Size(1920, 2560)))
    assert donut.place == Pad(Size(1920, 2560), middle=True)
    whole = from_hf({"image_processor_type": "Idefics3ImageProcessor", "do_image_splitting": False})
    assert whole.sizes == (EvenLongestSide(1456), FixedSize(364, 364))


@pytest.mark.parametrize(
    ("text", "told"),
    [("[1]", "has no object"), ("{", "Expecting"), ("[" * 99999, "it nests too deep"), (None, "No such file")],
)
@pytest.mark.usefixtures("full_stack")
def test_a_file_that_is_none_is_refused_by_its_path(text, told, tmp_path):
    path = tmp_path / "preprocessor_config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=f"preprocessor_config.json.*{told}"):
        from_hf(path)


def test_an_error_of_a_file_names_the_file(tmp_path):
    path = tmp_path / "preprocessor_config.json"
    for settings, told in (
        ({"image_processor_type": "CLIPImageProcessor", "resample": 9}, "CLIPImageProcessor: resample is 9"),
        ({"size": 224}, "the processor has no image_processor_type"),
        ({"image_processor_type": "CLIPImageProcessor", "image_std": 0}, "CLIPImageProcessor: image_std is"),
    ):
        path.write_text(json.dumps(settings))
        with pytest.raises(UsageError) as refused:
            from_hf(path)
        assert str(refused.value).startswith(f"{path}: {told}")


def test_the_bytes_of_patches_are_those_of_torchvision_alone():
    """Pillow's path of transformers makes floats of them."""
    settings = {"image_processor_type": "Qwen2VLImageProcessor", "do_rescale": False, "do_normalize": False}
    assert from_hf(settings).table().dtype == "uint8"
    with pytest.raises(UsageError, match="do_rescale is false; give true, or do_normalize, because Pillow's path"):
        from_hf(settings, Engine.PILLOW13)


def test_a_key_that_other_classes_read_has_no_effect():
    clip = {"image_processor_type": "CLIPImageProcessor"}
    assert from_hf({**clip, "crop_pct": 0.5, "min_pixels": 9, "patch_size": 3, "size_divisor": 32}) == from_hf(clip)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"size": {"shortest_edge": 224}, "crop_size": 224},
            "all of them multiples of 224",
        ),  # those of the class itself
        ({"crop_size": 224}, "crop_size is 224; give 336, which is size, because tiles are not resized again"),
        ({"crop_size": 224, "do_center_crop": False}, "crop_size is 224; give 336"),
        ({"image_grid_pinpoints": []}, "image_grid_pinpoints is []; give a list"),
        ({"image_grid_pinpoints": [[336, -336]]}, "give a list of [height, width], all of them multiples of 336"),
    ],
)
def test_tiles_that_would_be_cropped_are_refused(changed, told):
    assert from_hf(LLAVA).tiles.tile == (336, 336)
    with pytest.raises(UsageError) as refused:
        from_hf(LLAVA | changed)
    assert told in str(refused.value)


@pytest.mark.parametrize(("low", "high"), [(3, 2), (1, 65), (0, 5)])
def test_a_grid_of_too_many_tiles_is_refused(low, high):
    with pytest.raises(UsageError, match="_patches is"):
        from_hf(
            {"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": True, "min_patches": low}
            | {"max_patches": high}
        )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("height", "width", "shortest_edge", "longest_edge")), inner)
    ),
    max_leaves=4,
)


@st.composite
def files(draw):
    name = draw(st.sampled_from(sorted(CLASSES)))
    keys = st.sampled_from(sorted(COMMON | CLASSES[name].keys))
    return {"image_processor_type": name, **draw(st.dictionaries(keys, JSON, max_size=3))}


@given(values=files())
def test_any_settings_give_a_spec_or_one_error(values):
    try:
        spec = from_hf(json.loads(json.dumps(values)))
    except UsageError:
        return
    assert spec.table().shape == (3, 256)
    try:
        plan = spec.plan(Size(640, 427))
    except UsageError:
        return
    assert plan.images >= 1 and math.prod(plan.image) >= 1
