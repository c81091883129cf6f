"""Files of torch.export: served as the networks that they are, and nothing pickled in them is ever run."""

import io
import json
import pickle
import zipfile

import pytest
import torch
from torch.export import Dim

from headrace.batching import UsageError
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.models import load_model
from headrace.host.workers.split import node_model

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


class Mark:
    """Writes a file where it is unpickled."""

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
        ("ids", "int64", (-1,), 32), ("mask", "bool", (-1,), 32),
    ]  # fmt: skip
    ids, mask = torch.tensor([[3, 4, 5]]), torch.tensor([[True, False, True]])
    kept, total = loaded.forward([ids, mask])
    assert kept.tolist() == [[3, 0, 5]] and total.tolist() == [[8]]


@pytest.mark.parametrize(
    ("module", "arguments", "keywords", "dynamic", "text"),
    [
        (Net(), (torch.randn(1, 3, 8, 8),), {}, None, 'dynamic_shapes=({0: torch.export.Dim("batch")},)'),
        (Named(), (torch.ones(2, 3),), {"mask": torch.ones(2, 3)}, {"ids": {0: BATCH}, "mask": {0: BATCH}}, "not with"),
        (Named(), (torch.ones(2, 3), torch.ones(2, 3)), {}, {"ids": {0: BATCH, 1: Dim("n")}, "mask": {0: BATCH, 1: Dim(
            "n")}}, "torch.export.Dim(..., max=)"),
    ],
)  # fmt: skip
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
