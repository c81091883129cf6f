"""`cellular`: cellular batching (BatchMaker, EuroSys 2018, Section 4, Algorithm 1).

Requests join and leave a running batch at every cell. When a worker is idle, a cell type is chosen, and up to
`max_tasks` (MaxTasksToSubmit) batched cells of it are handed to that worker, one behind the other:

- of the types with cells ready, those with a full batch of them qualify first, then those of which nothing runs, then
  all; among them the highest priority;
- a task takes ready cells in the order in which their subgraphs became ready, up to the type's `max_batch`; a task
  behind the first of a decision must have `min_batch`;
- a request has begun when a cell of it is in a task, and the task may still wait for the worker;
- a subgraph with tasks that have not ended is pinned to their worker, which runs them in order. So when a cell was put
  into a task, those that depend on it within the subgraph are ready for the next task there, though it has not run.

A request is finished as soon as its last cell ends. What an open chain (a decoder) submitted beyond its end is dropped
if it has not started.

Every cell is touched once when it is put into a task and once when that ends; nothing is searched.
"""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.errors import UnknownModel, UsageError, check_workers
from headrace.batching.graphs.cell_graph import CellModel, CellType, Subgraph
from headrace.batching.request import FULL, IDLE, Request, Task

MAX_TASKS = 5


class _Unfolded:
    """A request in progress. `left` counts the cells that have not ended, without those of an open chain."""

    def __init__(self, request: Request, model: int, left: int, open: bool) -> None:
        self.request: Request = request
        self.model: int = model
        self.left: int = left
        self.open: bool = open
        self.begun: bool = False
        self.over: bool = False
        # cell -> subgraphs that need it, where there are any
        self.followers: dict[int, list[_Active]] | None = None
        self.subgraphs: list[_Active] = []


class _Active:
    """A subgraph of a request in progress. `worker` is where it is pinned, -1 if nowhere; `running` its cells in tasks
    that have not ended."""

    def __init__(self, owner: _Unfolded, cells: Subgraph) -> None:
        self.owner: _Unfolded = owner
        self.cells: Subgraph = cells
        self.needs: int = len(cells.needs)
        self.worker: int = -1
        self.running: int = 0
        self.next: int = cells.first  # of a chain
        self.left: int = 0 if cells.chain else len(cells.cells)  # of others, not in a task yet
        self.missing: list[int] = [] if cells.chain else cells.missing.copy()
        self.ready: list[int] = [] if cells.chain else [p for p, n in enumerate(cells.missing) if n == 0]

    def count(self) -> int:
        """Cells that are ready."""
        if self.cells.chain:
            return 1 if self.next < self.cells.stop and not self.owner.over else 0
        return 0 if self.owner.over else len(self.ready)


class _Queue:
    """Of one cell type: subgraphs with cells ready, each in one list."""

    def __init__(self, model: int, number: int, type: CellType, workers: int) -> None:
        self.model: int = model
        self.number: int = number
        self.max_batch: int = type.max_batch
        self.min_batch: int = type.min_batch
        self.priority: int = type.priority
        self.free: list[_Active] = []  # pinned nowhere; entries before `head` have left
        self.head: int = 0
        self.free_cells: int = 0
        self.pinned: list[list[_Active]] = [[] for _ in range(workers)]
        self.pinned_cells: list[int] = [0] * workers
        self.running: int = 0  # tasks that have not ended


class _Submitted:
    def __init__(self, queue: _Queue, worker: int, task: Task, owners: list[_Active]) -> None:
        self.queue: _Queue = queue
        self.worker: int = worker
        self.task: Task = task
        self.owners: list[_Active] = owners  # the subgraph of each cell


