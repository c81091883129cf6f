"""The policy `lazy` is LazyBatching: it batches at node level and keeps the target latency of each request.

The policy preempts a running batch at a node boundary, lets new requests catch up, and merges both where the old batch
stands. Three rules say when new requests enter (setting `slack`):

- "eq2", the paper's: while every request keeps its slack, the time that it can still lose without missing its slo.
  Requests are assumed to run one after another.
- "batched": the same, but all requests are assumed to run as one batch.
- "least-delay", the default: if the sum of the delays of all requests falls, and no request becomes late by it.

With `strict`, and in the paper's experiments, the rule is "eq2".

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

Slack ("eq2")
-------------
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
    a. The table has room. It holds at most `max_batch` requests, and at most `max_batch_tokens` tokens.
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

Slack ("batched")
-----------------
Eq. 2 adds times that overlap. On hardware whose latency hardly grows with the batch, few requests enter. They then
wait for the table to run empty, and latencies come near the slo. With "batched", check 2b is

    now + T(n + 1) <= earliest deadline in the table,

where T(b) is the time of the whole graph for a batch of b. It takes the longest input and `dec_timesteps`. No
request that enters now ends later: the newcomers run each node once, and never in a larger batch than n + 1. A request
that is late refuses every newcomer, as with Eq. 2.

Least delay
-----------
A target latency says when requests may enter. It does not say whether entering pays: newcomers gain what they need not
wait, and all others lose the time of the catching up. So the default rule compares two schedules without further
arrivals. In the first, the m waiting requests for which the table has room enter now. In the second they wait until a
worker's table is empty, and then run as one batch. Let the table hold n requests, and let k requests of other
models wait.

- E0: the time until the table is empty without newcomers.
- E1: the time until the requests of the table have ended if the newcomers enter. They all wait for the catching up, and
  then run in a larger batch.
- E2: the time until the newcomers have ended too. It equals E1 unless the graph ends with a decoder.
- F: the time until a table is empty: E0, or less if another worker is expected to be ready earlier.
- T(m): the time of the whole graph for a batch of m.

The newcomers enter if three conditions hold:

    a. n (E1 - E0) + k (E2 - E0) < m (F + T(m) - E2), so the sum of delays falls.
    b. No request of the table has its deadline from now + E0 on and before now + E1. Entering makes none late.
    c. The same holds for the first waiting request of each other model, with its single-input time and E2 for E1.

Newcomers enter together or not at all. Rules 1 and 2a stay, and check 2c is replaced by condition c.

Three properties follow for one worker, graphs without sections, and k = 0. They need latencies that do not fall with
the batch, and a batch that takes no longer than its two parts after each other.

- Without further arrivals, each entry lowers the sum of latencies below that of waiting for an empty table. Waiting is
  what `work-conserving` does.
- A refusal remains a refusal until a request comes or a sub-batch ends. While a table runs on, the catching up becomes
  longer and the wait shorter. So the first boundary is the best one to enter.
- Newcomers do not become late by entering, because E2 is at most E0 + T(m).

Requests that come later are in neither schedule. For them the rule gives no bound. It may lose a few percent against
`work-conserving` near capacity. E0 to E2 follow the table's sub-batches, of which there are at most `max_batch`, and
each takes a constant time (shared/table_times.py). So a decision takes time in proportion to sub-batches and newcomers.
It does not depend on nodes, nor on the number of waiting requests beyond `max_batch`.

Example of least delay
----------------------
One worker. The graph has nodes A to D, 1 ms each at any batch size, so T is 4 ms. R1 to R6 arrive at 0, 0.5, 0.7, 2.5,
5.5 and 5.7 ms. Their slos are 20 ms, except for R4, which has 7 ms.

    time (ms)     worker   requests        nodes     reason
    0 - 1         0        R1              A         idle
    1 - 2         0        R2 R3           A         slack
    2 - 3         0        R1 R2 R3        B         merge
    3 - 5         0        R1 R2 R3        C D       delay
    5 - 6         0        R4              A         idle
    6 - 9         0        R4              B C D     deadline
    9 - 13        0        R5 R6           A B C D   idle

- At 1 ms R2 and R3 enter. R1 loses E1 - E0 = 4 - 3 = 1 ms. The two newcomers gain F + T - E2 = 3 + 4 - 4 = 3 ms each.
- At 3 ms R4 does not enter. Three requests would lose 2 ms each to catch up two nodes, and R4 would gain 2 ms.
- At 6 ms R5 and R6 would gain 6 ms in all, and R4 would lose 1 ms. But R4 then ends at 10 ms, and its deadline is
  9.5 ms.

Example of Eq. 2
----------------
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
- DELAY: the top continues because newcomers would delay others by more than they gain ("least-delay").

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
from headrace.batching.policies.shared.table_times import run_out
from headrace.batching.policies.shared.window import WindowQueue
from headrace.batching.policy import Policy
from headrace.batching.request import DEADLINE, DELAY, IDLE, MERGE, SLACK, Request, Task
from headrace.batching.settings import setting, settings

SLACK_SCOPES = ("table", "active")
EQ2: Final = "eq2"
BATCHED: Final = "batched"
LEAST_DELAY: Final = "least-delay"
SLACKS = (EQ2, BATCHED, LEAST_DELAY)


def check_slack_scope(scope: str) -> None:
    """Raise UsageError unless `scope` is one of SLACK_SCOPES."""
    if scope not in SLACK_SCOPES:
        raise UsageError(f"there is no slack scope {scope!r}; choose from {', '.join(SLACK_SCOPES)}")


def check_slack(slack: str, scope: str, strict: bool) -> None:
    """Raise UsageError unless `slack` is one of SLACKS and fits the other settings."""
    if slack not in SLACKS:
        raise UsageError(f"there is no slack {slack!r}; choose from {', '.join(SLACKS)}")
    if slack != EQ2 and (strict or scope != "table"):
        raise UsageError(f"slack {slack!r} protects one whole table: leave out strict and the slack scope, or give eq2")


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
        self.tokens: float = 0.0  # sum of the input lengths of the requests in the table
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
        self.deadlines: list[tuple[float, int]] = []  # with request ids, the first one first; empty with Eq. 2
        self.empty_at: float = 0.0  # when the table is expected to be empty (s), with "least-delay"
        self.longest: float = 0.0  # the longest input in the table, with "batched"

    def clear(self) -> None:
        """Reset the sums, because the table is empty."""
        self.room = self.max_batch
        self.tokens = 0.0
        self.single_s = 0.0
        self.budget_s = math.inf
        if self.by_request:
            self.inside.clear()
            self._ordered.clear()
        self.deadlines.clear()

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

    def fits(self, request: Request) -> bool:
        """Return whether the table may have the tokens of this request, too."""
        return self.tokens + request.input_len <= self.queue.fifo.max_tokens

    def enter(self, request: Request, single_s: float, budget_s: float) -> None:
        """Add a request with its single-input time (s) and its budget (s)."""
        if self.by_request:
            self.inside[request.id] = (single_s, budget_s)
        if self._ordered:
            insort(self._ordered, (budget_s, request.id))
        self.room -= 1
        self.tokens += request.input_len
        self.single_s += single_s
        self.budget_s = min(self.budget_s, budget_s)
        self.scope_s += single_s
        self.scope_budget_s = min(self.scope_budget_s, budget_s)
        self.longest = max(self.longest, request.input_len)

    def leave(self, request: Request) -> None:
        """Remove a request while others stay."""
        if self.deadlines:
            self.deadlines = [entry for entry in self.deadlines if entry[1] != request.id]
        if not self._ordered:
            self._ordered = sorted([(budget_s, number) for number, (_, budget_s) in self.inside.items()])
        single_s, budget_s = self.inside.pop(request.id)
        self.tokens -= request.input_len
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
        slack: One of SLACKS: the rule by which newcomers enter; see the head of this file.
        slack_scope: One of SLACK_SCOPES. It is "table" except for Eq. 2.
        equal_timesteps: Whether sub-batches merge only in the same step of a section.
        strict: Whether models share a worker as in the paper; see the head of this file.
        max_tokens: The most tokens in a table, the sum of the input lengths of its requests.

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
        slack: str = EQ2,
        max_tokens: float = math.inf,
    ) -> None:
        check_workers(workers)
        check_slack_scope(slack_scope)
        check_slack(slack, slack_scope, strict)
        self.ahead: Final[int] = 1
        self._defer_late: bool = defer_late
        self._active_only: bool = slack_scope == "active"
        self._equal_timesteps: bool = equal_timesteps
        self._strict: bool = strict
        self._slack: str = slack
        check_max_batch(max_batch)
        self._queues: dict[str, InfQueue] = {}
        self._by_fifo: dict[Fifo, InfQueue] = {}
        assumed = assumed_steps(times, dec_timesteps)
        for model, node_times in times.items():
            single = SingleInputTimes(node_times, assumed[model])
            if queues is None:
                waiting = Fifo(node_times.graph, max_tokens)
                self._queues[model] = InfQueue(node_times, single, waiting, [max_batch] * workers)
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
            if self._slack == LEAST_DELAY:
                own.empty_at = now + self._run_out(own, 0, 1.0)[1]
        elif self._strict:
            taken = self._take_any(worker, own, now)
            if taken is not None:
                own, reason = taken, SLACK
            elif any(queue.fifo.size() > 0 for queue in self._queue_list):
                reason = DEADLINE
        else:
            if not self._others_wait(own):
                own.room = own.max_batch - own.table.size
            if own.room > 0 and self._fits_first(own):
                if self._slack == LEAST_DELAY:
                    reason = self._take_if_worth(own, now)
                else:
                    reason = SLACK if self._take(own, now) else DEADLINE
        return self._run_top(worker, own, reason)

    def _fits_first(self, own: WorkerTable) -> bool:
        """Return whether a request of the table's model waits, and the table may have the tokens of the first one."""
        if own.queue.fifo.size() > 0:
            return own.fits(own.queue.fifo.first())
        return own.queue.late.size() > 0 and own.fits(own.queue.late.first())

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
        if self._slack == BATCHED:
            own.longest = max([part.longest for part in own.table.stack], default=0.0)
        while own.room > 0 and fifo.size() > 0:
            request = fifo.first()
            if not own.fits(request):
                break
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
            if self._slack != EQ2:
                insort(own.deadlines, (math.inf if late else request.deadline, request.id))
            newcomers.append(request)
        if newcomers:
            own.table.push(tuple(newcomers))
        return len(newcomers) > 0

    def _take_if_worth(self, own: WorkerTable, now: float) -> str:
        """Let the waiting requests of the table's model enter together if that lowers the sum of delays and makes no
        request late. Return the reason of the next task."""
        fifo = own.queue.fifo
        newcomers = [
            request
            for request in fifo.peek(fifo.fits(own.room, own.tokens))
            if not (self._defer_late and self._is_late(own.queue, request, now))
        ]
        if not newcomers:
            return DEADLINE
        longest = max([request.input_len for request in newcomers])
        count = len(newcomers)
        without_s = self._run_out(own, 0, 1.0)[1]
        with_s, all_s = self._run_out(own, count, longest)
        together_s = own.queue.times.whole(count, longest, own.queue.single.dec_timesteps)
        own.empty_at = now + without_s
        wait_s = without_s  # until a worker is free for them
        others = 0
        for table in self._tables:
            if table is not None and table is not own and table.table.size > 0:
                wait_s = min(wait_s, max(0.0, table.empty_at - now))
        for queue in self._queue_list:
            if queue is not own.queue:
                others += queue.fifo.size()
        delay_s = own.table.size * (with_s - without_s) + others * (all_s - without_s)
        if delay_s >= count * (wait_s + together_s - all_s):
            return DELAY
        first = bisect_left(own.deadlines, (now + without_s, -1))  # of those that are in time without newcomers
        if first < len(own.deadlines) and own.deadlines[first][0] < now + with_s:
            return DEADLINE
        if not self._others_keep_slack(own, now + all_s, now + without_s):
            return DEADLINE
        own.empty_at = now + all_s
        left = count
        while left > 0:
            request = fifo.first()
            if self._defer_late and self._is_late(own.queue, request, now):
                self._put_aside(own.queue)
                continue
            fifo.take(1)
            own.enter(request, self.single_s(own.queue, request), request.deadline - now)
            insort(own.deadlines, (request.deadline, request.id))
            left -= 1
        own.table.push(tuple(newcomers))
        return SLACK

    def _run_out(self, own: WorkerTable, newcomers: int, longest: float) -> tuple[float, float]:
        """Return `run_out` for the table of `own` and so many newcomers."""
        queue = own.queue
        return run_out(queue.times, queue.single.dec_timesteps, own.table, newcomers, longest)

    def single_s(self, queue: InfQueue, request: Request) -> float:
        """Return the single-input time (s) of a request, as far as this policy may know it."""
        return queue.single.estimate(request)

    def _keep_slack(
        self, own: WorkerTable, newcomers: list[Request], request: Request, single_s: float, now: float
    ) -> bool:
        """Return whether no slack falls below zero if `request` enters with `newcomers` (checks 2b and 2c)."""
        if self._slack == BATCHED:
            count = own.table.size + len(newcomers) + 1
            longest = max(own.longest, request.input_len)
            done = now + own.queue.times.whole(count, longest, own.queue.single.dec_timesteps)
            return done <= own.deadlines[0][0] and self._others_keep_slack(own, done)
        if own.scope_s + single_s > own.scope_budget_s:
            return False
        return self._others_keep_slack(own, now + own.single_s + own.others_s + single_s)

    def _others_keep_slack(self, own: WorkerTable, done: float, done_else: float = -math.inf) -> bool:
        """Return whether the first request of each other model keeps its slack if this worker is busy until `done`
        (s). A request has none to keep that is late even if this worker is busy until `done_else` (s) only."""
        for queue in self._queue_list:
            if queue is not own.queue and queue.fifo.size() > 0:
                request = queue.fifo.first()
                single_s = self.single_s(queue, request)
                if done_else + single_s <= request.deadline < done + single_s:
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


