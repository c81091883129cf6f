"""Test that `headrace.preprocess` gives the tensors of transformers for each form of an image."""

import io
import json

import numpy as np
import pytest
import transformers
from PIL import Image
from transformers.image_utils import load_image

import headrace
import headrace.host.workers.networks.models  # (defines operators that torchvision needs)
from headrace.batching.errors import CorruptInput
from headrace.host.dpu.hugging_face.names import config

RNG = np.random.default_rng(8)
PIXELS = np.asarray(Image.fromarray(RNG.integers(0, 256, (8, 9, 3), np.uint8)).resize((120, 90)))


@pytest.fixture
def file(tmp_path):
    """Return a photo that lies on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(PIXELS).save(tmp_path / "photo.jpg", exif=exif)
    return tmp_path / "photo.jpg"


@pytest.mark.parametrize("form", ["path", "text", "bytes", "Pillow", "array"])
def test_an_image_gives_the_tensors_of_transformers(form, file):
    image = {
        "path": file,
        "text": str(file),
        "bytes": file.read_bytes(),
        "Pillow": Image.open(file),
        "array": np.asarray(load_image(str(file))),
    }[form]
    expected = transformers.Qwen2VLImageProcessor(max_pixels=12845056)(load_image(str(file)), return_tensors="np")
    found = headrace.preprocess(image, headrace.processor("qwen2-vl"))
    assert set(found) == {"pixel_values", "image_grid_thw"}
    assert all(np.array_equal(found[name], expected[name]) for name in found)


def test_a_processor_may_be_named(file):
    by_name = headrace.preprocess(file, "siglip-base-patch16-224")
    by_spec = headrace.preprocess(file, headrace.processor("siglip-base-patch16-224"))
    assert np.array_equal(by_name["pixel_values"], by_spec["pixel_values"])
    folder = file.with_name("model")
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text(json.dumps(config("siglip-base-patch16-224")))
    of_folder = headrace.preprocess(file, folder)
    assert np.array_equal(by_name["pixel_values"], of_folder["pixel_values"])
    assert isinstance(headrace.processor("siglip-base-patch16-224"), headrace.ProcessorSpec)


@pytest.mark.parametrize("array", [PIXELS.astype(np.float32), PIXELS[..., 0], PIXELS[..., :2], PIXELS[:0]])
def test_an_array_that_is_no_image_is_refused(array):
    with pytest.raises(headrace.UsageError, match=r"is no image; give uint8 \(rows, columns, 3\)"):
        headrace.preprocess(array, "qwen2-vl")


def test_what_is_no_image_is_refused():
    with pytest.raises(headrace.UsageError, match="int is no image; give a path, bytes, an array or an image of Pill"):
        headrace.preprocess(3, "qwen2-vl")


def test_an_image_of_pillow_whose_file_is_cut_off_is_refused(file):
    cut = Image.open(io.BytesIO(file.read_bytes()[:900]))
    with pytest.raises(CorruptInput, match="Pillow cannot decode this JPEG file: image file is truncated"):
        headrace.preprocess(cut, "qwen2-vl")


def test_a_bad_file_is_named(file, tmp_path):
    file.write_bytes(file.read_bytes()[:900])
    with pytest.raises(CorruptInput) as raised:
        headrace.preprocess(file, "qwen2-vl")
    assert str(raised.value) == f"{file}: it is damaged: Premature end of JPEG file"
    with pytest.raises(CorruptInput, match=r"^it is damaged: Premature end of JPEG file$"):
        headrace.preprocess(file.read_bytes(), "qwen2-vl")
    with pytest.raises(headrace.UsageError, match=r"none\.jpg: No such file or directory"):
        headrace.preprocess(tmp_path / "none.jpg", "qwen2-vl")
    with pytest.raises(headrace.UsageError, match="damaged is 'never'; give strict or lenient"):
        headrace.preprocess(file, "qwen2-vl", damaged="never")


def test_an_image_that_the_processor_does_not_take_is_refused(tmp_path):
    Image.new("RGB", (1, 300)).save(tmp_path / "line.png")
    with pytest.raises(headrace.UsageError, match=r"line\.png: an image of 1x300 is too long for this processor"):
        headrace.preprocess(tmp_path / "line.png", "qwen2-vl")


def test_the_limit_of_pixels_holds_before_the_file_is_decoded():
    file = io.BytesIO()
    Image.new("L", (2000, 1000)).save(file, "PNG")
    with pytest.raises(CorruptInput, match="2000x1000 pixels, by its header, are more than"):
        headrace.preprocess(file.getvalue(), "qwen2-vl", max_megapixels=1)
