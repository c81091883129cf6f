"""The policy `dynamic-graph` batches a fixed set of dataflow graphs dynamically.

An idle worker takes a set of the oldest waiting requests and merges their cell graphs, depth by depth. Cells of one
type at equal depth make one batched cell, which is a task of cells.

Source: BatchMaker (EuroSys 2018), Sections 2 and 7. The paper uses it as a baseline, for TensorFlow Fold and DyNet.

Rules
-----
1. Tasks run in order of depth. All requests of the set end together, with its last task. Only then does the worker take
   another set.
2. A cell's depth is one more than that of the deepest cell for which it waits. All cells of a subgraph wait for what
   the subgraph needs from outside, because a `CellGraph` does not know more. This is exact if the needed cells have
   depth 0, as the leaves of a tree have.
3. Merging takes `merge_s` of the host's time for each cell. It does not overlap with execution, because a set is merged
   when its worker is there to run it. A policy has no task for host work, so the worker stays idle until the time that
   `wakeup` returns.
4. A request has begun when its set is merged, even if none of its cells runs for a while.
5. Nobody knows the end of an open chain (a decoder). So its cells are merged one depth at a time, after all cells of
   the depth before have run, until every chain has ended. The worker waits for each of these merges.
"""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.context import PolicyContext
from headrace.batching.errors import UnknownModel, UsageError, check_max_batch, check_workers
from headrace.batching.graphs.cell_graph import CellGraph, CellModel
from headrace.batching.policies.shared.fifo import Fifo
from headrace.batching.policies.shared.settings import MaxBatch
from headrace.batching.policy import Policy
from headrace.batching.request import IDLE, MERGE, Request, Task
from headrace.batching.settings import settings


class _Unfolded:
    """The cells of a request by depth, as pairs (type, cell).

    `open_depth` is the depth of the first cell of the open chain; -1 if there is none."""

    def __init__(self, graph: CellGraph) -> None:
        self.cells: int = graph.cells
        self.levels: list[list[tuple[int, int]]] = []
        self.open_type: int = -1
        self.open_from: int = graph.open_from
        self.open_depth: int = -1
        depths: dict[int, int] = {}
        pending = list(graph.subgraphs)
        while pending:
            later = []  # a subgraph may be listed before those for which it waits
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
                raise UsageError(
                    "the subgraphs of a cell graph wait for each other, or for an open chain; unfold an acyclic graph"
                )
            pending = later

    def _place(self, depths: dict[int, int], cell: int, type: int, depth: int) -> None:
        depths[cell] = depth
        while len(self.levels) <= depth:
            self.levels.append([])
        self.levels[depth].append((type, cell))


class _Set:
    """Requests that were merged for one worker. `tasks` are the tasks of the present depth that have not begun."""

    def __init__(self, model: int, requests: tuple[Request, ...]) -> None:
        self.model: int = model
        self.requests: tuple[Request, ...] = requests
        self.ended: set[int] = set()  # ids of requests whose open chain has ended
        self.depth: int = 0  # the next depth to merge
        self.tasks: list[Task] = []
        self.running: Task | None = None
        self.merged: float = 0.0  # the time (s) at which `tasks` are merged


