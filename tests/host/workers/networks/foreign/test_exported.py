"""Files of torch.export: served as the networks that they are, and nothing pickled in them is ever run."""

import hashlib
import io
import json
import math
import pickle
import random
import zipfile

import pytest
import torch
import torchvision
from torch.export import Dim

from headrace.batching import UsageError
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.foreign import program_text
from headrace.host.workers.networks.foreign.exported import load_exported
from headrace.host.workers.networks.foreign.rules import FileRules
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.split.network import node_model

BATCH = Dim("batch", min=1, max=64)


class Net(torch.nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        layers = (torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3), torch.nn.AdaptiveAvgPool2d(1))
        super().__init__(*layers, torch.nn.Flatten())


class Pair(torch.nn.Module):
    def forward(self, ids, *, mask):
        return {"kept": ids * mask, "sum": (ids * mask).sum(1, keepdim=True)}


class Named(torch.nn.Module):
    def forward(self, ids=None, mask=None):
        return {"kept": ids * mask, "sum": (ids * mask).sum(1, keepdim=True)}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    program = torch.export.export(Net().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: BATCH},))
    torch.export.save(program, path)
    return path


def changed(file, tmp_path, change):
    """The archive with `change(name, data)` in place of each file's data; a name as well where it gives a tuple."""
    path = tmp_path / "changed.pt2"
    with zipfile.ZipFile(file) as before, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as after:
        for name in before.namelist():
            after.writestr(name, change(name, before.read(name)))
    return path


def with_program(file, tmp_path, change):
    """The archive with `change(program)` made of the program that its text holds."""

    def of(name, data):
        if not name.endswith("models/model.json"):
            return data
        program = json.loads(data)
        change(program)
        return json.dumps(program)

    return changed(file, tmp_path, of)


def saved(path, module, *given, dynamic=None):
    dynamic = dynamic or ({0: BATCH},) * len(given)
    torch.export.save(torch.export.export(module.eval(), given, dynamic_shapes=dynamic), path)
    return path


class Mark:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_it_computes_what_the_network_does(file):
    loaded = load_model(str(file))
    photos = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(loaded.forward([photos])[0], Net().eval()(photos))
    assert loaded.inputs == (TensorSpec("input", "float32", (3, 8, 8)),) and loaded.outputs[0].shape == (4,)
    assert loaded.image_spec is not None


@pytest.mark.parametrize("batch", [BATCH, Dim("batch")])
def test_it_is_cut_into_its_nodes(batch, tmp_path):
    path = tmp_path / "net.pt2"
    program = torch.export.export(Net().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    model, graph = node_model(str(path), 4, name="net")
    assert len(graph.nodes) == 2 and model.nodes == tuple(node.name for node in graph.nodes)


def test_inputs_by_name_and_of_variable_length(tmp_path):
    path, length = tmp_path / "pair.pt2", Dim("length", min=1, max=32)
    given = {"ids": torch.ones(3, 5, dtype=torch.int64), "mask": torch.ones(3, 5, dtype=torch.bool)}
    dynamic = {name: {0: BATCH, 1: length} for name in given}
    torch.export.save(torch.export.export(Named(), (), given, dynamic_shapes=dynamic), path)
    loaded = load_model(str(path))
    assert loaded.by_name and [(spec.name, spec.dtype, spec.shape, spec.longest) for spec in loaded.inputs] == [
        ("ids", "int64", (-1,), 32),
        ("mask", "bool", (-1,), 32),
    ]
    ids, mask = torch.tensor([[3, 4, 5]]), torch.tensor([[True, False, True]])
    kept, total = loaded.forward([ids, mask])
    assert kept.tolist() == [[3, 0, 5]] and total.tolist() == [[8]]


@pytest.mark.parametrize(
    ("module", "arguments", "keywords", "dynamic", "text"),
    [
        (Net(), (torch.randn(1, 3, 8, 8),), {}, None, 'dynamic_shapes=({0: torch.export.Dim("batch")},)'),
        (Named(), (torch.ones(2, 3),), {"mask": torch.ones(2, 3)}, {"ids": {0: BATCH}, "mask": {0: BATCH}}, "not with"),
        (
            Named(),
            (torch.ones(2, 3), torch.ones(2, 3)),
            {},
            {"ids": {0: BATCH, 1: Dim("n")}, "mask": {0: BATCH, 1: Dim("n")}},
            "torch.export.Dim(..., max=)",
        ),
    ],
)
def test_what_has_no_batch_or_bound_is_refused_with_what_to_export(
    module, arguments, keywords, dynamic, text, tmp_path
):
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(module, arguments, keywords, dynamic_shapes=dynamic), path)
    with pytest.raises(UsageError) as refused:
        load_model(str(path))
    assert text in str(refused.value) and "\n" not in str(refused.value)


