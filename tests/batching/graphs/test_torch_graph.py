import logging
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headrace.batching import MatMul, UsageError
from headrace.batching.graphs.model_graph import Kernel
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


@pytest.mark.quick(1)
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


def kernels(module, *example):
    return [kernel for node in from_torch(module, example).nodes for kernel in node.kernels]


def test_a_gpu_is_launched_once_for_each_operator_and_not_for_views():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    assert kernels(net, torch.zeros(1, 3, 10, 10)) == [
        Kernel("convolution", 300, 512, 216, (MatMul(64, 27, 8, input_elements=300),)),
        Kernel("native_batch_norm", 512, 512, 32),
        Kernel("relu_", 512, 512),
        Kernel("addmm", 512, 10, 5130, (MatMul(1, 512, 10),)),
    ]


def test_every_product_has_a_kernel():
    net = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    graph = from_torch(net, torch.zeros(1, 10, 64))
    for node in graph.nodes:
        assert [product for kernel in node.kernels for product in kernel.products] == list(node.operators)


def test_attention_in_one_piece_is_one_kernel_of_two_products():
    def attend(self, x):
        return F.scaled_dot_product_attention(x, x, x)

    net = Calls(attend)
    (kernel,) = kernels(net, torch.zeros(1, 4, 10, 16))
    assert len(kernel.products) == 2
    assert kernel.read == 3 * 640


def test_a_recurrent_layer_in_one_piece_is_launched_product_by_product():
    found = kernels(nn.LSTM(16, 32, batch_first=True), torch.zeros(1, 5, 16))
    assert [kernel.products for kernel in found if kernel.products] == [(MatMul(5, 16, 128),)] + [
        (MatMul(1, 32, 128),)
    ] * 5


def test_what_does_not_depend_on_the_request_reads_no_activations():
    def masked(self, x):
        mask = torch.ones(10, 10).tril().bool()
        return x.masked_fill(mask, 0.0)

    net = nn.Sequential(nn.Linear(10, 10), Calls(masked))
    found = {kernel.name: kernel for kernel in kernels(net, torch.zeros(1, 10, 10))}
    assert found["tril"].read == found["ones"].read == 0
    assert (found["masked_fill"].read, found["masked_fill"].weights) == (100, 100)


def test_a_buffer_that_activations_are_written_into_is_no_constant_any_more():
    def padded(self, x):
        room = torch.zeros(1, 12)
        room[:, :10] = x
        return room * 2

    found = kernels(nn.Sequential(nn.Linear(10, 10), Calls(padded)), torch.zeros(1, 10))
    assert found[-1] == Kernel("mul", 12, 12)


@pytest.mark.parametrize(
    ("name", "convolutions", "activations", "sums"),
    [("resnet18", 20, 17, 8), pytest.param("resnet50", 53, 49, 16, marks=pytest.mark.slow)],
)
def test_a_resnet_launches_what_its_table_has(name, convolutions, activations, sums):
    from headrace.host.workers.networks.zoo.torchvision_networks import torchvision

    found = Counter(kernel.name for kernel in kernels(getattr(torchvision.models, name)(), torch.zeros(1, 3, 64, 64)))
    assert found == {  # He et al. 2016, Table 1, with a batch norm for each convolution
        "convolution": convolutions,
        "native_batch_norm": convolutions,
        "relu_": activations,
        "add_": sums,
        "max_pool2d_with_indices": 1,
        "mean": 1,
        "addmm": 1,
    }


def test_a_product_of_constants_alone_costs_nothing_and_one_with_a_constant_reads_it_as_a_weight():
    def forward(net, x):
        places = net.first(torch.arange(6, dtype=torch.float32)[:, None])  # 6 x 3
        return (x + places.mean(0)) @ torch.linspace(0, 1, 12).view(3, 4)

    assert operators(Calls(forward, first=nn.Linear(1, 3)), torch.zeros(1, 5, 3)) == [MatMul(5, 3, 4)]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.zeros(x.shape[0], 6),
        lambda x: torch.rand(1, 6),
        lambda x: torch.ones(1, 6).add_(x.mean()),
    ],
    ids=["as large as the batch", "random", "written"],
)
def test_what_differs_from_batch_to_batch_is_no_constant(make):
    found = operators(
        Calls(lambda net, x: net.second(x) + net.first(make(x)), first=nn.Linear(6, 2), second=nn.Linear(3, 2)),
        torch.zeros(1, 3),
    )
    assert sorted(product.k for product in found) == [3, 6]
