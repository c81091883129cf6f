"""Networks by name and users' own: their inputs and outputs are found, and an error is one line."""

import collections
import dataclasses
import io
import itertools
import re
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from headrace.batching import UsageError
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageSpec, ImageStage
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.input_shapes import parse_input_shape
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.zoo.torchvision_networks import torchvision

_numbers = itertools.count()


@pytest.fixture
def users(tmp_path, monkeypatch):
    """Return a function that writes a module with `net` into the current folder, and returns its name for --model."""
    monkeypatch.chdir(tmp_path)

    def write(body: str) -> str:
        name = f"mine{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text("import torch\nfrom torch import nn\n" + body)
        return f"{name}:net"

    return write


def network(forward: str, attributes: str = "", parameters: str = "x") -> str:
    """Return the text of a module whose `net` returns `forward`, an expression of `parameters`."""
    return (
        f"class Net(nn.Module):\n    def forward(self, {parameters}):\n        return {forward}\n"
        f"def net():\n    made = Net()\n{attributes}    return made\n"
    )


def logits(model) -> np.ndarray:
    return model.forward([torch.ones(2, *model.input_shape)])[0].numpy()


# torchvision's


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "mobilenet-v3-small", "squeezenet1_1", "resnet50"])
def test_networks_by_name_have_fixed_weights_and_a_thousand_classes(name):
    first, second = load_model(name), load_model(name)
    assert first.classes == 1000 and logits(first).shape == (2, 1000)
    assert np.array_equal(logits(first), logits(second))
    assert not np.array_equal(logits(first)[0], np.zeros(1000))
    assert first.outputs == (TensorSpec("output", "float32", (1000,)),)
    assert first.categories[:2] == ("tench", "goldfish") and len(first.categories) == 1000


@pytest.mark.parametrize(
    ("name", "side", "short"),
    [("inception_v3", 299, 342), ("googlenet", 224, 256), ("efficientnet_b1", 240, 255)],
)
def test_the_input_is_that_of_the_networks_own_transform(name, side, short):
    model = load_model(name)
    assert model.input_shape == (3, side, side) and model.classes == 1000
    assert model.transform == ImageSpec(resize_short=short, crop_width=side, crop_height=side)
    photo = preprocess(demo_images()[0].jpeg, model.transform)
    assert model.forward([torch.from_numpy(photo)[None]])[0].shape == (1, 1000)
    # Theirs rescale what all others take, as they do with torchvision's weights.
    assert getattr(model.module, "transform_input", False) == (name in ("inception_v3", "googlenet"))


def test_a_vision_transformer_is_built_for_its_input():
    model = load_model("vit_b_32", input_shape="3x96x96")
    assert model.module.image_size == 96 and model.classes == 1000
    with pytest.raises(UsageError, match=r"cannot be built for this --input-shape.*patch size"):
        load_model("vit_b_32", input_shape="3x100x100")


def test_another_size_of_input_keeps_the_ratio_of_resize_to_crop():
    model = load_model("squeezenet1_1", input_shape="3x112x336")
    assert model.input_shape == (3, 112, 336)
    assert model.transform == ImageSpec(resize_short=384, crop_width=336, crop_height=112)


def test_segmentation_gives_its_map_by_name():
    model = load_model("lraspp_mobilenet_v3_large", input_shape="photo=3x64x96")
    assert model.inputs == (TensorSpec("photo", "float32", (3, 64, 96)),) and model.transform is None
    assert model.outputs == (TensorSpec("out", "float32", (21, 64, 96)),)
    assert model.forward([torch.zeros(3, 3, 64, 96)])[0].shape == (3, 21, 64, 96)
    with pytest.raises(UsageError, match="use its `outputs`"):
        _ = model.classes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("net.onnx", "ONNX is not read; save the network that it was made of with torch.export.save as .pt2"),
        ("models/net.pt", "give the network as module:function with --weights FILE, or save it with torch.export.save"),
        ("net.pth", "as module:function with --weights FILE"),
        ("net.safetensors", "as module:function with --weights FILE"),
        ("net.ONNX", "ONNX is not read"),
        ("net.tflite", "make it a torch.nn.Module and save that with torch.export.save as .pt2"),
    ],
)
def test_a_file_that_is_no_pt2_names_the_way(name, text):
    with pytest.raises(UsageError, match=re.escape(text)) as raised:
        load_model(name)
    assert str(raised.value).startswith(f"--model {name}: ")


