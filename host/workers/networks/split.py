"""A network cut into nodes, each run by itself: what lets requests join and leave in the middle of it.

`torch.export` turns a user's module, called on a batch of unknown size, into a list of operators: the same ones that
the module itself calls, so a node-by-node run gives the module's own bits. The list is cut before every operator that
multiplies matrices, where `from_torch` has its nodes. What is alive at such a boundary, tensors alone, is all that a
request in flight consists of. Two sub-batches that stand there become one by concatenating each of these tensors along
its batch dimension, which the exported graph names. That dimension may count several rows of each request (windows of
a Swin, heads of an attention), as long as a request's rows follow each other.

Whether they do, and whether a network keeps its requests apart at all, no shape can tell. So two requests are run,
alone and together, and compared at every boundary: one at which they differ is no boundary, and what belongs to it
joins the node before. Neither is one where two tensors alive share memory that is written later.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import getitem
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx

from headrace.batching import ModelGraph, UsageError
from headrace.batching.graphs.model_graph import Node
from headrace.batching.graphs.torch_graph import (
    constants,
    export,
    from_torch,
    held_values,
    tracing,
    why_no_operator,
)
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.workers.networks.models import LoadedModel, load_model
from headrace.host.workers.networks.program import NodeModel

# Beside the largest value of a tensor: rows of another request differ by more, kernels for other batches by less.
SAME = 1e-3

Live = tuple[Tensor, ...]  # what is alive at a boundary, of one sub-batch
_INSTEAD = "keep it in one piece (--whole), or change that"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the requests of a sub-batch lie in a tensor: `rows` of each, one after the other, along `dim`."""

    dim: int
    rows: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """Before a node: the names of the tensors alive there, and their places; None for one that is alike for all."""

    alive: tuple[str, ...]
    places: tuple[Place | None, ...]


class SplitNetwork:
    """`nodes` has the names of the nodes; `boundaries[i]` stands before node i, the last one behind all.

    Make it by `split`, or where the nodes are known already, by `split_at`. Runs are to be made without autograd."""

    def __init__(self, exported: "_Exported", nodes: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        self.boundaries, self._functions = exported.cut(nodes)
        self._constants = exported.constants
        self._sizes = exported.sizes

    def run(self, node: int, batch: int, live: Live) -> Live:
        """One node, from what is alive before it, of `batch` requests, to what is alive behind it."""
        return self._functions[node](self._constants, self._sizes(batch), *live)

    def whole(self, inputs: Sequence[Tensor]) -> Live:
        """All nodes, one after the other."""
        live = tuple(inputs)
        for node in range(len(self.nodes)):
            live = self.run(node, len(inputs[0]), live)
        return live

    def join(self, boundary: int, parts: Sequence[Live]) -> Live:
        """Several sub-batches that stand at `boundary` as one, in their order."""
        if len(parts) == 1:
            return parts[0]
        return tuple(
            tensors[0] if place is None else torch.cat(tensors, place.dim)
            for tensors, place in zip(zip(*parts, strict=True), self.boundaries[boundary].places, strict=True)
        )

    def take(self, boundary: int, live: Live, first: int, count: int) -> Live:
        """`count` requests of a sub-batch that stands at `boundary`, from its `first` on; views."""
        return tuple(
            tensor if place is None else tensor.narrow(place.dim, first * place.rows, count * place.rows)
            for tensor, place in zip(live, self.boundaries[boundary].places, strict=True)
        )


def split(loaded: LoadedModel) -> tuple[SplitNetwork, ModelGraph]:
    """At the nodes of `from_torch`, on the CPU, and the graph with those of them at whose boundary requests can be told
    apart. Raises UsageError, with the reason, for a network that cannot be split."""
    varying = [spec.name for spec in loaded.inputs if spec.variable is not None]
    if varying:
        raise UsageError(
            f"model {loaded.name!r}: input {varying[0]!r} varies in length, so requests in the middle of the network "
            f"differ in shape; give it one shape with --input-shape, or {_INSTEAD}"
        )
    cpu = torch.device("cpu")
    exported = _Exported(loaded, cpu)  # first: it has the reasons that help
    example = _requests(loaded.inputs, cpu)[0]
    graph = from_torch(_InOrder(loaded), tuple(example), name=loaded.name, constant=exported.constant_operators)
    with torch.no_grad(), one_thread():
        cuts = exported.where_requests_are_apart([node.name for node in graph.nodes])
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
    """At the nodes that `split` found, with the module on `device`."""
    return SplitNetwork(_Exported(loaded, device), nodes)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Several threads of an operator, beside other processes, wait for each other: measured, six times as long."""
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
    """A network to be served node by node, under `name` (its source, if None), in batches up to `max_batch`; `whole`
    makes it one node, as for one that cannot be split. Raises UsageError, with the reason."""
    loaded = load_model(source, weights, input_shape, rules)
    name = name or source
    nodes: tuple[str, ...] = ()
    graph = ModelGraph.opaque(name)
    if not whole:
        network, found = split(loaded)
        nodes, graph = network.nodes, ModelGraph(name, found.nodes)
    model = NodeModel(
        name, source, loaded.inputs, loaded.outputs, max_batch, weights, input_shape, rules=rules, nodes=nodes
    )
    return model, graph


class _InOrder(torch.nn.Module):
    """The network with its inputs and outputs in the order of `loaded`."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__()
        self.network = loaded.module
        self._loaded = loaded

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._loaded.call(tensors))


