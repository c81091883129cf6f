"""The hardware that networks run on: worker processes of this machine, or simulated NPUs.

Rule: a `Hardware` knows the latency of its networks (`profile`, `times`) and makes the tasks and the worker pool of a
runtime (`serving`). Its kinds are:

    RealWorkers     worker processes that run a network as one piece
    NodeWorkers     worker processes that run a network node by node, and step models
    SimulatedNpus   an NPU model that takes the modelled time and computes nothing
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from headrace.batching import NodeTimes, Profile, UsageError
from headrace.batching.registry import find_policy
from headrace.host.live.tasks.interface import Tasks
from headrace.host.live.tasks.nodes import NodeTasks, SplitTasks
from headrace.host.live.tasks.whole import WholeTasks
from headrace.host.workers.devices import WorkerDevice, worker_devices
from headrace.host.workers.inspection.parent import graph, node_model, step_nodes
from headrace.host.workers.networks.description import TENSORS, WITH_WEIGHTS, NetworkDescription
from headrace.host.workers.networks.foreign.rules import ANY_FILE, EXPORTED, FileRules
from headrace.host.workers.networks.program import WholeModel
from headrace.host.workers.networks.sequence_networks import Network as StepNetwork
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes
from headrace.host.workers.profiling.batches import measure_curve
from headrace.host.workers.profiling.nodes import measure_nodes, measure_steps
from headrace.host.workers.simulated import simulated_workers
from headrace.sim.hardware.npu import npu_times

START_LIMIT_S = 60.0  # for measuring one network at all lengths; the start of a server waits for it


@dataclass(frozen=True, slots=True)
class Network:
    """A network under the name that requests ask for.

    `source`, `weights`, `input_shape` and `rules` are the arguments with which `load_model` loads it.
    """

    name: str
    source: str
    description: NetworkDescription
    weights: str | None
    input_shape: str | None
    rules: FileRules = field(default=ANY_FILE, kw_only=True)

    @property
    def is_random(self) -> bool:
        """Tell whether the weights are known to be random. A user's own function may have loaded weights itself."""
        has_own = ":" in self.source or self.source.endswith(EXPORTED) or self.source in (TENSORS, *WITH_WEIGHTS)
        return self.weights is None and not has_own


class Hardware(Protocol):
    """Some networks on `count` workers. `kind` names the workers in messages to users."""

    kind: str
    count: int

    async def profile(self, name: str, max_batch: int, max_batch_tokens: int | None = None) -> Profile:
        """Return the latency of the network `name` for batches up to these limits: measured, or modelled."""
        ...

    def times(self, profile: Profile) -> NodeTimes:
        """Return the node times of the network of `profile`. Raises UsageError if the profile does not fit it."""
        ...

    def serving(self, max_batch: Mapping[str, int], slots: int) -> tuple[Tasks, WorkerPool]:
        """Make what a runtime needs. The caller starts the pool, and closes both.

        Args:
            max_batch: The largest batch of each model.
            slots: How many requests of each model may be in flight.
        """
        ...


class RealWorkers:
    """Worker processes that run each network as one piece. A profile has the latency of the whole network."""

    kind = "workers"

    def __init__(self, networks: Sequence[Network], devices: Sequence[WorkerDevice]) -> None:
        self._networks = {network.name: network for network in networks}
        self._devices = devices
        self.count = len(devices)

    async def profile(self, name: str, max_batch: int, max_batch_tokens: int | None = None) -> Profile:
        network = self._networks[name]
        profile = await measure_curve(
            network.source,
            network.weights,
            input_shape=network.input_shape,
            workers=self.count,
            max_batch=max_batch,
            limit_s=START_LIMIT_S,
            rules=network.rules,
            max_batch_tokens=max_batch_tokens,
        )
        return replace(profile, model=name)

    def times(self, profile: Profile) -> NodeTimes:
        return profile.times()

    def serving(self, max_batch: Mapping[str, int], slots: int) -> tuple[Tasks, WorkerPool]:
        models = [
            WholeModel(
                network.name,
                network.source,
                network.description.inputs,
                network.description.outputs,
                max_batch[network.name],
                network.weights,
                network.input_shape,
                network.rules,
            )
            for network in self._networks.values()
        ]
        tasks = WholeTasks(models, slots)
        return tasks, WorkerPool(processes(tasks.program(), self._devices))