def test_a_network_that_refuses_the_default_says_so_and_how_to_give_a_shape():
    with pytest.raises(UsageError, match=r"3, 224, 224.*--input-shape: RuntimeError: .*expected input") as raised:
        load_model("r3d_18")
    assert "\n" not in str(raised.value)
    assert load_model("r3d_18", input_shape="3x4x56x56").classes == 400


def test_no_network_by_name_downloads_anything(monkeypatch):
    def download(*_, **__):
        raise AssertionError("it downloads")

    monkeypatch.setattr(torchvision.models._api, "load_state_dict_from_url", download)
    load_model("lraspp_mobilenet_v3_large", input_shape="3x64x64")


def test_a_name_that_is_close_gets_a_hint():
    with pytest.raises(UsageError, match="mobilenet_v3_small"):
        load_model("mobilenet_v3_smal")


@pytest.mark.parametrize(("filter_name", "mean", "rms"), [("BILINEAR", 1.4, 2.7), ("BICUBIC", 1.0, 1.9)])
def test_torchvisions_resize_differs_by_as_much_as_is_told(filter_name, mean, rms):
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms._presets import ImageClassification

    published = ImageClassification(
        crop_size=224, resize_size=256, mean=(0, 0, 0), std=(1, 1, 1), interpolation=InterpolationMode[filter_name]
    )
    means, deviations = [], []
    for photo in demo_images():
        theirs = published(Image.open(io.BytesIO(photo.jpeg)).convert("RGB")).permute(1, 2, 0).numpy() * 255
        difference = np.abs(theirs - preprocess(photo.jpeg, ImageSpec(), ImageStage.CROP))
        means.append(difference.mean())
        deviations.append(np.sqrt((difference**2).mean()))
    assert abs(np.mean(means) - mean) < 0.1 and abs(np.mean(deviations) - rms) < 0.1


# the option --input-shape


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("3x299x299", [TensorSpec("", "float32", (3, 299, 299))]),
        ("image=3x8x8:uint8", [TensorSpec("image", "uint8", (3, 8, 8))]),
        ("ids=1..128:int64", [TensorSpec("ids", "int64", (-1,), 128)]),
        ("80x1..3000", [TensorSpec("", "float32", (80, -1), 3000)]),
        (
            "ids=1..16:int64, mask=1..16:bool",
            [TensorSpec("ids", "int64", (-1,), 16), TensorSpec("mask", "bool", (-1,), 16)],
        ),
        ("step=scalar:int64", [TensorSpec("step", "int64", ())]),
        (
            "patches=1..64+x12, image_grid_thw=3:int64",
            [TensorSpec("patches", "float32", (-1, 12), 64, 1), TensorSpec("image_grid_thw", "int64", (3,))],
        ),
        ("1..8+", [TensorSpec("", "float32", (-1,), 8, 1)]),
    ],
)
def test_a_shape_in_text(text, specs):
    assert list(parse_input_shape(text)) == specs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no size"),
        ("3x", "'' is no size"),
        ("3,224,224x", "'' is no size"),
        ("ids=-1:int64", r"'-1' is no size; write .* 1\.\.128 for a variable size"),
        ("0x3", "'0' is no size"),
        ("3x٣", "is no size"),
        ("2..5", r"'2\.\.5' is no size"),
        ("1..1", "2 or more"),
        ("1..4x1..4", "one dimension of an input may be variable"),
        ("ids=3:int65", "'int65' is no type of tensors; give float32"),
        ("a=3,4", "name every input or none"),
        ("a=3,a=4", "two inputs have one name"),
        ("a b=3", "'a b' is no name"),
        ("=3", "'' is no name"),
        ("3x1..8+", r"'1\.\.8\+' must be the first size, along which a batch joins its requests"),
        ("a=1..8+,b=1..9+", r"if one variable size has a \+, each must have it and the same longest size"),
        ("a=1..8+,b=1..8", r"if one variable size has a \+, each must have it and the same longest size"),
    ],
)
def test_a_shape_that_makes_no_sense_says_what_to_write(text, message):
    with pytest.raises(UsageError, match=message) as raised:
        load_model("squeezenet1_1", input_shape=text)
    assert str(raised.value).startswith("--input-shape") and "\n" not in str(raised.value)


