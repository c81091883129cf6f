"""The policy `lazy` is LazyBatching: it batches at node level and keeps the target latency of each request.

The policy preempts a running batch at a node boundary, lets new requests catch up, and merges both where the old batch
stands. It admits new requests only while every request keeps its slack, the time that it can still lose without missing
its slo.

Source: Choi, Kim, Rhu, "LazyBatching: An SLA-aware Batching System for Cloud Machine Learning Inference", HPCA 2021,
Section IV. The paper's SLA target is the slo here.

Terms
-----
- InfQ: the waiting requests of one model. All workers share it (Section IV-B).
- BatchTable: the requests that a worker has begun, as a stack of sub-batches (Section IV-B, Fig. 10;
  shared/batch_table.py). A worker runs one model at a time.
- Single-input time: the time of a request alone. Static nodes count once, encoder nodes times the input's length,
  decoder nodes times `dec_timesteps` (Algorithm 1).
- T_wait: the time from a request's arrival to its entry into the table.
- Budget: slo - T_wait. It equals the deadline minus the time of entry, and is fixed at entry.

Slack
-----
The slack of a request in the table is (Eq. 1 for one request, Eq. 2 for several):

    slack = slo - (T_wait + sum of the single-input times of all requests in the table)
          = budget - sum

The sum assumes that the requests run one after another. A batch is faster than that, so the true slack is larger than
the estimate.

All terms are fixed when a request enters. So a decision takes the same time for any number of nodes and requests. The
slack changes only when a request enters or leaves. Between two such events a refusal remains a refusal, so a driver
need not ask at every node.

Rules of entry
--------------
1. Empty table. The worker turns to the model whose first request has waited longest. It takes the waiting requests of
   that model, oldest first, up to `max_batch`. It does not check slack: no request in the table needs protection, and a
   request that is left out would only wait longer.
2. Table with requests. At a node boundary, waiting requests of the running model enter, oldest first. Each of them must
   pass three checks:
    a. The table has room. It holds at most `max_batch` requests.
    b. The sum of single-input times, with the newcomer, is at most the smallest budget in the table. The newcomer's own
       budget counts after it has entered.
    c. The first waiting request of each other model keeps its slack, if this worker is busy for that sum from now on.

Requests that enter together form one sub-batch on top of the stack. The top runs up to the node of the sub-batch below
and is merged with it. If the first waiting request fails a check, the top continues without newcomers.

Late requests
-------------
A request is late if its single-input time is longer than the time to its deadline. It misses its slo even alone.

- By default it is served in its turn. In the table its slack is negative, so check 2b refuses every newcomer. Its batch
  runs to the end without preemption. Then all waiting requests enter together by rule 1. So an overload is served in
  full batches.
- With `defer_late` it is put aside when its turn comes. It begins only in an empty table, and only if no request that
  can meet its deadline waits, of any model. It has no slack to lose, so its budget counts as infinite, and requests of
  its model may enter above it. It is put aside at its turn and not earlier. So a refusal remains a refusal here too.

Example
-------
One worker. The graph has nodes A to D, 1 ms each at any batch size, so a single-input time is 4 ms. R1 to R5 arrive at
0, 0.5, 2.5, 2.7 and 5.5 ms, with slos of 10, 10, 20, 3 and 20 ms.

    time (ms)     worker   requests        nodes     reason
    0 - 1         0        R1              A         idle
    1 - 2         0        R2              A         slack
    2 - 3         0        R1 R2           B         merge
    3 - 5         0        R1 R2           C D       deadline
    5 - 6         0        R3 R4           A         idle
    6 - 9         0        R3 R4           B C D     deadline
    9 - 13        0        R5              A B C D   idle

- At 1 ms R2 may enter: the sum is 4 + 4 = 8 ms, and the budget of R1 is 10 ms. R2 enters with a budget of 10.5 - 1 =
  9.5 ms.
- At 2 ms both stand at node B, and are merged.
- At 3 ms R3 may not enter: the sum would be 12 ms, more than the 9.5 ms of R2.
- At 5 ms the table is empty, and takes R3 and R4. R4 is late: it has 0.7 ms left and needs 4 ms.
- At 6 ms R5 may not enter, because R4 has no slack. It waits for the empty table.

Reasons of tasks
----------------
- IDLE: a table was begun, or the top continues because no request of its model waits or the table has no room.
- SLACK: newcomers entered.
- MERGE: the top was merged with the sub-batch below.
- DEADLINE: the top continues because no waiting request may enter.

Beyond the paper
----------------
The paper does not treat the following points.

1. Several models share a worker. While a request of another model waits, places that become free in the table stay
   free. So at most `max_batch` requests run on this worker, those in the table included, before the table is empty.
   Then rule 1 chooses the model that has waited longest, and the table takes that model's first request first. A
   request therefore waits for the running table, and for at most one table for each older request.
2. Long requests are not starved by short ones of their model. No request passes another in the table without being
   merged with it. No place becomes free before a newcomer has caught up with all. So a long request is delayed by at
   most one full table at each of its steps. With `equal_timesteps` this does not hold: a request that ends before it
   has caught up makes room for the next.
3. `slack_scope`. The example of Fig. 10 sums over the whole table and protects every request in it ("table", the
   default). Section IV-B speaks of the active batch and the pending inputs. With "active", check 2b covers only the
   sub-batch on top and the newcomers, so requests below have no protection. A decision then takes time in proportion to
   the active batch.
4. Check 2c protects other models from newcomers, which overtake their older requests.

With `strict`, models share a worker as in Section VI-C. At a node boundary, waiting requests of any model may enter,
those of the model whose first request came first before others. A newcomer is checked against the budgets of all
requests that the worker has begun, of every model (check 2b). No places stay free as in point 1.
Requests enter the table of their model. That table runs until it is empty, and then the table that ran before goes on.
The paper says neither which request goes first nor which table goes on.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.batching.context import PolicyContext
from headrace.batching.errors import UnknownModel, UsageError, check_max_batch, check_workers
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.policies.shared.batch_table import BatchTable
from headrace.batching.policies.shared.fifo import Fifo
from headrace.batching.policies.shared.settings import LimitAndPrediction, PaperStrict
from headrace.batching.policies.shared.single_input import SingleInputTimes, assumed_steps
from headrace.batching.policies.shared.window import WindowQueue
from headrace.batching.policy import Policy
from headrace.batching.request import DEADLINE, IDLE, MERGE, SLACK, Request, Task
from headrace.batching.settings import setting, settings

SLACK_SCOPES = ("table", "active")


def check_slack_scope(scope: str) -> None:
    """Raise UsageError unless `scope` is one of SLACK_SCOPES."""
    if scope not in SLACK_SCOPES:
        raise UsageError(f"there is no slack scope {scope!r}; choose from {', '.join(SLACK_SCOPES)}")


class InfQueue:
    """The waiting requests of one model, or of one bucket of a model.

    Args:
        times: The model's node latencies.
        single: The model's single-input times.
        fifo: The waiting requests.
        max_batches: By worker, the largest number of requests in its table.
    """

    def __init__(self, times: NodeTimes, single: SingleInputTimes, fifo: Fifo, max_batches: list[int]) -> None:
        self.times: NodeTimes = times
        self.single: SingleInputTimes = single
        self.fifo: Fifo = fifo
        self.late: Fifo = Fifo(times.graph)  # late requests that `defer_late` put aside
        self.max_batches: list[int] = max_batches


class WorkerTable:
    """The BatchTable of a worker, with the sums that the slack of its requests needs.

    Args:
        queue: The queue of the model that the worker runs.
        max_batch: The largest number of requests in the table.
        equal_timesteps: Whether sub-batches merge only in the same step of a section.
        by_request: Whether to keep single-input time and budget of each request. It is not needed if all requests leave
            together.
    """

    def __init__(self, queue: InfQueue, max_batch: int, equal_timesteps: bool, by_request: bool) -> None:
        self.queue: InfQueue = queue
        self.max_batch: int = max_batch
        self.table: BatchTable = BatchTable(queue.times.sections, equal_timesteps)
        self.by_request: bool = by_request  # if False, `inside` stays empty
        self.room: int = max_batch  # the number of requests that may still enter
        # With `strict`, a worker has tables of other models too, the last one to go on first.
        self.others: list[WorkerTable] = []
        self.others_s: float = 0.0  # sum of the single-input times of all requests in them
        self.others_budget_s: float = math.inf  # smallest budget of these requests
        self.single_s: float = 0.0  # sum of the single-input times of all requests in the table
        self.budget_s: float = math.inf  # smallest budget of all requests in the table
        self.scope_s: float = 0.0  # the same sum and minimum over the requests in the slack's scope
        self.scope_budget_s: float = math.inf
        self.inside: dict[int, tuple[float, float]] = {}  # request id -> single-input time, budget
        # Budgets with request ids, smallest first. The list is made when the first request leaves before others.
        self._ordered: list[tuple[float, int]] = []

    def clear(self) -> None:
        """Reset the sums, because the table is empty."""
        self.room = self.max_batch
        self.single_s = 0.0
        self.budget_s = math.inf
        if self.by_request:
            self.inside.clear()
            self._ordered.clear()

    def look(self, active_only: bool) -> None:
        """Set the scope to the sub-batch on top or to the whole table. Requests that enter later are in the scope
        too."""
        if not active_only:
            self.scope_s = self.single_s + self.others_s
            self.scope_budget_s = min(self.budget_s, self.others_budget_s)
            return
        self.scope_s = 0.0
        self.scope_budget_s = math.inf
        for request in self.table.stack[-1].requests if self.table.stack else ():
            single_s, budget_s = self.inside[request.id]
            self.scope_s += single_s
            self.scope_budget_s = min(self.scope_budget_s, budget_s)

    def enter(self, request: Request, single_s: float, budget_s: float) -> None:
        """Add a request with its single-input time (s) and its budget (s)."""
        if self.by_request:
            self.inside[request.id] = (single_s, budget_s)
        if self._ordered:
            insort(self._ordered, (budget_s, request.id))
        self.room -= 1
        self.single_s += single_s
        self.budget_s = min(self.budget_s, budget_s)
        self.scope_s += single_s
        self.scope_budget_s = min(self.scope_budget_s, budget_s)

    def leave(self, request: Request) -> None:
        """Remove a request while others stay."""
        if not self._ordered:
            self._ordered = sorted([(budget_s, number) for number, (_, budget_s) in self.inside.items()])
        single_s, budget_s = self.inside.pop(request.id)
        self.single_s -= single_s
        del self._ordered[bisect_left(self._ordered, (budget_s, request.id))]
        self.budget_s = self._ordered[0][0]


class LazyBatching:
    """A `Policy` with node-level tasks.

    Requests may wait in queues of another policy, one or several for each model (see preba_lazy.py). That policy then
    puts requests into them, the limits are those of the queues, and `start` begins a table.

    Args:
        times: By model, the node latencies on these workers.
        workers: The number of workers.
        max_batch: The largest number of requests in a table, for all models.
        dec_timesteps: By model that has a decoder, the number of decoder steps that is assumed for every output.
        defer_late: Whether late requests stand back; see the head of this file.
        queues: The queues of another policy; None to keep own queues.
        slack_scope: One of SLACK_SCOPES.
        equal_timesteps: Whether sub-batches merge only in the same step of a section.
        strict: Whether models share a worker as in the paper; see the head of this file.

    Raises:
        UsageError: An argument is out of range, or a model with a decoder has no `dec_timesteps`.
    """

    def __init__(
        self,
        times: Mapping[str, NodeTimes],
        workers: int,
        max_batch: int = 64,
        dec_timesteps: Mapping[str, int] | None = None,
        defer_late: bool = False,
        queues: Sequence[WindowQueue] | None = None,
        slack_scope: str = "table",
        equal_timesteps: bool = False,
        strict: bool = False,
    ) -> None:
        check_workers(workers)
        check_slack_scope(slack_scope)
        self.ahead: Final[int] = 1
        self._defer_late: bool = defer_late
        self._active_only: bool = slack_scope == "active"
        self._equal_timesteps: bool = equal_timesteps
        self._strict: bool = strict
        check_max_batch(max_batch)
        self._queues: dict[str, InfQueue] = {}
        self._by_fifo: dict[Fifo, InfQueue] = {}
        assumed = assumed_steps(times, dec_timesteps)
        for model, node_times in times.items():
            single = SingleInputTimes(node_times, assumed[model])
            if queues is None:
                self._queues[model] = InfQueue(node_times, single, Fifo(node_times.graph), [max_batch] * workers)
                continue
            for fifo in queues:
                if fifo.model == model:
                    max_batches = [fifo.max_batch_for(worker) for worker in range(workers)]
                    self._by_fifo[fifo] = InfQueue(node_times, single, fifo, max_batches)
        self._queue_list: list[InfQueue] = [*self._queues.values(), *self._by_fifo.values()]
        self._tables: list[WorkerTable | None] = [None] * workers  # by worker: its last table, which may be empty
        # With `strict`, by worker: its tables that stand still, the last one to go on first.
        self._below: list[list[WorkerTable]] = [[] for _ in range(workers)]
        self._running: dict[int, int] = {}  # task id -> worker
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        queue = self._queues.get(request.model)
        if queue is None:
            raise UnknownModel.asked_for(request.id, request.model, self._queues)
        queue.fifo.append(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        own = self._open(worker)
        reason = IDLE
        if own is None:
            queue = self._longest_waiting(now)
            if queue is None:
                return None
            own = self._begin(worker, queue)
            self._take(own, now)
        elif self._strict:
            taken = self._take_any(worker, own, now)
            if taken is not None:
                own, reason = taken, SLACK
            elif any(queue.fifo.size() > 0 for queue in self._queue_list):
                reason = DEADLINE
        else:
            if not self._others_wait(own):
                own.room = own.max_batch - own.table.size
            if own.room > 0 and (own.queue.fifo.size() > 0 or own.queue.late.size() > 0):
                reason = SLACK if self._take(own, now) else DEADLINE
        return self._run_top(worker, own, reason)

    def _take_any(self, worker: int, own: WorkerTable, now: float) -> WorkerTable | None:
        """Let waiting requests of one model enter, and put their table on top of this worker's others. Return that
        table; None if no request may enter.

        Models are tried in the order in which their first requests came."""
        waiting = [(queue.fifo.oldest(), number) for number, queue in enumerate(self._queue_list) if queue.fifo.size()]
        for _, number in sorted(waiting):
            queue = self._queue_list[number]
            begun = [*self._below[worker], own]
            chosen = next((table for table in begun if table.queue is queue), None)
            if chosen is None:
                chosen = WorkerTable(queue, queue.max_batches[worker], self._equal_timesteps, own.by_request)
            others = [table for table in begun if table is not chosen]
            chosen.room = chosen.max_batch - chosen.table.size
            chosen.others = others
            chosen.others_s = sum([table.single_s for table in others])
            chosen.others_budget_s = min([table.budget_s for table in others], default=math.inf)
            if self._take(chosen, now, True):
                self._below[worker] = others
                self._tables[worker] = chosen
                return chosen
        return None

    def running(self, worker: int) -> Fifo | None:
        """Return the queue from which requests may enter the table of `worker`; None if the table is empty."""
        own = self._open(worker)
        return None if own is None else own.queue.fifo

    def start(self, worker: int, fifo: Fifo, group: Sequence[Request], reason: str, now: float) -> Task:
        """Return a task that begins the empty table of `worker` with these requests. It replaces `next_task`.

        Args:
            worker: The worker, whose table is empty.
            fifo: The queue to which the table is then open; one of `queues`.
            group: The requests, which no longer wait.
            reason: The reason of the task.
            now: The time (s).
        """
        own = self._begin(worker, self._by_fifo[fifo])
        for request in group:
            own.enter(request, self.single_s(own.queue, request), request.deadline - now)
        own.table.push(tuple(group))
        return self._run_top(worker, own, reason)

    def go_on(self, worker: int) -> Task:
        """Return a task that continues the table of `worker` without newcomers. It replaces `next_task`."""
        own = self._open(worker)
        assert own is not None
        return self._run_top(worker, own, IDLE)

    def _open(self, worker: int) -> WorkerTable | None:
        own = self._tables[worker]
        return None if own is None or own.table.size == 0 else own

    def _begin(self, worker: int, queue: InfQueue) -> WorkerTable:
        """Return an empty table for this queue. It is the worker's last table if that was for the same queue."""
        own = self._tables[worker]
        if own is None or own.queue is not queue:
            by_request = queue.times.sections.any or self._active_only or self._defer_late or self._strict
            own = WorkerTable(queue, queue.max_batches[worker], self._equal_timesteps, by_request)
            self._tables[worker] = own
        return own

    def _run_top(self, worker: int, own: WorkerTable, reason: str) -> Task:
        top = own.table.stack[-1]
        task = Task(
            self._tasks,
            own.queue.fifo.model,
            top.requests,
            top.node,
            own.table.next_stop(),
            True,
            reason=MERGE if own.table.merged else reason,
        )
        self._tasks += 1
        self._running[task.id] = worker
        return task

    def _is_late(self, queue: InfQueue, request: Request, now: float) -> bool:
        return self.single_s(queue, request) > request.deadline - now

    def _put_aside(self, queue: InfQueue) -> None:
        """Move the first request of the queue to the late ones."""
        queue.late.append(queue.fifo.first(), queue.fifo.oldest())
        queue.fifo.drop_first()

    def _longest_waiting(self, now: float) -> InfQueue | None:
        """Return the queue whose first request has waited longest; None if no request waits.

        With `defer_late`, late requests count only if no other request waits."""
        longest: InfQueue | None = None
        oldest = math.inf
        for queue in self._queue_list:
            if self._defer_late:
                while queue.fifo.size() > 0 and self._is_late(queue, queue.fifo.first(), now):
                    self._put_aside(queue)
            if queue.fifo.oldest() < oldest:
                oldest = queue.fifo.oldest()
                longest = queue
        if longest is None and self._defer_late:
            for queue in self._queue_list:
                if queue.late.oldest() < oldest:
                    oldest = queue.late.oldest()
                    longest = queue
        return longest

    def _others_wait(self, own: WorkerTable) -> bool:
        """Return whether requests of other models wait. Requests that were put aside do not count."""
        if len(self._queue_list) == 1:
            return False
        return any(queue is not own.queue and queue.fifo.size() > 0 for queue in self._queue_list)

    def _take(self, own: WorkerTable, now: float, begun: bool = False) -> bool:
        """Push the waiting requests that may enter now as one sub-batch. Return whether there are any.

        A worker that has begun nothing takes at least one request."""
        queue = own.queue
        joining = begun or own.table.size > 0
        late = not joining and queue.fifo.size() == 0
        fifo = queue.late if late else queue.fifo
        newcomers: list[Request] = []
        own.look(self._active_only)
        while own.room > 0 and fifo.size() > 0:
            request = fifo.first()
            single_s = self.single_s(queue, request)
            if joining and not self._keep_slack(own, newcomers, request, single_s, now):
                break
            if self._defer_late and not late and self._is_late(queue, request, now):
                self._put_aside(queue)
                continue
            if late:
                fifo.drop_first()  # if its worker is lost, it goes back to the other queue
            else:
                fifo.take(1)
            own.enter(request, single_s, math.inf if late else request.deadline - now)
            newcomers.append(request)
        if newcomers:
            own.table.push(tuple(newcomers))
        return len(newcomers) > 0

    def single_s(self, queue: InfQueue, request: Request) -> float:
        """Return the single-input time (s) of a request, as far as this policy may know it."""
        return queue.single.estimate(request)

    def _keep_slack(
        self, own: WorkerTable, newcomers: list[Request], request: Request, single_s: float, now: float
    ) -> bool:
        """Return whether no slack falls below zero if `request` enters with `newcomers` (Eq. 2; checks 2b and 2c)."""
        if own.scope_s + single_s > own.scope_budget_s:
            return False
        return self._others_keep_slack(own, now + own.single_s + own.others_s + single_s)

    def _others_keep_slack(self, own: WorkerTable, done: float) -> bool:
        """Return whether the first request of each other model keeps its slack if this worker is busy until `done`
        (s)."""
        for queue in self._queue_list:
            if queue is not own.queue and queue.fifo.size() > 0:
                request = queue.fifo.first()
                if done + self.single_s(queue, request) > request.deadline:
                    return False
        return True

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:
            below = self._below[self._running[task.id]]
            self._queues[task.model].fifo.put_back(self.lost(task))
            for table in below:
                table.queue.fifo.put_back([request for part in table.table.stack for request in part.requests])
            below.clear()
            return []
        worker = self._running.pop(task.id)
        own = self._tables[worker]
        assert own is not None
        finished = list(own.table.advance(task.stop, task.ended))
        if own.table.size == 0:
            own.clear()
            if self._below[worker]:
                self._tables[worker] = self._below[worker].pop()
        else:
            for request in finished:
                own.leave(request)
        return finished

    def lost(self, task: Task) -> list[Request]:
        """Remove the table of a lost worker, and return its requests. They must wait again."""
        worker = self._running.pop(task.id)
        own = self._tables[worker]
        assert own is not None
        self._tables[worker] = None
        again: list[Request] = []
        for sub_batch in own.table.stack[:-1]:
            again.extend(sub_batch.requests)
        return [*again, *task.requests]

    def withdraw(self, request: Request, now: float) -> bool:
        queue = self._queues.get(request.model)
        return queue is not None and (queue.fifo.remove(request) or queue.late.remove(request))

    def latest_start(self, request: Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        queue = self._queues.get(model)
        if queue is None:
            raise UnknownModel.among(model, self._queues)
        return max(queue.max_batches)

    def wakeup(self) -> float:
        return math.inf


class OracleLazyBatching(LazyBatching):
    """`oracle`: LazyBatching with a perfect slack predictor.

    The oracle knows the latency at every batch size and the true length of every output. Before a request enters, it
    simulates the rest of the table's schedule without further arrivals. The request may enter if all requests in the
    slack's scope then meet their deadlines.

    The oracle foresees slack, not mean latency, so it is no bound on mean latency. A newcomer that makes no request
    late may still delay others by more than it gains.

    It exists for comparison only. It reads `Request.output_len`, which no server knows. Its decisions take time in
    proportion to the sub-batches.

    Source: LazyBatching, Section VI.
    """

    def single_s(self, queue: InfQueue, request: Request) -> float:
        return queue.times.whole(1, request.input_len, request.output_len)

    def _keep_slack(
        self, own: WorkerTable, newcomers: list[Request], request: Request, single_s: float, now: float
    ) -> bool:
        table = own.table.copy()
        table.push((*newcomers, request))
        done = self._done_in_time(own, table, now)
        for other in reversed(own.others):
            if done < math.inf:
                done = self._done_in_time(other, other.table.copy(), done)
        return done < math.inf and self._others_keep_slack(own, done)

    def _done_in_time(self, own: WorkerTable, table: BatchTable, now: float) -> float:
        """Return when all requests of `table` have ended (s) if it runs from `now` on.

        `table` holds the requests of `own`, and perhaps newcomers. Infinity means that a request in the slack's scope
        misses its deadline."""
        times = own.queue.times
        exempt = {inside for inside, (_, budget_s) in own.inside.items() if budget_s == math.inf}
        if self._active_only:
            for part in own.table.stack[:-1]:
                exempt.update([inside.id for inside in part.requests])
        done = now
        while table.size > 0:
            top = table.stack[-1]
            length = max([request.input_len for request in top.requests])
            stop = table.next_stop(outputs_known=True)
            done += times.duration(len(top.requests), length, top.node, stop)
            for finished in table.advance(stop, table.outputs_complete(stop)):
                if done > finished.deadline and finished.id not in exempt:
                    return math.inf
        return done


@settings(tasks="nodes")
class Lazy(LimitAndPrediction, PaperStrict):
    """Preempt and merge batches at node boundaries while every request keeps its slack (LazyBatching)."""

    defer_late: bool = setting(
        default=False, help="Let requests that cannot meet their deadline any more wait until the others are served."
    )

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return LazyBatching(
            context.slowest(), context.workers, self.max_batch, steps, self.defer_late, strict=self.strict
        )


@settings()
class Oracle(Lazy):
    """Decide as `lazy` does, but know the true length of every output: a bound that no server reaches."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return OracleLazyBatching(
            context.slowest(), context.workers, self.max_batch, steps, self.defer_late, strict=self.strict
        )
