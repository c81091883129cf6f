"""From a `torch.nn.Module` to a model graph, by torch.export: every operator that multiplies matrices becomes a node.

Exported, a network is a list of operators on tensors of known shape, whatever modules it was written with; each is
decomposed into elementary ones to see what it multiplies: a recurrent layer over T steps is an operator of T small
products, attention one of two products for each head. A node can be left only where its operator ends, so the same
network can be run node by node (host/workers/split.py).
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from headrace.batching.errors import UsageError
from headrace.batching.graphs.model_graph import MatMul, ModelGraph, Node

_HINT = (
    "write the forward pass without control flow that depends on data, or describe the network with "
    "ModelGraph and Node yourself"
)


def from_torch(module: Any, example: Any, *, name: str | None = None) -> ModelGraph:
    """The graph of a `torch.nn.Module`, traced with `example` (a batch of one: a tensor, or a tuple of arguments).

    One STATIC node for each operator that multiplies matrices, in the order of execution and under its name in the
    exported graph; what lies between (activations, pooling, norms) belongs to the node before. `name` is the module's
    class name if None. Raises UsageError if it cannot be traced."""
    name = name or type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{name} is a {type(module).__name__}; give a torch.nn.Module")
    arguments = example if isinstance(example, tuple) else (example,)
    for tensor in arguments:
        if isinstance(tensor, torch.Tensor) and (tensor.dim() == 0 or tensor.shape[0] != 1):
            raise UsageError(
                f"the example has a tensor of shape {tuple(tensor.shape)}; a graph is that of one request, so the "
                "first dimension of each tensor must be a batch of 1"
            )
    with tracing(module, name), sdpa_kernel(SDPBackend.MATH):  # attention as the two products that it is
        exported = torch.export.export(module, arguments).run_decompositions(_decompositions())
    # A tensor that modules share has several names; the first, by which named_parameters knows it, stands for all.
    first_name = {id(parameter): key for key, parameter in module.named_parameters()}
    own_name = {key: first_name[id(value)] for key, value in module.named_parameters(remove_duplicate=False)}
    sizes = {key: parameter.numel() for key, parameter in module.named_parameters()}
    signature = exported.graph_signature
    trained = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    nodes: list[Node] = []
    between = 0  # parameters of operators before the first product
    weights: dict[Any, frozenset[str]] = {}  # graph nodes that depend on nothing but these trained tensors
    counted: set[str] = set()
    for call in exported.graph_module.graph.nodes:
        if call.op == "placeholder" and call.name in trained:
            weights[call] = frozenset((own_name.get(trained[call.name], trained[call.name]),))
        if call.op != "call_function":
            continue
        if isinstance(call.target, torch._ops.HigherOrderOperator):  # torch.cond and its like hold graphs of their own
            raise UsageError(f"{name} cannot be traced: it calls {call.target}, whose work depends on data; {_HINT}")
        inputs = call.all_input_nodes
        if inputs and all(value in weights for value in inputs):
            weights[call] = frozenset().union(*(weights[value] for value in inputs))
            continue
        used = frozenset().union(*(weights[value] for value in inputs if value in weights)) - counted
        counted |= used
        parameters = sum(sizes.get(key, 0) for key in used)
        product = _product(call, weights)
        source = _source(call)
        if product is not None and nodes and nodes[-1].name == source:
            products = (*nodes[-1].operators, product)
            nodes[-1] = replace(nodes[-1], operators=products, parameters=nodes[-1].parameters + parameters)
        elif product is not None:
            nodes.append(Node(source, operators=(product,), parameters=parameters + between))
            between = 0
        elif nodes:
            nodes[-1] = replace(nodes[-1], parameters=nodes[-1].parameters + parameters)
        else:
            between += parameters
    if not nodes:
        raise UsageError(f"{name} multiplies no matrices: there is nothing to schedule")
    unread = sum(size for key, size in sizes.items() if key not in counted)  # such as heads used in training only
    nodes[-1] = replace(nodes[-1], parameters=nodes[-1].parameters + unread)
    return ModelGraph(name, tuple(nodes))


@contextlib.contextmanager
def tracing(module: torch.nn.Module, name: str, hint: str = _HINT) -> Iterator[None]:
    """Around torch.export: the module in eval mode, no noise, and what goes wrong as one line with a `hint`.

    Raises UsageError, and leaves module and logging as they were."""
    training = {part: part.training for part in module.modules()}
    logged = logging.root.manager.disable
    # What goes wrong is in the exception; torch also logs it, with its own stack, and prints the graph.
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            with contextlib.suppress(NotImplementedError):  # of programs that were exported before
                module.eval()
            yield
    except Exception as error:
        if "specialized it to be a constant" in str(error):
            raise UsageError(
                f"{name} cannot be traced: it takes the size of its batch as a constant, as len(tensor) does; "
                "write tensor.shape[0]"
            ) from error
        reason = str(error).strip().splitlines() or [""]
        raise UsageError(
            f"{name} cannot be traced: {type(error).__name__}: {reason[0] or type(error).__name__}; {hint}"
        ) from error
    finally:
        logging.disable(logged)
        for part, mode in training.items():
            part.training = mode


def _source(call: Any) -> str:
    """The name of the operator that a decomposed call comes from."""
    sources = call.meta.get("from_node")
    return str(sources[-1].name if sources else call.name)


def _decompositions() -> Any:
    """torch's own, but for products with a vector, which these turn into sums of elements."""
    table = torch.export.default_decompositions()
    for operator in (torch.ops.aten.mv.default, torch.ops.aten.dot.default):
        del table[operator]
    return table


