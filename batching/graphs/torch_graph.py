"""Model graphs from `torch.nn.Module` by torch.export. Every operator that multiplies matrices becomes a node.

An exported network is a list of operators on tensors of known shape. It does not depend on the modules that the network
was written with. Each operator is decomposed into elementary ones, which show its matrix products. A recurrent layer
over T steps is one operator of T small products. Attention is one operator of two products for each head. A node can be
left only where its operator ends, so the same network can be run node by node (host/workers/networks/split/).

Constants are values that are the same for every batch: trained values, tensors from `torch.arange` and similar
operators, and values computed from these alone. They count like trained values, so none of their products is a node.
The function `constants` has the rule. A network that runs node by node computes them once, by the same rule.

The kernels of a network are found by running it on tensors without values, operator by operator. The operators that
torch dispatches in that run are the kernels that an eager run launches on a GPU. Views launch nothing.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headrace.batching.errors import UsageError
from headrace.batching.graphs.model_graph import ATTENTION, CAUSAL, Kernel, MatMul, ModelGraph, Node

ATTENTION_PRODUCTS = 2  # scores, weighted sum
_LAUNCH_NOTHING = (
    "_unsafe_view",
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "lift_fresh",
    "lift_fresh_copy",
    "_assert_scalar",
)
_ONLY_WRITE = ("arange", "fill_", "full", "linspace", "ones", "scalar_tensor", "zero_", "zeros")
_HINT = (
    "write the forward pass without control flow that depends on data, or describe the network with "
    "ModelGraph and Node yourself"
)


def from_torch(
    module: Any, example: Any, *, name: str | None = None, constant: Container[str] | None = None
) -> ModelGraph:
    """Return the graph of a `torch.nn.Module`, traced with an example.

    The graph has one static node for each operator that multiplies matrices, in the order of execution. A node has its
    operator's name in the exported graph. Other operators (activations, pooling, norms) belong to the node before them.

    Args:
        module: The network.
        example: A batch of one request: a tensor, or a tuple of arguments.
        name: The graph's name; None for the name of the module's class.
        constant: The names of the operators that are constants, if they are known already.

    Raises:
        UsageError: The module cannot be traced, or it multiplies no matrices.
    """
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
    with tracing(module, name):
        whole = export(module, arguments)
        launched = _Launched(whole).by_operator()
        alike = {node.name for node in constants(whole) if node.op == "call_function"}  # constants for one request
        if constant is None and alike:
            constant = _constant_operators(module, arguments)
        with sdpa_kernel(SDPBackend.MATH):  # decomposes attention into its two products
            exported = whole.run_decompositions(_decompositions())
    # A tensor that modules share has several names. The first one, which named_parameters yields, stands for all.
    first_name = {id(parameter): key for key, parameter in module.named_parameters()}
    own_name = {key: first_name[id(value)] for key, value in module.named_parameters(remove_duplicate=False)}
    sizes = {key: parameter.numel() for key, parameter in module.named_parameters()}
    signature = exported.graph_signature
    trained = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held = held_values(exported)
    by_batch = alike if constant is None else {operator for operator in alike if operator not in constant}
    nodes: list[Node] = []
    between = 0  # parameters of operators before the first product
    weights: dict[Any, frozenset[str]] = {}  # constants, with the trained tensors on which they depend
    counted: set[str] = set()
    for call in exported.graph_module.graph.nodes:
        if call.op == "placeholder" and call.name in trained:
            weights[call] = frozenset((own_name.get(trained[call.name], trained[call.name]),))
        elif call.op == "placeholder" and call.name in held:
            weights[call] = frozenset()
        if call.op != "call_function":
            continue
        if isinstance(call.target, torch._ops.HigherOrderOperator):  # torch.cond and its like hold graphs of their own
            raise UsageError(f"{name} cannot be traced: it {why_no_operator(call)}; {_HINT}")
        inputs = call.all_input_nodes
        source = _source(call)
        alone = all(value in weights for value in inputs) and (len(inputs) > 0 or source in alike)
        if alone and source not in by_batch:
            weights[call] = frozenset().union(*(weights[value] for value in inputs))
            continue
        used = frozenset().union(*(weights[value] for value in inputs if value in weights)) - counted
        counted |= used
        parameters = sum(sizes.get(key, 0) for key in used)
        product = _product(call, weights)
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
    return ModelGraph(name, tuple(_with_kernels(nodes, launched)))


def export(module: torch.nn.Module, arguments: tuple[Any, ...], **options: Any) -> torch.export.ExportedProgram:
    """Return the program that torch.export makes of the module, with parts that run without gradients or autocast
    inlined.

    torch.export keeps such a part as a graph of its own. The whole network runs without gradients and autocast, so the
    part's operators compute the same inline."""
    exported = torch.export.export(module, arguments, **options)
    graph = exported.graph_module.graph
    for call in list(graph.nodes):
        *setting, part, operands = _part(call)
        if part is None or (str(call.target) == "wrap_with_autocast" and setting[2]):
            continue
        inner = getattr(exported.graph_module, part.target).graph
        copied = dict(zip(inner.find_nodes(op="placeholder"), operands, strict=True))
        with graph.inserting_before(call):
            for node in inner.nodes:
                if node.op not in ("placeholder", "output"):
                    copied[node] = graph.node_copy(node, copied.__getitem__)
        (results,) = inner.output_node().args
        for user in list(call.users):  # each user takes one result
            user.replace_all_uses_with(copied[results[user.args[1]]])
            graph.erase_node(user)
        graph.erase_node(call)
        if not part.users:
            graph.erase_node(part)
    exported.graph_module.recompile()
    return exported