def test_a_weight_that_is_pickled_is_refused_and_not_run(file, tmp_path):
    run = tmp_path / "run"

    def change(name, data):
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            next(iter(config["config"].values()))["use_pickle"] = True
            return json.dumps(config)
        return pickle.dumps(Mark(run)) if name.endswith("weight_0") else data

    with pytest.raises(UsageError, match="a pickle can run any code"):
        load_model(str(changed(file, tmp_path, change)))
    assert not run.exists()


def test_sample_inputs_that_are_no_tensors_are_refused_and_not_run(file, tmp_path):
    run, evil = tmp_path / "run", io.BytesIO()
    torch.save(Mark(run), evil)
    run.unlink(missing_ok=True)
    path = changed(file, tmp_path, lambda name, data: evil.getvalue() if "sample_inputs" in name else data)
    with pytest.raises(UsageError, match="sample inputs are more than tensors"):
        load_model(str(path))
    assert not run.exists()


def test_a_size_that_is_code_is_refused_and_not_run(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def change(name, data):
        if not name.endswith("models/model.json"):
            return data
        return data.decode().replace("Symbol(", "open(chr(120),chr(119)) or Symbol(")

    with pytest.raises(UsageError, match="which is no arithmetic"):
        load_model(str(changed(file, tmp_path, change)))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + bytes(18), b"text", bytes(1000)])
def test_what_is_no_program_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "none.pt2"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        load_model(str(path))
    assert "no program of torch.export.save" in str(refused.value) and "\n" not in str(refused.value)


def test_damaged_files_are_refused(file, tmp_path):
    data = file.read_bytes()
    path = tmp_path / "damaged.pt2"
    generator = torch.Generator().manual_seed(1)
    for _ in range(30):
        cut = int(torch.randint(len(data), (1,), generator=generator))
        place = int(torch.randint(len(data), (1,), generator=generator))
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 : len(data) - cut])
        with pytest.raises(UsageError):
            load_model(str(path))


def test_a_file_that_is_not_there_and_an_input_shape_beside_one_are_told(file, tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load_model(str(tmp_path / "missing.pt2"))
    with pytest.raises(UsageError, match="leave --input-shape out"):
        load_model(str(file), None, "3x8x8")


# networks that are served


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 16)
        self.encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)

    def forward(self, ids):
        return self.encoder(self.table(ids), src_key_padding_mask=ids == 0).mean(1)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 8, bidirectional=True, batch_first=True)
        self.gru = torch.nn.GRU(16, 8, batch_first=True)

    def forward(self, frames):
        return self.gru(self.lstm(frames)[0])[0].amax(1)


class Spectrum(torch.nn.Module):
    def forward(self, samples):
        found = torch.stft(samples, 64, 32, window=torch.hann_window(64), return_complex=True).abs()
        return torch.log(found + 1e-6).mean(-1)


