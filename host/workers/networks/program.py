"""What worker processes are told at their start. No torch here: only worker processes need it for this."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import SlotArena, SlotLayout, slot_layouts
from headrace.host.memory.states import StateArena
from headrace.host.workers.networks.foreign.rules import ANY_FILE, EXPORTED, FileRules
from headrace.host.workers.networks.sequence_networks import Network

TORCHVISION = "headrace.host.workers.networks.zoo.torchvision_networks"


@dataclass(frozen=True, slots=True)
class Program:
    """A worker process runs the function `main` of the module that `main` names.

    `settings` is a dataclass that JSON can hold. `memory_fd` is the file descriptor of the shared memory. The worker
    gets it under a number of its own, which replaces `memory_fd` in its settings. `preload` names modules that the fork
    server imports for all of its workers."""

    main: str
    settings: Any
    memory_fd: int
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WholeModel:
    """A network under the name that requests ask for. `source`, `weights`, `input_shape` and `rules` are for
    `load_model`; `inputs` and `outputs` are what it then says of the network. `max_batch` is the largest batch that
    will be sent, which the worker warms up to."""

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
    """The same, run node by node: `nodes` has the names of the operators that begin one (`split`)."""

    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WholeSettings:
    """Each model has `slots` slots in the memory."""

    models: tuple[WholeModel, ...]
    slots: int
    memory_fd: int

    def layouts(self) -> dict[str, SlotLayout]:
        return slot_layouts({model.name: (model.inputs, model.outputs) for model in self.models}, self.slots)


@dataclass(frozen=True, slots=True)
class StepNodes:
    """A step model, run by its steps in batches up to `max_batch`; `inputs` and `outputs` are of its `Signature`."""

    network: Network
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int

    @property
    def name(self) -> str:
        return self.network.name


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Networks that are cut into nodes, and behind them, in their numbers, step models."""

    models: tuple[NodeModel, ...]
    step_models: tuple[StepNodes, ...]
    slots: int
    memory_fd: int

    def layouts(self) -> dict[str, SlotLayout]:
        every = (*self.models, *self.step_models)
        return slot_layouts({model.name: (model.inputs, model.outputs) for model in every}, self.slots)


def preloads(sources: Iterable[str]) -> tuple[str, ...]:
    """What networks of these sources need and others do not: torchvision."""
    of_torchvision = any(":" not in source and not source.endswith(EXPORTED) for source in sources)
    return (TORCHVISION,) if of_torchvision else ()


def tensor_specs(body: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    """From what JSON makes of them."""
    return tuple(TensorSpec(**spec | {"shape": tuple(spec["shape"])}) for spec in body)


def read_network(body: dict[str, Any]) -> Network:
    """From what JSON makes of it."""
    return Network(**body | {"max_batch": tuple(body["max_batch"]), "rules": FileRules(**body["rules"])})


def whole_program(models: tuple[WholeModel, ...], arena: SlotArena) -> Program:
    """Whole networks; `arena` has slots of each."""
    settings = WholeSettings(models, arena.slots, arena.fd)
    return Program(
        "headrace.host.workers.executors.whole", settings, arena.fd, preloads(model.source for model in models)
    )


def node_program(models: tuple[NodeModel, ...], step_models: tuple[StepNodes, ...], arena: SlotArena) -> Program:
    """Networks node by node; `arena` has slots of each."""
    settings = NodeSettings(models, step_models, arena.slots, arena.fd)
    return Program(
        "headrace.host.workers.executors.nodes", settings, arena.fd, preloads(model.source for model in models)
    )


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Each network has `rows` rows in the memory."""

    networks: tuple[Network, ...]
    memory_fd: int
    rows: int


def cell_program(networks: tuple[Network, ...], arena: StateArena) -> Program:
    """The cells of networks over sequences and trees; `arena` has rows of each."""
    return Program("headrace.host.workers.executors.cells", CellSettings(networks, arena.fd, arena.all_rows), arena.fd)
