"""The child's side of parent.py: answer one call in a process that has torch."""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from headrace.batching import HeadraceError, ModelGraph
from headrace.batching.errors import one_line
from headrace.batching.graphs.torch_graph import from_torch
from headrace.host.workers.devices import usable_cores
from headrace.host.workers.fork_server.protocol import FIRST_FD
from headrace.host.workers.inspection import batch_differences
from headrace.host.workers.inspection.json_values import from_plain, to_plain
from headrace.host.workers.networks.description import NetworkDescription
from headrace.host.workers.networks.foreign.limits import box_of, limit_reading_process
from headrace.host.workers.networks.foreign.rules import FileRules
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import NodeModel
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.split.network import node_model, one_thread
from headrace.host.workers.networks.step_models import is_step_model, load_steps, signature


def main(arguments: Sequence[str]) -> None:
    """Answer the call in the file FIRST_FD, and write the answer there: whether it is an error, and its value."""
    limit_reading_process()
    torch.set_num_threads(usable_cores())
    function, *given = from_plain(os.pread(FIRST_FD, os.fstat(FIRST_FD).st_size, 0))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            answer = to_plain([False, FUNCTIONS[function](*given)])
    except HeadraceError as error:
        answer = to_plain([True, str(error)])
    except Exception as error:
        answer = to_plain([True, one_line(error)])
    os.ftruncate(FIRST_FD, 0)
    os.pwrite(FIRST_FD, answer, 0)


def _describe(source: str, weights: str | None, input_shape: str | None, rules: FileRules) -> NetworkDescription:
    return load_model(source, weights, input_shape, rules).described()


def _graph(source: str, weights: str | None, input_shape: str | None, name: str, rules: FileRules) -> ModelGraph:
    with box_of(source, weights, rules):
        loaded = load_model(source, weights, input_shape, rules)
        return from_torch(loaded.module, torch.zeros(1, *loaded.input_shape), name=name)


def _node_model(
    source: str,
    max_batch: int,
    weights: str | None,
    input_shape: str | None,
    name: str | None,
    whole: bool,
    rules: FileRules,
) -> tuple[NodeModel, ModelGraph]:
    with box_of(source, weights, rules):
        return node_model(source, max_batch, weights, input_shape, name=name, whole=whole, rules=rules)


def _batch_difference(model: NodeModel, batches: Sequence[int]) -> dict[str, Any]:
    loaded = load_model(model.source, model.weights, model.input_shape, model.rules)
    with one_thread():
        return batch_differences.batch_difference(loaded, model.nodes, batches)


def _step_difference(network: Network, batch: int) -> dict[str, Any]:
    with one_thread():
        return batch_differences.step_difference(load_steps(network), batch)


FUNCTIONS: dict[str, Callable[..., Any]] = {  # parent.py has a function for each
    "describe": _describe,
    "graph": _graph,
    "node_model": _node_model,
    "is_step_model": is_step_model,
    "signature": signature,
    "batch_difference": _batch_difference,
    "step_difference": _step_difference,
}
