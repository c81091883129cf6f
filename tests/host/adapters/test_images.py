"""The adapters of image processors give what the library gives, to the bit, and leave to it what Headrace has not."""

import copy
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from equal import assert_same, model, outcome
from like_transformers import picture
from PIL import Image
from transformers.image_processing_utils import BaseImageProcessor

import headrace
from headrace.host.adapters.batches import BATCHES
from headrace.host.dpu.hugging_face.names import config, names
from headrace.host.dpu.hugging_face.reading import CLASSES

PIXELS = [picture(*size, seed) for seed, size in enumerate(((320, 200), (150, 260), (90, 70)))]
IMAGES = [Image.fromarray(pixels) for pixels in PIXELS]
ALPHA = Image.fromarray(np.dstack([PIXELS[0], np.arange(200 * 320, dtype=np.uint8).reshape(200, 320)]))
GIVEN = {
    "one image": IMAGES[0],
    "batch": IMAGES,
    "alpha": ALPHA,
    "numpy": PIXELS[1],
    "stack": np.stack([PIXELS[1], PIXELS[1][::-1]]),
    "torch": torch.from_numpy(PIXELS[1].transpose(2, 0, 1).copy()),
}
SMALLER = {  # of models that make large canvases
    name: {"size": {"longest_edge": 800}} for name in ("idefics3-8b", "smolvlm", "smolvlm-256m")
}
NOTHING = {"dpu": 0, "cpu": 0, "library": 0}


def theirs(folder, settings):
    return transformers.AutoImageProcessor.from_pretrained(model(folder, settings))


def ours(folder, settings, **more):
    return headrace.HeadraceImageProcessor.from_pretrained(model(folder, settings), **more)


@pytest.mark.quick(10)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", names())
def test_a_known_model_gives_the_tensors_of_the_library(name, given, tmp_path):
    library, adapter = theirs(tmp_path, config(name)), headrace.HeadraceImageProcessor.from_pretrained(name)
    for form in ("pt", "np", None):
        call = {"images": GIVEN[given], "return_tensors": form, **SMALLER.get(name, {})}
        expected = outcome(lambda call=call: library(**call))
        assert_same(outcome(lambda call=call: adapter(**call)), expected)
    counts = adapter.counts
    if name == "llava-onevision" and given == "stack":  # the library takes a stack for one image, and fails
        assert isinstance(expected, tuple) and counts["library"] > 0
    elif given == "alpha" and not library.do_convert_rgb:
        assert counts["cpu"] == 0 and "shape (4, 200, 320); Headrace takes uint8" in adapter.reasons["library"]
    else:
        assert counts["cpu"] > 0 == counts["library"] and adapter.reasons == {}


OTHER_CLASSES = [
    {"image_processor_type": name}
    for name in sorted(set(CLASSES) - {config(known)["image_processor_type"].removesuffix("Fast") for known in names()})
] + [
    {"image_processor_type": name, "crop_to_patches": True, "size": {"height": 64, "width": 64}}
    for name in ("Ovis2ImageProcessor", "Cohere2VisionImageProcessor", "GotOcr2ImageProcessor")
]


@pytest.mark.quick(5)
@pytest.mark.parametrize("settings", OTHER_CLASSES, ids=lambda each: each["image_processor_type"])
def test_a_class_with_no_known_model_gives_the_tensors_of_the_library(settings, tmp_path):
    library, adapter = theirs(tmp_path, settings), ours(tmp_path, settings)
    for form in ("pt", "np", None):
        assert_same(adapter(IMAGES, return_tensors=form), library(IMAGES, return_tensors=form))
    assert adapter.counts == {**NOTHING, "cpu": 9}


def test_each_class_that_headrace_reads_has_its_batches():
    assert set(BATCHES) == set(CLASSES)