def _requests(specs: Sequence[TensorSpec], device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Two requests, unlike each other; their whole numbers, which may be indices of any table, are 0 and 1."""
    made: tuple[list[Tensor], list[Tensor]] = ([], [])
    for seed, tensors in enumerate(made):
        generator = torch.Generator().manual_seed(seed)
        for spec in specs:
            kind = getattr(torch, spec.dtype)
            shape = (1, *spec.shape)
            noise = torch.randn(shape, generator=generator)
            tensors.append(
                (noise.to(kind) if kind.is_floating_point else torch.full(shape, seed, dtype=kind)).to(device)
            )
    return made


class _Exported:
    """The network as a list of operators, and the values that they find in it: `constants`, by name."""

    def __init__(self, loaded: LoadedModel, device: torch.device) -> None:
        self._name = loaded.name
        loaded.module.to(device)
        network = _InOrder(loaded)
        self._two = _requests(loaded.inputs, device)
        size = torch.export.Dim("batch", min=1, max=loaded.largest_batch)
        both = tuple(torch.cat(pair) for pair in zip(*self._two, strict=True))
        with tracing(network, loaded.name, f"write it without control flow that depends on data; or {_INSTEAD}"):
            exported = export(network, both, dynamic_shapes=(tuple({0: size} for _ in both),))
        held = {**exported.state_dict, **exported.constants}
        self.constants = SimpleNamespace()
        self._of_placeholder = held_values(exported)
        for placeholder, target in self._of_placeholder.items():
            value = held[target]
            if value.is_inference():  # the network kept it from a run in inference mode
                value = value.clone()
            setattr(self.constants, placeholder, value)
        self._constant = constants(exported)
        self.constant_operators = {node.name for node in self._constant}
        self._inputs: list[fx.Node] = []
        self._operators: list[fx.Node] = []
        self._expressions: dict[fx.Node, int] = {}  # sizes, by place in what `sizes` gives
        self._formulas: list[Any] = []
        for node in exported.graph.nodes:
            if node.op == "placeholder":
                if node.name in self._of_placeholder:
                    self._constant.add(node)  # though it may be written, which is refused when it is found out
                else:
                    self._inputs.append(node)
            elif node.op == "output":
                (self._outputs,) = node.args
            elif node.op == "get_attr":
                continue  # a graph of its own, which the call that follows runs
            elif node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
                raise UsageError(f"model {self._name!r} {why_no_operator(node)}; {_INSTEAD}")
            elif isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
                self._expressions[node] = len(self._formulas)
                self._formulas.append(node.meta["val"].node.expr)
            elif not str(node.target).startswith(("aten._assert", "aten.sym_constrain")):
                self._operators.append(node)
        self._symbol = self._inputs[0].meta["val"].shape[0].node.expr
        self._by_batch: dict[int, tuple[Any, ...]] = {}
        self._operators = self._parts_behind_wholes()
        self._fold()

    def _parts_behind_wholes(self) -> list[fx.Node]:
        """An operator that gives several tensors has them taken apart at once: only tensors are alive at boundaries."""
        ordered: list[fx.Node] = []
        for node in self._operators:
            if node.target is not getitem:
                ordered += [node, *(user for user in node.users if user.target is getitem)]
        return ordered

    def _fold(self) -> None:
        """Compute the constants once."""
        left: list[fx.Node] = []
        for node in self._operators:
            if node in self._constant:
                args, kwargs = fx.node.map_arg(
                    (node.args, node.kwargs), lambda value: getattr(self.constants, value.name)
                )
                with torch.no_grad():
                    setattr(self.constants, node.name, node.target(*args, **kwargs))
            else:
                left.append(node)
        needed = {value for node in left for value in node.all_input_nodes} | set(self._outputs)
        for node in self._operators:
            if node in self._constant and node not in needed:  # it was a step on the way to other constants
                delattr(self.constants, node.name)
        self._operators = left

    def sizes(self, batch: int) -> tuple[Any, ...]:
        """What depends on the batch alone."""
        found = self._by_batch.get(batch)
        if found is None:
            found = tuple(_number(formula.subs(self._symbol, batch)) for formula in self._formulas)
            self._by_batch[batch] = found
        return found

    def cut(self, cuts: Sequence[str]) -> tuple[tuple[Boundary, ...], list[Callable[..., Live]]]:
        """The boundaries and the functions of the nodes that begin with these operators. A function takes `constants`,
        `sizes`, and what is alive before it. Raises UsageError."""
        begins = {name: number for number, name in enumerate(cuts)}
        of: dict[fx.Node, int] = dict.fromkeys(self._inputs, -1)  # node of the schedulers' by operator
        parts: list[list[fx.Node]] = [[] for _ in cuts]
        number = 0
        for operator in self._operators:
            number = begins.pop(operator.name, number)
            of[operator] = number
            parts[number].append(operator)
        if begins:
            raise UsageError(
                f"model {self._name!r} does other work for a batch than for one request ({min(begins)}); {_INSTEAD}"
            )
        last = {value: max((of[user] for user in value.users if user in of), default=-1) for value in of}
        last |= dict.fromkeys(self._outputs, len(cuts))
        boundaries = [self._inputs]
        boundaries += [
            [value for value in of if of[value] < number <= last[value] and isinstance(value.meta["val"], Tensor)]
            for number in range(1, len(cuts))
        ] + [list(self._outputs)]
        functions = [
            self._function(operators, boundaries[number], boundaries[number + 1])
            for number, operators in enumerate(parts)
        ]
        return tuple(
            Boundary(tuple(value.name for value in alive), tuple(self._place(value) for value in alive))
            for alive in boundaries
        ), functions

    def _function(
        self, operators: Sequence[fx.Node], before: Sequence[fx.Node], behind: Sequence[fx.Node]
    ) -> Callable[..., Live]:
        graph = fx.Graph()
        sizes = graph.placeholder("sizes")
        here = {value: graph.placeholder(value.name) for value in before}

        def value(node: fx.Node) -> fx.Node:
            if node not in here:
                if node in self._constant:
                    here[node] = graph.create_node("get_attr", node.name)
                else:
                    here[node] = graph.call_function(getitem, (sizes, self._expressions[node]))
            return here[node]

        for operator in operators:
            here[operator] = graph.node_copy(operator, value)
        graph.output(tuple(value(node) for node in behind))
        code = graph.python_code("self")  # its constants are attributes of that
        names = dict(code.globals)
        exec(compile(code.src, f"<node of {self._name}>", "exec"), names)
        function: Callable[..., Live] = names["forward"]
        return function

    def _place(self, value: fx.Node) -> Place | None:
        """Rows of 0 where no single dimension counts the requests."""
        counted = [
            (dim, size.node.expr) for dim, size in enumerate(value.meta["val"].shape) if isinstance(size, torch.SymInt)
        ]
        if not counted:
            return None
        (dim, formula), *others = counted
        rows = formula.subs(self._symbol, 1)
        exact = not others and rows.is_integer and formula == rows * self._symbol
        return Place(dim, int(rows) if exact else 0)

    def where_requests_are_apart(self, cuts: Sequence[str]) -> list[str]:
        """Those of `cuts` before which a request's part of every tensor is what it would be alone. Raises UsageError if
        even the outputs depend on the others of a batch, or if the network changes itself as it runs."""
        boundaries, functions = self.cut(cuts)
        held = {name: value for name, value in vars(self.constants).items() if isinstance(value, Tensor)}
        before = {name: value._version for name, value in held.items()}
        both = [torch.cat(pair) for pair in zip(*self._two, strict=True)]
        (first, _), (second, _), (together, shared) = (self._alive(functions, inputs) for inputs in (*self._two, both))
        changed = [name for name, value in held.items() if value._version != before[name]]
        if changed:
            own = self._of_placeholder.get(changed[0], changed[0]).removeprefix("network.")
            raise UsageError(f"model {self._name!r} changes its {own!r} as it runs; {_INSTEAD}")
        kept = []
        for number, boundary in enumerate(boundaries):
            alone = zip(first[number], second[number], together[number], boundary.places, strict=True)
            if all(_isolated(*tensors, place) for *tensors, place in alone) and number not in shared:
                kept.append(number)
        if len(cuts) not in kept:
            raise UsageError(f"model {self._name!r}: a request's output depends on the others of its batch; {_INSTEAD}")
        return [name for number, name in enumerate(cuts) if number in kept or number == 0]

    def _alive(self, functions: Sequence[Callable[..., Live]], inputs: Sequence[Tensor]) -> tuple[list[Live], set[int]]:
        """Return copies of the tensors alive at each boundary, and the boundaries at which two of them share memory
        that is written later."""
        live: Live = tuple(tensor.clone() for tensor in inputs)
        found = [tuple(inputs)]
        watched: list[tuple[int, Tensor, int]] = []  # boundary, a tensor that shares memory, how often it was written
        shared: set[int] = set()
        for number, function in enumerate(functions, start=1):
            live = function(self.constants, self.sizes(len(inputs[0])), *live)
            shared |= {boundary for boundary, tensor, version in watched if tensor._version != version}
            memories = Counter(tensor.untyped_storage().data_ptr() for tensor in live)
            watched = [entry for entry in watched if entry[0] not in shared] + [
                (number, tensor, tensor._version)
                for tensor in live
                if memories[tensor.untyped_storage().data_ptr()] > 1
            ]
            found.append(tuple(tensor.clone() for tensor in live))
        return found, shared


def _number(formula: Any) -> Any:
    """Of a sympy formula without symbols."""
    if formula.is_Boolean:
        return bool(formula)
    return int(formula) if formula.is_integer else float(formula)


def _isolated(first: Tensor, second: Tensor, together: Tensor, place: Place | None) -> bool:
    if place is None:
        return _same(first, together) and _same(second, together)
    return place.rows > 0 and _same(torch.cat((first, second), place.dim), together)


def _same(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if not left.is_floating_point():
        return torch.equal(left, right)
    finite = right[right.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(left, right, rtol=0.0, atol=SAME * largest, equal_nan=True)