# users' own modules: what they give


@pytest.mark.parametrize(
    ("forward", "outputs"),
    [
        ("x.flatten(1)[:, :5]", [("output", "float32", (5,))]),
        ("x.mean((1, 2, 3))", [("output", "float32", ())]),
        ("x", [("output", "float32", (3, 4, 6))]),
        ("x.flatten(1).argmax(1)", [("output", "int64", ())]),
        ("x > 0", [("output", "bool", (3, 4, 6))]),
        ("(x.half(),)", [("output", "float16", (3, 4, 6))]),
        ("[x[:, 0], x[:, :, 0].double()]", [("output_0", "float32", (4, 6)), ("output_1", "float64", (3, 6))]),
        ("{'out': x, 'score': x[:, 0, 0, 0]}", [("out", "float32", (3, 4, 6)), ("score", "float32", ())]),
        ("Named(x, x[:, 0])", [("all", "float32", (3, 4, 6)), ("red", "float32", (4, 6))]),
        ("Data(logits=x[:, 0])", [("logits", "float32", (4, 6))]),
    ],
)
def test_outputs_are_found_by_name_type_and_shape(users, forward, outputs):
    body = (
        "import collections, dataclasses\n"
        "Named = collections.namedtuple('Named', 'all red')\n"
        "@dataclasses.dataclass\nclass Data:\n    logits: object\n    loss: object = None\n"
    )
    model = load_model(users(body + network(forward)), input_shape="3x4x6")
    assert model.outputs == tuple(TensorSpec(*output) for output in outputs)
    batch = torch.rand(5, 3, 4, 6)
    given = model.forward([batch])
    expected = eval(
        forward,
        {
            "x": batch,
            "Named": collections.namedtuple("Named", "all red"),
            "Data": dataclasses.make_dataclass("Data", ["logits"]),
        },
    )
    if isinstance(expected, torch.Tensor):
        expected = [expected]
    elif isinstance(expected, dict):
        expected = expected.values()
    elif dataclasses.is_dataclass(expected):
        expected = [expected.logits]
    for tensor, spec, value in zip(given, model.outputs, expected, strict=True):
        assert torch.equal(tensor, value) and tensor.shape == (5, *spec.shape)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ("x.mean()", r"output 'output' of a batch of 2 has shape \(\)"),
        ("x.transpose(0, 1)", r"has shape \(3, 2, 4\); its first dimension must be the batch"),
        ("x.new_zeros(2, 2, 7)", r"output 'output' of a batch of 1 has shape \(2, 2, 7\)"),
        ("x.transpose(0, 1)[:2]", "of a batch of 1 has shape"),
        ("x.flatten(1).squeeze()", r"of a batch of 1 has shape \(12,\)"),
        ("x[:, :1] if len(x) > 1 else x", "only the first dimension may depend"),
        ("x[:, 0] if len(x) > 1 else x", "only the first dimension may depend"),
        ("x.half() if len(x) > 1 else x", "only the first dimension may depend"),
        ("{'a': x} if len(x) > 1 else {'b': x}", "returns other outputs for a batch of 1"),
        ("{'a': x, 'loss': 0.5}", "output 'loss' is a float"),
        ("(x, (x, x))", "output 'output_1' is a tuple"),
        ("[{'boxes': x}] * 2", "output 'output_0' is a dict"),
        ("x.bfloat16()", "output 'output' is bfloat16; convert it"),
        ("None", "returns no tensors"),
        ("{}", "returns no tensors"),
        ("1 / 0", r"does not take x float32 \(2, 3, 4\): ZeroDivisionError"),
        ("exit(3)", "does not take.*SystemExit: 3"),
    ],
)
def test_outputs_that_cannot_be_served_are_refused_by_name(users, forward, message):
    with pytest.raises(UsageError, match=message) as raised:
        load_model(users(network(forward)), input_shape="3x4")
    assert "\n" not in str(raised.value)