NESTED = [[IMAGES[0]], [IMAGES[1], IMAGES[2]]]


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "name", ["smolvlm", "llama-3.2-vision", "llava-onevision", "qwen2-vl", "gemma-3", "llava-next"]
)
def test_samples_of_several_images_are_padded_as_by_the_library(name, tmp_path):
    library, adapter = theirs(tmp_path, config(name)), headrace.HeadraceImageProcessor.from_pretrained(name)
    for form in ("pt", "np", None):
        call = {"images": NESTED, "return_tensors": form, **SMALLER.get(name, {})}
        assert_same(adapter(**call), library(**call))
    done = {**NOTHING, "library": 9} if name == "llava-onevision" else {**NOTHING, "cpu": 9}
    assert adapter.counts == done  # OneVision makes squares of the images of a sample, and Headrace does not


CALLS = [
    ("clip-vit-base-patch32", {"size": {"shortest_edge": 100}, "crop_size": 90}, None),
    ("clip-vit-base-patch32", {"do_resize": False, "do_center_crop": False, "do_pad": True}, None),
    ("clip-vit-base-patch32", {"do_normalize": False, "do_rescale": False}, None),
    ("clip-vit-base-patch32", {"resample": 0}, "resample is 0"),
    ("clip-vit-base-patch32", {"device": "meta"}, "device is 'meta'"),
    ("clip-vit-base-patch32", {"do_pad": True, "pad_size": {"height": 400, "width": 500}}, "pad_size"),
    ("vit-base-patch16-224", {"disable_grouping": False}, None),
    ("llava-next", {"disable_grouping": False, "do_pad": False}, None),
    ("gemma-3", {"do_pan_and_scan": True}, "do_pan_and_scan is true"),
    ("pixtral-12b", {"do_pad": False}, None),
    ("qwen2-vl", {"size": {"shortest_edge": 3136, "longest_edge": 28 * 28 * 20}}, None),
    ("qwen2-vl", {"do_resize": False}, "do_resize is false"),
    ("smolvlm-256m", {"return_row_col_info": True, "size": {"longest_edge": 800}}, None),
    ("smolvlm-256m", {"return_row_col_info": True, "do_image_splitting": False, "size": {"longest_edge": 700}}, None),
    ("internvl3", {"crop_to_patches": False}, None),
    ("deepseek-vl-1.3b", {"image_mean": [0.1, 0.2, 0.3]}, "background_color is not image_mean"),
    ("gemma-4", {"max_soft_tokens": 70}, None),
    ("llama-4-scout", {"do_normalize": False}, None),
]


@pytest.mark.quick(9)
@pytest.mark.parametrize("name, settings, reason", CALLS)
def test_settings_of_one_call_hold_as_in_the_library(name, settings, reason, tmp_path):
    library, adapter = theirs(tmp_path, config(name)), headrace.HeadraceImageProcessor.from_pretrained(name)
    for form in ("pt", None):
        expected = outcome(lambda form=form: library(IMAGES, return_tensors=form, **settings))
        if settings.get("device") != "meta":
            assert_same(outcome(lambda form=form: adapter(IMAGES, return_tensors=form, **settings)), expected)
        else:
            outcome(lambda form=form: adapter(IMAGES, return_tensors=form, **settings))
    place = "cpu" if reason is None else "library"
    assert adapter.counts[place] == sum(adapter.counts.values()) > 0
    assert reason is None or reason in adapter.reasons["library"]


@pytest.mark.parametrize(
    "image, reason",
    [
        (PIXELS[0].astype(np.float32) / 255, "an image is torch.float32 with shape (3, 200, 320)"),
        (np.zeros((50, 60, 1), np.uint8), "an image is torch.uint8 with shape (1, 50, 60)"),
        (torch.zeros(3, 40, 50), "an image is torch.float32"),
        (Image.new("RGB", (70000, 2)), "each side must be 1 to 65535 pixels"),
    ],
    ids=["floats", "grey", "torch floats", "too wide"],
)
def test_images_that_headrace_does_not_take_go_to_the_library(image, reason, tmp_path):
    settings = {"image_processor_type": "ViTImageProcessor", "do_resize": False}
    library, adapter = theirs(tmp_path, settings), ours(tmp_path, settings)
    expected = outcome(lambda: library(image, return_tensors="pt"))
    assert_same(outcome(lambda: adapter(image, return_tensors="pt")), expected)
    assert adapter.counts == {**NOTHING, "library": 1} and reason in adapter.reasons["library"]


