"""Model graphs: dimensions that are lengths, multiply-accumulates, and the order of sections."""

import pytest

from headrace.batching.graphs.model_graph import HALF_LENGTH, LENGTH, MatMul, ModelGraph, Node, NodeKind, resolve


@pytest.mark.parametrize(
    ("dim", "length", "elements"),
    [(5, 9, 5), (LENGTH, 7, 7), (LENGTH, 2.6, 3), (HALF_LENGTH, 8, 4), (HALF_LENGTH, 1, 1), (LENGTH, 0.2, 1)],
)
def test_a_dimension_is_a_number_or_a_length_of_at_least_one(dim, length, elements):
    assert resolve(dim, length) == elements


def test_a_product_counts_each_dimension_and_group():
    assert MatMul(2, 3, 5).macs() == 30
    assert MatMul(2, 3, 5, groups=7).macs(100) == 210
    square = MatMul(LENGTH, HALF_LENGTH, 5)
    assert [square.macs(), square.macs(2), square.macs(8)] == [5, 10, 160]


def test_a_graph_counts_its_encoder_and_its_decoder_as_often_as_they_run():
    nodes = [Node(kind.value, kind, (MatMul(1, 1, size),)) for kind, size in zip(NodeKind, (100, 10, 1), strict=True)]
    graph = ModelGraph("net", tuple(nodes))
    assert graph.macs() == 111
    assert graph.macs(3, 7) == 100 + 3 * 10 + 7
    assert graph.macs(input_len=2.5) == 100 + 25 + 1


def test_a_section_reaches_from_its_first_node_to_its_last():
    kinds = [NodeKind.STATIC, NodeKind.ENCODER, NodeKind.ENCODER, NodeKind.DECODER, NodeKind.STATIC]
    graph = ModelGraph("net", tuple(Node(str(number), kind) for number, kind in enumerate(kinds)))
    assert graph.section(NodeKind.ENCODER) == range(1, 3)
    assert graph.section(NodeKind.DECODER) == range(3, 4)
    assert graph.section(NodeKind.STATIC) == range(0, 5)
    assert len(ModelGraph.opaque("net").section(NodeKind.ENCODER)) == 0


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ("", "'net' has no nodes"),
        ("ese", "the encoder nodes of model graph 'net' must follow each other"),
        ("ddsd", "the decoder nodes of model graph 'net' must follow each other"),
        ("de", "'net' must list its encoder before its decoder"),
    ],
)
def test_sections_in_a_wrong_order_are_refused(kinds, message):
    names = {"s": NodeKind.STATIC, "e": NodeKind.ENCODER, "d": NodeKind.DECODER}
    with pytest.raises(ValueError, match=message):
        ModelGraph("net", tuple(Node(kind, names[kind]) for kind in kinds))


def test_a_graph_has_the_parameters_of_its_nodes():
    assert ModelGraph("net", (Node("a", parameters=3), Node("b"), Node("c", parameters=4))).parameters() == 7
