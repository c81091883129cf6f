import numpy as np
import pytest
import torch

from headrace.batching import UsageError
from headrace.host.workers.models import load_model


def logits(model) -> np.ndarray:
    with torch.inference_mode():
        return model.module(torch.ones(2, 3, 224, 224)).numpy()


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "mobilenet-v3-small", "squeezenet1_1", "resnet50"])
def test_networks_by_name_have_fixed_weights_and_a_thousand_classes(name):
    first, second = load_model(name), load_model(name)
    assert first.classes == 1000 and logits(first).shape == (2, 1000)
    assert np.array_equal(logits(first), logits(second))


def test_a_name_that_is_close_gets_a_hint():
    with pytest.raises(UsageError, match="mobilenet_v3_small"):
        load_model("mobilenet_v3_smal")


def test_ones_own_weights_are_loaded(tmp_path):
    module = load_model("squeezenet1_1").module
    state = {name: torch.randn_like(value) * 0.01 for name, value in module.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "w.pt")
    loaded = load_model("squeezenet1_1", str(tmp_path / "w.pt")).module.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in state.items())


def test_weights_of_another_network_are_refused_by_name(tmp_path):
    torch.save(load_model("squeezenet1_1").module.state_dict(), tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"missing features\.0\.0\.weight.*unexpected"):
        load_model("mobilenet_v3_small", str(tmp_path / "w.pt"))


@pytest.mark.parametrize("content", [None, b"", b"garbage"])
def test_a_weights_file_that_is_none_is_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(UsageError, match="--weights"):
        load_model("squeezenet1_1", str(tmp_path / "w.pt"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def net(): return 3", "returned a int"),
        ("def net(): raise OSError('disk')", "OSError: disk"),
        ("def other(): pass", "AttributeError"),
        ("import torch\ndef net(): return torch.nn.Linear(3, 4)", "does not take"),
        ("import torch\ndef net(): return torch.nn.Conv2d(3, 4, 1)", r"\(batch, classes\)"),
    ],
)
def test_a_users_function_that_gives_no_classifier_is_refused(body, message, tmp_path, monkeypatch):
    name = f"mine{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        load_model(f"{name}:net")
