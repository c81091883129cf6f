"""Test that the known models have the tensors that transformers makes for them, and how a processor is found."""

import json
from importlib.resources import files

import numpy as np
import PIL
import pytest
import transformers
from PIL import Image

import headrace.host.workers.networks.models  # noqa: F401 (defines operators that torchvision needs)
from headrace.batching import UsageError
from headrace.host.dpu.hugging_face import from_hf
from headrace.host.dpu.image_processors.names import config, names, processor
from headrace.host.dpu.processors import Engine, Size
from headrace.host.dpu.reference.processor import process

INSTALLED = Engine.PILLOW13 if int(PIL.__version__.partition(".")[0]) >= 13 else Engine.PILLOW12
ENGINES = {Engine.TORCHVISION: "", INSTALLED: "Pil"}  # with the ending of the class in transformers
SIZES = [(301, 200), (90, 131)]


def picture(width: int, height: int) -> np.ndarray:
    rng = np.random.default_rng(width)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 7, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", names())
def test_a_known_model_has_the_tensors_of_transformers(name, engine):
    """transformers reads the same file, so the test shows that each setting in it means the same to both."""
    settings = dict(config(name))
    kind = settings.pop("image_processor_type").removesuffix("Fast")
    theirs, spec = getattr(transformers, kind + ENGINES[engine])(**settings), processor(name, engine)
    for size in SIZES:
        image = picture(*size)
        expected, found = theirs(Image.fromarray(image), return_tensors="np"), process(image, spec)
        assert set(found) == set(expected)
        for key, values in found.items():
            assert values.dtype == expected[key].dtype and np.array_equal(values, expected[key]), (size, key)


def test_each_file_is_a_model():
    listed = [each.name for each in (files("headrace.host.dpu.image_processors") / "models").iterdir()]
    assert set(listed) == {f"{name}.json" for name in names()} and len(listed) >= 20
    assert {"clip-vit-base-patch32", "qwen2-vl", "qwen3-vl", "llava-next", "internvl3"} <= set(names())


@pytest.fixture
def model(tmp_path):
    """Return the folder of a model, with weights and the settings of Pixtral."""
    folder = tmp_path / "pixtral"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "preprocessor_config.json").write_text(json.dumps(config("pixtral-12b")))
    return folder


def test_a_file_and_the_folder_that_has_it_are_the_processor(model):
    expected = processor("pixtral-12b")
    assert processor(model) == processor(str(model)) == processor(model / "preprocessor_config.json") == expected


def test_a_folder_may_have_the_settings_of_all_inputs_in_one_file(model):
    """transformers 5 may save a model's processor so."""
    (model / "preprocessor_config.json").rename(model / "image.json")
    all_inputs = {"image_processor": config("qwen3-vl"), "processor_class": "Qwen3VLProcessor"}
    (model / "processor_config.json").write_text(json.dumps(all_inputs))
    assert processor(model) == processor("qwen3-vl")
    assert processor(model / "image.json") == processor("pixtral-12b")


def test_a_name_is_the_known_model_even_where_a_folder_has_that_name(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    model.rename("qwen2-vl")
    assert processor("qwen2-vl") == from_hf(config("qwen2-vl"))
    assert processor("./qwen2-vl") == processor("pixtral-12b")


@pytest.mark.parametrize("engine", Engine)
def test_an_engine_is_named_or_given(engine):
    assert processor("qwen2-vl", engine) == processor("qwen2-vl", engine.value)
    assert processor("qwen2-vl", engine).engine is engine


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("qwen2vl", "there is no processor 'qwen2vl'; did you mean qwen2-vl, "),
        ("Qwen/Qwen3-VL", "did you mean qwen3-vl, "),
        ("clip", "there is no processor 'clip'; known are clip-vit-base-patch32, "),
        ("no/model.json", "no/model.json: No such file or directory"),
        ("{folder}/empty", "empty has no preprocessor_config.json; name the folder of a model that takes images"),
        ("{folder}/text", "processor_config.json has no image_processor; name a model that takes images"),
        ("{folder}/broken", "processor_config.json: Expecting value"),
        ("{folder}/strange.json", "strange.json has no object of settings; give a preprocessor_config.json"),
    ],
)
def test_what_is_no_processor_is_refused(name, told, tmp_path):
    for folder, text in {"empty": "", "text": '{"processor_class": "X"}', "broken": "nothing"}.items():
        (tmp_path / folder).mkdir()
        if text:
            (tmp_path / folder / "processor_config.json").write_text(text)
    (tmp_path / "strange.json").write_text("[]")
    with pytest.raises(UsageError) as raised:
        processor(name.format(folder=tmp_path))
    assert told in str(raised.value)


def test_an_unknown_engine_is_refused():
    with pytest.raises(UsageError, match="no engine 'opencv'; choose from torchvision, pillow12, pillow13"):
        processor("qwen2-vl", "opencv")


def test_internvl_cuts_tiles_as_its_processor_asks_for():
    """Its image processor would not by itself: the processor of text and images adds this setting."""
    assert transformers.InternVLProcessor.images_kwargs["crop_to_patches"] is True
    assert processor("internvl3").tiles.tile == Size(448, 448)