class Branches(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def vision_transformer():
    return torchvision.models.VisionTransformer(32, 16, 2, 2, 32, 64, num_classes=5)


def swin():
    return torchvision.models.SwinTransformer([4, 4], 16, [1, 1], [2, 2], [4, 4], num_classes=5)


PHOTO = (2, 3, 64, 64)


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("network", "given"),
    [
        (torchvision.models.resnet18, torch.rand(PHOTO)),
        (vision_transformer, torch.rand(2, 3, 32, 32)),
        (swin, torch.rand(PHOTO)),
        (Words, torch.arange(14).reshape(2, 7)),
        (Recurrent, torch.rand(2, 9, 8)),
        (Spectrum, torch.rand(2, 640)),
        (Branches, torch.rand(2, 3)),
        pytest.param(torchvision.models.vit_b_16, torch.rand(2, 3, 224, 224), marks=pytest.mark.slow),
        pytest.param(torchvision.models.swin_v2_t, torch.rand(2, 3, 224, 224), marks=pytest.mark.slow),
        pytest.param(torchvision.models.maxvit_t, torch.rand(2, 3, 224, 224), marks=pytest.mark.slow),
        pytest.param(torchvision.models.convnext_tiny, torch.rand(2, 3, 224, 224), marks=pytest.mark.slow),
        pytest.param(torchvision.models.efficientnet_b0, torch.rand(2, 3, 224, 224), marks=pytest.mark.slow),
        pytest.param(torchvision.models.shufflenet_v2_x1_0, torch.rand(2, 3, 224, 224), marks=pytest.mark.slow),
    ],
)
def test_networks_of_vision_and_speech_are_loaded_as_they_are(network, given, tmp_path):
    module = network().eval()
    loaded = load_model(str(saved(tmp_path / "net.pt2", module, given)))
    with torch.inference_mode():
        torch.testing.assert_close(loaded.forward([given])[0], module(given), rtol=1e-4, atol=1e-5)


# operators


def opens(path):
    """Return inputs of aten.from_file that make a tensor from a file, and write into it."""
    given = {"filename": {"as_string": str(path)}, "shared": {"as_bool": True}, "size": {"as_int": 4}}
    return [{"name": name, "arg": arg, "kind": 1} for name, arg in given.items()]


def test_an_operator_that_opens_a_file_is_refused(file, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(16))

    def change(program):
        node = program["graph_module"]["graph"]["nodes"][0]
        node |= {"target": "torch.ops.aten.from_file.default", "inputs": opens(secret)}

    with pytest.raises(UsageError) as refused:
        load_model(str(with_program(file, tmp_path, change)))
    text = str(refused.value)
    assert "changed.pt2: it calls 'aten.from_file.default'" in text and "module:function" in text


