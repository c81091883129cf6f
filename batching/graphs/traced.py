"""A network as an eager framework runs it for inputs of several lengths, and the file format for it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from headrace.batching.graphs.model_graph import Kernel, MatMul, ModelGraph, Node


@dataclass(frozen=True, slots=True, eq=False)  # caches of derived values use an object's identity
class Traced:
    """The graphs of one network for several input lengths.

    All graphs have the same nodes. Their sizes are those of one request.

    Args:
        name: The network's name.
        step_s: The duration (s) of one unit of length, for audio; None for tokens and for images. An image has length
            1.
        input_elements: By length, the number of elements that one request sends to the GPU.
        graphs: The graphs by length, rising, in the model's unit.
    """

    name: str
    step_s: float | None
    input_elements: Mapping[float, int]
    graphs: Mapping[float, ModelGraph]


def to_json(network: Traced) -> str:
    """Return the network as JSON text, with one line for each graph."""
    names = sorted(
        {kernel.name for graph in network.graphs.values() for node in graph.nodes for kernel in node.kernels}
    )
    lines = [
        json.dumps(
            [length, network.input_elements[length], [_node(node, names) for node in graph.nodes]],
            separators=(",", ":"),
        )
        for length, graph in network.graphs.items()
    ]
    nodes = next(iter(network.graphs.values())).nodes
    head = {"name": network.name, "step_s": network.step_s, "kernels": names, "nodes": [node.name for node in nodes]}
    body = ",\n".join(lines)
    return json.dumps(head)[:-1] + ', "graphs": [\n' + body + "\n]}\n"


def _node(node: Node, names: list[str]) -> list[Any]:
    kernels = [
        [
            names.index(kernel.name),
            kernel.read,
            kernel.written,
            kernel.weights,
            [[p.m, p.k, p.n, p.groups, int(p.weights), p.input_elements] for p in kernel.products],
        ]
        for kernel in node.kernels
    ]
    return [node.parameters, kernels]


def from_json(text: str) -> Traced:
    """Return the network that `to_json` wrote."""
    body = json.loads(text)
    graphs, inputs = {}, {}
    for length, elements, nodes in body["graphs"]:
        inputs[float(length)] = int(elements)
        graphs[float(length)] = ModelGraph(
            body["name"],
            tuple(_read_node(name, node, body["kernels"]) for name, node in zip(body["nodes"], nodes, strict=True)),
        )
    return Traced(body["name"], body["step_s"], MappingProxyType(inputs), MappingProxyType(graphs))


def _read_node(name: str, node: list[Any], names: list[str]) -> Node:
    parameters, launches = node
    kernels = tuple(
        Kernel(
            names[kind],
            read,
            written,
            weights,
            tuple(MatMul(m, k, n, groups, bool(trained), elements) for m, k, n, groups, trained, elements in products),
        )
        for kind, read, written, weights, products in launches
    )
    products = tuple(product for kernel in kernels for product in kernel.products)
    return Node(name, operators=products, parameters=parameters, kernels=kernels)