class DynamicGraphBatching:
    """A `Policy` with tasks of cells (`Task.cells`).

    A set leaves because its worker is idle (IDLE). Tasks at later depths have the reason MERGE.

    Args:
        models: The networks of cells. A task has at most the `max_batch` of its cell type.
        workers: The number of workers.
        max_batch: The largest set, in requests. All requests of a set have one model.
        merge_s: The host's time (s) for merging a cell.

    Raises:
        UsageError: An argument is out of range.
    """

    def __init__(self, models: Iterable[CellModel], workers: int, max_batch: int, merge_s: float = 0.0) -> None:
        check_workers(workers)
        check_max_batch(max_batch)
        if not 0.0 <= merge_s < math.inf:
            raise UsageError(f"merge_s is {merge_s}: give a merging time per cell of 0 s or more")
        self.ahead: Final[int] = 1
        self._models: list[CellModel] = list(models)
        self._numbers: dict[str, int] = {model.name: number for number, model in enumerate(self._models)}
        self._queues: list[Fifo] = [Fifo(model.graph) for model in self._models]
        self._max_batch: int = max_batch
        self._merge_s: float = merge_s
        self._unfolded: dict[int, _Unfolded] = {}
        self._sets: list[_Set | None] = [None] * workers
        self._workers: dict[int, int] = {}  # worker by the id of its running task
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        number = self._numbers.get(request.model, -1)
        if number < 0:
            raise UnknownModel.asked_for(request.id, request.model, self._numbers)
        self._unfolded[request.id] = _Unfolded(self._models[number].unfold(request))
        self._queues[number].append(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        merged_set = self._sets[worker]
        if merged_set is None:
            merged_set = self._gather(now)
            if merged_set is None:
                return None
            self._sets[worker] = merged_set
        if now < merged_set.merged:
            return None
        task = merged_set.tasks.pop(0)
        merged_set.running = task
        self._workers[task.id] = worker
        return task

    def _gather(self, now: float) -> _Set | None:
        """Return a new set of the model whose oldest request has waited longest; None if no request waits."""
        number = -1
        oldest = math.inf
        for place, queue in enumerate(self._queues):
            if queue.oldest() < oldest:
                number = place
                oldest = queue.oldest()
        if number < 0:
            return None
        merged_set = _Set(number, self._queues[number].take(self._max_batch))
        cells = self._merge_depth(merged_set)
        for request in merged_set.requests:
            cells += self._unfolded[request.id].cells
        merged_set.merged = now + self._merge_s * cells
        return merged_set

    def _merge_depth(self, merged_set: _Set) -> int:
        """Make the tasks of the next depth, if there are any. Return the number of their cells that belong to open
        chains."""
        types = self._models[merged_set.model].types
        requests: list[list[Request]] = [[] for _ in types]
        cells: list[list[int]] = [[] for _ in types]
        depth = merged_set.depth
        reason = IDLE if depth == 0 else MERGE
        opened = 0
        for request in merged_set.requests:
            unfolded = self._unfolded[request.id]
            if depth < len(unfolded.levels):
                for kind, cell in unfolded.levels[depth]:
                    requests[kind].append(request)
                    cells[kind].append(cell)
            if 0 <= unfolded.open_depth <= depth and request.id not in merged_set.ended:
                requests[unfolded.open_type].append(request)
                cells[unfolded.open_type].append(unfolded.open_from + depth - unfolded.open_depth)
                opened += 1
        for kind, cell_type in enumerate(types):
            max_batch = cell_type.max_batch
            for start in range(0, len(cells[kind]), max_batch):
                batch = tuple(requests[kind][start : start + max_batch])
                numbers = tuple(cells[kind][start : start + max_batch])
                task = Task(
                    self._tasks,
                    self._models[merged_set.model].name,
                    batch,
                    kind,
                    kind + 1,
                    cells=numbers,
                    reason=reason,
                )
                merged_set.tasks.append(task)
                self._tasks += 1
        merged_set.depth += 1
        return opened

    def complete(self, task: Task, now: float) -> list[Request]:
        worker = self._workers.pop(task.id)
        merged_set = self._sets[worker]
        assert merged_set is not None and merged_set.running is not None
        if task.stop == task.start:
            self._sets[worker] = None
            self._put_back(merged_set, merged_set.running, task)
            return []
        merged_set.running = None
        for request in task.ended:
            merged_set.ended.add(request.id)
        if not merged_set.tasks:
            merged_set.merged = now + self._merge_s * self._merge_depth(merged_set)
        if merged_set.tasks:
            return []
        self._sets[worker] = None
        for request in merged_set.requests:
            del self._unfolded[request.id]
        return list(merged_set.requests)

    def _put_back(self, merged_set: _Set, submitted: Task, lost: Task) -> None:
        """Begin the requests of a set anew, because its worker was lost. Requests that the driver has given up are
        removed."""
        gone = {request.id for request in submitted.requests} - {request.id for request in lost.requests}
        again = [request for request in merged_set.requests if request.id not in gone]
        for number in gone:
            del self._unfolded[number]
        for request in again:
            self._unfolded[request.id] = _Unfolded(self._models[merged_set.model].unfold(request))
        self._queues[merged_set.model].put_back(again)

    def withdraw(self, request: Request, now: float) -> bool:
        number = self._numbers.get(request.model, -1)
        if number < 0 or not self._queues[number].remove(request):
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
        for merged_set in self._sets:
            if merged_set is not None and merged_set.running is None:
                first = min(first, merged_set.merged)
        return first


MERGE_S = 1e-6 * 10  # for each cell, on the host; an assumption that `headrace reproduce batchmaker` varies


@settings(tasks="cells")
class DynamicGraph(MaxBatch):
    """Merge the dataflow graphs of waiting requests, level by level (TensorFlow Fold, DyNet; BatchMaker's baseline)."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run. Raises UsageError where the models are no networks of cells."""
        return DynamicGraphBatching(context.cell_models("dynamic-graph"), context.workers, self.max_batch, MERGE_S)