@pytest.mark.parametrize(
    "settings, more",
    [
        ({"image_processor_type": "DPTImageProcessor"}, {}),
        ({"image_processor_type": "DINOv3ViTImageProcessor"}, {}),
        ({"image_processor_type": "CLIPImageProcessor"}, {"backend": "pil"}),
    ],
    ids=["unknown class", "refused class", "Pillow"],
)
def test_a_class_that_headrace_has_not_is_the_librarys(settings, more, tmp_path):
    library = transformers.AutoImageProcessor.from_pretrained(model(tmp_path, settings), **more)
    adapter = ours(tmp_path, settings, **more)
    assert isinstance(adapter, (headrace.HeadraceImageProcessor, type(library)))
    for images in (IMAGES[0], IMAGES):
        assert_same(adapter(images, return_tensors="np"), library(images, return_tensors="np"))
    stack = torch.from_numpy(GIVEN["stack"])
    assert_same(adapter(stack, return_tensors="np"), library(stack, return_tensors="np"))
    assert adapter.counts == {**NOTHING, "library": 6}
    assert f"{type(library).__name__} has no counterpart" in adapter.reasons["library"]


def test_a_setting_of_the_file_that_headrace_refuses_is_the_librarys(tmp_path):
    crops = {"min_crop_size": 64, "max_num_crops": 4, "min_ratio_to_activate": 1.2}
    settings = {"image_processor_type": "Gemma3ImageProcessor", "do_pan_and_scan": True}
    settings |= {f"pan_and_scan_{key}": value for key, value in crops.items()}
    library, adapter = theirs(tmp_path, settings), ours(tmp_path, settings)
    assert_same(adapter(IMAGES, return_tensors="pt"), library(IMAGES, return_tensors="pt"))
    assert adapter.counts == {**NOTHING, "library": 3} and "pan and scan" in adapter.reasons["library"]


@pytest.mark.parametrize(
    "images",
    [3, None, np.zeros(4), [], [[]], ["no such file"], "no such file", Image.new("RGB", (2, 900)), [None]],
    ids=["number", "none", "vector", "empty", "empty sample", "names", "name", "narrow", "list of none"],
)
def test_bad_input_raises_what_the_library_raises(images, tmp_path):
    library = theirs(tmp_path, config("qwen2-vl"))
    adapter = headrace.HeadraceImageProcessor.from_pretrained("qwen2-vl")
    expected = outcome(lambda: library(images, return_tensors="pt"))
    assert isinstance(expected, tuple) and issubclass(expected[0], Exception)
    assert outcome(lambda: adapter(images, return_tensors="pt")) == expected
    assert adapter.counts["cpu"] == 0
    assert_same(adapter(IMAGES[0], return_tensors="pt"), library(IMAGES[0], return_tensors="pt"))


def test_without_transformers_an_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for call in (
        lambda: headrace.HeadraceImageProcessor.from_pretrained("qwen2-vl"),
        lambda: headrace.HeadraceFeatureExtractor.from_pretrained("whisper-tiny"),
        headrace.register_processors,
    ):
        with pytest.raises(headrace.UsageError, match=r"needs transformers; pip install 'headrace\[transformers\]'"):
            call()