def _product(call: Any, weights: Any) -> MatMul | None:
    """The matrix product that a call of an operator computes; None if it computes none."""
    kind = call.target.overloadpacket.__name__ if hasattr(call.target, "overloadpacket") else ""
    reader = _READERS.get(kind)
    return reader(call, weights) if reader else None


def _shape(value: Any) -> Sequence[int]:
    return [int(size) for size in value.meta["val"].shape]


def _convolution(call: Any, weights: Any) -> MatMul:
    image, kernel, groups = call.args[0], call.args[1], int(call.args[8])
    transposed = bool(call.args[6])
    _, into, *image_size = _shape(image)
    first, second, *kernel_size = _shape(kernel)
    out = second * groups if transposed else first
    pixels = _count(image_size if transposed else _shape(call)[2:])
    k = into // groups * (1 if transposed else _count(kernel_size))
    n = out // groups * (_count(kernel_size) if transposed else 1)
    return MatMul(pixels, k, n, groups, kernel in weights, into * _count(image_size))


def _mm(call: Any, weights: Any, left: Any = None, right: Any = None) -> MatMul:
    left, right = (call.args[0], call.args[1]) if left is None else (left, right)
    (m, k), (_, n) = _shape(left), _shape(right)
    if left in weights and right not in weights:  # written the other way round: weights @ activations
        m, n = n, m
    return MatMul(m, k, n, 1, left in weights or right in weights)


def _addmm(call: Any, weights: Any) -> MatMul:
    return _mm(call, weights, call.args[1], call.args[2])


def _bmm(call: Any, weights: Any) -> MatMul:
    (groups, m, k), (_, _, n) = _shape(call.args[0]), _shape(call.args[1])
    return MatMul(m, k, n, groups, call.args[1] in weights)


def _mv(call: Any, weights: Any) -> MatMul:
    m, k = _shape(call.args[0])
    return MatMul(m, k, 1, 1, call.args[0] in weights or call.args[1] in weights)


def _dot(call: Any, weights: Any) -> MatMul:
    return MatMul(1, _count(_shape(call.args[0])), 1, 1, call.args[0] in weights or call.args[1] in weights)


def _count(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


_READERS: dict[str, Callable[[Any, Any], MatMul]] = {
    "convolution": _convolution,
    "mm": _mm,
    "addmm": _addmm,
    "bmm": _bmm,
    "mv": _mv,
    "dot": _dot,
}
