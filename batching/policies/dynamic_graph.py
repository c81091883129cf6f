"""`dynamic-graph`: dynamic batching of a fixed set of dataflow graphs, what the BatchMaker paper (EuroSys 2018,
Sections 2 and 7) compares with as TensorFlow Fold and DyNet.

An idle worker takes a set of the oldest waiting requests and merges their cell graphs, depth by depth: cells of one
type at equal depth make a batched cell, a task of cells. They run in order of depth, and all requests of the set end
together, with its last task; only then does the worker take another set.

- A cell's depth is one more than that of the deepest cell it waits for. What a subgraph needs from outside, all of it
  waits for: that is what a `CellGraph` knows, and exact where what is needed has depth 0 (the leaves of a tree).
- Merging takes `merge_s` of the host's time a cell, serial with execution, as a set is merged when its worker is there
  to run it. A policy has no task for that: the worker stays idle, and `wakeup` says until when, to any driver.
- A request has begun when its set is merged, though nothing of it may run for a while.
- Nobody knows the end of an open chain (a decoder), so its cells are merged one depth at a time, when all of the depth
  before has run, and as long as any has not ended. The worker waits for each of these merges.
"""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.context import PolicyContext
from headrace.batching.errors import UnknownModel, UsageError, check_max_batch, check_workers
from headrace.batching.graphs.cell_graph import CellGraph, CellModel
from headrace.batching.policies.shared.fifo import Fifo
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policy import Policy
from headrace.batching.request import IDLE, MERGE, Request, Task
from headrace.batching.settings import settings


class _Unfolded:
    """A request's cells by depth, as (type, cell). `open_depth` is that of the first cell of its open chain; -1 if it
    has none."""

    def __init__(self, graph: CellGraph) -> None:
        self.cells: int = graph.cells
        self.levels: list[list[tuple[int, int]]] = []
        self.open_type: int = -1
        self.open_from: int = graph.open_from
        self.open_depth: int = -1
        depths: dict[int, int] = {}
        pending = list(graph.subgraphs)
        while pending:
            later = []  # subgraphs need not be listed behind those that they wait for
            for cells in pending:
                first = 0
                known = True
                for need in cells.needs:
                    known = known and need in depths
                    first = max(first, depths.get(need, 0) + 1)
                if not known:
                    later.append(cells)
                elif cells.open:
                    self.open_type = cells.type
                    self.open_depth = first
                elif cells.chain:
                    for cell in range(cells.first, cells.stop):
                        self._place(depths, cell, cells.type, first + cell - cells.first)
                else:
                    deepest = [first] * len(cells.cells)
                    for place, cell in enumerate(cells.cells):
                        self._place(depths, cell, cells.type, deepest[place])
                        for other in cells.feeds[place]:
                            deepest[other] = max(deepest[other], deepest[place] + 1)
            if len(later) == len(pending):
                raise UsageError("the subgraphs of a cell graph wait for each other, or for an open chain")
            pending = later

    def _place(self, depths: dict[int, int], cell: int, type: int, depth: int) -> None:
        depths[cell] = depth
        while len(self.levels) <= depth:
            self.levels.append([])
        self.levels[depth].append((type, cell))


class _Set:
    """Requests merged for one worker. `tasks` are those of the present depth that have not begun."""

    def __init__(self, model: int, requests: tuple[Request, ...]) -> None:
        self.model: int = model
        self.requests: tuple[Request, ...] = requests
        self.ended: set[int] = set()  # requests whose open chain has ended
        self.depth: int = 0  # the next one
        self.tasks: list[Task] = []
        self.running: Task | None = None
        self.merged: float = 0.0  # when what is in `tasks` is merged (s)


