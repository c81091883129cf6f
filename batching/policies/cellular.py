"""`cellular`: cellular batching (BatchMaker, EuroSys 2018, Section 4, Algorithm 1).

Requests join and leave a running batch at every cell. When a worker is idle, a cell type is chosen, and up to
`max_tasks` (MaxTasksToSubmit) batched cells of it are handed to that worker, one behind the other:

- of the types with cells ready, those with a full batch of them qualify first, then those of which nothing runs, then
  all; among them the highest priority, and equal priorities in turn;
- a type of which nothing runs, and that was passed over PATIENCE times, goes before all of these: the one first that
  was chosen longest ago;
- a task takes ready cells in the order in which their subgraphs became ready, up to the type's `max_batch`; a task
  behind the first of a decision must have `min_batch`;
- a request has begun when a cell of it is in a task, and the task may still wait for the worker;
- a subgraph with tasks that have not ended is pinned to their worker, which runs them in order. So when a cell was put
  into a task, those that depend on it within the subgraph are ready for the next task there, though it has not run.

The paper has neither turns nor patience: by Algorithm 1 alone a type never runs while others always have a full batch,
or a higher priority. Priorities that grow with the time waited are Kleinrock's ("A delay dependent queue discipline",
Naval Research Logistics Quarterly 11, 1964); here they grow in one step, and time is counted in decisions. So, of K
types with cells ready, one of which nothing runs is chosen in any PATIENCE + K decisions. A decision for a type begins
all its subgraphs that are ready, or else has a full batch of older ones: behind C cells of older ones, a subgraph
begins with one of the C / max_batch + 1 next.

A request is finished as soon as its last cell ends. What an open chain (a decoder) submitted beyond its end is dropped
if it has not started.

Every cell is touched once when it is put into a task and once when that ends, and every subgraph leaves its line from
where it stands: nothing is searched, whatever waits.
"""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.context import PolicyContext
from headrace.batching.errors import UnknownModel, UsageError, check_workers
from headrace.batching.graphs.cell_graph import CellModel, CellType, Subgraph
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policy import Policy
from headrace.batching.request import FULL, IDLE, Request, Task
from headrace.batching.settings import setting, settings

