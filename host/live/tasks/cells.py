"""Tasks of cells (BatchMaker, EuroSys 2018, Section 5): the steps of networks over sequences and trees, an LSTM's
or a Transformer's say, whose states lie in rows of the shared memory. Of a request only numbers of rows travel:

- a chain keeps one row, which each of its cells reads and writes; a tree has one for each subtree that is done, and an
  inner node writes the row of its left child. So a request never needs more rows than its plan says, and it is let in
  only if there are as many;
- a worker has several tasks, which it runs in the order in which they were sent. A cell may follow the one that it
  depends on at once: the state, and a decoder's token, is in the row when its turn comes;
- a row goes back when its request has left and no task that was sent with it is still to be answered.

A task may end when its request was unfolded anew, or has left, meanwhile: that entry has run for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import Policy, Request, Task, UnknownModel, UsageError
from headrace.batching.graphs.cell_graph import CellGraph, CellModel
from headrace.batching.graphs.model_graph import NodeKind
from headrace.batching.policies.cellular import MAX_TASKS, CellularBatching
from headrace.host.live.runtime import Overloaded
from headrace.host.memory.states import ZERO, StateArena
from headrace.host.workers.inspection.parent import signature
from headrace.host.workers.messages import CELLS, MAX_TASK, cells_answer, write_cells
from headrace.host.workers.networks.program import Program, cell_program
from headrace.host.workers.networks.sequence_networks import Network, Plan, plan
from headrace.host.workers.networks.steps import EOS, Signature


@dataclass(slots=True, eq=False)
class _Unfolded:
    """A request's progress since the policy last unfolded it: the row of each state that a cell will still read."""

    rows: dict[int, int] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Admitted:
    """`on_token` is told of each token that is decoded, once; `told` counts those."""

    signature: Signature
    plan: Plan
    on_token: Callable[[int], None] | None
    told: int = 0
    unfolded: _Unfolded = field(default_factory=_Unfolded)


@dataclass(slots=True)
class _Message:
    """What was sent of a task: of each entry what it was then, and all rows that it reads or writes."""

    entries: list[tuple[_Admitted, _Unfolded]]
    rows: list[int]


