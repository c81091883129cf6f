"""Test that the known models have the tensors that transformers makes for them, and how a processor is found."""

import json
from importlib.resources import files

import pytest
import transformers
from like_transformers import ENGINES, check, engines, picture
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.model_types import MODEL_TYPES
from headrace.host.dpu.hugging_face.names import config, names, processor
from headrace.host.dpu.hugging_face.reading import CLASSES, from_hf
from headrace.host.dpu.processors import Engine, Size

SIZES = [(301, 200), (90, 131)]
CASES = [(name, engine) for name in names() for engine in ENGINES if engine in engines(processor(name).name)]


@pytest.mark.quick(36)
@pytest.mark.parametrize(("name", "engine"), CASES)
def test_a_known_model_has_the_tensors_of_transformers(name, engine):
    """transformers reads the same file, so the test shows that each setting in it means the same to both."""
    settings = dict(config(name))
    kind = settings.pop("image_processor_type").removesuffix("Fast")
    check(kind, settings, engine, [picture(*size) for size in SIZES])


def test_each_file_is_a_model():
    listed = [each.name for each in (files("headrace.host.dpu.hugging_face") / "models").iterdir()]
    assert set(listed) == {f"{name}.json" for name in names()} and len(listed) >= 30
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


def test_a_file_that_names_no_class_has_that_of_the_model_as_in_transformers(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    old = {"do_normalize": True, "do_resize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": 224}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(old))
    assert isinstance(transformers.AutoImageProcessor.from_pretrained(tmp_path), transformers.ViTImageProcessor)
    expected = from_hf({"image_processor_type": "ViTImageProcessor", **old})
    assert processor(tmp_path) == processor(tmp_path / "preprocessor_config.json") == expected


@pytest.mark.parametrize("text", ["nothing", "{}", '{"model_type": ["vit"]}', '{"model_type": "bert"}'])
def test_a_model_that_does_not_tell_its_class_is_refused(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "preprocessor_config.json").write_text('{"size": 224}')
    with pytest.raises(UsageError, match=r"preprocessor_config\.json: the processor has no image_processor_type"):
        processor(tmp_path)


def test_the_types_of_models_are_those_of_transformers():
    of_transformers = {}
    for model_type, each in IMAGE_PROCESSOR_MAPPING_NAMES.items():
        name = (each.get("torchvision") or each.get("pil") or "").removesuffix("Pil")
        if name in CLASSES:
            of_transformers[model_type] = name
    assert of_transformers == MODEL_TYPES


def test_the_settings_of_all_inputs_come_first_as_in_transformers(model):
    (model / "processor_config.json").write_text(json.dumps({"image_processor": config("qwen3-vl")}))
    assert isinstance(transformers.AutoImageProcessor.from_pretrained(model), transformers.Qwen2VLImageProcessor)
    assert processor(model) == processor("qwen3-vl")
    (model / "processor_config.json").write_text(json.dumps({"processor_class": "PixtralProcessor"}))
    assert processor(model) == processor("pixtral-12b")


def test_a_name_is_the_known_model_even_where_a_folder_has_that_name(model, monkeypatch):
    monkeypatch.chdir(model.parent)
    model.rename("qwen2-vl")
    assert processor("qwen2-vl") == from_hf(config("qwen2-vl"))
    assert processor("./qwen2-vl") == processor("pixtral-12b")


@pytest.mark.parametrize("engine", Engine)
def test_an_engine_is_named_or_given(engine):
    assert processor("vit-base-patch16-224", engine) == processor("vit-base-patch16-224", engine.value)
    assert processor("vit-base-patch16-224", engine).engine is engine


WRONG = '{"image_processor": {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 0}}'


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("qwen2vl", "there is no processor 'qwen2vl'; did you mean qwen2-vl, "),
        ("Qwen/Qwen3-VL", "did you mean qwen3-vl, "),
        ("clip", "there is no processor 'clip'; known are aria, clip-vit-base-patch32, "),
        ("no/model.json", "no/model.json: No such file or directory"),
        ("{folder}/empty", "empty has no preprocessor_config.json; name the folder of a model that takes images"),
        ("{folder}/text", "processor_config.json has no image_processor; name a model that takes images"),
        ("{folder}/wrong", "processor_config.json: Qwen2VLImageProcessor: patch_size is 0; give a whole number"),
        ("{folder}/broken", "processor_config.json: Expecting value"),
        ("{folder}/strange.json", "strange.json has no object of settings; give a preprocessor_config.json"),
    ],
)
def test_what_is_no_processor_is_refused(name, told, tmp_path):
    for folder, text in {"empty": "", "text": '{"processor_class": "X"}', "broken": "nothing", "wrong": WRONG}.items():
        (tmp_path / folder).mkdir()
        if text:
            (tmp_path / folder / "processor_config.json").write_text(text)
    (tmp_path / "strange.json").write_text("[]")
    with pytest.raises(UsageError) as raised:
        processor(name.format(folder=tmp_path))
    assert told in str(raised.value)


def test_an_unknown_engine_is_refused():
    with pytest.raises(UsageError, match="no engine 'opencl'; choose from torchvision, pillow12, pillow13, opencv"):
        processor("qwen2-vl", "opencl")


def test_opencv_resizes_by_bilinear_only():
    with pytest.raises(UsageError, match="opencv resizes by bilinear only, and the processor by bicubic"):
        processor("qwen2-vl", "opencv")


def test_internvl_cuts_tiles_as_its_processor_asks_for():
    """Its image processor would not by itself: the processor of text and images adds this setting."""
    assert transformers.InternVLProcessor.images_kwargs["crop_to_patches"] is True
    assert processor("internvl3").tiles.tile == Size(448, 448)
