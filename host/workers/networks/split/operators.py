"""A network as the list of operators that `torch.export` finds, and the boundaries at which the list can be cut."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import getitem
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx

from headrace.batching import UsageError
from headrace.batching.graphs.torch_graph import constants, export, held_values, tracing, why_no_operator
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.models import LoadedModel

# Relative to the largest value of a tensor. Rows of other requests differ by more, kernels for other batches by less.
SAME = 1e-3

Live = tuple[Tensor, ...]  # the tensors of a sub-batch that are alive at a boundary
INSTEAD = "keep it in one piece (--whole), or change that"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a sub-batch's requests in a tensor: `rows` rows of each, one after the other, along `dim`."""

    dim: int
    rows: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """The names of the tensors alive before a node, and their places. A place is None for a tensor that all requests
    share."""

    alive: tuple[str, ...]
    places: tuple[Place | None, ...]


class InOrder(torch.nn.Module):
    """The network with its inputs and outputs in the order of `loaded`."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__()
        self.network = loaded.module
        self._loaded = loaded

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._loaded.call(tensors))


def two_requests(specs: Sequence[TensorSpec], device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Return two requests that differ. Their integers, which may be indices of any table, are 0 and 1."""
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


class OperatorList:
    """The network as a list of operators, and the values that they read from it: `constants`, by name."""

    def __init__(self, loaded: LoadedModel, device: torch.device) -> None:
        self._name = loaded.name
        loaded.module.to(device)
        network = InOrder(loaded)
        self._two = two_requests(loaded.inputs, device)
        size = torch.export.Dim("batch", min=1, max=loaded.largest_batch)
        both = tuple(torch.cat(pair) for pair in zip(*self._two, strict=True))
        with tracing(network, loaded.name, f"write it without control flow that depends on data; or {INSTEAD}"):
            exported = export(network, both, dynamic_shapes=(tuple({0: size} for _ in both),))
        held = {**exported.state_dict, **exported.constants}
        self.constants = SimpleNamespace()
        self._of_placeholder = held_values(exported)
        for placeholder, target in self._of_placeholder.items():
            value = held[target]
            if value.is_inference():  # the network has kept it from a run in inference mode
                value = value.clone()
            setattr(self.constants, placeholder, value)
        self._constant = constants(exported)
        self.constant_operators = {node.name for node in self._constant}
        self._inputs: list[fx.Node] = []
        self._operators: list[fx.Node] = []
        self._expressions: dict[fx.Node, int] = {}  # place of each size in the result of `sizes`
        self._formulas: list[Any] = []
        for node in exported.graph.nodes:
            if node.op == "placeholder":
                if node.name in self._of_placeholder:
                    self._constant.add(node)  # it may be written; `isolated_boundaries` refuses that
                else:
                    self._inputs.append(node)
            elif node.op == "output":
                (self._outputs,) = node.args
            elif node.op == "get_attr":
                continue  # another graph, which the next call runs
            elif node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
                raise UsageError(f"model {self._name!r} {why_no_operator(node)}; {INSTEAD}")
            elif isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
                self._expressions[node] = len(self._formulas)
                self._formulas.append(node.meta["val"].node.expr)
            elif not str(node.target).startswith(("aten._assert", "aten.sym_constrain")):
                self._operators.append(node)
        self._symbol = self._inputs[0].meta["val"].shape[0].node.expr
        self._by_batch: dict[int, tuple[Any, ...]] = {}
        self._operators = self._parts_after_wholes()
        self._fold()

    def _parts_after_wholes(self) -> list[fx.Node]:
        """Put the parts of an operator that returns several tensors right after it, as only tensors are alive at
        boundaries."""
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
            if node in self._constant and node not in needed:  # only other constants needed it
                delattr(self.constants, node.name)
        self._operators = left

    def sizes(self, batch: int) -> tuple[Any, ...]:
        """Return the values that depend on the batch alone."""
        values = self._by_batch.get(batch)
        if values is None:
            values = tuple(_number(formula.subs(self._symbol, batch)) for formula in self._formulas)
            self._by_batch[batch] = values
        return values

    def cut(self, cuts: Sequence[str]) -> tuple[tuple[Boundary, ...], list[Callable[..., Live]]]:
        """Return the boundaries and functions of the nodes that begin with these operators.

        A function takes `constants`, `sizes`, and the tensors alive before the node. Raises UsageError."""
        begins = {name: number for number, name in enumerate(cuts)}
        of: dict[fx.Node, int] = dict.fromkeys(self._inputs, -1)  # number of the node of each operator
        parts: list[list[fx.Node]] = [[] for _ in cuts]
        number = 0
        for operator in self._operators:
            number = begins.pop(operator.name, number)
            of[operator] = number
            parts[number].append(operator)
        if begins:
            raise UsageError(
                f"model {self._name!r} does other work for a batch than for one request ({min(begins)}); {INSTEAD}"
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
        self, operators: Sequence[fx.Node], before: Sequence[fx.Node], after: Sequence[fx.Node]
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
        graph.output(tuple(value(node) for node in after))
        code = graph.python_code("self")  # the constants are attributes of that argument
        names = dict(code.globals)
        exec(compile(code.src, f"<node of {self._name}>", "exec"), names)
        function: Callable[..., Live] = names["forward"]
        return function

    def _place(self, value: fx.Node) -> Place | None:
        """Return the place of the requests in a value, with 0 rows if no single dimension counts the requests."""
        counted = [
            (dim, size.node.expr) for dim, size in enumerate(value.meta["val"].shape) if isinstance(size, torch.SymInt)
        ]
        if not counted:
            return None
        (dim, formula), *others = counted
        rows = formula.subs(self._symbol, 1)
        exact = not others and rows.is_integer and formula == rows * self._symbol
        return Place(dim, int(rows) if exact else 0)

    def isolated_boundaries(self, cuts: Sequence[str]) -> list[str]:
        """Return those of `cuts` before which each tensor of a request is the same in a batch as alone.

        Raises UsageError if even the outputs depend on the other requests of a batch, or if the network changes itself
        as it runs."""
        boundaries, functions = self.cut(cuts)
        held = {name: value for name, value in vars(self.constants).items() if isinstance(value, Tensor)}
        before = {name: value._version for name, value in held.items()}
        both = [torch.cat(pair) for pair in zip(*self._two, strict=True)]
        (first, _), (second, _), (together, shared) = (self._alive(functions, inputs) for inputs in (*self._two, both))
        changed = [name for name, value in held.items() if value._version != before[name]]
        if changed:
            own = self._of_placeholder.get(changed[0], changed[0]).removeprefix("network.")
            raise UsageError(f"model {self._name!r} changes its {own!r} as it runs; {INSTEAD}")
        kept = []
        for number, boundary in enumerate(boundaries):
            alone = zip(first[number], second[number], together[number], boundary.places, strict=True)
            if all(_isolated(*tensors, place) for *tensors, place in alone) and number not in shared:
                kept.append(number)
        if len(cuts) not in kept:
            raise UsageError(f"model {self._name!r}: a request's output depends on the others of its batch; {INSTEAD}")
        return [name for number, name in enumerate(cuts) if number in kept or number == 0]

    def _alive(self, functions: Sequence[Callable[..., Live]], inputs: Sequence[Tensor]) -> tuple[list[Live], set[int]]:
        """Return copies of the tensors alive at each boundary, and the boundaries with shared memory that is written
        later."""
        live: Live = tuple(tensor.clone() for tensor in inputs)
        copies = [tuple(inputs)]
        watched: list[tuple[int, Tensor, int]] = []  # boundary, tensor with shared memory, version of the tensor
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
            copies.append(tuple(tensor.clone() for tensor in live))
        return copies, shared


def _number(formula: Any) -> Any:
    """Return the value of a sympy formula without symbols."""
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