def nested_graphs(value):
    """Yield every node of the graphs within a graph."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "as_graph":
                yield from each["graph"]["nodes"]
            yield from nested_graphs(each)
    elif isinstance(value, list):
        for each in value:
            yield from nested_graphs(each)


@pytest.mark.parametrize("target", ["torch.ops.aten.from_file.default", "torch.ops.profiler._record_function_enter"])
def test_an_operator_of_a_graph_within_a_graph_is_refused(target, tmp_path):
    file = saved(tmp_path / "branches.pt2", Branches(), torch.rand(2, 3))

    def change(program):
        *_, node = nested_graphs(program)
        node |= {"target": target, "inputs": opens(tmp_path / "secret")}

    with pytest.raises(UsageError, match="it calls"):
        load_model(str(with_program(file, tmp_path, change)))
    assert not (tmp_path / "secret").exists()


def test_an_operator_behind_a_free_text_is_refused(file, tmp_path):
    """A free text is known by its key. A graph under such a key is no free text."""

    def change(program):
        node = {"target": "torch.ops.aten.from_file.default", "inputs": [], "outputs": [], "metadata": {}}
        graph = {"graph": {"nodes": [node]}, "name": "inner"}
        program["graph_module"]["graph"]["nodes"][0]["inputs"].append(
            {"name": "", "arg": {"as_string_to_argument": {"metadata": {"as_graph": graph}}}, "kind": 1}
        )

    with pytest.raises(UsageError, match=r"it calls 'aten\.from_file"):
        load_model(str(with_program(file, tmp_path, change)))


# texts that torch makes code of

CODE = "ran=open('ran','w')"


def renamed(value, old, new):
    """Return the program with another name in every place of one."""
    if isinstance(value, dict):
        return {new if key == old else key: renamed(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, old, new) for each in value]
    return new if value == old else value


@pytest.mark.parametrize("name", ["input", "p_0_weight", "conv2d"])
def test_a_name_that_is_code_is_refused_and_not_run(name, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def change(program):
        graph_module = program["graph_module"]
        assert name in json.dumps(graph_module["graph"])
        graph_module |= renamed(graph_module, name, CODE)

    with pytest.raises(UsageError, match="is no name"):
        load_model(str(with_program(file, tmp_path, change)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("weight", ['0.weight")+open("ran","w")+("', "__class__.weight", "0.weight\n"])
def test_a_weight_whose_path_leads_elsewhere_is_refused(weight, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def change(name, data):
        return data.replace(b'"0.weight"', json.dumps(weight).encode()) if name.endswith(".json") else data

    with pytest.raises(UsageError, match="is no name"):
        load_model(str(changed(file, tmp_path, change)))
    assert not (tmp_path / "ran").exists()


def test_guards_are_never_run(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = with_program(file, tmp_path, lambda program: program.update(guards_code=["open('ran', 'w')"]))
    assert load_model(str(path)).outputs[0].shape == (4,)
    assert not (tmp_path / "ran").exists()


def test_a_structure_that_imports_is_refused(file, tmp_path, monkeypatch):
    (tmp_path / "imported_by_a_program.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    factory = {"default_factory_module": "imported_by_a_program", "default_factory_name": "x", "dict_context": "[]"}
    enum = {"__enum__": True, "fqn": "imported_by_a_program:x", "name": "x"}
    for kind, context in (("collections.defaultdict", factory), ("builtins.dict", [enum]), ("builtins.dict", enum)):
        spec = [1, {"type": kind, "context": json.dumps(context), "children_spec": []}]

        def change(program, spec=spec):
            program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps(spec)

        with pytest.raises(UsageError, match="its inputs or outputs are a"):
            load_model(str(with_program(file, tmp_path, change)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("full_stack")
def test_a_text_that_is_too_long_or_nests_too_deep_is_refused(file, tmp_path, monkeypatch):
    def deep(name, data):
        return b"[" * 100_000 if name.endswith("model.json") else data

    with pytest.raises(UsageError) as refused:
        load_model(str(changed(file, tmp_path, deep)))
    assert len(str(refused.value)) < 600
    monkeypatch.setattr(program_text, "MAX_BYTES", 1000)
    with pytest.raises(UsageError, match="at most 1000 are read"):
        load_model(str(file))


def test_weights_in_a_program_that_are_no_numbers_are_refused_by_name(tmp_path):
    net = Net()
    net[2].bias.data[1] = math.nan
    file = saved(tmp_path / "nan.pt2", net, torch.rand(2, 3, 8, 8))
    with pytest.raises(UsageError, match=r"nan\.pt2: '2\.bias' has 1 values that are NaN or infinite"):
        load_model(str(file))
    assert load_model(str(file), rules=FileRules(allow_nonfinite=True)).classes == 4


# bits that flip


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_bit_that_flips_changes_no_weight(count, file, tmp_path):
    data, path, draw = file.read_bytes(), tmp_path / "flipped.pt2", random.Random(1)
    program = torch.export.load(file)
    whole, text = program.state_dict, str(program.graph)
    refused = 0
    for _ in range(count):
        bit = draw.randrange(8 * len(data))
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            read = load_exported(path)
        except UsageError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            found = torch.export.load(path)
            assert equal(found.state_dict, whole) and str(found.graph) == text
            torch.testing.assert_close(read.module(torch.ones(2, 3, 8, 8)), Net().eval()(torch.ones(2, 3, 8, 8)))
    assert refused > count / 2


def test_a_program_of_another_digest_is_refused(file):
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert load_model(str(file), rules=FileRules(sha256=digest)).classes == 4
    with pytest.raises(UsageError, match=rf"net\.pt2: its SHA-256 is {digest[:12]}\.\.\., and 0{{12}}\.\.\. is"):
        load_model(str(file), rules=FileRules(sha256="0" * 64))


def test_a_program_that_fails_is_not_taken_for_one_of_an_older_form(file, tmp_path):
    """torch.export.load would try the older form, which is pickled."""
    ran, path = tmp_path / "ran", tmp_path / "both.pt2"
    older = io.BytesIO()
    torch.save(Mark(ran), older)
    ran.unlink(missing_ok=True)
    with zipfile.ZipFile(file) as before, zipfile.ZipFile(path, "w") as after:
        for name in before.namelist():
            after.writestr(name, before.read(name).replace(b"torch.ops.aten.relu.default", b"_operator.pos"))
        after.writestr("version", "8.20")
        for name in ("exported_program.json", "state_dict.pt", "constants.pt", "example_inputs.pt"):
            after.writestr(f"serialized_{name}", b"{}" if "json" in name else older.getvalue())
    with pytest.raises(UsageError):
        load_model(str(path))
    assert not ran.exists()
