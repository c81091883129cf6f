"""Test what makes the inputs of a network from files, and which processors are refused before a server starts."""

import json
import os
from dataclasses import replace

import pytest

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.names import names
from headrace.host.dpu.processors import Engine
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.live.hardware import Network
from headrace.host.memory.layout import VARIABLE, TensorSpec
from headrace.host.server.file_inputs import check_processor, check_unpadded, file_input, refuse_images, with_inputs
from headrace.host.server.repository import Repository
from headrace.host.server.settings import ENGINES, ModelSettings, name_of, source_of
from headrace.host.workers.networks.description import NetworkDescription

CLIP = {"image_processor_type": "CLIPImageProcessor"}
IMAGE = TensorSpec("image", "float32", (3, 224, 224))
NAFLEX = (
    TensorSpec("spatial_shapes", "int64", (2,)),
    TensorSpec("pixel_values", "float32", (256, 768)),
    TensorSpec("pixel_attention_mask", "int32", (256,)),
)
GRID = TensorSpec("image_grid_thw", "int64", (3,))
PADDED = (TensorSpec("pixel_values", "float32", (VARIABLE, 1176), 16384), GRID)
QWEN = (TensorSpec("pixel_values", "float32", (VARIABLE, 1176), 16384, 1), GRID)
SHORT = (TensorSpec("pixel_values", "float32", (VARIABLE, 1176), 8, 1), GRID)


def network(*inputs: TensorSpec, source: str = "nets:own", **more) -> Network:
    outputs = (TensorSpec("output", "float32", (1,)),)
    return Network("own", source, NetworkDescription(name="own", inputs=inputs, outputs=outputs, **more), None, None)


def settings(**given) -> ModelSettings:
    return ModelSettings(**{"name": "own", "source": "nets:own", **given})


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a model that has the file of a processor."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(CLIP))
    (tmp_path / "model.pt2").touch()
    return tmp_path


@pytest.mark.parametrize("given", ["source", "weights"])
@pytest.mark.parametrize("inputs", [(IMAGE,), (TensorSpec("pixel_values", "float16", (3, 224, 224)),)])
def test_the_file_in_the_folder_of_the_weights_counts(folder, given, inputs):
    own = settings(**({"source": f"{folder}/model.pt2"} if given == "source" else {"weights": folder / "w.pt"}))
    found = file_input(own, network(*inputs, transform=ImageSpec()))
    assert found.spec.name == "CLIPImageProcessor" and found.tensors == {inputs[0].name: "pixel_values"}
    assert found.text.endswith(
        f"images become 1x3x224x224 float32 by CLIPImageProcessor of {folder}/preprocessor_config.json, with the bits "
        "of torchvision"
    )


def test_the_file_of_all_settings_counts_where_there_is_no_other(folder):
    (folder / "preprocessor_config.json").unlink()
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": CLIP, "processor_class": "CLIP"}))
    found = file_input(settings(weights=folder / "weights.pt", engine="pillow13"), network(IMAGE))
    assert found.spec.engine is Engine.PILLOW13 and "CLIPImageProcessor of" in found.text


@pytest.mark.parametrize(
    "given, network_",
    [
        ({"processor": "none"}, network(IMAGE)),
        ({}, network(TensorSpec("features", "float32", (80, 3000)))),
        ({}, network(IMAGE, TensorSpec("tokens", "int64", (8,)))),
        ({}, network(NAFLEX[0], NAFLEX[2], transform=AudioSpec())),
    ],
)
def test_a_file_in_the_folder_is_left_out_where_it_is_not_for_the_network(folder, given, network_):
    (folder / "preprocessor_config.json").write_text('{"feature_extractor_type": "WhisperFeatureExtractor"}')
    assert file_input(settings(weights=folder / "w.pt", **given), network_).tensors == {}


def test_a_name_counts_before_a_file(folder):
    own = settings(weights=folder / "w.pt", processor="siglip-base-patch16-224")
    assert file_input(own, network(IMAGE)).spec.name == "SiglipImageProcessor"


def test_a_folder_with_the_name_of_a_model_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen2-vl").mkdir()
    (tmp_path / "qwen2-vl" / "preprocessor_config.json").write_text(json.dumps(CLIP))
    own = settings(source="qwen2-vl/model.pt2")
    assert file_input(own, network(IMAGE)).spec.name == "CLIPImageProcessor"


def test_patches_with_padding_have_one_shape_and_are_served():
    found = file_input(settings(processor="siglip2-base-patch16-naflex"), network(*NAFLEX))
    assert found.tensors == {each.name: each.name for each in NAFLEX}


