"""Networks cut into nodes, against the same network run whole and alone."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from torch._subclasses.fake_tensor import FakeTensorMode

from headrace.batching import UsageError
from headrace.host.workers.networks.description import MAX_BATCH
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.split.network import node_model, one_thread, split, split_at

sys.path.insert(0, str(Path(__file__).parents[1]))

# nn.TransformerEncoderLayer, run whole, may take one fused operator for all of it, which rounds otherwise.
torch.backends.mha.set_fastpath_enabled(False)

SPLIT = (
    "residual",
    "attention",
    "windows",
    "batch_last",
    "views",
    "writes",
    "several",
    "positions",
    "first_step",
    "autocast_off",
    "keeps",
    "shares",
)
_made = {}


def network(name):
    if name not in _made:
        own = name in SPLIT
        loaded = load_model(f"split_nets:{name}") if own else load_model(name, input_shape="3x64x64")
        _made[name] = (loaded, *split(loaded))
    return _made[name]


def inputs(loaded, batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, *spec.shape, generator=generator) for spec in loaded.inputs]


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("batch", (1, 2, 5))
def test_node_by_node_gives_the_bits_of_the_network_run_whole(name, batch):
    loaded, cut, graph = network(name)
    assert len(graph.nodes) == len(cut.nodes) >= 2
    given = inputs(loaded, batch)
    with torch.no_grad():
        expected = loaded.forward([tensor.clone() for tensor in given])
        for own, other in zip(cut.whole([tensor.clone() for tensor in given]), expected, strict=True):
            assert torch.equal(own, other)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SPLIT)
@given(data=st.data())
@examples(12, 25)
def test_joining_and_leaving_at_any_boundary_changes_nobodys_output(name, data):
    loaded, cut, _ = network(name)
    given = inputs(loaded, 6, seed=data.draw(st.integers(0, 9)))
    groups = [
        (0, tuple(tensor[first : first + 2].clone() for tensor in given), [first, first + 1]) for first in (0, 2, 4)
    ]
    found = {}
    with torch.no_grad():
        alone = [loaded.forward([tensor[row : row + 1].clone() for tensor in given]) for row in range(6)]
        while groups:
            number = data.draw(st.integers(0, len(groups) - 1))
            boundary, live, rows = groups.pop(number)
            what = data.draw(st.sampled_from(("run", "run", "join", "leave")))
            same = [group for group in groups if group[0] == boundary]
            if what == "join" and same:
                other = same[0]
                groups.remove(other)
                groups.append((boundary, cut.join(boundary, [live, other[1]]), rows + other[2]))
            elif what == "leave" and len(rows) > 1:
                # A view and what is left of it: as a worker that goes on with a part has them.
                left, right = (
                    tuple(tensor.clone() for tensor in cut.take(boundary, live, first, count))
                    for first, count in ((0, 1), (1, len(rows) - 1))
                )
                groups += [(boundary, left, rows[:1]), (boundary, right, rows[1:])]
            elif boundary == len(cut.nodes):
                for place, row in enumerate(rows):
                    found[row] = cut.take(boundary, live, place, 1)
            else:
                groups.append((boundary + 1, cut.run(boundary, len(rows), live), rows))
    for row, expected in enumerate(alone):
        for own, other in zip(found[row], expected, strict=True):
            torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-4)


def test_a_boundary_at_which_a_requests_rows_are_scattered_is_left_out():
    _, cut, graph = network("batch_last")
    assert [node.name for node in graph.nodes] == list(cut.nodes) == ["linear", "linear_2"]
    assert [len(node.operators) for node in graph.nodes] == [2, 1]


def test_a_boundary_between_two_names_of_a_memory_that_is_written_later_is_left_out():
    _, cut, _ = network("views")
    assert cut.nodes == ("linear", "linear_2")


def test_a_boundary_between_two_names_of_a_memory_that_is_written_no_more_is_kept():
    _, cut, _ = network("shares")
    assert cut.nodes == ("linear", "linear_1", "linear_2")


def test_what_depends_on_trained_values_alone_is_computed_once():
    _, cut, _ = network("windows")
    assert not any("tanh" in name for boundary in cut.boundaries for name in boundary.alive)


def test_products_of_constants_are_no_nodes_and_pass_no_boundary():
    """torch.arange and similar operators make constants, or the module holds them. Sizes of a batch are no
    constants."""
    _, cut, graph = network("positions")
    assert [node.name for node in graph.nodes] == ["conv2d", "matmul", "matmul_1", "linear_1"]
    for boundary in cut.boundaries:
        assert len(boundary.alive) == 1 and boundary.places[0] is not None
    _, cut, graph = network("first_step")
    assert [node.name for node in graph.nodes] == ["linear", "linear_1", "linear_2", "linear_3"]


def test_a_worker_cuts_where_the_runtime_was_told():
    loaded, cut, graph = network("residual")
    again = split_at(load_model("split_nets:residual"), cut.nodes, torch.device("cpu"))
    assert again.boundaries == cut.boundaries
    assert graph.parameters() == sum(parameter.numel() for parameter in loaded.module.parameters())


@pytest.mark.parametrize(
    ("source", "shape", "message"),
    [
        ("split_nets:mixes", None, "depends on the others of its batch"),
        ("split_nets:autocast_on", None, r"sets torch\.autocast for a part of itself"),
        ("split_nets:numbered", None, "depends on the others of its batch"),
        ("split_nets:counts", None, "changes its 'runs' as it runs"),
        ("split_nets:decides", None, "cannot be traced.*control flow"),
        ("split_nets:fixed", None, r"write tensor.shape\[0\]"),
        ("torch.nn:Identity", "4", "multiplies no matrices"),
    ],
)
def test_what_cannot_be_split_is_refused_with_the_reason_and_can_be_one_node(source, shape, message):
    with pytest.raises(UsageError, match=message):
        node_model(source, 4, input_shape=shape)
    model, graph = node_model(source, 4, input_shape=shape, whole=True)
    assert model.nodes == () and [node.name for node in graph.nodes] == [source]


def test_a_network_on_a_gpu_can_be_traced_for_the_largest_batch_that_this_package_allows():
    with FakeTensorMode():  # tensors without values, which can be on a GPU that is not there
        network = torch.nn.BatchNorm2d(3, device="cuda").eval()
        image = torch.empty(2, 3, 8, 8, device="cuda")
    with torch.no_grad():
        torch.export.export(network, (image,), dynamic_shapes=({0: torch.export.Dim("batch", max=MAX_BATCH)},))
        with pytest.raises(Exception, match="65535"):
            torch.export.export(network, (image,), dynamic_shapes=({0: torch.export.Dim("batch", max=MAX_BATCH + 1)},))


def test_an_input_that_varies_in_length_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"varies in length.*--input-shape"):
        node_model("split_nets:attention", 4, input_shape="x=1..5x16")


# Real networks: residual, dense and inverted bottlenecks, shifted windows, a transformer.
TORCHVISION = [
    "resnet18",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("mobilenet_v3_small", "swin_t", "densenet121", "vit_b_32")
    ),
]


@pytest.mark.parametrize("name", TORCHVISION)
def test_a_real_network_gives_its_own_bits_node_by_node_from_any_boundary_on(name):
    loaded, cut, graph = network(name)
    assert len(cut.nodes) == len(graph.nodes) > 20
    batch = 3
    (given,) = inputs(loaded, batch)
    with torch.no_grad(), one_thread():
        (expected,) = loaded.forward([given.clone()])
        live = (given.clone(),)
        boundaries = []
        for node in range(len(cut.nodes)):
            boundaries.append(tuple(tensor.clone() for tensor in live))
            live = cut.run(node, batch, live)
        assert torch.equal(live[0], expected)
        # Tensors in memory of their own, as those of a sub-batch that has waited, go on to the same bits.
        for node, live in enumerate(boundaries):
            after = cut.run(node, batch, tuple(tensor.clone() for tensor in live))
            standing = boundaries[node + 1] if node + 1 < len(cut.nodes) else (expected,)
            for own, other in zip(after, standing, strict=True):
                assert torch.equal(own, other), cut.nodes[node]


@pytest.mark.parametrize("name", TORCHVISION)
def test_requests_of_a_real_network_may_join_at_every_boundary(name):
    """Two sub-batches at a boundary become one. It equals the batched run there, up to the rounding of kernels for
    other batches."""
    loaded, cut, _ = network(name)
    (given,) = inputs(loaded, 3)
    with torch.no_grad(), one_thread():
        (expected,) = loaded.forward([given.clone()])
        parts = [(given[:1].clone(),), (given[1:].clone(),)]
        together = (given.clone(),)
        for node in range(len(cut.nodes) + 1):
            joined = cut.join(node, parts)
            for own, other in zip(joined, together, strict=True):
                scale = float(other.abs().max())
                torch.testing.assert_close(own, other, atol=1e-5 * scale, rtol=0.0)
            for first, count, part in ((0, 1, parts[0]), (1, 2, parts[1])):
                for own, other in zip(cut.take(node, joined, first, count), part, strict=True):
                    assert torch.equal(own, other)  # who leaves at once is who joined
            if node == len(cut.nodes):
                break
            parts = [cut.run(node, count, part) for count, part in zip((1, 2), parts, strict=True)]
            together = cut.run(node, 3, together)
        torch.testing.assert_close(joined[0], expected, atol=1e-5, rtol=1e-4)