@settings()
class Preemption(LimitAndPrediction, PaperStrict):
    """Settings of policies that preempt batches at node boundaries."""

    defer_late: bool = setting(
        default=False, help="Let requests that cannot meet their deadline any more wait until the others are served."
    )


@settings(tasks="nodes")
class Lazy(Preemption):
    """Preempt and merge batches at node boundaries while every request keeps its slack (LazyBatching)."""

    slack: str | None = setting(
        default=None,
        help="Rule by which requests enter a running batch: the paper's Eq. 2, Eq. 2 for the batch as a whole, or the "
        "least sum of delays. Without it the rule is least-delay, and with --strict eq2.",
        choices=SLACKS,
    )

    def check(self) -> None:
        """Raise UsageError for a rule that the paper does not have, with `strict`."""
        if self.strict and self.slack not in (None, EQ2):
            raise UsageError(
                f"--slack {self.slack}: --strict keeps to the paper, whose rule is {EQ2}; leave out --slack or --strict"
            )

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return LazyBatching(
            context.slowest(),
            context.workers,
            self.max_batch,
            context.decoder_steps(self.dec_timesteps, self.coverage),
            self.defer_late,
            strict=self.strict,
            slack=self.slack or (EQ2 if self.strict else LEAST_DELAY),
            max_tokens=self.token_limit,
        )


@settings(tasks="nodes")
class Oracle(Preemption):
    """Decide as `lazy` does, but know the true length of every output: a bound that no server reaches."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return OracleLazyBatching(
            context.slowest(),
            context.workers,
            self.max_batch,
            steps,
            self.defer_late,
            strict=self.strict,
            max_tokens=self.token_limit,
        )