@pytest.mark.parametrize(
    "name, inputs, text",
    [
        ("qwen2-vl", QWEN, "Nx1176 float32 by Qwen2VLImageProcessor"),
        ("qwen2-vl", (replace(QWEN[0], longest=256), GRID), "Nx1176 float32 by Qwen2VL"),  # small images fit
        ("paddleocr-vl", (TensorSpec("pixel_values", "float32", (-1, 3, 14, 14), 4096, 1), GRID), "Nx3x14x14 float32"),
        ("internvl3", (TensorSpec("x", "float32", (-1, 3, 448, 448), 13, 1),), "Nx3x448x448 float32 by GotOcr2"),
        ("llava-next", (TensorSpec("x", "float32", (-1, 3, 336, 336), 5),), "1xNx3x336x336 float32 by LlavaNext"),
    ],
)
def test_tensors_whose_shape_depends_on_the_image_fit_an_input_that_varies(name, inputs, text):
    found = file_input(settings(processor=name), network(*inputs))
    assert next(iter(found.tensors.values())) == "pixel_values" and f"images become {text}" in found.text


@pytest.mark.parametrize(
    "name, inputs, text",
    [
        (
            "clip-vit-large-patch14-336",
            (IMAGE,),
            "CLIPImageProcessor makes pixel_values of 1x3x336x336 float32, and the input 'image' takes Nx3x224x224 "
            "float32; give the processor of this network",
        ),
        (
            "qwen2-vl",
            PADDED,
            "Qwen2VLImageProcessor makes tensors whose shape depends on the image: pixel_values is 1564x1176 float32 "
            "of 640x480 pixels and ",
        ),
        (
            "qwen2-vl",
            PADDED,
            "takes Nx1..16384x1176 float32; give --input-shape with pixel_values=1..LONGEST+x1176",
        ),
        ("qwen2-vl", SHORT, "makes pixel_values of 1564x1176 float32, and the input 'pixel_values' takes 1..8+x1176 "),
        ("qwen3-vl", QWEN, "whose shape depends on the image: pixel_values is 1200x1536 float32 of 640x480 pixels"),
        ("pixtral-12b", (IMAGE,), "whose shape depends on the image: pixel_values is 1x3x480x640 float32 of 640x480"),
        ("pixtral-12b", (IMAGE,), "2 of its sizes vary, and one may; send tensors"),
        ("internvl3", (IMAGE,), "give --input-shape with pixel_values=1..LONGEST+x3x448x448"),
        ("llava-next", (IMAGE,), "give --input-shape with pixel_values=1..LONGESTx3x336x336"),
        ("clip-vit-base-patch32", (IMAGE, TensorSpec("ids", "int64", (8,))), "the network has an input 'image'"),
        ("clip-vit-base-patch32", (TensorSpec("image", "uint8", (3, 224, 224)),), "takes Nx3x224x224 uint8"),
        ("clip-vit-base-patch32", (TensorSpec("ids", "int64", ()),), "the input 'ids' takes N int64"),
        ("siglip2-base-patch16-naflex", NAFLEX[1:2] + NAFLEX[:1], None),
    ],
)
def test_tensors_that_do_not_fit_the_network_are_refused(name, inputs, text):
    own = settings(processor=name)
    if text is None:
        assert len(file_input(own, network(*inputs)).tensors) == 2  # a network need not take all tensors
        return
    with pytest.raises(UsageError) as raised:
        file_input(own, network(*inputs))
    assert text in str(raised.value) and str(raised.value).startswith(f"model 'own', processor {name}: ")


@pytest.mark.parametrize(
    "given, text",
    [
        (
            {"processor": "clip-vit-base-patch3"},
            "no processor 'clip-vit-base-patch3'; did you mean clip-vit-base-patch32",
        ),
        ({"processor": "clip-vit-base-patch32", "mean": (0.5,) * 3}, "and so does --mean; leave out --mean"),
        ({"processor": "qwen2-vl", "engine": "opencl"}, "choose from torchvision, pillow12, pillow13, opencv"),
        ({"processor": "/nowhere.json"}, "processor /nowhere.json: No such file or directory"),
    ],
)
def test_a_processor_that_cannot_be_is_refused_before_the_network_is_read(given, text):
    with pytest.raises(UsageError) as raised:
        check_processor(settings(**given))
    assert text in str(raised.value)


@pytest.mark.parametrize(
    "config, more, text",
    [
        ({**CLIP, "colour": 1}, {}, "CLIPImageProcessor: the setting colour is unknown here"),
        ({"image_processor_type": "NougatImageProcessor"}, {}, "NougatImageProcessor has no counterpart here"),
        (CLIP, {"std": (0.5,) * 3}, "and so does --std; leave out --std"),
        ({**CLIP, "size": 336, "crop_size": 336}, {}, "takes Nx3x224x224 float32; give the processor of this network"),
    ],
)
def test_a_bad_file_in_the_folder_is_named_with_a_way_out(folder, config, more, text):
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError) as raised:
        file_input(settings(weights=folder / "w.pt", **more), network(IMAGE))
    said = str(raised.value)
    assert said.startswith(f"model 'own', processor {folder}/preprocessor_config.json: ") and text in said
    assert said.endswith(", or give --processor none")