# users' own modules: what they take


def test_the_variable_dimension_of_an_output_is_found(users):
    body = (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.table = nn.Embedding(50, 8)\n"
        "    def forward(self, ids, mask=None):\n"
        "        hidden = self.table(ids)\n"
        "        return {'hidden': hidden, 'twice': hidden[..., 0].repeat(1, 2), 'pooled': hidden.mean(1)}\n"
        "net = Net\n"
    )
    model = load_model(users(body), input_shape="ids=1..12:int64")
    assert model.inputs == (TensorSpec("ids", "int64", (-1,), 12),)
    assert model.outputs == (
        TensorSpec("hidden", "float32", (-1, 8), 12),
        TensorSpec("twice", "float32", (-1,), 24),
        TensorSpec("pooled", "float32", (8,)),
    )
    hidden, twice, pooled = model.forward([torch.tensor([[1, 2, 3]])])
    assert hidden.shape == (1, 3, 8) and twice.shape == (1, 6) and pooled.shape == (1, 8)


JOINED = "x=1..64+x4,image_grid_thw=3:int64"


@pytest.mark.parametrize("longest", [2, 5, 9, 64])
def test_outputs_of_a_network_with_joined_inputs_have_a_row_a_request_or_for_some_tokens(users, longest):
    body = (
        network(
            "{'all': x, 'images': grid + 0, 'fours': x[: len(x) // k * k].reshape(-1, k, 4).half().sum(1),"
            " 'means': torch.stack([each.mean(0) for each in x.split(grid.prod(1).tolist())])}",
            parameters="x, image_grid_thw, k=4",
        )
        .replace("grid +", "image_grid_thw +")
        .replace("grid.prod", "image_grid_thw.prod")
    )
    if longest < 8:
        body = body.replace("k=4", "k=1")
    merged = 1 if longest < 8 else 4
    model = load_model(users(body), input_shape=JOINED.replace("64+", f"{longest}+"))
    assert model.outputs == (
        TensorSpec("all", "float32", (-1, 4), longest, 1),
        TensorSpec("images", "int64", (3,)),
        TensorSpec("fours", "float16", (-1, 4), longest // merged, merged),
        TensorSpec("means", "float32", (4,)),
    )


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ("x[1:]", r"output 'output' is torch.float32 \(47, 4\) for requests of 16 and 32 tokens, and torch.float32 \("),
        ("x.sum()", "its first dimension must have one row for each request|has shape"),
        ("x[None]", "must have one row for each request, or one for each token or for as many tokens as it merges"),
        ("x.T", "must have one row for each request"),
        ("torch.cat((x, x))", "must have one row for each request"),
    ],
)
def test_other_outputs_of_a_network_with_joined_inputs_are_refused(users, forward, message):
    with pytest.raises(UsageError, match=message):
        load_model(users(network(forward, parameters="x, image_grid_thw")), input_shape=JOINED)


def test_an_output_that_varies_in_two_dimensions_is_refused(users):
    with pytest.raises(UsageError, match="2 dimensions that vary"):
        load_model(users(network("x[:, :, None] * x[:, None]")), input_shape="1..9")


