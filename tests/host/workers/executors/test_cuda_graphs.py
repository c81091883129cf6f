"""Nodes as CUDA graphs give the results of the nodes, also where sub-batches interrupt and join each other."""

import pytest
import torch

from headrace.host.workers.executors import cuda_graphs
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.split.network import split, split_at

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need an NVIDIA GPU")


@pytest.fixture(params=("residual", "attention", "windows", "several"))
def network(request):
    """Return the network and inputs of 6 requests, on the GPU."""
    source = f"split_nets:{request.param}"
    on_cpu, _ = split(load_model(source))
    loaded = load_model(source)
    device = torch.device("cuda")
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(6, *spec.shape, generator=generator).to(device) for spec in loaded.inputs]
    return split_at(loaded, on_cpu.nodes, device), given


@pytest.fixture(autouse=True)
def graphs_always_gain(monkeypatch):
    """Use graphs even if they are no faster, as on a GPU that runs these small networks as fast without them."""
    monkeypatch.setattr(cuda_graphs, "GAIN", 0.0)


def through(run, nodes, batch, live, first=0):
    for node in range(first, nodes):
        live = run(node, batch, live)
    return live


def close(live, other):
    for own, expected in zip(live, other, strict=True):
        torch.testing.assert_close(own, expected, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_captured_nodes_give_what_the_nodes_give_at_every_batch_size(network):
    cut, given = network
    nodes = cuda_graphs.CapturedNodes(cut, given, 6)
    assert nodes.batches == [1, 2, 3, 4, 6]
    for batch in range(1, 7):  # 5 runs in the graphs of 6
        inputs = tuple(tensor[:batch].clone() for tensor in given)
        expected = through(cut.run, len(cut.nodes), batch, tuple(tensor.clone() for tensor in inputs))
        for _ in range(2):  # a second replay finds what the first has left
            close(through(nodes.run, len(cut.nodes), batch, tuple(tensor.clone() for tensor in inputs)), expected)


@torch.inference_mode()
def test_who_waits_at_any_boundary_is_not_overwritten_and_may_be_joined(network):
    cut, six = network
    given = tuple(tensor[:4] for tensor in six)
    count = len(cut.nodes)
    nodes = cuda_graphs.CapturedNodes(cut, given, 4)
    expected = through(cut.run, count, 4, tuple(tensor.clone() for tensor in given))

    def requests(first, size):
        return tuple(tensor[first : first + size].clone() for tensor in given)

    for boundary in range(1, count):
        kept = nodes.keep(through(nodes.run, boundary, 2, requests(0, 2)))
        newcomers = nodes.keep(through(nodes.run, boundary, 1, requests(2, 1)))
        through(nodes.run, count, 1, requests(3, 1))  # somebody else, of both sizes, to the end
        through(nodes.run, count, 2, requests(1, 2))
        together = cut.join(boundary, (kept, newcomers, cut.take(boundary, kept, 0, 1)))
        close(
            through(nodes.run, count, 4, together, boundary),
            cut.join(count, (cut.take(count, expected, 0, 3), cut.take(count, expected, 0, 1))),
        )