class NodeWorkers:
    """Worker processes that run networks node by node. A profile has the latency of each node.

    Args:
        networks: The networks to cut into nodes, which takes seconds.
        devices: One device per worker.
        whole: Make one node of each network.
        steps: Step models.

    Raises:
        UsageError: A network cannot be cut.
    """

    kind = "workers"

    def __init__(
        self,
        networks: Sequence[Network],
        devices: Sequence[WorkerDevice],
        whole: bool,
        steps: Sequence[StepNetwork] = (),
    ) -> None:
        self._devices = devices
        self._models = {
            network.name: node_model(
                network.source,
                1,
                network.weights,
                network.input_shape,
                name=network.name,
                whole=whole,
                rules=network.rules,
            )
            for network in networks
        }
        self._steps = {network.name: step_nodes(network, 1) for network in steps}
        self._graphs = {name: graph for name, (_, graph) in (self._models | self._steps).items()}
        self.count = len(devices)

    async def profile(self, name: str, max_batch: int, max_batch_tokens: int | None = None) -> Profile:
        graph = self._graphs[name]
        if name in self._steps:
            step_model = replace(self._steps[name][0], max_batch=max_batch)
            return await measure_steps(step_model, graph, workers=self.count)
        return await measure_nodes(replace(self._models[name][0], max_batch=max_batch), graph, workers=self.count)

    def times(self, profile: Profile) -> NodeTimes:
        times, graph = profile.times(), self._graphs[profile.model]
        if [node.name for node in times.graph.nodes] != [node.name for node in graph.nodes]:
            raise UsageError(
                f"the profile of {profile.model!r} has other nodes than the network, which has {len(graph.nodes)}; "
                f"make a new one with `headrace profile --nodes --model {profile.model}`"
            )
        return times

    def serving(self, max_batch: Mapping[str, int], slots: int) -> tuple[Tasks, WorkerPool]:
        models = [replace(model, max_batch=max_batch[name]) for name, (model, _) in self._models.items()]
        steps = [replace(model, max_batch=max_batch[name]) for name, (model, _) in self._steps.items()]
        tasks = SplitTasks(models, self._graphs, slots, steps)
        return tasks, WorkerPool(processes(tasks.program(), self._devices))


class SimulatedNpus:
    """Simulated NPUs that run the networks' own graphs. They take the modelled time and compute nothing."""

    kind = "simulated NPUs"

    def __init__(self, networks: Sequence[Network], count: int) -> None:
        self._networks = networks
        self._times = {
            network.name: npu_times(
                graph(network.source, network.weights, network.input_shape, network.name, network.rules)
            )
            for network in networks
        }
        self.count = count

    async def profile(self, name: str, max_batch: int, max_batch_tokens: int | None = None) -> Profile:
        return Profile.of(name, self._times[name], self.count, max_batch)

    def times(self, profile: Profile) -> NodeTimes:
        return self._times[profile.model]

    def serving(self, max_batch: Mapping[str, int], slots: int) -> tuple[Tasks, WorkerPool]:
        tensors = {
            network.name: (network.description.inputs, network.description.outputs) for network in self._networks
        }
        tasks = NodeTasks({name: times.graph for name, times in self._times.items()}, tensors, slots)
        return tasks, WorkerPool(simulated_workers("npu", self.count, self._times))


def schedules_nodes(policies: Iterable[str], profiles: Iterable[Profile]) -> bool:
    """Tell whether real workers must run networks node by node.

    They must if a policy schedules nodes, or if a profile has the latencies of nodes.
    """
    return any(find_policy(name).tasks == "nodes" for name in policies) or any(
        profile.nodes is not None for profile in profiles
    )


def hardware_of(networks: Sequence[Network], *, workers: int | None, npus: int, by_node: bool, whole: bool) -> Hardware:
    """Return the hardware for the networks: `npus` simulated NPUs, or real workers if `npus` is 0.

    Args:
        networks: The networks to serve.
        workers: The number of real workers. None stands for one per device.
        npus: The number of simulated NPUs.
        by_node: Real workers run networks node by node.
        whole: Make one node of each network (`by_node` only).
    """
    if npus:
        return SimulatedNpus(networks, npus)
    devices = worker_devices(workers)
    return NodeWorkers(networks, devices, whole) if by_node else RealWorkers(networks, devices)