def test_inputs_named_as_parameters_are_passed_by_name(users):
    body = network("tokens * 10 + kinds", parameters="tokens, mask=None, kinds=None")
    model = load_model(users(body), input_shape="kinds=4:int64,tokens=4:int64")
    assert [spec.name for spec in model.inputs] == ["kinds", "tokens"]
    with pytest.raises(UsageError, match="use its `inputs`"):
        _ = model.input_shape
    assert model.forward([torch.full((1, 4), 1), torch.full((1, 4), 2)])[0].tolist() == [[21] * 4]


def test_inputs_with_names_of_ones_own_are_passed_in_order(users):
    model = load_model(users(network("a * 10 + b", parameters="a, b")), input_shape="left=4,right=4")
    assert model.forward([torch.full((1, 4), 1.0), torch.full((1, 4), 2.0)])[0].tolist() == [[12.0] * 4]


def test_inputs_without_names_are_called_as_the_parameters(users):
    def names(parameters, shape):
        model = load_model(users(network("first", parameters=parameters)), input_shape=shape)
        return [spec.name for spec in model.inputs]

    assert names("first, second", "4,5x5") == ["first", "second"]
    assert names("first, *others", "4,5,6") == ["first", "input_1", "input_2"]
    assert load_model(users(network("x[0]", parameters="*x")), input_shape="4").inputs[0].name == "input"


@pytest.mark.parametrize(
    ("shape", "message"),
    [("left=4,b=4", "an input 'b', but no 'left'; it has a, b"), ("4,4,4", "takes a, b, not 3 inputs")],
)
def test_inputs_that_the_network_does_not_have_are_refused(users, shape, message):
    with pytest.raises(UsageError, match=message):
        load_model(users(network("a", parameters="a, b")), input_shape=shape)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("torch.jit.script(nn.Linear(3, 4))", "input"),
        ("torch.jit.trace(nn.Linear(3, 4), torch.zeros(1, 3))", "input"),
        ("torch.export.export(Net(), (torch.ones(2, 3),), dynamic_shapes=({0: torch.export.Dim('b')},)).module()", "x"),
        ("nn.DataParallel(nn.Linear(3, 4))", "input"),
    ],
)
def test_modules_that_torch_made_of_others_are_taken(users, made, name):
    body = network("x.sum(1, keepdim=True).expand(-1, 4)") + f"net = lambda: {made}\n"
    model = load_model(users(body), input_shape="3")
    assert model.inputs == (TensorSpec(name, "float32", (3,)),) and model.classes == 4
    assert model.forward([torch.ones(5, 3)])[0].shape == (5, 4)


@pytest.mark.parametrize(
    ("attribute", "inputs"),
    [
        ("(3, 4, 6)", [TensorSpec("x", "float32", (3, 4, 6))]),
        ("torch.Size([5])", [TensorSpec("x", "float32", (5,))]),
        ("()", [TensorSpec("x", "float32", ())]),
        ("'1..7:int64'", [TensorSpec("x", "int64", (-1,), 7)]),
        ("{'x': (3, 4, 6)}", [TensorSpec("x", "float32", (3, 4, 6))]),
        ("{'x': '1..7:int64'}", [TensorSpec("x", "int64", (-1,), 7)]),
    ],
)
def test_a_module_tells_what_it_takes(users, attribute, inputs):
    model = load_model(users(network("x", f"    made.input_shape = {attribute}\n")))
    assert model.inputs == tuple(inputs)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("(-1, 3)", "input_shape -1x3: '-1' is no size"),
        ("print", "its input_shape is a builtin_function_or_method; make it a tuple"),
        ("{'x': 3}", "its input_shape is a dict; make it a tuple"),
        ("{}", "is no size"),
    ],
)
def test_a_module_that_tells_nonsense_is_refused(users, attribute, message):
    with pytest.raises(UsageError, match=message):
        load_model(users(network("x", f"    made.input_shape = {attribute}\n")))


def test_the_callers_shape_goes_before_the_modules(users):
    model = load_model(users(network("x", "    made.input_shape = (3, 4, 6)\n")), input_shape="9")
    assert model.input_shape == (9,)


