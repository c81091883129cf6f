"""A network as an eager framework runs it, for inputs of some lengths, and the file that it is kept in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from headrace.batching.graphs.model_graph import Kernel, MatMul, ModelGraph, Node


@dataclass(frozen=True, slots=True, eq=False)  # what is derived from one is kept by which it is
class Traced:
    """`graphs` by length of the input, rising, in the model's unit, which is `step_s` seconds of sound, or tokens; an
    image has the length 1. All have the same nodes; their numbers are those of one request. `input_elements`, by
    length, are those that it sends to the GPU."""

    name: str
    step_s: float | None
    input_elements: Mapping[float, int]
    graphs: Mapping[float, ModelGraph]


def to_json(network: Traced) -> str:
    """One line a graph."""
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
    """What `to_json` wrote."""
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
