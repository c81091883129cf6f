"""The policy `cellular` batches the cells of recurrent networks.

Requests join and leave a running batch at every cell. An idle worker gets up to `max_tasks` batched cells of one cell
type, one after another.

Source: BatchMaker (EuroSys 2018), Section 4, Algorithm 1. `max_tasks` is the paper's MaxTasksToSubmit.

Rules
-----
1. Choice of the cell type. Only types with ready cells qualify. A type with a full batch of ready cells comes first,
   then one of which no task runs, then any other. Among equals the highest priority wins, and equal priorities take
   turns.
2. Patience. A type of which no task runs, and that was passed over PATIENCE times, goes before all others. Among such
   types, the one that was chosen longest ago comes first.
3. Forming a task. A task takes ready cells in the order in which their subgraphs became ready, up to the type's
   `max_batch`. A task that is not the first of its decision needs at least `min_batch` cells.
4. Pinning. A subgraph with tasks that have not ended is pinned to their worker. The worker runs these tasks in order.
   So a cell that is put into a task makes its successors in the subgraph ready at once, for the next task on that
   worker.
5. A request has begun when one of its cells is in a task, even if the task still waits for the worker.
6. A request finishes when its last cell ends. Cells of an open chain (a decoder) that were submitted beyond its end are
   dropped if they have not started.

Example
-------
One worker, an LSTM of one cell type, 1 ms a cell at any batch size, `max_batch` 3 and `max_tasks` 1. R1 to R3 arrive at
0, 0.5 and 1.5 ms, with 3, 2 and 2 cells. R1.2 is the second cell of R1.

    time (ms)     worker   cells           reason
    0 - 1         0        R1.1            idle
    1 - 2         0        R1.2 R2.1       idle
    2 - 3         0        R1.3 R2.2 R3.1  full
    3 - 4         0        R3.2            idle

- R2 joins at 1 ms, and R3 at 2 ms.
- R1 and R2 finish and leave at 3 ms, while R3 runs on.

Beyond the paper
----------------
With `strict`, the policy chooses cell types by Algorithm 1 alone: there are no turns and no patience, and the first
of the types with the highest priority is chosen. One reading remains. NumReadyNodes counts the cells that the worker
may take. If it counted cells that are pinned to another worker too, Algorithm 1 would submit empty batches.

- Turns and patience are not in the paper. By Algorithm 1 alone, a type never runs while others always have a full batch
  or a higher priority. Priorities that grow with the waiting time are Kleinrock's ("A delay dependent queue
  discipline", Naval Research Logistics Quarterly 11, 1964). Here they grow in one step, and time is counted in
  decisions.
- Bound. Take K types with ready cells. A type of which no task runs is then chosen within any PATIENCE + K decisions. A
  decision for a type begins all its ready subgraphs, or else it takes a full batch of older ones. So a subgraph with C
  cells of older subgraphs before it begins with one of the next C / max_batch + 1 decisions.
- Cost. Each cell is touched once when it is put into a task, and once when that task ends. A subgraph leaves its list
  from where it stands. So no search depends on the number of waiting requests.
"""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.context import PolicyContext
from headrace.batching.errors import UnknownModel, UsageError, check_workers
from headrace.batching.graphs.cell_graph import CellModel, CellType, Subgraph
from headrace.batching.policies.shared.settings import MaxBatch, PaperStrict
from headrace.batching.policy import Policy
from headrace.batching.request import FULL, IDLE, Request, Task
from headrace.batching.settings import setting, settings

MAX_TASKS = 5
PATIENCE = 2  # decisions; with 1, types that all have ready cells would only take turns


class _Unfolded:
    """A request in progress. `left` counts the cells that have not ended, without those of an open chain."""

    def __init__(self, request: Request, model: int, left: int, open: bool) -> None:
        self.request: Request = request
        self.model: int = model
        self.left: int = left
        self.open: bool = open
        self.begun: bool = False
        self.over: bool = False
        # cell -> the subgraphs that need it, if there are any
        self.followers: dict[int, list[_Active]] | None = None
        self.subgraphs: list[_Active] = []


class _Active:
    """A subgraph of a request in progress.

    `worker` is the worker to which it is pinned, -1 if none. `running` counts its cells in tasks that have not ended.
    With ready cells it stands in a `_ReadyList`, where `order` gives its place."""

    def __init__(self, owner: _Unfolded, cells: Subgraph) -> None:
        self.owner: _Unfolded = owner
        self.cells: Subgraph = cells
        self.needs: int = len(cells.needs)
        self.worker: int = -1
        self.running: int = 0
        self.next: int = cells.first  # the next cell of a chain
        self.missing: list[int] = [] if cells.chain else cells.missing.copy()  # for subgraphs that are no chain
        self.ready: list[int] = [] if cells.chain else [p for p, n in enumerate(cells.missing) if n == 0]
        self.order: int = 0
        self.ready_list: _ReadyList | None = None
        self.predecessor: _Active | None = None
        self.successor: _Active | None = None

    def count(self) -> int:
        """Return the number of ready cells."""
        if self.cells.chain:
            return 1 if self.next < self.cells.stop else 0
        return len(self.ready)