class CellularBatching:
    """A `Policy` for `models`, with tasks of cells (`Task.cells`). Raises UsageError."""

    def __init__(self, models: Iterable[CellModel], workers: int, max_tasks: int = MAX_TASKS) -> None:
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
        # By falling priority, so that the first that qualifies is chosen.
        self._by_priority: list[_Queue] = sorted(
            [queue for queues in self._queues for queue in queues], key=lambda queue: -queue.priority
        )
        self._max_tasks: int = max_tasks
        self._waiting: list[list[_Submitted]] = [[] for _ in range(workers)]  # tasks to hand out
        self._running: dict[int, _Submitted] = {}
        self._over: int = 0  # cells in tasks whose request is over
        self._active: dict[int, _Unfolded] = {}
        self._tasks: int = 0
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
        queue = self._queues[active.owner.model][active.cells.type]
        queue.free.append(active)
        queue.free_cells += active.count()

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
        """Drop the cells whose request has ended since they were submitted; False if none is left."""
        kept: list[int] = []
        for place, active in enumerate(submitted.owners):
            if active.owner.over:
                self._forget(active)
            else:
                kept.append(place)
        if len(kept) < len(submitted.owners):
            task = submitted.task
            submitted.task = Task(
                task.id, task.model, tuple([task.requests[p] for p in kept]), task.start, task.stop,
                cells=tuple([task.cells[p] for p in kept]), reason=task.reason,
            )  # fmt: skip
            submitted.owners = [submitted.owners[p] for p in kept]
        return len(kept) > 0

    def _forget(self, active: _Active) -> None:
        """A cell of a request that is over will not run, or has run for nothing."""
        active.running -= 1
        self._over -= 1

    def _schedule(self, worker: int) -> None:
        """Algorithm 1: choose a type, and submit tasks of it."""
        for criterion in range(3):
            for queue in self._by_priority:
                ready = queue.free_cells + queue.pinned_cells[worker]
                if ready == 0:
                    continue
                if criterion == 0 and ready < queue.max_batch:
                    continue
                if criterion == 1 and queue.running > 0:
                    continue
                self._submit_tasks(queue, worker)
                return

    def _submit_tasks(self, queue: _Queue, worker: int) -> None:
        for number in range(self._max_tasks):
            ready = queue.free_cells + queue.pinned_cells[worker]
            if ready == 0 or (number > 0 and ready < queue.min_batch):
                return
            self._waiting[worker].append(self._form(queue, worker))

    def _form(self, queue: _Queue, worker: int) -> _Submitted:
        """FormBatchedTask: the oldest subgraphs first, those pinned here before those that are free."""
        room = queue.max_batch
        requests: list[Request] = []
        cells: list[int] = []
        owners: list[_Active] = []
        pinned = queue.pinned[worker]
        kept: list[_Active] = []
        pinned_cells = 0
        number = 0
        total = len(pinned)
        while number < total or (room > 0 and queue.head < len(queue.free)):
            if number < total:
                active = pinned[number]
                number += 1
                if room == 0:
                    kept.append(active)
                    pinned_cells += active.count()
                    continue
            else:
                active = queue.free[queue.head]
                queue.head += 1
                count = active.count()
                if count == 0:  # its request is over
                    continue
                queue.free_cells -= count
                active.worker = worker
            owner = active.owner
            if owner.over:
                continue
            owner.begun = True
            if active.cells.chain:
                requests.append(owner.request)
                cells.append(active.next)
                owners.append(active)
                active.next += 1
                active.running += 1
                room -= 1
                if active.next < active.cells.stop:
                    kept.append(active)
                    pinned_cells += 1
                continue
            take = min(room, len(active.ready))
            for place in active.ready[:take]:
                requests.append(owner.request)
                cells.append(active.cells.cells[place])
                owners.append(active)
            room -= take
            active.running += take
            active.left -= take
            done = active.ready[:take]
            active.ready = active.ready[take:]
            for place in done:
                for other in active.cells.feeds[place]:
                    active.missing[other] -= 1
                    if active.missing[other] == 0:
                        active.ready.append(other)
            if active.left > 0:
                kept.append(active)
                pinned_cells += len(active.ready)
        if queue.head > 1024 and 2 * queue.head > len(queue.free):
            del queue.free[: queue.head]
            queue.head = 0
        queue.pinned[worker] = kept
        queue.pinned_cells[worker] = pinned_cells
        queue.running += 1
        self.scheduled_cells += len(cells)
        task = Task(
            self._tasks, self._models[queue.model].name, tuple(requests), queue.number, queue.number + 1,
            cells=tuple(cells), reason=FULL if room == 0 else IDLE,
        )  # fmt: skip
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
                    self._end(owner, active)
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
            if active.running == 0 and active.worker >= 0:
                active.worker = -1
                if active.count() > 0:
                    released.append(active)
        if released:
            self._unpin(queue, worker, released)
        return finished

    def _end(self, owner: _Unfolded, active: _Active) -> None:
        """The sequence of an open chain is complete."""
        if active.worker >= 0 and active.count() > 0:
            queue = self._queues[owner.model][active.cells.type]
            queue.pinned_cells[active.worker] -= 1
        self._drop(owner)

    def _release(self, owner: _Unfolded, cell: int) -> None:
        """Subgraphs that needed this cell."""
        assert owner.followers is not None
        for active in owner.followers.pop(cell, []):
            active.needs -= 1
            if active.needs == 0:
                self._make_ready(active)

    def _unpin(self, queue: _Queue, worker: int, released: list[_Active]) -> None:
        """They go in front of those that have not begun."""
        moved = 0
        for active in released:
            moved += active.count()
        queue.pinned[worker] = [active for active in queue.pinned[worker] if active.worker == worker]
        queue.pinned_cells[worker] -= moved
        queue.free_cells += moved
        queue.free = released + queue.free[queue.head :]
        queue.head = 0

    def _put_back(self, lost: _Submitted, task: Task) -> None:
        """The worker was lost, and with it the state of all requests that it was at work on or was to go on with: they
        begin anew. Those that the driver has given up on are gone."""
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
            if number in self._active:  # begun anew since that task was formed
                self._drop(self._active[number])
        for queues in self._queues:
            for queue in queues:
                queue.free = [active for active in queue.free[queue.head :] if not active.owner.over]
                queue.head = 0
                queue.free_cells = sum([active.count() for active in queue.free])
                for worker, pinned in enumerate(queue.pinned):
                    queue.pinned[worker] = [active for active in pinned if not active.owner.over]
                    queue.pinned_cells[worker] = sum([active.count() for active in queue.pinned[worker]])
        for owner in again:
            if owner.request.id not in gone:
                self._unfold(owner.request, owner.model)

    def withdraw(self, request: Request, now: float) -> bool:
        owner = self._active.get(request.id)
        if owner is None or owner.begun or owner.request.model != request.model:
            return False
        self._drop(owner)
        for queue in self._queues[owner.model]:
            queue.free = [active for active in queue.free[queue.head :] if not active.owner.over]
            queue.head = 0
            queue.free_cells = sum([active.count() for active in queue.free])
        return True

    def largest_batch(self, model: str) -> int:
        number = self._numbers.get(model, -1)
        if number < 0:
            raise UnknownModel.among(model, self._numbers)
        return self._models[number].largest_batch

    def _drop(self, owner: _Unfolded) -> None:
        """It is over: what it has in tasks is for nothing."""
        owner.over = True
        del self._active[owner.request.id]
        for active in owner.subgraphs:
            self._over += active.running
        owner.subgraphs = []  # they know their owner: left so, nothing but the garbage collector would free it
        owner.followers = None

    def wakeup(self) -> float:
        return math.inf
