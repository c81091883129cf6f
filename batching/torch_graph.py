"""From a `torch.nn.Module` to a model graph, by torch.export: every operator that multiplies matrices becomes a node.

Exported and decomposed, a network is a list of elementary operators on tensors of known shape, whatever modules it was
written with: a recurrent network over T steps is T small products, attention two products for each head.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from headrace.batching.errors import UsageError
from headrace.batching.model_graph import MatMul, ModelGraph, Node

_HINT = (
    "write the forward pass without control flow that depends on data, or describe the network with "
    "ModelGraph and Node yourself"
)


def trace(module: Any, example: Any, name: str) -> ModelGraph:
    """See `ModelGraph.from_torch`."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    arguments = example if isinstance(example, tuple) else (example,)
    for tensor in arguments:
        if isinstance(tensor, torch.Tensor) and (tensor.dim() == 0 or tensor.shape[0] != 1):
            raise UsageError(
                f"the example has a tensor of shape {tuple(tensor.shape)}; a graph is that of one request, so the "
                "first dimension of each tensor must be a batch of 1"
            )
    training = {part: part.training for part in module.modules()}
    logging.disable(logging.CRITICAL)  # what goes wrong is in the exception; torch also logs it, with its own stack
    try:
        # Attention as the two products that it is.
        with warnings.catch_warnings(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore")
            exported = torch.export.export(module.eval(), arguments).run_decompositions()
    except Exception as error:
        reason = str(error).strip().splitlines() or [""]
        raise UsageError(
            f"{name} cannot be traced: {type(error).__name__}: {reason[0] or type(error).__name__}; {_HINT}"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
        for part, mode in training.items():
            part.training = mode
    signature = exported.graph_signature
    trained = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    sizes = {key: parameter.numel() for key, parameter in module.named_parameters()}
    nodes: list[Node] = []
    between = 0  # parameters of operators before the first product
    weights: dict[Any, str] = {}  # graph nodes that are nothing but a trained tensor, reshaped or transposed
    counted: set[str] = set()
    for call in exported.graph_module.graph.nodes:
        if call.op == "placeholder":
            if call.name in trained:
                weights[call] = trained[call.name]
            continue
        if call.op != "call_function":
            continue
        inputs = call.all_input_nodes
        if inputs and all(value in weights for value in inputs) and len(inputs) == 1:
            weights[call] = weights[inputs[0]]
            continue
        used = {weights[value] for value in inputs if value in weights} - counted
        counted |= used
        parameters = sum(sizes.get(key, 0) for key in used)
        product = _product(call, weights)
        if product is not None:
            label = str(call.name)
            nodes.append(Node(label, operators=(product,), parameters=parameters + between))
            between = 0
        elif nodes:
            last = nodes[-1]
            nodes[-1] = Node(last.name, last.kind, last.operators, last.parameters + parameters)
        else:
            between += parameters
    if not nodes:
        raise UsageError(f"{name} multiplies no matrices: there is nothing to schedule")
    return ModelGraph(name, tuple(nodes))


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
}