def test_a_network_of_timm_brings_its_input_and_transform(users):
    attribute = (
        "    made.default_cfg = {'input_size': (3, 240, 240), 'crop_pct': 0.9, 'mean': (0.5, 0.5, 0.5), "
        "'std': (0.25, 0.25, 0.25), 'interpolation': 'bicubic'}\n"
    )
    model = load_model(users(network("x.mean((2, 3))", attribute)))
    assert model.input_shape == (3, 240, 240) and model.classes == 3
    assert model.transform == ImageSpec(266, 240, 240, mean=(0.5,) * 3, std=(0.25,) * 3)


def test_a_module_brings_its_transform_and_labels(users):
    body = "from headrace.host.dpu.specs import ImageSpec\n" + network(
        "x.flatten(1)[:, :3]",
        "    made.input_shape = (3, 64, 64)\n"
        "    made.transform = ImageSpec(70, 64, 64, mean=(0.5, 0.5, 0.5))\n    made.categories = ['r', 'g', 'b']\n",
    )
    model = load_model(users(body))
    assert model.transform == ImageSpec(70, 64, 64, mean=(0.5,) * 3) and model.categories == ("r", "g", "b")
    half = load_model(users(body), input_shape="3x64x64:float16")
    assert half.transform == ImageSpec(70, 64, 64, mean=(0.5,) * 3, dtype="float16")
    assert load_model(users(body), input_shape="3x64x64:int64").transform is None
    assert load_model(users(network("x"))).transform is None


def test_labels_that_are_no_strings_are_refused(users):
    with pytest.raises(UsageError, match="categories must be a list of strings"):
        load_model(users(network("x", "    made.categories = {0: 'cat'}\n")))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def net(): return 3", "returned a int"),
        ("def net(): raise OSError('disk\\nfull')", "OSError: disk full"),
        ("raise ValueError('at import')", "ValueError: at import"),
        ("def other(): pass", "AttributeError"),
        ("def net(:", "SyntaxError: .*line 3"),
        ("import sys\nsys.exit(4)", "SystemExit: 4"),
        ("def net(): exit()", "SystemExit"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def net(): return nn.Linear(3, 4)", "does not take .*--input-shape: RuntimeError"),
        ("def net(a): return nn.Linear(3, 4)", "TypeError"),
        ("def net(): raise ValueError('long ' * 1000)", r"long \.\.\.$"),
    ],
)
def test_a_users_module_that_fails_is_reported_in_one_line(users, body, message, capsys):
    with pytest.raises(UsageError, match=message) as raised:
        load_model(users("print('hello')\n" + body) if "(:" not in body else users(body))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500
    assert capsys.readouterr().out == ""


def test_a_module_that_prints_leaves_stdout_alone(users, capsys):
    body = "print('imported')\n" + network("(print('run'), x)[1]", "    print('made')\n")
    load_model(users(body), input_shape="3")
    printed = capsys.readouterr()
    assert printed.out == "" and [word for word in ("imported", "made", "run") if word in printed.err] == [
        "imported",
        "made",
        "run",
    ]


def test_a_module_may_import_what_lies_beside_it_and_the_path_stays_as_it_was(users, tmp_path):
    (tmp_path / "helper_of_mine.py").write_text("size = 7")
    path = list(sys.path)
    body = "import helper_of_mine\nmade = nn.Linear(3, helper_of_mine.size)\nnet = lambda: made\n"
    assert load_model(users(body), input_shape="3").classes == 7
    with pytest.raises(UsageError):
        load_model(users("1 / 0"))
    assert sys.path == path


# weights


@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict", "state_dict/model", None])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_ones_own_weights_are_loaded(tmp_path, key, prefix):
    module = load_model("squeezenet1_1").module
    state = {name: torch.randn_like(value) * 0.01 for name, value in module.state_dict().items()}
    saved = {prefix + name: value for name, value in state.items()}
    for part in reversed(key.split("/") if key else []):
        saved = {part: saved, "epoch": 3}
    torch.save(saved, tmp_path / "w.pt")
    loaded = load_model("squeezenet1_1", str(tmp_path / "w.pt")).module.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in state.items())


