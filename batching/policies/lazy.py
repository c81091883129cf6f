"""`lazy`: LazyBatching (Choi, Kim, Rhu, HPCA 2021), node-level batching that is aware of the SLA.

Each worker has a BatchTable, all share one queue a model (InfQ). At every node boundary a worker may take waiting
requests above what it runs: the newcomers catch up, and are merged with those below at the node where these stand. They
may do so only if no request in the table loses its slack by it:

    slack of r = SLA_target - (T_wait of r + sum of the single-input times of the newcomer and all in the table)

(Eq. 1 for one request, Eq. 2 for several). T_wait is how long r waited before it entered the table; from then on the
requests are taken to run one after the other, which is conservative. The single-input time of a request is Algorithm
1's: static nodes once, encoder nodes times the input's length, decoder nodes times `dec_timesteps`, each at batch 1.
All this is known on entry, so that a decision costs the same however many nodes or requests there are, and changes only
when a request enters or leaves: between two events a "no" stays a "no", and a driver need not ask at every node.

Where the paper is silent:

- A worker runs one model at a time, its table holds at most `max_batch` requests, and a newcomer enters only while it
  can still be merged. So joining ends in bounded time, the table runs empty, and the worker turns to the model whose
  first request has waited longest.
- A newcomer of the running model overtakes older requests of other models. It may only if the first of each of them
  keeps its slack too.
- An empty table takes all that waits for its model, up to `max_batch`: there is nobody in it to protect, and who is
  left out would only wait longer.
- A request past saving (its slack is below zero though it ran alone) is served all the same, in its turn. As its slack
  cannot be kept, nobody enters above it: its batch runs to the end, and then everyone waiting enters together, so that
  an overload is worked off in full batches. With `defer_late` it stands back instead, behind the requests that can
  still be met, for as long as there are any.

A task says why it left: a fresh table as its worker was idle (IDLE), newcomers as all keep their slack (SLACK), a
sub-batch as it was merged with the one below (MERGE), or as nobody may enter above it (DEADLINE); what goes on with
nobody waiting for its model, or no room for them, does so as its worker is idle.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.batching.errors import UnknownModel, UsageError, check_max_batch, check_workers
from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.policies.batch_table import BatchTable
from headrace.batching.policies.fifo import Fifo
from headrace.batching.request import DEADLINE, IDLE, MERGE, SLACK, Request, Task


class SingleInputTimes:
    """Algorithm 1 for one model: estimated time (s) of a request alone, from latencies at batch 1.

    `dec_timesteps` is the number of decoder steps assumed for every request, as only the run itself will tell."""

    def __init__(self, times: NodeTimes, dec_timesteps: int) -> None:
        if dec_timesteps < 1:
            raise UsageError(f"dec_timesteps is {dec_timesteps}: give 1 or more")
        self._times = times
        self._dec_timesteps = dec_timesteps
        self._by_steps: dict[int, float] = {}

    def estimate(self, request: Request) -> float:
        length = steps(request.input_len)
        found = self._by_steps.get(length)
        if found is None:
            found = self._times.whole(1, float(length), self._dec_timesteps)
            self._by_steps[length] = found
        return found


class Waiting:
    """InfQ of one model, and how many requests of it a table may hold."""

    def __init__(self, times: NodeTimes, single: SingleInputTimes, line: Fifo, max_batch: int) -> None:
        self.times: NodeTimes = times
        self.single: SingleInputTimes = single
        self.line: Fifo = line
        self.late: Fifo = Fifo(times.graph)  # put back by `defer_late`
        self.max_batch: int = max_batch


class WorkerTable:
    """A worker's BatchTable, of the model that it runs now, with what the slack of its requests needs."""

    def __init__(self, queue: Waiting) -> None:
        self.queue: Waiting = queue
        self.table: BatchTable = BatchTable(queue.times.sections)
        self.single_s: float = 0.0  # sum of the single-input times of all requests in the table
        self.inside: set[int] = set()  # ids of the requests in the table
        # SLA_target - T_wait of each request, what was left of its SLA when it entered: a heap, with request ids, that
        # may hold some that have left.
        self._budgets_s: list[tuple[float, int]] = []

    def enter(self, request: Request, single_s: float, budget_s: float) -> None:
        self.inside.add(request.id)
        self.single_s += single_s
        heapq.heappush(self._budgets_s, (budget_s, request.id))

    def leave(self, request: Request, single_s: float) -> None:
        self.inside.discard(request.id)
        self.single_s -= single_s

    def least_budget_s(self) -> float:
        """The least SLA_target - T_wait among the requests in the table; inf if it is empty."""
        while self._budgets_s and self._budgets_s[0][1] not in self.inside:
            heapq.heappop(self._budgets_s)
        return self._budgets_s[0][0] if self._budgets_s else math.inf


