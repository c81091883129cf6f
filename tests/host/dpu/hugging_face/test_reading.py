"""Test which files of processors are read, and what a file that is wrong is told."""

import json

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face import CLASSES, COMMON, from_hf
from headrace.host.dpu.processors import Engine, Filter, FixedSize, ProcessorSpec, ShortestEdge, Size, SmartResize

WITHOUT_LLAVA = [name for name in CLASSES if name != "LlavaNextImageProcessor"]


@pytest.mark.parametrize("name", WITHOUT_LLAVA)
def test_what_transformers_saves_is_read_and_is_the_default(name, tmp_path):
    getattr(transformers, name)().save_pretrained(tmp_path)
    assert from_hf(tmp_path / "preprocessor_config.json") == from_hf({"image_processor_type": name})


@pytest.mark.parametrize("ending", ["ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor"])
def test_a_class_is_known_by_each_of_its_names(ending):
    assert from_hf({"image_processor_type": f"CLIP{ending}"}) == from_hf({}, base="CLIPImageProcessor")


def test_the_file_of_an_older_release_is_read():
    """It has numbers where newer files have objects."""
    old = from_hf({"feature_extractor_type": "CLIPFeatureExtractor", "crop_size": 336, "size": {"shortest_edge": 336}})
    assert (old.size, old.crop) == (ShortestEdge(336), Size(336, 336))
    pixels = {"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12845056}
    assert from_hf(pixels).size == SmartResize(28, 3136, 12845056)
    assert from_hf({"image_processor_type": "ViTFeatureExtractor", "size": 384}).size == FixedSize(384, 384)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"image_processor_type": "NougatImageProcessor"},
            "NougatImageProcessor has no counterpart here; known are CLIP",
        ),
        ({"image_processor_type": 5}, "name its class in transformers"),
        ({"sise": 224}, "CLIPImageProcessor: the setting sise is unknown here"),
        ({"size": {"shortest_edge": 0}}, 'size is {"shortest_edge": 0}; give {"shortest_edge": ...}'),
        ({"size": {"height": 224}}, 'size is {"height": 224}; give {"height": ..., "width": ...}'),
        ({"size": [224, 224]}, "size is [224, 224]; give"),
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


@pytest.mark.parametrize(("text", "told"), [("[1]", "has no object"), ("{", "Expecting"), (None, "No such file")])
def test_a_file_that_is_none_is_refused_by_its_path(text, told, tmp_path):
    path = tmp_path / "preprocessor_config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=f"preprocessor_config.json.*{told}"):
        from_hf(path)


LLAVA = {"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 336}, "crop_size": 336}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"size": {"shortest_edge": 224}, "crop_size": 224},
            "all of them multiples of 224",
        ),  # those of the class itself
        ({"crop_size": 224}, "crop_size is 224; give the size of a tile, 336"),
        ({"image_grid_pinpoints": []}, "image_grid_pinpoints is []; give a list"),
        ({"image_grid_pinpoints": [[336, -336]]}, "give a list of [height, width], all of them multiples of 336"),
        ({"do_resize": False}, "do_resize is false"),
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
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("height", "width", "shortest_edge")), inner)
    ),
    max_leaves=4,
)


@given(
    name=st.sampled_from(sorted(CLASSES)), changes=st.dictionaries(st.sampled_from(sorted(COMMON)), JSON, max_size=3)
)
def test_any_settings_give_a_spec_or_one_error(name, changes):
    try:
        spec = from_hf(json.loads(json.dumps({"image_processor_type": name, **changes})))
    except UsageError:
        return
    assert spec.table().shape == (3, 256)


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


def test_mean_and_std_come_together():
    with pytest.raises(UsageError, match="give both image_mean and image_std, or neither"):
        ProcessorSpec("a processor", None, Filter.BOX, Engine.PILLOW13, mean=(0, 0, 0))
