import sys

import pytest

from headrace.batching import UsageError
from headrace.host.demo.networks import load_audio_networks, load_image_networks
from headrace.host.demo.options import DemoOptions
from headrace.host.dpu.specs import ImageSpec

SOURCE = """
import torch
from headrace.host.dpu.specs import ImageSpec

class Means(torch.nn.Module):
    def forward(self, x, y=None):
        return x.float().flatten(1).mean(1, keepdim=True)

def net(shape, **more):
    module = Means()
    module.input_shape = shape
    for name, value in more.items():
        setattr(module, name, value)
    return module

def square(): return net("3x64x64")
def wide(): return net("3x48x96")
def told(): return net("3x64x64", transform=ImageSpec(70, 64, 64, mean=(0.5, 0.5, 0.5)))
def gray(): return net("1x64x64")
def words(): return net("1..8:int64")
def pixels(): return net("3x64x64:uint8")
def two(): return net("x=3x64x64,y=3x64x64")
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)


def specs(*models, **given):
    return [network.spec for network in load_image_networks(DemoOptions(images=(), models=models, **given))]


def test_photos_become_what_the_network_takes(nets):
    assert specs("nets:square", "nets:wide", "nets:told") == [
        ImageSpec(73, 64, 64),
        ImageSpec(110, 96, 48),
        ImageSpec(70, 64, 64, mean=(0.5, 0.5, 0.5)),
    ]


def test_an_input_shape_of_the_users_counts_for_its_own_network(nets):
    assert specs("nets:square", "nets:told", input_shapes=("3x32x32", None)) == [
        ImageSpec(37, 32, 32),
        ImageSpec(70, 64, 64, mean=(0.5, 0.5, 0.5)),
    ]


def test_torchvisions_transform_is_the_one_that_it_publishes():
    assert specs("mobilenet_v3_small") == [ImageSpec(256, 224, 224)]


@pytest.mark.parametrize("name", ["gray", "words", "pixels", "two"])
def test_a_network_that_takes_no_photo_is_refused_with_what_it_takes(nets, name):
    with pytest.raises(UsageError, match=f"'nets:{name}' takes .*; the demo sends photos, so give a network with one"):
        specs(f"nets:{name}")


def test_weights_are_known_to_be_random_where_torchvisions_has_none_given(nets):
    options = DemoOptions(images=(), models=("squeezenet1_1", "nets:square"), file_models=("efficientnet_lite0",))
    networks = load_image_networks(options)
    assert [network.is_random for network in networks] == [True, False, False]
    # Names of classes mean nothing with random weights.
    assert networks[0].description.categories == networks[2].categories and networks[0].categories is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ["resnet50"]}, "--model resnet50: with --audio, give conformer, citrinet"),
        ({"models": ["conformer"], "npus": 1}, "leave out npu:N"),
        ({"models": ["nets:square"]}, "--model nets:square takes no sounds"),
    ],
)
def test_networks_that_take_no_audio_are_refused(nets, options, message):
    with pytest.raises(UsageError, match=message):
        load_audio_networks(DemoOptions(images=(), **options))
