"""Weights from files of torch.save and of safetensors. Files with other content are refused, and the error names it."""

import hashlib
import math
import random
import sys

import pytest
import safetensors.torch
import torch

from headrace.batching import UsageError
from headrace.host.workers.networks.foreign.rules import FileRules
from headrace.host.workers.networks.foreign.weights import load_weights
from headrace.host.workers.networks.models import load_model

NONFINITE = FileRules(allow_nonfinite=True)


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


def other():
    torch.manual_seed(1)
    return {name: torch.rand_like(value.float()).to(value.dtype) for name, value in net().state_dict().items()}


def saved(path, state):
    (safetensors.torch.save_file if path.suffix == ".safetensors" else torch.save)(state, path)
    return path


def equal(module, state):
    return all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


@pytest.fixture(params=["w.pt", "w.safetensors"])
def path(request, tmp_path):
    return tmp_path / request.param


def test_weights_are_those_of_the_file(path):
    module = net()
    load_weights(module, saved(path, other()))
    assert equal(module, other())


def test_a_prefix_of_data_parallel_is_removed(path):
    module = net()
    load_weights(module, saved(path, {f"module.{name}": value for name, value in other().items()}))
    assert equal(module, other())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["0.bias", "1.running_mean"])
def test_a_weight_that_is_no_finite_number_is_refused_by_name_or_taken_if_asked(name, value, path):
    state = other()
    state[name][1:3] = value
    saved(path, state)
    with pytest.raises(UsageError, match=f"'{name}' has 2 values that are NaN or infinite.*--allow-nonfinite-weights"):
        load_weights(net(), path)
    module = net()
    load_weights(module, path, NONFINITE)
    assert module.state_dict()[name].isfinite().tolist() == [True, False, False, True]


@pytest.mark.parametrize("rules", [FileRules(), NONFINITE])
def test_a_complex_weight_of_a_real_network_is_refused_by_name(rules, path):
    state = other() | {"0.bias": torch.ones(4, dtype=torch.complex64)}
    with pytest.raises(UsageError, match=r"'0\.bias' is complex, and the network's is float32"):
        load_weights(net(), saved(path, state), rules)


def test_a_complex_weight_of_a_complex_network_is_taken(tmp_path):
    module, state = torch.nn.Linear(2, 2, dtype=torch.complex64), {}
    for name, value in module.state_dict().items():
        state[name] = value + 1j
    load_weights(module, saved(tmp_path / "w.pt", state))
    assert equal(module, state)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_are_compared_too(kind, tmp_path):
    state = {"weight": torch.full((2, 3), 0.5, dtype=kind), "bias": torch.zeros(2, dtype=kind)}
    module = torch.nn.Linear(3, 2)
    load_weights(module, saved(tmp_path / "w.pt", state))
    assert module.weight.tolist() == [[0.5] * 3] * 2
    state["bias"][1] = math.nan
    with pytest.raises(UsageError, match="'bias' has 1 values that are NaN or infinite"):
        load_weights(module, saved(tmp_path / "w.pt", state))


def test_weights_without_values_are_refused(tmp_path):
    with torch.device("meta"):
        state = net().state_dict()
    with pytest.raises(UsageError, match=r"'0\.weight' was saved without its values"):
        load_weights(net(), saved(tmp_path / "w.pt", state))


def test_a_table_that_holds_itself_is_refused(tmp_path):
    first, second = {"epoch": 1}, {"epoch": 2}
    first["model"], second["state_dict"] = second, first
    for state in (first, second):
        torch.save(state, tmp_path / "w.pt")
        with pytest.raises(UsageError, match="a table in it holds itself"):
            load_weights(net(), tmp_path / "w.pt")


def test_a_digest_is_compared(path):
    saved(path, other())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    load_weights(net(), path, FileRules(weights_sha256=digest))
    with pytest.raises(UsageError, match=r"--weights .*: its SHA-256 is .*\.\.\., and 0{12}\.\.\. is expected"):
        load_weights(net(), path, FileRules(weights_sha256="0" * 64))


@pytest.mark.parametrize("content", [b"", b"x" * 7, b"\xff" * 8 + b"{}", bytes(20)])
def test_a_file_of_safetensors_that_is_none_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match="it is no file of safetensors, or a damaged one") as refused:
        load_weights(net(), tmp_path / "w.safetensors")
    assert "\n" not in str(refused.value)


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    path = saved(tmp_path / "w.safetensors", other())
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(UsageError, match=r"safetensors is not installed.*pip install 'headrace\[torch\]'"):
        load_weights(net(), path)


def test_a_file_of_safetensors_is_given_with_weights():
    with pytest.raises(UsageError, match=r"such a file has weights alone; .* with --weights FILE"):
        load_model("net.safetensors")


def test_weights_of_torchs_older_form_are_taken(tmp_path):
    """torchvision published such files before 2021. They have no checksum."""
    torch.save(other(), tmp_path / "w.pt", _use_new_zipfile_serialization=False)
    module = net()
    load_weights(module, tmp_path / "w.pt")
    assert equal(module, other())


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_bit_that_flips_changes_no_weight(count, tmp_path):
    data, path, draw = saved(tmp_path / "w.pt", other()).read_bytes(), tmp_path / "flipped.pt", random.Random(1)
    refused = 0
    for _ in range(count):
        bit = draw.randrange(8 * len(data))
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        module = net()
        try:
            load_weights(module, path)
        except UsageError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            assert equal(module, other())
    assert refused > count / 3
