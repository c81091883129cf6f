"""Cut a network into nodes that run one by one, so that requests can join and leave in the middle of it.

`torch.export` turns a user's module, called on a batch of unknown size, into a list of operators. The module itself
calls the same operators, so a node-by-node run gives the module's own bits. The list is cut before every operator that
multiplies matrices, where `from_torch` has its nodes. A request in flight consists only of the tensors alive at such a
boundary. Two sub-batches at the same boundary become one by concatenating each of these tensors along its batch
dimension, which the exported graph names. That dimension may count several rows for each request (windows of a Swin,
heads of an attention), as long as the rows of a request follow each other.

Shapes cannot show whether they do, or whether a network mixes its requests at all. So two requests run alone and
together, and are compared at every boundary. A boundary at which they differ is not used, and its node joins the node
before. The same holds for a boundary where two tensors alive share memory that is written later.
"""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headrace.batching import ModelGraph, UsageError
from headrace.batching.graphs.model_graph import Node
from headrace.batching.graphs.torch_graph import from_torch
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.workers.networks.models import LoadedModel, load_model
from headrace.host.workers.networks.program import NodeModel
from headrace.host.workers.networks.split.operators import INSTEAD, InOrder, Live, OperatorList, two_requests


class SplitNetwork:
    """A network in nodes.

    `nodes` has the names of the nodes. `boundaries[i]` is before node i, and the last one is after all nodes. Make it
    with `split`, or with `split_at` where the nodes are known already. Run it without autograd."""

    def __init__(self, exported: OperatorList, nodes: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        self.boundaries, self._functions = exported.cut(nodes)
        self._constants = exported.constants
        self._sizes = exported.sizes

    def run(self, node: int, batch: int, live: Live) -> Live:
        """Run one node for `batch` requests, from the tensors alive before it to those alive after it."""
        return self._functions[node](self._constants, self._sizes(batch), *live)

    def whole(self, inputs: Sequence[Tensor]) -> Live:
        """Run all nodes, one after the other."""
        live = tuple(inputs)
        for node in range(len(self.nodes)):
            live = self.run(node, len(inputs[0]), live)
        return live

    def join(self, boundary: int, parts: Sequence[Live]) -> Live:
        """Return several sub-batches that stand at `boundary` as one, in their order."""
        if len(parts) == 1:
            return parts[0]
        return tuple(
            tensors[0] if place is None else torch.cat(tensors, place.dim)
            for tensors, place in zip(zip(*parts, strict=True), self.boundaries[boundary].places, strict=True)
        )

    def take(self, boundary: int, live: Live, first: int, count: int) -> Live:
        """Return views of `count` requests of a sub-batch that stands at `boundary`, from request `first` on."""
        return tuple(
            tensor if place is None else tensor.narrow(place.dim, first * place.rows, count * place.rows)
            for tensor, place in zip(live, self.boundaries[boundary].places, strict=True)
        )


def split(loaded: LoadedModel) -> tuple[SplitNetwork, ModelGraph]:
    """Cut a network at the nodes of `from_torch`, on the CPU.

    Returns:
        The network, and the graph with those nodes at whose boundary requests are isolated from each other.

    Raises:
        UsageError: The network cannot be split. The text is the reason.
    """
    varying = [spec.name for spec in loaded.inputs if spec.variable is not None]
    if varying:
        raise UsageError(
            f"model {loaded.name!r}: input {varying[0]!r} varies in length, so requests in the middle of the network "
            f"differ in shape; give it one shape with --input-shape, or {INSTEAD}"
        )
    cpu = torch.device("cpu")
    exported = OperatorList(loaded, cpu)  # first, as its errors explain more
    example = two_requests(loaded.inputs, cpu)[0]
    graph = from_torch(InOrder(loaded), tuple(example), name=loaded.name, constant=exported.constant_operators)
    with torch.no_grad(), one_thread():
        cuts = exported.isolated_boundaries([node.name for node in graph.nodes])
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name in cuts:
            nodes.append(node)
        else:
            last = nodes.pop()
            operators, parameters = (*last.operators, *node.operators), last.parameters + node.parameters
            nodes.append(Node(last.name, last.kind, operators, parameters))
    return SplitNetwork(exported, cuts), ModelGraph(graph.name, tuple(nodes))


def split_at(loaded: LoadedModel, nodes: Sequence[str], device: torch.device) -> SplitNetwork:
    """Cut a network at the nodes that `split` found, with the module on `device`."""
    return SplitNetwork(OperatorList(loaded, device), nodes)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread. With other busy processes, several threads of an operator wait for each other: six
    times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Unsplit:
    """A network as one node, for those that cannot be split."""

    def __init__(self, loaded: LoadedModel, device: torch.device) -> None:
        loaded.module.to(device)
        self.nodes = (loaded.name,)
        self._loaded = loaded

    def run(self, node: int, batch: int, live: Live) -> Live:
        return tuple(self._loaded.call(live))

    def whole(self, inputs: Sequence[Tensor]) -> Live:
        return self.run(0, len(inputs[0]), tuple(inputs))


def node_model(
    source: str,
    max_batch: int,
    weights: str | None = None,
    input_shape: str | None = None,
    *,
    name: str | None = None,
    whole: bool = False,
    rules: FileRules = ANY_FILE,
) -> tuple[NodeModel, ModelGraph]:
    """Describe a network to be served node by node in batches up to `max_batch`, with its graph.

    Args:
        name: Name of the model. None means its source.
        whole: Make it one node, for a network that cannot be split.

    Raises:
        UsageError: The network cannot be split. The text is the reason.
    """
    loaded = load_model(source, weights, input_shape, rules)
    if any(spec.joined for spec in loaded.inputs):
        raise UsageError(
            f"model {loaded.name!r}: a batch joins its inputs, so it cannot run node by node; choose a policy that "
            "batches whole graphs, and a profile without nodes"
        )
    name = name or source
    nodes: tuple[str, ...] = ()
    graph = ModelGraph.opaque(name)
    if not whole:
        network, split_graph = split(loaded)
        nodes, graph = network.nodes, ModelGraph(name, split_graph.nodes)
    model = NodeModel(
        name, source, loaded.inputs, loaded.outputs, max_batch, weights, input_shape, rules=rules, nodes=nodes
    )
    return model, graph
