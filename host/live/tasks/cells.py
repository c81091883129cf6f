"""Tasks of cells (BatchMaker, EuroSys 2018, Section 5): the steps of networks over sequences and trees.

A cell is one step, of an LSTM or a Transformer for example. The state between two steps lies in a row of the shared
memory, and only row numbers travel. To unfold a request is to write it as a graph of cells.

Rules:

- A chain keeps one row, which each of its cells reads and writes. A tree has one row for each subtree that is done; an
  inner node writes the row of its left child. So a request never needs more rows than its plan says.
- A request is admitted only if that many rows are left.
- A worker runs its tasks in the order in which they were sent. So a cell may be sent right after the cell that it
  depends on. The state, and a decoder's token, is in the row when the cell runs.
- A row is free when its request has left and every task that was sent with it has been answered.
- A request may be unfolded again, or leave, while a task with it runs. The task's result for it does not count then.

Example: the rows of a tree of three leaves.

    leaves 0, 1, 2   take rows 1, 2 and 3
    inner node       reads rows 1 and 2, writes row 1; row 2 is free after the task
    root             reads rows 1 and 3, writes row 1; row 3 is free after the task
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
from headrace.host.live.results import Overloaded
from headrace.host.live.tasks.interface import Read
from headrace.host.memory.files import SharedFile
from headrace.host.memory.states import ZERO, StateArena
from headrace.host.workers.inspection.parent import signature
from headrace.host.workers.messages import CELLS, MAX_TASK, cells_answer, write_cells
from headrace.host.workers.networks.program import Program, cell_program
from headrace.host.workers.networks.sequence_networks import Network, Plan, plan
from headrace.host.workers.networks.steps import EOS, Signature


@dataclass(slots=True, eq=False)
class _Unfolded:
    """The progress of a request since it was last unfolded."""

    rows: dict[int, int] = field(default_factory=dict)  # by cell: the row of its state, while a cell will still read it
    tokens: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Admitted:
    """An admitted request. `on_token` is called once with each decoded token; `tokens_reported` counts the calls."""

    signature: Signature
    plan: Plan
    on_token: Callable[[int], None] | None
    tokens_reported: int = 0
    unfolded: _Unfolded = field(default_factory=_Unfolded)


@dataclass(slots=True)
class _Message:
    """A task at a worker: the state of each entry when it was sent, and all rows that the task reads or writes."""

    entries: list[tuple[_Admitted, _Unfolded]]
    rows: list[int]


class CellTasks:
    """Networks of cells on worker processes. A policy of cells serves `models`, which unfold requests here.

    Args:
        networks: The networks, each under its own name.
        workers: The number of workers.
        rows: How many states the requests in flight may need. The system gives the memory when a row is first used.
        ahead: How many tasks a worker may have.

    Raises:
        UsageError: A number is below 1, two networks share a name, or a batch does not fit into a message.
    """

    cells = True
    wait_at_worker = True
    in_files = False

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
        rows_per_task = 0
        for made in self._signatures.values():
            for step in made.steps:
                rows_per_task = max(rows_per_task, (step.reads + 1) * step.max_batch)
                if CELLS.size + 4 * (step.reads + 2) * step.max_batch > MAX_TASK:
                    raise UsageError(
                        f"cell {step.name!r} of network {made.name!r}: batches of {step.max_batch}; "
                        f"give at most {(MAX_TASK - CELLS.size) // (4 * (step.reads + 2))}"
                    )
        self.models = [CellModel(made.name, made.types, self._unfold) for made in self._signatures.values()]
        self.graphs = {model.name: model.graph for model in self.models}
        self.nan_outputs = 0
        # A request that is unfolded again takes new rows while tasks at workers still hold its former rows.
        specs = {name: made.row for name, made in self._signatures.items()}
        self.arena = StateArena(specs, rows + workers * ahead * rows_per_task)
        self._rows = rows
        self._reserved = 0
        self._admitted: dict[int, _Admitted] = {}
        self._messages: dict[Task, _Message] = {}

    def program(self) -> Program:
        """Return the program that the worker processes run."""
        return cell_program(self._networks, self.arena)

    def isolated_policy(self) -> Policy:
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
        """Take a request.

        Args:
            id: The request's id.
            model: The name of the network.
            value: A list of token ids, or a tree of them as nested pairs (`sequence_networks.Tree`).
            max_steps: The largest number of tokens that a decoder decodes.
            on_token: Called with each decoded token when it arrives.

        Returns:
            The number of cells in the request's graph, and the largest number of decoded tokens (1 without a decoder).

        Raises:
            UnknownModel, BadInput, Overloaded: The request is not admitted.
        """
        network = self._signatures.get(model)
        if network is None:
            raise UnknownModel.asked_for(id, model, self._signatures)
        planned = plan(network, value, max_steps)
        if self._reserved + planned.rows > self._rows:
            raise Overloaded(
                f"the request needs {planned.rows} state rows, and requests in flight hold {self._reserved} of "
                f"{self._rows}; send fewer at a time"
            )
        self._reserved += planned.rows
        self._admitted[id] = _Admitted(network, planned, on_token)
        return float(planned.graph.cells), max(1, planned.limit)

    def _unfold(self, request: Request) -> CellGraph:
        """Return the request's graph of cells. The policy calls this when the request begins, or begins again."""
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
            held += own or [row]  # from now on only this task holds the rows of the other children
            entries.append((admitted, unfolded))
            if input is not None:
                input[row] = 0  # pads the batch
                input[row, : len(admitted.plan.input)] = admitted.plan.input
            tokens.append(admitted.plan.token(cell))
            reads += own or [ZERO] * step.reads
            writes.append(row)
        self._messages[task] = _Message(entries, held)
        return write_cells(self._numbers[task.model], task.start, tokens, writes, reads)

    def files(self, task: Task) -> Sequence[SharedFile]:
        return ()

    def _current(self, request: Request, admitted: _Admitted, unfolded: _Unfolded) -> bool:
        """Tell whether the request is in flight, and has not been unfolded again since the task was sent."""
        return admitted.unfolded is unfolded and self._admitted.get(request.id) is admitted

    def ended(self, task: Task, answer: bytes) -> Task:
        message = self._messages.pop(task)
        ended: list[Request] = []
        for request, (admitted, unfolded), token in zip(
            task.requests, message.entries, cells_answer(answer), strict=False
        ):
            if self._current(request, admitted, unfolded):
                unfolded.tokens.append(token)
                if (
                    admitted.on_token is not None and len(unfolded.tokens) > admitted.tokens_reported
                ):  # else it began again
                    admitted.tokens_reported += 1
                    admitted.on_token(token)
                if token == EOS or len(unfolded.tokens) == admitted.plan.limit:
                    ended.append(request)
        for row in message.rows:
            self.arena.release(row)
        return task.ended_at(task.stop, tuple(ended)) if ended else task

    def lost(self, task: Task) -> Sequence[Request]:
        """Free the rows of the task. Return its requests without those that have begun again since it was sent."""
        message = self._messages.pop(task)
        for row in message.rows:
            self.arena.release(row)
        entries = zip(task.requests, message.entries, strict=True)
        return [request for request, entry in entries if self._current(request, *entry)]

    def result(self, request: Request, read: Read | None = None) -> NDArray[Any] | list[int]:
        """Return the decoded tokens of a decoder, with <eos> if it came.

        For other networks, return the first state after the last cell of a chain, or after the root of a tree.
        """
        admitted = self._admitted[request.id]
        if admitted.plan.limit > 0:
            return admitted.unfolded.tokens
        (row,) = admitted.unfolded.rows.values()
        network = admitted.signature
        output: NDArray[Any] = self.arena.views[network.name].states[network.states[0].name][row].copy()
        self.nan_outputs += output.dtype.kind == "f" and bool(np.isnan(output).any())
        return output

    def abandon(self, request: Request) -> None:
        """Do nothing: its outputs do not go to files."""

    def release(self, request: Request) -> None:
        admitted = self._admitted.pop(request.id)
        self._free(admitted)
        self._reserved -= admitted.plan.rows

    def arena_use(self) -> Mapping[str, tuple[int, int]]:
        return {"states": (self._reserved, self._rows)}

    def close(self) -> None:
        self.arena.close()
