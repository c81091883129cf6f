import pytest
import torch

from headrace.batching import NodeKind, UnknownModel
from headrace.batching.graphs.model_graph import HALF_LENGTH
from headrace.batching.graphs.torch_graph import from_torch
from headrace.host.workers.networks.zoo.conformer import conformer_ctc
from headrace.host.workers.networks.zoo.torchvision_networks import torchvision
from headrace.sim.zoo import MODELS, model_graph
from headrace.sim.zoo.transformer import transformer

models = torchvision.models

# Trained parameters and multiply-accumulates. ResNet-50, VGG-16, GoogLeNet: torchvision's tables (without auxiliary
# classifiers); MobileNetV1: Howard et al. 2017, Table 4, 569 M; BERT-base: the released model with its pooler; GNMT:
# the count that the reference implementation in MLPerf's size prints.
PUBLISHED = {
    "resnet50": (25_557_032, 4.09e9),
    "vgg16": (138_357_544, 15.47e9),
    "googlenet": (6_624_904, 1.50e9),
    "mobilenet_v1": (4_231_976, 0.569e9),
    "bert_base": (109_482_240, None),
    "gnmt": (160_671_297, None),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_operations_are_the_published_ones(name):
    parameters, macs = PUBLISHED[name]
    graph = model_graph(name)
    assert graph.parameters() == parameters
    if macs is not None:
        assert graph.macs() == pytest.approx(macs, rel=0.005)


def test_the_transformer_has_the_parameters_of_the_papers_table():
    assert transformer(vocabulary=37000).parameters() == pytest.approx(65e6, rel=0.04)  # Table 3: 65 million
    layers = torch.nn.Transformer(512, 8, 6, 6, 2048)
    final_norms = 2 * 2 * 512  # torch's encoder and decoder end with one more norm, which the paper has not
    embedding = 33708 * 512
    assert model_graph("transformer").parameters() == count(layers) - final_norms + embedding


def test_the_conformer_has_the_parameters_of_the_live_ones_blocks_and_classes():
    live = conformer_ctc()
    assert model_graph("conformer").parameters() == count(live.blocks) + count(live.classes)


def test_a_decoder_without_a_cache_has_the_same_weights_and_a_row_for_every_token():
    cached, again = model_graph("transformer"), model_graph("transformer_uncached")
    assert again.parameters() == cached.parameters()
    decoder = [node for node in again.nodes if node.kind is NodeKind.DECODER]
    assert [op.m for node in decoder for op in node.operators] == [HALF_LENGTH] * (len(decoder) + 11) + [1]


def test_las_has_the_parameters_of_the_modules_that_the_paper_names():
    listener = [torch.nn.LSTM(40, 256, bidirectional=True)]
    listener += [torch.nn.LSTM(1024, 256, bidirectional=True) for _ in range(3)]
    speller = [torch.nn.LSTM(30 + 512, 512), torch.nn.LSTM(512, 512)]
    attention = 2 * 512 * 512 + 2 * 512 + 1
    characters = torch.nn.Linear(1024, 30)
    expected = sum(count(module) for module in [*listener, *speller, characters]) + attention
    assert model_graph("las").parameters() == expected


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", ["resnet50", "vgg16", "googlenet"])
@pytest.mark.slow
def test_the_layers_are_torchvisions(name):
    extra = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    module = models.get_model(name, weights=None, **extra)
    traced = from_torch(module, torch.zeros(1, 3, 224, 224))
    ours = [operator for node in model_graph(name).nodes for operator in node.operators]
    theirs = [operator for node in traced.nodes for operator in node.operators]
    # As multisets: the shortcut of a residual block may come before or after its branch.
    shapes = [[(op.m, op.k, op.n, op.groups) for op in graph] for graph in (ours, theirs)]
    assert sorted(shapes[0]) == sorted(shapes[1])
    assert traced.parameters() == model_graph(name).parameters() == count(module)


def test_node_kinds_say_what_runs_how_often():
    kinds = {name: {node.kind for node in model_graph(name).nodes} for name in MODELS}
    assert all(
        kinds[name] == {NodeKind.STATIC} for name in ("resnet50", "vgg16", "mobilenet_v1", "googlenet", "bert_base")
    )
    assert kinds["gnmt"] == kinds["las"] == {NodeKind.ENCODER, NodeKind.DECODER}
    assert (
        kinds["transformer"] == kinds["transformer_uncached"] == {NodeKind.STATIC, NodeKind.DECODER}
    )  # its encoder sees the whole input at once


def test_an_unknown_model_is_named_with_what_is_close():
    with pytest.raises(UnknownModel, match="did you mean resnet50"):
        model_graph("resnet5")
    with pytest.raises(UnknownModel, match="choose from resnet50"):
        model_graph("zzz")