def _part(call: torch.fx.Node) -> tuple[Any, ...]:
    """Return the settings of a part that sets gradients or autocast, its graph, and its operands.

    The graph is None for other calls."""
    settings = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}.get(str(call.target), 0)
    if call.op != "call_function" or not settings:
        return (None, ())
    return (*call.args[:settings], call.args[settings], call.args[settings + 1 :])


def why_no_operator(call: torch.fx.Node) -> str:
    """Return the reason why a call is no operator: it runs a graph of its own."""
    if str(call.target) == "wrap_with_autocast":
        return "sets torch.autocast for a part of itself"
    return f"calls {call.target}, whose work depends on data"


def held_values(exported: torch.export.ExportedProgram) -> dict[str, str]:
    """Return the values that the module holds, such as parameters: by placeholder, the name in the module."""
    return {spec.arg.name: spec.target for spec in exported.graph_signature.input_specs if spec.target is not None}


def constants(exported: torch.export.ExportedProgram) -> set[torch.fx.Node]:
    """Return the nodes of an exported graph whose values are the same for every batch.

    These are the values that the module holds, and operators that depend on nothing else. An operator that makes a
    tensor of a fixed size, such as `torch.arange(8)`, depends on nothing. An operator that makes a tensor of the
    batch's size depends on the batch, if the graph was exported for batches of any size. Random values and memory that
    is written are not constants."""
    held = held_values(exported)
    written: set[Any] = set()
    for node in exported.graph.nodes:
        value = node.args[0] if writes(node) else None
        while (
            isinstance(value, torch.fx.Node) and value not in written
        ):  # follow views of views to the memory that is written
            written.add(value)
            value = value.args[0] if value.args else None
    constant_nodes: set[torch.fx.Node] = set()
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            alone = node.name in held
        else:
            alone = node.op == "call_function" and all(value in constant_nodes for value in node.all_input_nodes)
        if alone and node not in written and not writes(node) and not _random(node):
            constant_nodes.add(node)
    return constant_nodes