class _ReadyList:
    """Subgraphs with ready cells, in the order in which they became ready.

    The subgraphs are linked, so that each can leave from where it stands. `cells` is the number of ready cells."""

    def __init__(self) -> None:
        self.first: _Active | None = None
        self.last: _Active | None = None
        self.cells: int = 0

    def put(self, active: _Active, successor: _Active | None) -> None:
        """Insert `active` before `successor`, which is in this list; at the end if that is None."""
        predecessor = self.last if successor is None else successor.predecessor
        active.ready_list = self
        active.predecessor = predecessor
        active.successor = successor
        if predecessor is None:
            self.first = active
        else:
            predecessor.successor = active
        if successor is None:
            self.last = active
        else:
            successor.predecessor = active
        self.cells += active.count()

    def remove(self, active: _Active) -> None:
        """Remove `active` from where it stands."""
        predecessor, successor = active.predecessor, active.successor
        if predecessor is None:
            self.first = successor
        else:
            predecessor.successor = successor
        if successor is None:
            self.last = predecessor
        else:
            successor.predecessor = predecessor
        active.ready_list = None
        active.predecessor = None
        active.successor = None
        self.cells -= active.count()


class _Queue:
    """The subgraphs with ready cells of one cell type. Each stands in one list."""

    def __init__(self, model: int, number: int, type: CellType, workers: int) -> None:
        self.model: int = model
        self.number: int = number
        self.max_batch: int = type.max_batch
        self.min_batch: int = type.min_batch
        self.priority: int = type.priority
        self.free: _ReadyList = _ReadyList()  # subgraphs that are not pinned
        self.pinned: list[_ReadyList] = [_ReadyList() for _ in range(workers)]
        self.running: int = 0  # the number of tasks that have not ended
        self.passed: int = 0  # decisions for other types since its last one, with ready cells and no running task
        self.chosen: int = 0  # the number of the decision that chose it last


class _Submitted:
    """A task with its cell type's queue, its worker, and the subgraph of each cell."""

    def __init__(self, queue: _Queue, worker: int, task: Task, owners: list[_Active]) -> None:
        self.queue: _Queue = queue
        self.worker: int = worker
        self.task: Task = task
        self.owners: list[_Active] = owners  # the subgraph of each cell