class CellTasks:
    """`networks` on worker processes; `models` are what a policy of cells serves, as this side unfolds the requests.

    `rows` is how many states the requests in flight may need; memory is taken as they are used. `workers` and `ahead`
    bound the tasks that are at workers. Raises UsageError."""

    cells = True

    def __init__(
        self, networks: Sequence[Network], workers: int, *, rows: int = 1 << 16, ahead: int = MAX_TASKS
    ) -> None:
        self._networks = tuple(networks)
        self._signatures = {network.name: signature(network) for network in networks}
        self._numbers = {network.name: number for number, network in enumerate(networks)}
        if not networks or len(self._numbers) < len(networks):
            raise UsageError("give one or more networks, each under its own name")
        if workers < 1 or ahead < 1 or rows < 1:
            raise UsageError(f"workers is {workers}, ahead {ahead}, rows {rows}; give 1 or more of each")
        sent = 0
        for told in self._signatures.values():
            for step in told.steps:
                sent = max(sent, (step.reads + 1) * step.max_batch)
                if CELLS.size + 4 * (step.reads + 2) * step.max_batch > MAX_TASK:
                    raise UsageError(
                        f"cell {step.name!r} of network {told.name!r}: batches of {step.max_batch}; "
                        f"give at most {(MAX_TASK - CELLS.size) // (4 * (step.reads + 2))}"
                    )
        self.models = [CellModel(told.name, told.types, self._unfold) for told in self._signatures.values()]
        self.graphs = {model.name: model.graph for model in self.models}
        self.nan_outputs = 0
        # A request that is unfolded anew takes rows while tasks that were sent before still hold the former ones.
        specs = {name: told.row for name, told in self._signatures.items()}
        self.arena = StateArena(specs, rows + workers * ahead * sent)
        self._rows = rows
        self._reserved = 0
        self._admitted: dict[int, _Admitted] = {}
        self._messages: dict[Task, _Message] = {}

    def program(self) -> Program:
        """For the worker processes."""
        return cell_program(self._networks, self.arena)

    def apart(self) -> Policy:
        return CellularBatching(self.models, 1)

    def admit(
        self,
        id: int,
        model: str,
        value: Any,
        *,
        max_steps: int = 50,
        on_token: Callable[[int], None] | None = None,
    ) -> tuple[float, int]:
        """`value` is a list of token ids, or a tree of them as nested pairs (networks.Tree); `max_steps` is the most
        tokens that a decoder decodes, and `on_token` is called with each as it comes."""
        told = self._signatures.get(model)
        if told is None:
            raise UnknownModel.asked_for(id, model, self._signatures)
        unfolded = plan(told, value, max_steps)
        if self._reserved + unfolded.rows > self._rows:
            raise Overloaded(
                f"the request needs {unfolded.rows} state rows and those in flight {self._reserved} of {self._rows}; "
                "send fewer at a time"
            )
        self._reserved += unfolded.rows
        self._admitted[id] = _Admitted(told, unfolded, on_token)
        return float(unfolded.graph.cells), max(1, unfolded.limit)

    def _unfold(self, request: Request) -> CellGraph:
        """Called by the policy when a request begins, and when it must begin anew."""
        self.restart(request)
        return self._admitted[request.id].plan.graph

    def restart(self, request: Request) -> None:
        admitted = self._admitted[request.id]
        self._free(admitted)
        admitted.unfolded = _Unfolded()

    def _free(self, admitted: _Admitted) -> None:
        for row in admitted.unfolded.rows.values():
            self.arena.release(row)
        admitted.unfolded.rows.clear()

    def message(self, task: Task) -> bytes:
        step = self._signatures[task.model].steps[task.start]
        input = self.arena.views[task.model].input if step.kind is NodeKind.STATIC else None
        entries: list[tuple[_Admitted, _Unfolded]] = []
        tokens: list[int] = []
        reads: list[int] = []
        writes: list[int] = []
        held: list[int] = []
        for request, cell in zip(task.requests, task.cells, strict=True):
            admitted = self._admitted[request.id]
            unfolded = admitted.unfolded
            own = [unfolded.rows.pop(source) for source in admitted.plan.sources(cell)]
            row = own[0] if own else self.arena.take()
            unfolded.rows[cell] = row
            self.arena.hold(row)
            held += own or [row]  # the other children's rows are no longer the request's, and only held by this task
            entries.append((admitted, unfolded))
            if input is not None:
                input[row] = 0  # padding of the batch
                input[row, : len(admitted.plan.input)] = admitted.plan.input
            tokens.append(admitted.plan.token(cell))
            reads += own or [ZERO] * step.reads
            writes.append(row)
        self._messages[task] = _Message(entries, held)
        return write_cells(self._numbers[task.model], task.start, tokens, writes, reads)

    def _current(self, request: Request, admitted: _Admitted, unfolded: _Unfolded) -> bool:
        """Whether the request is in flight and has not been unfolded anew since."""
        return admitted.unfolded is unfolded and self._admitted.get(request.id) is admitted

    def ended(self, task: Task, answer: bytes) -> Task:
        message = self._messages.pop(task)
        ended: list[Request] = []
        for request, (admitted, unfolded), token in zip(
            task.requests, message.entries, cells_answer(answer), strict=False
        ):
            if self._current(request, admitted, unfolded):
                unfolded.tokens.append(token)
                if admitted.on_token is not None and len(unfolded.tokens) > admitted.told:  # else it began anew
                    admitted.told += 1
                    admitted.on_token(token)
                if token == EOS or len(unfolded.tokens) == admitted.plan.limit:
                    ended.append(request)
        for row in message.rows:
            self.arena.release(row)
        return task.ended_at(task.stop, tuple(ended)) if ended else task

    def lost(self, task: Task) -> Sequence[Request]:
        """What has begun anew since the task was sent is not among them."""
        message = self._messages.pop(task)
        for row in message.rows:
            self.arena.release(row)
        entries = zip(task.requests, message.entries, strict=True)
        return [request for request, entry in entries if self._current(request, *entry)]

    def result(self, request: Request) -> NDArray[Any] | list[int]:
        """The first state as the last cell, or the root, left it; or the decoded tokens, with <eos> if it came."""
        admitted = self._admitted[request.id]
        if admitted.plan.limit > 0:
            return admitted.unfolded.tokens
        (row,) = admitted.unfolded.rows.values()
        told = admitted.signature
        output: NDArray[Any] = self.arena.views[told.name].states[told.states[0].name][row].copy()
        self.nan_outputs += output.dtype.kind == "f" and bool(np.isnan(output).any())
        return output

    def release(self, request: Request) -> None:
        admitted = self._admitted.pop(request.id)
        self._free(admitted)
        self._reserved -= admitted.plan.rows

    def arena_use(self) -> Mapping[str, tuple[int, int]]:
        return {"states": (self._reserved, self._rows)}

    def close(self) -> None:
        self.arena.close()