def test_a_network_that_has_a_part_called_module_keeps_its_names(users, tmp_path):
    body = "def net():\n    made = nn.Sequential()\n    made.module = nn.Linear(3, 4)\n    return made\n"
    state = {"module.weight": torch.ones(4, 3), "module.bias": torch.ones(4)}
    torch.save(state, tmp_path / "w.pt")
    model = load_model(users(body), str(tmp_path / "w.pt"), "3")
    assert model.forward([torch.ones(1, 3)])[0].tolist() == [[4.0] * 4]


def test_weights_of_another_network_are_refused_by_name(tmp_path):
    torch.save(load_model("squeezenet1_1").module.state_dict(), tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"missing features\.0\.0\.weight.*unexpected"):
        load_model("mobilenet_v3_small", str(tmp_path / "w.pt"))


def test_weights_of_another_shape_are_refused_by_name(users, tmp_path):
    torch.save(torch.nn.Linear(5, 4).state_dict(), tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"does not fit.*weight.*\[4, 5\].*\[4, 3\]") as raised:
        load_model(users("def net(): return nn.Linear(3, 4)"), str(tmp_path / "w.pt"), "3")
    assert "\n" not in str(raised.value)


class Dangerous:
    def __reduce__(self):
        return (open, ("touched", "w"))


def test_a_whole_module_is_refused_without_running_its_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, content in enumerate((torch.nn.Linear(3, 4), {"model": Dangerous()})):
        torch.save(content, tmp_path / f"{number}.pt")
        with pytest.raises(UsageError, match=r"more than weights.*save the weights alone with torch\.save") as raised:
            load_model("squeezenet1_1", str(tmp_path / f"{number}.pt"))
        assert "\n" not in str(raised.value)
    assert not (tmp_path / "touched").exists()
    torch.jit.trace(torch.nn.Linear(3, 4), torch.zeros(1, 3)).save(tmp_path / "script.pt")
    with pytest.raises(UsageError, match=r"\(TorchScript\).*save the weights alone"):
        load_model("squeezenet1_1", str(tmp_path / "script.pt"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "no file of torch.save, or a damaged one"),
        (b"garbage", "no file of torch.save"),
        (b"PK\x03\x04 cut off", "BadZipFile: File is not a zip file; it was damaged"),
        ([1, 2], "holds a list"),
        ({1: torch.ones(1)}, "a state_dict is needed"),
        ({"epoch": 3}, "missing.*unexpected epoch"),
        ({}, "missing"),
    ],
)
def test_a_weights_file_that_is_none_is_refused(content, message, tmp_path):
    if isinstance(content, bytes):
        (tmp_path / "w.pt").write_bytes(content)
    elif content is not None:
        torch.save(content, tmp_path / "w.pt")
    with pytest.raises(UsageError, match=f"--weights.*{message}") as raised:
        load_model("squeezenet1_1", str(tmp_path / "w.pt"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("shape, names", [("2x3", ["input"]), ("a=1..8x2,b=3:int64", ["a", "b"])])
def test_the_network_tensors_returns_its_inputs(shape, names):
    found = load_model("tensors", input_shape=shape)
    assert [each.name for each in found.inputs] == names and found.outputs == found.inputs
    given = zip(parse_input_shape(shape), names, strict=True)
    assert found.inputs == tuple(dataclasses.replace(each, name=name) for each, name in given)
    given = [torch.ones(2, *each.sized(5), dtype=getattr(torch, each.dtype)) for each in found.inputs]
    assert all(torch.equal(*pair) for pair in zip(found.forward(given), given, strict=True))


def test_the_network_tensors_needs_its_inputs():
    with pytest.raises(UsageError, match="has no inputs of its own; give --input-shape"):
        load_model("tensors")
