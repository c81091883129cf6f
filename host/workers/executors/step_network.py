"""Run tasks of nodes on a step model, in a worker process.

The steps are the nodes of a graph, which requests enter and leave, and at which they are preempted. Between its tasks a
request's states lie in a row of the worker's own memory, by slot.
"""

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.batching.graphs.execution import Sections, steps
from headrace.batching.graphs.model_graph import NodeKind
from headrace.batching.request import Request, Task
from headrace.host.memory.slots import SlotViews
from headrace.host.memory.states import ZERO, StateSpecs, StateViews
from headrace.host.workers.networks.step_models import LoadedSteps
from headrace.host.workers.networks.step_rows import StepRows
from headrace.host.workers.networks.steps import EOS, GO


@dataclass(slots=True, eq=False)
class _Kept:
    """The progress of a request.

    Encoder steps have read `read` of the `length` tokens of its input. Its slot holds `decoded` tokens of its output,
    at most `limit`. `begun` says whether its row has been written."""

    id: int
    slot: int
    length: int
    limit: int
    read: int = 0
    decoded: int = 0
    token: int = GO
    begun: bool = False
    over: bool = False


class StepNetwork:
    """A step model with the requests in its slots.

    The input of a request is the tensor "tokens" of its slot, of which `Request.input_len` tokens count. The output
    "tokens" has at most `Request.output_len` tokens, with <eos> if it came. Without a decoder the output is the first
    state. Raises UsageError for a network over trees."""

    def __init__(self, model: LoadedSteps, views: SlotViews, device: torch.device, slots: int) -> None:
        self.graph = model.signature.graph
        self._signature = model.signature
        self._sections = Sections(self.graph)
        (self._input,), (self._output,) = views.inputs, views.outputs
        self._tokens = np.zeros((slots, self._input.spec.longest), np.int64)  # inputs by slot, with zeros after them
        specs = StateSpecs(model.signature.states)
        # Row ZERO, a row for each slot, and a row for the results that a whole-graph task computes for ended requests.
        memory = mmap.mmap(-1, StateViews(specs, slots + 2).end)
        rows = StateViews(specs, slots + 2, memory=memory)
        self._scratch = slots + 1
        self._rows = StepRows(model.signature, model.modules.to(device), rows, device, rows_on_device=True)
        self._by_slot: list[_Kept | None] = [None] * slots
        self._by_id: dict[int, _Kept] = {}

    def states(self, slot: int) -> dict[str, NDArray[Any]]:
        """Return the states of the request in a slot, by name."""
        return {spec.name: self._rows.state(spec.name, 1 + slot) for spec in self._signature.states}

    def warm_up(self, max_batch: int) -> None:
        """Run every step on a batch of 1 and of `max_batch`."""
        for node in range(len(self.graph.nodes)):
            for batch in sorted({1, max_batch}):
                self._rows.warm_up(node, batch)

    def drop(self) -> None:
        """Forget all requests. The policy has them start anew."""
        self._by_slot = [None] * len(self._by_slot)
        self._by_id.clear()

    def run(self, task: Task, slots: Sequence[int], interrupt_sent: Callable[[], bool]) -> Task:
        """Run a task and return it as it ended (see `Task`).

        A whole-graph task starts every request anew. A preemptible task starts those that it has at the first node.

        Args:
            slots: Slots of the task's requests, in their order.
            interrupt_sent: Asked at each node boundary whether the task has to end.

        Raises:
            ValueError, BadInput: A request has no room, or its states are not here.
        """
        kept = [self._kept(task, request, slot) for request, slot in zip(task.requests, slots, strict=True)]
        try:
            if task.preemptible:
                return self._run_nodes(task, kept, interrupt_sent)
            self._run_whole(kept)
            return task
        except Exception:
            for one in kept:  # some nodes may have run, so no request can go on
                self._forget(one)
            raise

    def _run_nodes(self, task: Task, kept: Sequence[_Kept], interrupt_sent: Callable[[], bool]) -> Task:
        first, after = self._sections.first[task.start], self._sections.after[task.start]
        boundary = task.start
        while boundary < task.stop:
            node = boundary if boundary < after else first + (boundary - first) % (after - first)
            ended = {one.id for one in self._run_node(node, kept)}
            boundary += 1
            if ended:
                return task.ended_at(boundary, tuple(request for request in task.requests if request.id in ended))
            if boundary < task.stop and interrupt_sent():
                break
        return task if boundary == task.stop else task.ended_at(boundary)

    def output_lengths(self, task: Task) -> list[list[int]]:
        """Return, for each variable output, its length so far for each request of `task`."""
        if self._output.spec.variable is None:
            return []
        return [[self._by_id[request.id].decoded for request in task.requests]]

    def _kept(self, task: Task, request: Request, slot: int) -> _Kept:
        known = self._by_slot[slot]
        # A section may begin at node 0. Then only `read` shows whether the request goes on.
        if known is not None and known.id == request.id and task.preemptible:
            in_section = self._sections.first[0] == 0 and 0 < known.read < known.length
            if task.start > 0 or in_section:
                return known
        elif task.start > 0:
            raise ValueError(f"request {request.id} stands at node {task.start} and its states are not here")
        length = steps(request.input_len)
        if length > self._input.spec.longest:
            raise ValueError(f"request {request.id} has {length} tokens; give at most {self._input.spec.longest}")
        limit = request.output_len if self._signature.decodes else 0
        if self._signature.decodes and not 1 <= limit <= self._output.spec.longest:
            raise ValueError(
                f"request {request.id} decodes up to {limit} tokens; give 1 to {self._output.spec.longest}"
            )
        self._signature.check_lengths(length, limit)
        if known is not None:
            self._forget(known)
        self._tokens[slot, :length] = self._input.at(slot, length)
        self._tokens[slot, length:] = 0
        kept = _Kept(request.id, slot, length, limit)
        self._by_slot[slot] = self._by_id[request.id] = kept
        return kept

    def _forget(self, one: _Kept) -> None:
        self._by_slot[one.slot] = None
        self._by_id.pop(one.id, None)

    def _run_whole(self, kept: Sequence[_Kept]) -> None:
        """Run a padded batch. It keeps its size until its longest request has ended."""
        for number, node in enumerate(self.graph.nodes):
            if node.kind is NodeKind.DECODER:
                while not all(one.over for one in kept):
                    self._run_node(number, kept)
            else:
                for _ in range(max(one.length for one in kept) if node.kind is NodeKind.ENCODER else 1):
                    self._run_node(number, kept)

    def _run_node(self, number: int, kept: Sequence[_Kept]) -> list[_Kept]:
        """Run a node once. Returns the requests whose output ended with it.

        A request without a step left in a section is only padding, and its results are not kept."""
        kind = self.graph.nodes[number].kind
        counts = None
        active = [True] * len(kept)
        if kind is NodeKind.STATIC:
            counts = torch.tensor([one.length for one in kept])
            tokens = torch.from_numpy(self._tokens[[one.slot for one in kept], : int(counts.max())])
        elif kind is NodeKind.ENCODER:
            active = [one.read < one.length for one in kept]
            places = [min(one.read, one.length - 1) for one in kept]
            tokens = torch.from_numpy(self._tokens[[one.slot for one in kept], places])
        else:
            active = [not one.over for one in kept]
            tokens = torch.tensor([one.token for one in kept])
        reads = torch.tensor([1 + one.slot if one.begun else ZERO for one in kept])
        writes = torch.tensor(
            [1 + one.slot if goes_on else self._scratch for one, goes_on in zip(kept, active, strict=True)]
        )
        _, chosen = self._rows.run(number, tokens, reads, writes, counts)
        ran = [one for one, goes_on in zip(kept, active, strict=True) if goes_on]
        for one in ran:
            one.begun = True
            one.read += kind is NodeKind.ENCODER
        if chosen is not None:
            return self._decoded(kept, chosen.tolist())
        if not self._signature.decodes and number == len(self.graph.nodes) - 1:
            self._give([one for one in ran if kind is NodeKind.STATIC or one.read == one.length])
        return []

    def _decoded(self, kept: Sequence[_Kept], chosen: Sequence[int]) -> list[_Kept]:
        ended = []
        for one, token in zip(kept, chosen, strict=True):
            if not one.over:
                self._output.at(one.slot, one.decoded + 1)[one.decoded] = token
                one.decoded, one.token = one.decoded + 1, token
                if token == EOS or one.decoded == one.limit:
                    one.over = True
                    ended.append(one)
        return ended

    def _give(self, ended: Sequence[_Kept]) -> None:
        """Write the first state as the output of the requests."""
        name = self._signature.states[0].name
        for one in ended:
            self._output.at(one.slot)[...] = self._rows.state(name, 1 + one.slot)
