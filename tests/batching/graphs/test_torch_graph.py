import logging

import pytest
import torch
from torch import nn

from headrace.batching import MatMul, UsageError
from headrace.batching.graphs.torch_graph import from_torch


def operators(module, *example):
    graph = from_torch(module, example)
    assert graph.parameters() == sum(parameter.numel() for parameter in module.parameters())
    return [operator for node in graph.nodes for operator in node.operators]


def test_a_perceptron_is_its_layers():
    net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.LayerNorm(30), nn.Linear(30, 4, bias=False))
    assert operators(net, torch.zeros(1, 20)) == [MatMul(1, 20, 30), MatMul(1, 30, 4)]


def test_convolutions_are_lowered_by_group():
    net = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 1, groups=2))
    assert operators(net, torch.zeros(1, 4, 10, 10)) == [
        MatMul(25, 36, 8, input_elements=400),
        MatMul(25, 4, 8, groups=2, input_elements=200),
    ]


def test_a_transposed_convolution_multiplies_once_for_each_input_pixel():
    found = operators(nn.ConvTranspose2d(8, 16, 3, stride=2), torch.zeros(1, 8, 10, 10))
    assert found == [MatMul(100, 8, 16 * 9, input_elements=800)]


def test_attention_is_products_of_each_request_and_projections_are_weights():
    found = operators(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), torch.zeros(1, 10, 64))
    assert found == [
        MatMul(10, 64, 192),
        MatMul(10, 16, 10, groups=4, weights=False),
        MatMul(10, 10, 16, groups=4, weights=False),
        MatMul(10, 64, 64),
        MatMul(10, 64, 128),
        MatMul(10, 128, 64),
    ]


@pytest.mark.parametrize(("cell", "gates"), [(nn.LSTM, 4), (nn.GRU, 3)])
def test_a_recurrent_layer_is_one_product_for_the_input_and_one_a_step(cell, gates):
    found = operators(cell(16, 32, batch_first=True), torch.zeros(1, 5, 16))
    assert found == [MatMul(5, 16, 32 * gates)] + [MatMul(1, 32, 32 * gates)] * 5


def test_parameters_before_the_first_product_belong_to_it():
    net = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 4))
    graph = from_torch(net, torch.zeros(1, 3, dtype=torch.long), name="words")
    assert (graph.name, [node.parameters for node in graph.nodes]) == ("words", [80 + 36])


class Calls(nn.Module):
    """A forward pass given as a function of the module and its input."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def test_an_embedding_shared_with_the_output_counts_once():
    net = Calls(lambda self, x: self.out(self.table(x)), table=nn.Embedding(10, 4), out=nn.Linear(4, 10, bias=False))
    net.out.weight = net.table.weight
    assert operators(net, torch.zeros(1, 3, dtype=torch.long)) == [MatMul(3, 4, 10)]


def test_parameters_that_the_forward_pass_does_not_read_are_counted():
    net = Calls(lambda self, x: self.used(x), used=nn.Linear(3, 3), unused=nn.Linear(3, 5))
    assert operators(net, torch.zeros(1, 3)) == [MatMul(1, 3, 3)]


def test_weights_that_are_computed_from_parameters_are_weights():
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 6))
    assert operators(normed, torch.zeros(1, 4)) == [MatMul(1, 4, 6)]
    halves = [nn.Parameter(torch.zeros(3, 4)) for _ in range(2)]
    joined = Calls(lambda self, x: nn.functional.linear(x, torch.cat((self.a, self.b))), a=halves[0], b=halves[1])
    assert operators(joined, torch.zeros(1, 4)) == [MatMul(1, 4, 6)]


def test_a_product_with_a_vector_is_a_product():
    net = Calls(lambda self, x: x @ self.vector, vector=nn.Parameter(torch.zeros(4)))
    assert operators(net, torch.zeros(1, 5, 4)) == [MatMul(5, 4, 1)]


def test_tracing_leaves_the_module_and_the_logging_as_they_were():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).train()
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        from_torch(net, torch.zeros(1, 3))
        assert logging.root.manager.disable == logging.INFO
    finally:
        logging.disable(before)
    assert net.training and net[1].training


class DependsOnData(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def branch(self, x):
    return torch.cond(x.sum() > 0, lambda y: self.first(y), lambda y: y * 2, (x,))


@pytest.mark.parametrize(
    ("module", "example", "message"),
    [
        (DependsOnData(), torch.zeros(1, 3), "cannot be traced.*control flow"),
        (nn.Linear(3, 3), torch.zeros(1, 4), "cannot be traced"),
        (nn.Linear(3, 3), torch.zeros(2, 3), "batch of 1"),
        (nn.ReLU(), torch.zeros(1, 3), "multiplies no matrices"),
        (Calls(branch, first=nn.Linear(3, 3)), torch.zeros(1, 3), "cond.*control flow"),
        (len, torch.zeros(1, 3), "torch.nn.Module"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_the_reason(module, example, message):
    with pytest.raises(UsageError, match=message):
        from_torch(module, example)
