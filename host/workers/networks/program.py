"""The settings that worker processes get at their start. This module does not import torch; only worker processes need
it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import SlotArena, SlotLayout, slot_layouts
from headrace.host.memory.states import StateArena
from headrace.host.workers.networks.foreign.rules import ANY_FILE, EXPORTED, FileRules
from headrace.host.workers.networks.sequence_networks import Network

WHOLE, NODES, CELLS = (f"headrace.host.workers.executors.{name}" for name in ("whole", "nodes", "cells"))
EXECUTORS = (WHOLE, NODES, CELLS)  # the fork server imports these for all workers
TORCHVISION = "headrace.host.workers.networks.zoo.torchvision_networks"
# torch.export imports these when it is called first. Either takes as long as torch itself.
READING, TRACING = "torch.export.pt2_archive", "torch.export._trace"


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a worker process: it runs the function `main` of the module that `main` names.

    Args:
        settings: A dataclass that JSON can hold.
        memory_fd: File descriptor of the shared memory. The worker gets it under another number, which replaces
            `memory_fd` in its settings.
        preload: Modules that the fork server imports for all of its workers.
    """

    main: str
    settings: Any
    memory_fd: int
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WholeModel:
    """A network under the name that requests use.

    Args:
        source, weights, input_shape, rules: Arguments of `load_model`.
        inputs, outputs: The tensors that `load_model` then finds.
        max_batch: The largest batch, to which the worker warms up.
    """

    name: str
    source: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int
    weights: str | None = None
    input_shape: str | None = None
    rules: FileRules = ANY_FILE


@dataclass(frozen=True, slots=True)
class NodeModel(WholeModel):
    """A network that runs node by node. `nodes` has the names of the operators that begin a node (`split`)."""

    nodes: tuple[str, ...] = ()


Model = TypeVar("Model", bound=WholeModel)


@dataclass(frozen=True, slots=True)
class WholeSettings:
    """Settings of the executor of whole networks. Each model has `slots` slots in the memory."""

    models: tuple[WholeModel, ...]
    slots: int
    memory_fd: int

    def layouts(self) -> dict[str, SlotLayout]:
        return slot_layouts({model.name: (model.inputs, model.outputs) for model in self.models}, self.slots)


@dataclass(frozen=True, slots=True)
class StepNodes:
    """A step model that runs step by step in batches up to `max_batch`. `inputs` and `outputs` are those of its
    `Signature`."""

    network: Network
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int

    @property
    def name(self) -> str:
        return self.network.name


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of the executor of nodes: networks that are cut into nodes, then step models, numbered in this order."""

    models: tuple[NodeModel, ...]
    step_models: tuple[StepNodes, ...]
    slots: int
    memory_fd: int

    def layouts(self) -> dict[str, SlotLayout]:
        every = (*self.models, *self.step_models)
        return slot_layouts({model.name: (model.inputs, model.outputs) for model in every}, self.slots)


def preloads(sources: Iterable[str], cut: bool = False) -> tuple[str, ...]:
    """Return the modules that networks of these sources need. `cut`: whether they are cut into nodes."""
    modules = set()
    for source in sources:
        if source.endswith(EXPORTED):
            modules.add(READING)
        elif ":" not in source:
            modules.add(TORCHVISION)
        if cut:
            modules.add(TRACING)
    return tuple(sorted(modules))


def tensor_specs(body: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    """Return TensorSpecs from their JSON values."""
    return tuple(TensorSpec(**spec | {"shape": tuple(spec["shape"])}) for spec in body)


def read_model(kind: type[Model], body: dict[str, Any]) -> Model:
    """Return a WholeModel or a NodeModel from its JSON values."""
    fields = body | {key: tensor_specs(body[key]) for key in ("inputs", "outputs")}
    fields |= {key: tuple(body[key]) for key in ("nodes",) if key in body}
    return kind(**fields | {"rules": FileRules(**body["rules"])})


def read_network(body: dict[str, Any]) -> Network:
    """Return a Network from its JSON values."""
    return Network(**body | {"max_batch": tuple(body["max_batch"]), "rules": FileRules(**body["rules"])})


def whole_program(models: tuple[WholeModel, ...], arena: SlotArena) -> Program:
    """Return the program for whole networks. `arena` has slots of each."""
    settings = WholeSettings(models, arena.all_slots, arena.fd)
    return Program(WHOLE, settings, arena.fd, preloads(model.source for model in models))


def node_program(models: tuple[NodeModel, ...], step_models: tuple[StepNodes, ...], arena: SlotArena) -> Program:
    """Return the program for networks node by node. `arena` has slots of each."""
    settings = NodeSettings(models, step_models, arena.all_slots, arena.fd)
    return Program(NODES, settings, arena.fd, preloads((model.source for model in models), cut=True))


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Settings of the executor of cells. Each network has `rows` rows in the memory."""

    networks: tuple[Network, ...]
    memory_fd: int
    rows: int


def cell_program(networks: tuple[Network, ...], arena: StateArena) -> Program:
    """Return the program for the cells of networks over sequences and trees. `arena` has rows of each."""
    return Program(CELLS, CellSettings(networks, arena.fd, arena.all_rows), arena.fd)