class DynamicGraphBatching:
    """A `Policy` for `models`, with tasks of cells (`Task.cells`). A set has at most `max_batch` requests, all of one
    model; a task has at most the `max_batch` of its cell type. A set leaves because its worker is idle (IDLE); what
    runs at later depths is what it was merged into (MERGE). Raises UsageError."""

    def __init__(self, models: Iterable[CellModel], workers: int, max_batch: int, merge_s: float = 0.0) -> None:
        check_workers(workers)
        check_max_batch(max_batch)
        if not 0.0 <= merge_s < math.inf:
            raise UsageError(f"merge_s is {merge_s}: give a merging time per cell of 0 s or more")
        self.ahead: Final[int] = 1
        self._models: list[CellModel] = list(models)
        self._numbers: dict[str, int] = {model.name: number for number, model in enumerate(self._models)}
        self._lines: list[Fifo] = [Fifo(model.graph) for model in self._models]
        self._max_batch: int = max_batch
        self._merge_s: float = merge_s
        self._unfolded: dict[int, _Unfolded] = {}
        self._sets: list[_Set | None] = [None] * workers
        self._workers: dict[int, int] = {}  # of running tasks
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        number = self._numbers.get(request.model, -1)
        if number < 0:
            raise UnknownModel.asked_for(request.id, request.model, self._numbers)
        self._unfolded[request.id] = _Unfolded(self._models[number].unfold(request))
        self._lines[number].append(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        found = self._sets[worker]
        if found is None:
            found = self._gather(now)
            if found is None:
                return None
            self._sets[worker] = found
        if now < found.merged:
            return None
        task = found.tasks.pop(0)
        found.running = task
        self._workers[task.id] = worker
        return task

    def _gather(self, now: float) -> _Set | None:
        """A new set, of the model whose oldest request has waited longest."""
        number = -1
        oldest = math.inf
        for place, line in enumerate(self._lines):
            if line.oldest() < oldest:
                number = place
                oldest = line.oldest()
        if number < 0:
            return None
        found = _Set(number, self._lines[number].take(self._max_batch))
        cells = self._merge_depth(found)
        for request in found.requests:
            cells += self._unfolded[request.id].cells
        found.merged = now + self._merge_s * cells
        return found

    def _merge_depth(self, found: _Set) -> int:
        """Make the tasks of the next depth, none if there is nothing left. Returns how many of its cells are of open
        chains."""
        types = self._models[found.model].types
        requests: list[list[Request]] = [[] for _ in types]
        cells: list[list[int]] = [[] for _ in types]
        depth = found.depth
        reason = IDLE if depth == 0 else MERGE
        opened = 0
        for request in found.requests:
            unfolded = self._unfolded[request.id]
            if depth < len(unfolded.levels):
                for kind, cell in unfolded.levels[depth]:
                    requests[kind].append(request)
                    cells[kind].append(cell)
            if 0 <= unfolded.open_depth <= depth and request.id not in found.ended:
                requests[unfolded.open_type].append(request)
                cells[unfolded.open_type].append(unfolded.open_from + depth - unfolded.open_depth)
                opened += 1
        for kind, cell_type in enumerate(types):
            most = cell_type.max_batch
            for start in range(0, len(cells[kind]), most):
                batch = tuple(requests[kind][start : start + most])
                numbers = tuple(cells[kind][start : start + most])
                task = Task(
                    self._tasks, self._models[found.model].name, batch, kind, kind + 1, cells=numbers, reason=reason
                )
                found.tasks.append(task)
                self._tasks += 1
        found.depth += 1
        return opened

    def complete(self, task: Task, now: float) -> list[Request]:
        worker = self._workers.pop(task.id)
        found = self._sets[worker]
        assert found is not None and found.running is not None
        if task.stop == task.start:
            self._sets[worker] = None
            self._put_back(found, found.running, task)
            return []
        found.running = None
        for request in task.ended:
            found.ended.add(request.id)
        if not found.tasks:
            found.merged = now + self._merge_s * self._merge_depth(found)
        if found.tasks:
            return []
        self._sets[worker] = None
        for request in found.requests:
            del self._unfolded[request.id]
        return list(found.requests)

    def _put_back(self, found: _Set, submitted: Task, lost: Task) -> None:
        """The worker was lost, and with it what it held of the whole set, which begins anew: its requests are unfolded
        again. Those that the driver has given up on are gone."""
        gone = {request.id for request in submitted.requests} - {request.id for request in lost.requests}
        again = [request for request in found.requests if request.id not in gone]
        for number in gone:
            del self._unfolded[number]
        for request in again:
            self._unfolded[request.id] = _Unfolded(self._models[found.model].unfold(request))
        self._lines[found.model].put_back(again)

    def withdraw(self, request: Request, now: float) -> bool:
        number = self._numbers.get(request.model, -1)
        if number < 0 or not self._lines[number].remove(request):
            return False
        del self._unfolded[request.id]
        return True

    def latest_start(self, request: Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        number = self._numbers.get(model, -1)
        if number < 0:
            raise UnknownModel.among(model, self._numbers)
        return self._models[number].largest_batch

    def wakeup(self) -> float:
        first = math.inf
        for found in self._sets:
            if found is not None and found.running is None:
                first = min(first, found.merged)
        return first


MERGE_S = 1e-6 * 10  # for each cell, on the host: our assumption, which `headrace reproduce batchmaker` varies


@settings(tasks="cells")
class DynamicGraph(BatchLimit):
    """Merge the dataflow graphs of waiting requests, level by level (TensorFlow Fold, DyNet; BatchMaker's baseline)."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run. Raises UsageError where the models are no networks of cells."""
        return DynamicGraphBatching(context.cell_models("dynamic-graph"), context.workers, self.max_batch, MERGE_S)
