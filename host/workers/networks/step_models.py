"""Load step models by name: Headrace's own with fixed random weights, or a user's."""

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headrace.batching import HeadraceError, UsageError
from headrace.batching.errors import one_line
from headrace.batching.graphs.model_graph import ModelGraph, NodeKind
from headrace.batching.named import import_attribute
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.networks.foreign.weights import load_weights
from headrace.host.workers.networks.input_shapes import DTYPES
from headrace.host.workers.networks.program import StepNodes
from headrace.host.workers.networks.sequence_networks import KINDS, Network, Tree, plan, post_order
from headrace.host.workers.networks.step_rows import States, call_step
from headrace.host.workers.networks.steps import EOS, GO, Signature, Step, StepModel
from headrace.host.workers.networks.zoo.recurrent import lstm, seq2seq, treelstm
from headrace.host.workers.networks.zoo.transformer import Transformer


@dataclass(frozen=True, slots=True)
class LoadedSteps:
    """A step model with its weights, in eval mode. `modules` are those of the signature's steps, in their order."""

    signature: Signature
    modules: nn.ModuleList


def load_steps(network: Network) -> LoadedSteps:
    """Load the network on the CPU. Raises UsageError."""
    torch.manual_seed(network.seed)
    loaded = _loaded(network, _own(network) if network.kind in KINDS else _users(network))
    if network.weights is not None:
        load_weights(loaded.modules, Path(network.weights), network.rules)
    return loaded


def signature(network: Network) -> Signature:
    """Return the signature of a network, without its weights.

    A user's own network is loaded and runs once on a short input, so that errors in it show before a worker starts.
    Raises UsageError."""
    if network.kind in KINDS:
        with torch.device("meta"):  # its tensors have no memory
            return _loaded(network, _own(network)).signature
    loaded = load_steps(network)
    try:
        run_alone(loaded, (0, 0) if loaded.signature.tree else [0], max_steps=1)
    except HeadraceError:
        raise
    except Exception as error:
        raise UsageError(f"network {network.name!r}, {network.kind}: a first run failed: {one_line(error)}") from error
    return loaded.signature


def is_step_model(name: str) -> bool:
    """Return whether the name is one of KINDS, or a user's function that returns a step model. Raises UsageError."""
    return name in KINDS or (":" in name and hasattr(_users(Network(name, name)), "steps"))


def step_nodes(network: Network, max_batch: int) -> tuple[StepNodes, ModelGraph]:
    """Describe a step model for node-level policies, in batches up to `max_batch`, with its steps as a graph.

    Raises UsageError, also for a network over trees."""
    model_signature = signature(network)
    return StepNodes(network, model_signature.inputs, model_signature.outputs, max_batch), model_signature.graph


def _own(network: Network) -> StepModel:
    if network.kind == "transformer":
        return Transformer(
            network.hidden,
            network.vocabulary,
            network.heads,
            network.layers,
            network.norm_first,
            network.longest_input,
            network.longest_output,
        )
    return {"lstm": lstm, "seq2seq": seq2seq, "treelstm": treelstm}[network.kind](network.hidden, network.vocabulary)


def _users(network: Network) -> Any:
    module_name, _, function = network.kind.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for --json alone
            return import_attribute(network.kind)()
    except (Exception, SystemExit) as error:
        raise UsageError(f"network {network.name!r}: calling {network.kind} failed: {one_line(error)}") from error