class LazyBatching:
    """`times` has the node latencies of each model on these workers; `dec_timesteps` the decoder steps assumed for each
    model that has a decoder; `max_batch` is for all models, or by model. Requests may wait in `lines`, by model, that
    another policy keeps and puts them into (see preba_lazy.py). Raises UsageError."""

    def __init__(
        self,
        times: Mapping[str, NodeTimes],
        workers: int,
        max_batch: int | Mapping[str, int] = 64,
        dec_timesteps: Mapping[str, int] | None = None,
        defer_late: bool = False,
        lines: Mapping[str, Fifo] | None = None,
    ) -> None:
        check_workers(workers)
        self.ahead: Final[int] = 1
        self._defer_late: bool = defer_late
        self._queues: dict[str, Waiting] = {}
        assumed = dec_timesteps or {}
        for model, node_times in times.items():
            if len(node_times.sections.decoder) > 0 and model not in assumed:
                raise UsageError(f"model {model!r} has a decoder: give its dec_timesteps")
            most = max_batch if isinstance(max_batch, int) else max_batch[model]
            check_max_batch(most)
            line = Fifo(node_times.graph) if lines is None else lines[model]
            self._queues[model] = Waiting(node_times, SingleInputTimes(node_times, assumed.get(model, 1)), line, most)
        self._queue_list: list[Waiting] = list(self._queues.values())
        self._tables: list[WorkerTable | None] = [None] * workers
        self._running: dict[int, int] = {}  # task id -> worker
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        queue = self._queues.get(request.model)
        if queue is None:
            raise UnknownModel.asked_for(request.id, request.model, self._queues)
        queue.line.append(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        own = self._tables[worker]
        reason = IDLE
        if own is None:
            queue = self._longest_waiting()
            if queue is None:
                return None
            own = WorkerTable(queue)
            self._tables[worker] = own
            self._take(own, now)
        elif own.table.size < own.queue.max_batch and (own.queue.line.size() > 0 or own.queue.late.size() > 0):
            reason = SLACK if self._take(own, now) else DEADLINE
        return self._run_top(worker, own, reason)

    def running(self, worker: int) -> str | None:
        """The model in the table of `worker`; None if it is empty."""
        own = self._tables[worker]
        return None if own is None else own.queue.line.model

    def start(self, worker: int, model: str, group: Sequence[Request], reason: str, now: float) -> Task:
        """In place of `next_task` where the table is empty: it takes `group`, requests that wait no more."""
        own = WorkerTable(self._queues[model])
        self._tables[worker] = own
        for request in group:
            own.enter(request, self.single_s(own.queue, request), request.deadline - now)
        own.table.push(tuple(group))
        return self._run_top(worker, own, reason)

    def go_on(self, worker: int) -> Task:
        """In place of `next_task` where the table is not empty: nobody may enter."""
        own = self._tables[worker]
        assert own is not None
        return self._run_top(worker, own, IDLE)

    def _run_top(self, worker: int, own: WorkerTable, reason: str) -> Task:
        top = own.table.stack[-1]
        task = Task(
            self._tasks, own.queue.line.model, top.requests, top.node, own.table.next_stop(), True,
            reason=MERGE if own.table.merged else reason,
        )  # fmt: skip
        self._tasks += 1
        self._running[task.id] = worker
        return task

    def _longest_waiting(self) -> Waiting | None:
        """The queue whose first request has waited longest; late ones count only where no other waits."""
        found: Waiting | None = None
        oldest = math.inf
        for queue in self._queue_list:
            if queue.line.oldest() < oldest:
                oldest = queue.line.oldest()
                found = queue
        if found is None and self._defer_late:
            for queue in self._queue_list:
                if queue.late.oldest() < oldest:
                    oldest = queue.late.oldest()
                    found = queue
        return found

    def _take(self, own: WorkerTable, now: float) -> bool:
        """Push the waiting requests that may enter now, as one sub-batch; whether there are any. An empty table gets at
        least one."""
        queue = own.queue
        joining = own.table.size > 0
        someone_in_time = joining
        newcomers: list[Request] = []
        while own.table.size + len(newcomers) < queue.max_batch:
            from_late = queue.line.size() == 0
            line = queue.late if from_late else queue.line
            if line.size() == 0:
                break
            request = line.first()
            single_s = self.single_s(queue, request)
            if joining and not self._keep_slack(own, newcomers, request, single_s, now):
                break
            if from_late and someone_in_time:
                break
            since = line.oldest()
            line.take(1)
            budget_s = request.deadline - now
            if self._defer_late and not from_late:
                if single_s > budget_s:
                    queue.late.append(request, since)
                    continue
                someone_in_time = True
            own.enter(request, single_s, budget_s)
            newcomers.append(request)
        if newcomers:
            own.table.push(tuple(newcomers))
        return len(newcomers) > 0

    def single_s(self, queue: Waiting, request: Request) -> float:
        """The time (s) that the request takes alone, as far as this policy may know it."""
        return queue.single.estimate(request)

    def _keep_slack(
        self, own: WorkerTable, newcomers: list[Request], request: Request, single_s: float, now: float
    ) -> bool:
        """Whether nobody's slack falls below zero if `request` enters beside `newcomers` (Eq. 2)."""
        together_s = own.single_s + single_s
        return together_s <= own.least_budget_s() and self._others_keep_slack(own, now + together_s)

    def _others_keep_slack(self, own: WorkerTable, done: float) -> bool:
        """Whether the first request of each other model keeps its slack if this worker is at work until `done`."""
        for queue in self._queue_list:
            if queue is not own.queue and queue.line.size() > 0:
                request = queue.line.first()
                if done + self.single_s(queue, request) > request.deadline:
                    return False
        return True

    def complete(self, task: Task, now: float) -> list[Request]:
        worker = self._running.pop(task.id)
        own = self._tables[worker]
        assert own is not None
        if task.stop == task.start:
            self._put_back(own, task)
            self._tables[worker] = None
            return []
        finished = list(own.table.advance(task.stop, task.ended))
        if own.table.size == 0:
            self._tables[worker] = None
        else:
            for request in finished:
                own.leave(request, self.single_s(own.queue, request))
        return finished

    def _put_back(self, own: WorkerTable, task: Task) -> None:
        """The worker was lost, and with it all that it had computed: its whole table waits again."""
        again: list[Request] = []
        for sub_batch in own.table.stack[:-1]:
            again.extend(sub_batch.requests)
        own.queue.line.put_back([*again, *task.requests])

    def withdraw(self, request: Request, now: float) -> bool:
        queue = self._queues.get(request.model)
        return queue is not None and (queue.line.remove(request) or queue.late.remove(request))

    def largest_batch(self, model: str) -> int:
        queue = self._queues.get(model)
        if queue is None:
            raise UnknownModel.among(model, self._queues)
        return queue.max_batch

    def wakeup(self) -> float:
        return math.inf


class OracleLazyBatching(LazyBatching):
    """`oracle`: the same with a perfect slack predictor: the latency of every batch size and the true output lengths.

    Before a request enters, it plays the rest of the table's schedule through, as it would go without further arrivals,
    and lets it enter if all requests in it meet their deadlines in that. It is a bound for comparison: it reads
    `Request.output_len`, which nobody can know, and its decisions take time in proportion to the sub-batches."""

    def single_s(self, queue: Waiting, request: Request) -> float:
        return queue.times.whole(1, request.input_len, request.output_len)

    def _keep_slack(
        self, own: WorkerTable, newcomers: list[Request], request: Request, single_s: float, now: float
    ) -> bool:
        times = own.queue.times
        table = own.table.copy()
        table.push((*newcomers, request))
        done = now
        while table.size > 0:
            top = table.stack[-1]
            length = max([request.input_len for request in top.requests])
            stop = table.next_stop(outputs_known=True)
            done += times.duration(len(top.requests), length, top.node, stop)
            for finished in table.advance(stop, table.outputs_complete(stop)):
                if done > finished.deadline:
                    return False
        return self._others_keep_slack(own, done)