def test_a_bad_target_or_model_is_an_error(tmp_path):
    make = headrace.HeadraceImageProcessor.from_pretrained
    with pytest.raises(headrace.UsageError, match=r"target is 'gpu'; give cpu, sw_emu, hw_emu, or the path"):
        make("qwen2-vl", target="gpu")
    (tmp_path / "text.xclbin").write_text("none")
    with pytest.raises(headrace.HeadraceError, match=r"text\.xclbin"):
        make("qwen2-vl", target=tmp_path / "text.xclbin")
    with pytest.raises(headrace.UsageError, match=r"call HeadraceImageProcessor\.from_pretrained"):
        headrace.HeadraceImageProcessor(size=224)
    with pytest.raises(headrace.UsageError, match=r"call HeadraceFeatureExtractor\.from_pretrained"):
        headrace.HeadraceFeatureExtractor()
    with pytest.raises(OSError, match="qwen-two"):
        make("qwen-two")
    with pytest.raises(ValueError, match="Unrecognized image processor"):
        ours(tmp_path / "other", {"image_processor_type": "NoneSuchImageProcessor"})


@pytest.mark.parametrize("name", ["qwen2-vl", "smolvlm", "clip-vit-base-patch32"])
def test_an_adapter_is_an_object_of_the_librarys_class(name, tmp_path):
    library, adapter = theirs(tmp_path, config(name)), headrace.HeadraceImageProcessor.from_pretrained(name)
    assert isinstance(adapter, BaseImageProcessor) and isinstance(adapter, type(library))
    assert adapter.to_dict() == library.to_dict() and str(adapter) == str(library)
    for each in ("size", "patch_size", "merge_size", "model_input_names", "image_mean", "backend", "valid_kwargs"):
        assert getattr(adapter, each, None) == getattr(library, each, None)
    if hasattr(library, "get_number_of_image_patches"):
        assert adapter.get_number_of_image_patches(300, 200, {}) == library.get_number_of_image_patches(300, 200, {})
    adapter.save_pretrained(tmp_path / "saved")
    again = transformers.AutoImageProcessor.from_pretrained(tmp_path / "saved")
    assert type(again) is type(library) and again.to_dict() == library.to_dict()


def test_settings_take_the_place_of_those_of_the_file(tmp_path):
    settings = config("clip-vit-base-patch32")
    library = transformers.AutoImageProcessor.from_pretrained(model(tmp_path, settings), crop_size=100)
    adapter = ours(tmp_path, settings, crop_size=100)
    assert adapter(IMAGES[0], return_tensors="np")["pixel_values"].shape == (1, 3, 100, 100)
    adapter.image_mean = library.image_mean = [0.1, 0.2, 0.3]
    assert_same(adapter(IMAGES[0], return_tensors="pt"), library(IMAGES[0], return_tensors="pt"))
    assert adapter.counts == {**NOTHING, "cpu": 2}
    made, unused = ours(tmp_path, settings, return_unused_kwargs=True, of_nobody=3)
    assert unused == {"of_nobody": 3} and isinstance(made, headrace.HeadraceImageProcessor)


def test_copies_share_the_counts_and_pickled_objects_have_their_own():
    adapter = headrace.HeadraceImageProcessor.from_pretrained("qwen2-vl")
    twin, other = copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))
    expected = adapter(IMAGES[0], return_tensors="pt")
    for each in (twin, other, type(adapter)(**adapter.to_dict()), type(adapter).from_dict(adapter.to_dict())):
        assert_same(each(IMAGES[0], return_tensors="pt"), expected)
        assert type(each) is type(adapter)
    assert adapter.counts == twin.counts == {**NOTHING, "cpu": 2} and other.counts == {**NOTHING, "cpu": 1}


def test_threads_may_call_one_adapter_at_once():
    adapter = headrace.HeadraceImageProcessor.from_pretrained("siglip-base-patch16-224")
    expected = [adapter(image, return_tensors="pt") for image in IMAGES]
    start = threading.Barrier(4)

    def work(_):
        start.wait(timeout=60)
        return [adapter(image, return_tensors="pt") for image in IMAGES]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(4)):
            for one, other in zip(found, expected, strict=True):
                assert_same(one, other)
    assert adapter.counts == {**NOTHING, "cpu": 15}