def _loaded(network: Network, model: Any) -> LoadedSteps:
    where = f"network {network.name!r}, {network.kind}"
    for attribute in ("states", "vocabulary", "steps"):
        if not hasattr(model, attribute):
            raise UsageError(
                f"{where}: a {type(model).__name__} without {attribute!r}; give it states, vocabulary, steps"
            )
    for what, kind in (("states", TensorSpec), ("steps", Step)):
        if not isinstance(values := getattr(model, what), Sequence):
            raise UsageError(f"{where}: its {what} are no sequence but a {type(values).__name__}; give a list or tuple")
        if wrong := [value for value in values if not isinstance(value, kind)]:
            raise UsageError(f"{where}: a {type(wrong[0]).__name__} in its {what}; give a {kind.__name__}")
    states, steps = tuple(model.states), tuple(model.steps)
    for spec in states:
        if spec.dtype not in DTYPES:
            raise UsageError(f"{where}: state {spec.name!r} of {spec.dtype}; give one of {', '.join(DTYPES)}")
    for step in steps:
        if not isinstance(step.module, nn.Module):
            raise UsageError(f"{where}: the module of step {step.name!r} is no torch.nn.Module; make it one")
    modules = nn.ModuleList(step.module for step in steps).eval()
    if network.max_batch and len(network.max_batch) != len(steps):
        names = ", ".join(step.name for step in steps)
        raise UsageError(f"network {network.name!r}: max_batch {network.max_batch}; give one for each of {names}")
    limits = network.max_batch or tuple(step.max_batch for step in steps)
    bare = tuple(replace(step, module=None, max_batch=limit) for step, limit in zip(steps, limits, strict=True))
    model_signature = Signature(
        network.name, model.vocabulary, states, bare, network.longest_input, network.longest_output
    )
    return LoadedSteps(model_signature, modules)


@torch.inference_mode()
def run_alone(loaded: LoadedSteps, value: Any, max_steps: int = 50) -> Tensor | list[int]:
    """Return the output of one request, step by step and without a batch. A runtime's output must equal it.

    The output is the first state after the last step, or after the tree's root, or the decoded tokens with <eos> if it
    came. Raises BadInput."""
    model_signature = loaded.signature
    plan(model_signature, value, max_steps)  # only for its checks
    if model_signature.tree:
        return _run_tree(loaded, value)
    state = {
        spec.name: torch.zeros(1, *spec.sized(0), dtype=getattr(torch, spec.dtype)) for spec in model_signature.states
    }
    decoded: list[int] = []
    for number, step in enumerate(model_signature.steps):
        if step.kind is NodeKind.STATIC:
            _step(loaded, number, torch.tensor([list(value)]), state)
        elif step.kind is NodeKind.ENCODER:
            for token in value:
                _step(loaded, number, torch.tensor([token]), state)
        else:
            while len(decoded) < max_steps and EOS not in decoded:
                chosen = _step(loaded, number, torch.tensor([decoded[-1] if decoded else GO]), state)
                assert chosen is not None
                decoded.append(int(chosen))
    return decoded if model_signature.decodes else state[model_signature.states[0].name][0]


def _step(loaded: LoadedSteps, number: int, tokens: Tensor, state: States) -> Tensor | None:
    """Run one step of one request, and change its `state`."""
    specs = {spec.name: spec for spec in loaded.signature.states}
    lengths = {spec.name: torch.tensor([state[spec.name].shape[1]]) for spec in loaded.signature.growing}
    if tokens.ndim == 2:
        lengths["tokens"] = torch.tensor([tokens.shape[1]])
    step = loaded.signature.steps[number]
    updates, chosen = call_step(step, loaded.modules[number], specs, tokens, state, lengths)
    for name, update in updates.items():
        state[name] = update if specs[name].variable is None else torch.cat((state[name], update), 1)
    return chosen


def _run_tree(loaded: LoadedSteps, tree: Tree) -> Tensor:
    model_signature = loaded.signature
    specs = {spec.name: spec for spec in model_signature.states}
    leaf, inner = sorted(range(2), key=lambda number: model_signature.steps[number].reads)
    done: list[States] = []
    for token, children in post_order(tree):
        number = inner if children else leaf
        state = {
            name: torch.stack([done[child][name] for child in children], 1)
            if children
            else torch.empty(1, 0, *spec.shape, dtype=getattr(torch, spec.dtype))
            for name, spec in specs.items()
        }
        updates, _ = call_step(
            model_signature.steps[number], loaded.modules[number], specs, torch.tensor([token]), state, {}
        )
        done.append(updates)
    return done[-1][model_signature.states[0].name][0]