MAX_TASKS = 5
PATIENCE = 2  # decisions: with 1, types that all have cells ready would only take turns


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
    that have not ended. With cells ready it stands in a line, where `order` is its place."""

    def __init__(self, owner: _Unfolded, cells: Subgraph) -> None:
        self.owner: _Unfolded = owner
        self.cells: Subgraph = cells
        self.needs: int = len(cells.needs)
        self.worker: int = -1
        self.running: int = 0
        self.next: int = cells.first  # of a chain
        self.missing: list[int] = [] if cells.chain else cells.missing.copy()  # of others
        self.ready: list[int] = [] if cells.chain else [p for p, n in enumerate(cells.missing) if n == 0]
        self.order: int = 0
        self.line: _Line | None = None
        self.before: _Active | None = None
        self.behind: _Active | None = None

    def count(self) -> int:
        """Cells that are ready."""
        if self.cells.chain:
            return 1 if self.next < self.cells.stop else 0
        return len(self.ready)


class _Line:
    """Subgraphs with cells ready, in the order in which they became ready; `cells` is how many are. They are linked, so
    that each can leave from where it stands."""

    def __init__(self) -> None:
        self.first: _Active | None = None
        self.last: _Active | None = None
        self.cells: int = 0

    def put(self, active: _Active, behind: _Active | None) -> None:
        """In front of `behind`, which is in this line; at the end if that is None."""
        before = self.last if behind is None else behind.before
        active.line = self
        active.before = before
        active.behind = behind
        if before is None:
            self.first = active
        else:
            before.behind = active
        if behind is None:
            self.last = active
        else:
            behind.before = active
        self.cells += active.count()

    def remove(self, active: _Active) -> None:
        before, behind = active.before, active.behind
        if before is None:
            self.first = behind
        else:
            before.behind = behind
        if behind is None:
            self.last = before
        else:
            behind.before = before
        active.line = None
        active.before = None
        active.behind = None
        self.cells -= active.count()


class _Queue:
    """Of one cell type: subgraphs with cells ready, each in one line."""

    def __init__(self, model: int, number: int, type: CellType, workers: int) -> None:
        self.model: int = model
        self.number: int = number
        self.max_batch: int = type.max_batch
        self.min_batch: int = type.min_batch
        self.priority: int = type.priority
        self.free: _Line = _Line()  # pinned nowhere
        self.pinned: list[_Line] = [_Line() for _ in range(workers)]
        self.running: int = 0  # tasks that have not ended
        self.passed: int = 0  # decisions for others since it was chosen, with cells of it ready and none running
        self.chosen: int = 0  # number of the decision that chose it last


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
        self._types: list[_Queue] = [queue for queues in self._queues for queue in queues]
        self._max_tasks: int = max_tasks
        self._waiting: list[list[_Submitted]] = [[] for _ in range(workers)]  # tasks to hand out
        self._running: dict[int, _Submitted] = {}
        self._over: int = 0  # cells in tasks whose request is over
        self._active: dict[int, _Unfolded] = {}
        self._tasks: int = 0
        self._decisions: int = 0
        self._became_ready: int = 0  # subgraphs, ever
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
        """A cell of a request that is over will not run, or has run for nothing."""
        active.running -= 1
        self._over -= 1

    def _schedule(self, worker: int) -> None:
        """Algorithm 1: choose a type, and submit tasks of it."""
        chosen: _Queue | None = None
        least = (0, 0, 0)
        for queue in self._types:
            ready = queue.free.cells + queue.pinned[worker].cells
            if ready == 0:
                continue
            idle = queue.running == 0
            if queue.passed >= PATIENCE:
                rank = (0, 0, queue.chosen)
            elif ready >= queue.max_batch:
                rank = (1, -queue.priority, queue.chosen)
            elif idle:
                rank = (2, -queue.priority, queue.chosen)
            else:
                rank = (3, -queue.priority, queue.chosen)
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
        """FormBatchedTask: the oldest subgraphs first, of those pinned here and those that are free."""
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
                here = here.behind
            else:
                active = other
                other = other.behind
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
            if not left:  # all are in tasks, as those that are not wait for nothing outside
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
            if active.running == 0 and active.line is not None:
                released.append(active)
        self._unpin(queue, worker, released)
        return finished

    def _release(self, owner: _Unfolded, cell: int) -> None:
        """Subgraphs that needed this cell."""
        assert owner.followers is not None
        for active in owner.followers.pop(cell, []):
            active.needs -= 1
            if active.needs == 0:
                self._make_ready(active)

    def _unpin(self, queue: _Queue, worker: int, released: list[_Active]) -> None:
        """They are in order. In front of those that never ran stand no more than were begun and are pinned nowhere."""
        behind = queue.free.first
        for active in released:
            while behind is not None and behind.order < active.order:
                behind = behind.behind
            queue.pinned[worker].remove(active)
            queue.free.put(active, behind)
            active.worker = -1

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
        """It is over: what it has in tasks is for nothing."""
        owner.over = True
        del self._active[owner.request.id]
        for active in owner.subgraphs:
            self._over += active.running
            if active.line is not None:
                active.line.remove(active)
        owner.subgraphs = []  # they know their owner: left so, nothing but the garbage collector would free it
        owner.followers = None

    def wakeup(self) -> float:
        return math.inf


@settings(tasks="cells")
class Cellular(BatchLimit):
    """Batch cells of recurrent networks, so that requests join and leave at every step (BatchMaker).

    The largest batch is one of cells, and counts where the networks are made."""

    max_tasks: int = setting(default=MAX_TASKS, help="How many tasks a worker is given at a time.", ge=1, le=1000)

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run. Raises UsageError where the models are no networks of cells."""
        return CellularBatching(context.cell_models("cellular"), context.workers, self.max_tasks)