class CellularBatching:
    """A `Policy` with tasks of cells (`Task.cells`).

    Args:
        models: The networks of cells.
        workers: The number of workers.
        max_tasks: The number of tasks that a worker is given in one decision.
        strict: Whether to choose cell types as Algorithm 1 is printed, without turns and patience.

    Raises:
        UsageError: A number is below 1.
    """

    def __init__(
        self, models: Iterable[CellModel], workers: int, max_tasks: int = MAX_TASKS, strict: bool = False
    ) -> None:
        check_workers(workers)
        if max_tasks < 1:
            raise UsageError(f"max_tasks is {max_tasks}: give 1 or more tasks to submit at a time")
        self.ahead: Final[int] = MAX_TASKS
        self._models: list[CellModel] = list(models)
        self._numbers: dict[str, int] = {model.name: number for number, model in enumerate(self._models)}
        self._queues: list[list[_Queue]] = [
            [_Queue(number, kind, cell_type, workers) for kind, cell_type in enumerate(model.types)]
            for number, model in enumerate(self._models)
        ]
        self._types: list[_Queue] = [queue for queues in self._queues for queue in queues]
        self._max_tasks: int = max_tasks
        self._strict: bool = strict
        self._waiting: list[list[_Submitted]] = [
            [] for _ in range(workers)
        ]  # by worker: tasks that it has not been given yet
        self._running: dict[int, _Submitted] = {}
        self._over: int = 0  # the number of cells in tasks whose request is over
        self._active: dict[int, _Unfolded] = {}
        self._tasks: int = 0
        self._decisions: int = 0
        self._became_ready: int = 0  # the number of subgraphs that ever became ready
        self.scheduled_cells: int = 0

    def submit(self, request: Request, now: float) -> None:
        number = self._numbers.get(request.model, -1)
        if number < 0:
            raise UnknownModel.asked_for(request.id, request.model, self._numbers)
        self._unfold(request, number)

    def _unfold(self, request: Request, number: int) -> None:
        graph = self._models[number].unfold(request)
        unfolded = _Unfolded(request, number, graph.cells, graph.open_from >= 0)
        self._active[request.id] = unfolded
        for cells in graph.subgraphs:
            active = _Active(unfolded, cells)
            unfolded.subgraphs.append(active)
            if active.needs == 0:
                self._make_ready(active)
                continue
            if unfolded.followers is None:
                unfolded.followers = {}
            for cell in cells.needs:
                unfolded.followers.setdefault(cell, []).append(active)

    def _make_ready(self, active: _Active) -> None:
        self._became_ready += 1
        active.order = self._became_ready
        self._queues[active.owner.model][active.cells.type].free.put(active, None)

    def next_task(self, worker: int, now: float) -> Task | None:
        while True:
            waiting = self._waiting[worker]
            if not waiting:
                self._schedule(worker)
                waiting = self._waiting[worker]
                if not waiting:
                    return None
            submitted = waiting.pop(0)
            if self._over > 0 and not self._without_ended(submitted):
                submitted.queue.running -= 1
                continue
            self._running[submitted.task.id] = submitted
            return submitted.task

    def _without_ended(self, submitted: _Submitted) -> bool:
        """Remove the cells whose request has ended since they were submitted. Return False if no cell is left."""
        kept: list[int] = []
        for place, active in enumerate(submitted.owners):
            if active.owner.over:
                self._forget(active)
            else:
                kept.append(place)
        if len(kept) < len(submitted.owners):
            task = submitted.task
            submitted.task = Task(
                task.id,
                task.model,
                tuple([task.requests[p] for p in kept]),
                task.start,
                task.stop,
                cells=tuple([task.cells[p] for p in kept]),
                reason=task.reason,
            )
            submitted.owners = [submitted.owners[p] for p in kept]
        return len(kept) > 0

    def _forget(self, active: _Active) -> None:
        """Forget a cell of a request that is over. It will not run, or its result is not needed."""
        active.running -= 1
        self._over -= 1

    def _schedule(self, worker: int) -> None:
        """Choose a cell type and submit tasks of it (Algorithm 1, Schedule)."""
        chosen: _Queue | None = None
        least = (0, 0, 0)
        for queue in self._types:
            ready = queue.free.cells + queue.pinned[worker].cells
            if ready == 0:
                continue
            idle = queue.running == 0
            turn = 0 if self._strict else queue.chosen
            if queue.passed >= PATIENCE and not self._strict:
                rank = (0, 0, turn)
            elif ready >= queue.max_batch:
                rank = (1, -queue.priority, turn)
            elif idle:
                rank = (2, -queue.priority, turn)
            else:
                rank = (3, -queue.priority, turn)
            if idle:
                queue.passed += 1
            if chosen is None or rank < least:
                chosen, least = queue, rank
        if chosen is None:
            return
        self._decisions += 1
        chosen.chosen = self._decisions
        chosen.passed = 0
        self._submit_tasks(chosen, worker)

    def _submit_tasks(self, queue: _Queue, worker: int) -> None:
        for number in range(self._max_tasks):
            ready = queue.free.cells + queue.pinned[worker].cells
            if ready == 0 or (number > 0 and ready < queue.min_batch):
                return
            self._waiting[worker].append(self._form(queue, worker))

    def _form(self, queue: _Queue, worker: int) -> _Submitted:
        """Form one task from the oldest subgraphs that are free or pinned to this worker (Algorithm 1,
        FormBatchedTask)."""
        room = queue.max_batch
        requests: list[Request] = []
        cells: list[int] = []
        owners: list[_Active] = []
        free, pinned = queue.free, queue.pinned[worker]
        here, other = pinned.first, free.first
        while room > 0:
            if other is None or (here is not None and here.order < other.order):
                if here is None:
                    break
                active = here
                here = here.successor
            else:
                active = other
                other = other.successor
                free.remove(active)
                active.worker = worker
                pinned.put(active, here)
            owner = active.owner
            owner.begun = True
            if active.cells.chain:
                requests.append(owner.request)
                cells.append(active.next)
                owners.append(active)
                active.running += 1
                room -= 1
                if active.next + 1 == active.cells.stop:
                    pinned.remove(active)
                active.next += 1
                continue
            done = active.ready[:room]
            left = active.ready[room:]
            for place in done:
                requests.append(owner.request)
                cells.append(active.cells.cells[place])
                owners.append(active)
                for fed in active.cells.feeds[place]:
                    active.missing[fed] -= 1
                    if active.missing[fed] == 0:
                        left.append(fed)
            room -= len(done)
            active.running += len(done)
            pinned.cells += len(left) - len(active.ready)
            active.ready = left
            if not left:  # all cells are in tasks, because the others would wait for no cell outside
                pinned.remove(active)
        queue.running += 1
        self.scheduled_cells += len(cells)
        task = Task(
            self._tasks,
            self._models[queue.model].name,
            tuple(requests),
            queue.number,
            queue.number + 1,
            cells=tuple(cells),
            reason=FULL if room == 0 else IDLE,
        )
        self._tasks += 1
        return _Submitted(queue, worker, task, owners)

    def complete(self, task: Task, now: float) -> list[Request]:
        submitted = self._running.pop(task.id)
        queue, worker = submitted.queue, submitted.worker
        queue.running -= 1
        if task.stop == task.start:
            self._put_back(submitted, task)
            return []
        finished: list[Request] = []
        ended = {request.id for request in task.ended}
        released: list[_Active] = []
        cells = submitted.task.cells
        for place, active in enumerate(submitted.owners):
            owner = active.owner
            if owner.over:
                self._forget(active)
                continue
            active.running -= 1
            if active.cells.open:
                if owner.request.id in ended:
                    self._drop(owner)
                    finished.append(owner.request)
                    continue
            else:
                owner.left -= 1
                if owner.followers is not None:
                    self._release(owner, cells[place])
                if owner.left == 0 and not owner.open:
                    self._drop(owner)
                    finished.append(owner.request)
                    continue
            if active.running == 0 and active.ready_list is not None:
                released.append(active)
        self._unpin(queue, worker, released)
        return finished

    def _release(self, owner: _Unfolded, cell: int) -> None:
        """Make the subgraphs ready that needed this cell last."""
        assert owner.followers is not None
        for active in owner.followers.pop(cell, []):
            active.needs -= 1
            if active.needs == 0:
                self._make_ready(active)

    def _unpin(self, queue: _Queue, worker: int, released: list[_Active]) -> None:
        """Move subgraphs, given in order, to the list of those that are not pinned.

        The search for their places is short. Only subgraphs that were begun and are not pinned stand before those that
        never ran."""
        successor = queue.free.first
        for active in released:
            while successor is not None and successor.order < active.order:
                successor = successor.successor
            queue.pinned[worker].remove(active)
            queue.free.put(active, successor)
            active.worker = -1

    def _put_back(self, lost: _Submitted, task: Task) -> None:
        """Begin requests anew whose worker was lost.

        The worker held the state of all requests in its tasks, running or not yet given out. Requests that the driver
        has given up are removed."""
        gone = {request.id for request in lost.task.requests} - {request.id for request in task.requests}
        dropped = [lost, *self._waiting[lost.worker]]
        self._waiting[lost.worker] = []
        again: list[_Unfolded] = []
        unfinished: list[_Active] = []
        for submitted in dropped:
            if submitted is not lost:
                submitted.queue.running -= 1
            for active in submitted.owners:
                if active.owner.over:
                    self._forget(active)
                else:
                    active.running -= 1
                    unfinished.append(active)
        for active in unfinished:
            if not active.owner.over:
                again.append(active.owner)
                self._drop(active.owner)
        for number in gone:
            if number in self._active:  # the request began anew after that task was formed
                self._drop(self._active[number])
        for owner in again:
            if owner.request.id not in gone:
                self._unfold(owner.request, owner.model)

    def withdraw(self, request: Request, now: float) -> bool:
        owner = self._active.get(request.id)
        if owner is None or owner.begun or owner.request.model != request.model:
            return False
        self._drop(owner)
        return True

    def latest_start(self, request: Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        number = self._numbers.get(model, -1)
        if number < 0:
            raise UnknownModel.among(model, self._numbers)
        return self._models[number].largest_batch

    def _drop(self, owner: _Unfolded) -> None:
        """End a request. The results of its cells in tasks are not needed any more."""
        owner.over = True
        del self._active[owner.request.id]
        for active in owner.subgraphs:
            self._over += active.running
            if active.ready_list is not None:
                active.ready_list.remove(active)
        owner.subgraphs = []  # this breaks the reference cycle with their owner
        owner.followers = None

    def wakeup(self) -> float:
        return math.inf


@settings(tasks="cells")
class Cellular(MaxBatch, PaperStrict):
    """Batch cells of recurrent networks, so that requests join and leave at every step (BatchMaker).

    The setting `max_batch` limits the cells of a batch. It takes effect where the networks are made."""

    max_tasks: int = setting(default=MAX_TASKS, help="How many tasks a worker is given at a time.", ge=1, le=1000)

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run. Raises UsageError where the models are no networks of cells."""
        return CellularBatching(context.cell_models("cellular"), context.workers, self.max_tasks, self.strict)