def writes(node: torch.fx.Node) -> bool:
    """Return whether the operator writes into one of its inputs."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _random(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _constant_operators(module: torch.nn.Module, arguments: tuple[Any, ...]) -> set[str] | None:
    """Return the names of the operators that are constants for batches of any size.

    None means that the module cannot be traced for batches of any size."""
    two = tuple(torch.cat((given, given)) if isinstance(given, torch.Tensor) else given for given in arguments)
    sizes = tuple({0: torch.export.Dim.AUTO} if isinstance(given, torch.Tensor) else None for given in arguments)
    try:
        exported = export(module, two, dynamic_shapes=sizes)
    except Exception:
        return None
    return {node.name for node in constants(exported)}


def _with_kernels(nodes: Sequence[Node], launched: Mapping[str, Sequence[Kernel]]) -> Iterator[Node]:
    """Yield the nodes with their kernels.

    The kernels of a node are launched from its operator up to the operator of the next node. The first node also has
    the kernels before its operator."""
    starts = {node.name: number for number, node in enumerate(nodes)}
    kernels: list[list[Kernel]] = [[] for _ in nodes]
    at = 0
    for operator, launches in launched.items():
        if operator in starts:
            at = starts[operator]
            launches = _with_products(launches, nodes[at].operators)
        kernels[at] += launches
    for node, own in zip(nodes, kernels, strict=True):
        yield replace(node, kernels=tuple(own))


def _with_products(kernels: Sequence[Kernel], products: Sequence[MatMul]) -> list[Kernel]:
    """Return the kernels with the matrix products that they compute.

    Usually each product belongs to one kernel. If one kernel computes attention as a whole, it has all products."""
    computing = [number for number, kernel in enumerate(kernels) if kernel.name in _READERS]
    if len(computing) != len(products):
        # A recurrent layer runs step by step on a GPU too, so it launches a kernel for each of its products.
        largest = max(kernels, key=lambda kernel: kernel.weights + kernel.read)
        if len(products) > ATTENTION_PRODUCTS:
            part = replace(
                largest,
                read=largest.read // len(products),
                written=largest.written // len(products),
                weights=largest.weights // len(products),
            )
            steps = [replace(part, products=(product,)) for product in products]
            return [kernel for kernel in kernels if kernel is not largest] + steps
        return [replace(kernel, products=tuple(products)) if kernel is largest else kernel for kernel in kernels]
    assigned = list(kernels)
    for number, product in zip(computing, products, strict=True):
        assigned[number] = replace(assigned[number], products=(product,))
    return assigned


class _Launched(torch.fx.Interpreter):
    """Runs an exported network operator by operator, on the tensors without values that it was traced with."""

    def __init__(self, exported: torch.export.ExportedProgram) -> None:
        super().__init__(exported.graph_module)
        signature = exported.graph_signature
        trained = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self._inputs = [node.meta["val"] for node in exported.graph_module.graph.find_nodes(op="placeholder")]
        names = [node.name for node in exported.graph_module.graph.find_nodes(op="placeholder")]
        self._recorder = _Recorder(value for name, value in zip(names, self._inputs, strict=True) if name in trained)
        self._found: dict[str, list[Kernel]] = {}

    def by_operator(self) -> dict[str, list[Kernel]]:
        """Return the kernels of each operator, in order, by the operator's name in the exported graph."""
        fake = next(
            (value.fake_mode for value in self._inputs if hasattr(value, "fake_mode")), contextlib.nullcontext()
        )
        with torch.no_grad(), fake:
            self.run(*self._inputs)
        return self._found

    def run_node(self, node: torch.fx.Node) -> Any:
        if node.op != "call_function":
            return super().run_node(node)
        with self._recorder as recorder:
            recorder.kernels = self._found[node.name] = []
            return super().run_node(node)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Appends a `Kernel` to `kernels` for each operator that runs while the recorder is entered.

    `trained` has the parameters, buffers and constants of the network."""

    def __init__(self, trained: Iterator[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[Kernel] = []
        # Tensors that are the same for every request, by storage. Holding them keeps their storage from being reused.
        self._constant = {_storage(tensor): tensor for tensor in trained}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        causal = name.startswith(ATTENTION) and _value(func, args, kwargs, "is_causal")
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        made = [value for value in tree_leaves(out) if isinstance(value, torch.Tensor)]
        if func.is_view or name in _LAUNCH_NOTHING or not made:
            return out
        if name in _ONLY_WRITE or name.startswith("new_") or name.endswith("_like"):
            given = []
        weights = sum(value.numel() for value in given if _storage(value) in self._constant)
        read = sum(value.numel() for value in given if _storage(value) not in self._constant)
        written = sum(value.numel() for value in made)
        self.kernels.append(Kernel(name + CAUSAL if causal else name, read, written, weights))
        for value in made:
            if read:  # the operator may have written into a constant
                self._constant.pop(_storage(value), None)
            else:
                self._constant[_storage(value)] = value
        return out


def _value(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    """Return the value of an operator's argument; None if the operator has no such argument."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return args[place] if place < len(args) else (kwargs or {}).get(name, argument.default_value)
    return None


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@contextlib.contextmanager
def tracing(module: torch.nn.Module, name: str, hint: str = _HINT) -> Iterator[None]:
    """Put a module into eval mode and silence torch.export while it traces.

    Module and logging are as before afterwards. Raises UsageError for any failure, in one line with `hint`."""
    training = {part: part.training for part in module.modules()}
    logged = logging.root.manager.disable
    # The exception says what failed. torch also logs it, with its own stack, and prints the graph.
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            with contextlib.suppress(NotImplementedError):  # raised by modules that were exported before
                module.eval()
            yield
    except Exception as error:
        if "specialized it to be a constant" in str(error):
            raise UsageError(
                f"{name} cannot be traced: it takes the size of its batch as a constant, as len(tensor) does; "
                "write tensor.shape[0]"
            ) from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        details = [line.strip() for line in lines[1:] if line.startswith("  - ")]  # which guard was violated
        reason = " ".join((lines[0], *details[:1]))
        raise UsageError(f"{name} cannot be traced: {type(error).__name__}: {reason}; {hint}") from error
    finally:
        logging.disable(logged)
        for part, mode in training.items():
            part.training = mode


def _source(call: Any) -> str:
    """Return the name of the operator from which a decomposed call comes."""
    sources = call.meta.get("from_node")
    return str(sources[-1].name if sources else call.name)


def _decompositions() -> Any:
    """Return torch's decompositions, without those that turn products with a vector into sums of elements."""
    table = torch.export.default_decompositions()
    for operator in (torch.ops.aten.mv.default, torch.ops.aten.dot.default):
        del table[operator]
    return table


def _product(call: Any, weights: Any) -> MatMul | None:
    """Return the matrix product that a call of an operator computes; None if it computes none."""
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
    if left in weights and right not in weights:  # the product is weights @ activations
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