@pytest.mark.usefixtures("full_stack")
def test_a_file_that_cannot_be_read_is_refused(folder):
    file = folder / "preprocessor_config.json"
    for text, said in (
        ("[" * 100_000, "it nests too deep"),
        (" " * (1 << 20) + "{}", f"{file} has more than 1048576 bytes"),
        ("{", "Expecting property name"),
        ("[1]", "has no object of settings"),
    ):
        file.write_text(text)
        for given in ({"weights": folder / "w.pt"}, {"processor": str(file)}, {"processor": str(folder)}):
            with pytest.raises(UsageError) as raised:
                file_input(settings(**given), network(IMAGE))
            assert said in str(raised.value), raised.value
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UsageError, match="is not a regular file; give a preproc"):
        file_input(settings(processor=str(folder)), network(IMAGE))


def test_an_engine_or_a_processor_without_images_is_refused():
    with pytest.raises(UsageError, match="--engine is for an image processor, and it has none; give --processor"):
        file_input(settings(engine="pillow12"), network(IMAGE))
    with pytest.raises(UsageError, match="model 'own' takes no images; leave out --processor"):
        refuse_images(settings(processor="qwen2-vl"))
    refuse_images(settings(processor="none"))


def test_the_engines_are_those_of_processors():
    assert tuple(each.value for each in Engine) == ENGINES


def test_the_source_of_a_folder_is_its_program(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert source_of(f"./{folder.name}") == source_of(f"{folder.name}/") == f"{folder.name}/model.pt2"
    assert source_of(folder.name) == folder.name  # which may be a network's name
    assert [name_of(text) for text in (f"{folder}/", f"{folder}/model.pt2", "resnet18", "a:b")] == [
        folder.name,
        "model",
        "resnet18",
        "a:b",
    ]
    (folder / "other.pt2").touch()
    with pytest.raises(UsageError, match=r"the folder has 2 files \.pt2; save one with torch\.export\.save there, or"):
        source_of(str(folder))
    for file in folder.glob("*.pt2"):
        file.unlink()
    with pytest.raises(UsageError, match=r"--model .*: the folder has no file \.pt2; save one"):
        source_of(str(folder))


def test_a_processor_of_the_repository_is_a_name_or_a_file_of_its_folder(folder):
    (folder / "net.toml").write_text('source = "./vit"\nprocessor = "siglip.json"\nengine = "pillow12"\n')
    (folder / "vit").mkdir()
    (folder / "vit" / "net.pt2").touch()
    own = Repository(folder, ModelSettings()).settings("net")
    assert (own.source, own.processor, own.engine) == (f"{folder}/vit/net.pt2", f"{folder}/siglip.json", "pillow12")
    for name in (names()[0], "none"):
        (folder / "net.toml").write_text(f'source = "resnet18"\nprocessor = "{name}"\n')
        assert Repository(folder, ModelSettings()).settings("net").processor == name


@pytest.mark.parametrize(
    "name, shape",
    [
        ("siglip-base-patch16-224", "pixel_values=3x224x224:float32"),
        (
            "siglip2-base-patch16-naflex",
            "pixel_values=256x768:float32,pixel_attention_mask=256:int32,spatial_shapes=2:int64",
        ),
        ("whisper-tiny", "input_features=80x3000:float32"),
        ("phi-4-multimodal", "audio_input_features=1..5998x80:float32,audio_embed_sizes=scalar:int64"),
        ("wav2vec2-large-960h-lv60", "input_values=1..960000:float32,attention_mask=1..960000:int32"),
    ],
)
def test_tensors_take_the_inputs_that_the_processor_makes(name, shape):
    assert with_inputs(settings(source="tensors", processor=name)).input_shape == shape
    given = settings(source="tensors", processor=name, input_shape="3x8x8")
    assert with_inputs(given) == given
    network_of_ones_own = settings(processor=name)
    assert with_inputs(network_of_ones_own) == network_of_ones_own


@pytest.mark.parametrize(
    "given, text",
    [
        ({}, "model 'own': tensors returns what a processor makes; give --processor, or --input-shape"),
        ({"processor": "none"}, "model 'own': tensors returns what a processor makes; give --processor"),
        (
            {"processor": "qwen2-vl"},
            "give --input-shape pixel_values=1..LONGEST+x1176:float32,image_grid_thw=3:int64",
        ),
        ({"processor": "llama-4-scout"}, "pixel_values is bfloat16, which the protocol does not have"),
        ({"processor": "pixtral-12b"}, "several sizes of pixel_values depend on the image, and one may; "),
    ],
)
def test_tensors_that_cannot_be_served_are_refused_before_the_network_is_read(given, text):
    with pytest.raises(UsageError) as refused:
        with_inputs(settings(source="tensors", **given))
    assert text in str(refused.value)


def test_tensors_that_a_batch_pads_go_alone():
    served = network(*PADDED, source="tensors").description
    with pytest.raises(UsageError, match=r"a batch pads pixel_values to its longest, .* give --max-batch 1"):
        check_unpadded(settings(source="tensors"), served)
    check_unpadded(settings(source="tensors", max_batch=1), served)
    check_unpadded(settings(), served)
    check_unpadded(settings(source="tensors"), network(*QWEN).description)
