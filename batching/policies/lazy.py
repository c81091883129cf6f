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

- A worker runs one model at a time, and its table holds at most `max_batch` requests. While a request of another model
  waits, places that get free in the table stay free: so from its arrival on at most `max_batch` requests run before the
  table is empty, those in it included. Then the worker turns to the model whose first request has waited longest, and
  a table that is begun with it takes it first. So whoever waits does so for at most as many tables as there were older
  requests, and the one that ran. (In a graph without decoder all in a table end together, and no place gets free.)
- Nobody passes another in the table without being merged with it, and no place gets free before someone has passed all:
  a stream of short requests does not hold back a long one of their model for longer than a full table takes at each of
  its steps. With `equal_timesteps` that is not so: who ends before it has caught up makes room for the next.
- A newcomer of the running model overtakes older requests of other models. It may only if the first of each of them
  keeps its slack too.
- `slack_scope`: the example of Fig. 10 sums all in the table and the newcomers, and all of them must keep their slack
  ("table"). Section IV-B speaks of the active batch and the pending requests ("active"): the sub-batch on top and the
  newcomers, so that nobody looks at who lies below. A decision then takes time in proportion to the active batch.
- An empty table takes all that waits for its model, up to `max_batch`: there is nobody in it to protect, and who is
  left out would only wait longer.
- A request past saving (its slack is below zero though it ran alone) is served all the same, in its turn. As its slack
  cannot be kept, nobody enters above it: its batch runs to the end, and then everyone waiting enters together, so that
  an overload is worked off in full batches. With `defer_late` it stands back instead: it begins only when no request
  of any model waits that can still be met, in an empty table, and as it has no slack to lose, those of its model that
  can be met may enter above it. It is put aside when its turn comes, not before: so a "no" stays a "no" here too.

A task says why it left: a fresh table as its worker was idle (IDLE), newcomers as all keep their slack (SLACK), a
sub-batch as it was merged with the one below (MERGE), or as nobody may enter above it (DEADLINE); what goes on with
nobody waiting for its model, or no room for them, does so as its worker is idle.
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
from headrace.batching.policies.shared.settings import LimitAndPrediction
from headrace.batching.policies.shared.single_input import SingleInputTimes, assumed_steps
from headrace.batching.policies.shared.window import WindowLine
from headrace.batching.policy import Policy
from headrace.batching.request import DEADLINE, IDLE, MERGE, SLACK, Request, Task
from headrace.batching.settings import setting, settings

SLACK_SCOPES = ("table", "active")


def check_slack_scope(scope: str) -> None:
    """Raises UsageError."""
    if scope not in SLACK_SCOPES:
        raise UsageError(f"there is no slack scope {scope!r}; choose from {', '.join(SLACK_SCOPES)}")


class Waiting:
    """InfQ of one model, and how many requests of it the table of each worker may hold."""

    def __init__(self, times: NodeTimes, single: SingleInputTimes, line: Fifo, max_batches: list[int]) -> None:
        self.times: NodeTimes = times
        self.single: SingleInputTimes = single
        self.line: Fifo = line
        self.late: Fifo = Fifo(times.graph)  # put back by `defer_late`
        self.max_batches: list[int] = max_batches


class WorkerTable:
    """A worker's BatchTable, of the model that it runs now, with what the slack of its requests needs: the single-input
    time of each, and its budget SLA_target - T_wait, what was left of its SLA when it entered."""

    def __init__(self, queue: Waiting, max_batch: int, equal_timesteps: bool, by_request: bool) -> None:
        self.queue: Waiting = queue
        self.max_batch: int = max_batch
        self.table: BatchTable = BatchTable(queue.times.sections, equal_timesteps)
        self.by_request: bool = by_request  # else `inside` is empty, as all leave together and nobody asks
        self.room: int = max_batch  # how many more may enter
        self.single_s: float = 0.0  # sum of the single-input times of all requests in the table
        self.budget_s: float = math.inf  # least budget of all
        self.scope_s: float = 0.0  # the same two of those whose slack is looked at
        self.scope_budget_s: float = math.inf
        self.inside: dict[int, tuple[float, float]] = {}  # request id -> single-input time, budget
        # Budgets with request ids, least first: made when somebody leaves and others stay, as it is with decoders.
        self._ordered: list[tuple[float, int]] = []

    def clear(self) -> None:
        """It has run empty."""
        self.room = self.max_batch
        self.single_s = 0.0
        self.budget_s = math.inf
        if self.by_request:
            self.inside.clear()
            self._ordered.clear()

    def look(self, active_only: bool) -> None:
        """Set the scope: the sub-batch on top or the whole table. Who enters from then on is in it too."""
        if not active_only:
            self.scope_s = self.single_s
            self.scope_budget_s = self.budget_s
            return
        self.scope_s = 0.0
        self.scope_budget_s = math.inf
        for request in self.table.stack[-1].requests if self.table.stack else ():
            single_s, budget_s = self.inside[request.id]
            self.scope_s += single_s
            self.scope_budget_s = min(self.scope_budget_s, budget_s)

    def enter(self, request: Request, single_s: float, budget_s: float) -> None:
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
        """Others stay."""
        if not self._ordered:
            self._ordered = sorted([(budget_s, number) for number, (_, budget_s) in self.inside.items()])
        single_s, budget_s = self.inside.pop(request.id)
        self.single_s -= single_s
        del self._ordered[bisect_left(self._ordered, (budget_s, request.id))]
        self.budget_s = self._ordered[0][0]


class LazyBatching:
    """`times` has the node latencies of each model on these workers; `dec_timesteps` the decoder steps assumed for each
    model that has a decoder; `max_batch` is for all models; `slack_scope` is one of SLACK_SCOPES, and with
    `equal_timesteps` sub-batches merge only in the same step (see batch_table.py). Requests may wait in `lines` that
    another policy keeps, one or several of a model, and puts them into; the limits are then theirs, and `start` begins
    a table (see preba_lazy.py). Raises UsageError."""

    def __init__(
        self,
        times: Mapping[str, NodeTimes],
        workers: int,
        max_batch: int = 64,
        dec_timesteps: Mapping[str, int] | None = None,
        defer_late: bool = False,
        lines: Sequence[WindowLine] | None = None,
        slack_scope: str = "table",
        equal_timesteps: bool = False,
    ) -> None:
        check_workers(workers)
        check_slack_scope(slack_scope)
        self.ahead: Final[int] = 1
        self._defer_late: bool = defer_late
        self._active_only: bool = slack_scope == "active"
        self._equal_timesteps: bool = equal_timesteps
        check_max_batch(max_batch)
        self._queues: dict[str, Waiting] = {}
        self._by_line: dict[Fifo, Waiting] = {}
        assumed = assumed_steps(times, dec_timesteps)
        for model, node_times in times.items():
            single = SingleInputTimes(node_times, assumed[model])
            if lines is None:
                self._queues[model] = Waiting(node_times, single, Fifo(node_times.graph), [max_batch] * workers)
                continue
            for line in lines:
                if line.model == model:
                    most = [line.most(worker) for worker in range(workers)]
                    self._by_line[line] = Waiting(node_times, single, line, most)
        self._queue_list: list[Waiting] = [*self._queues.values(), *self._by_line.values()]
        self._tables: list[WorkerTable | None] = [None] * workers  # the last of each, which may have run empty
        self._running: dict[int, int] = {}  # task id -> worker
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        queue = self._queues.get(request.model)
        if queue is None:
            raise UnknownModel.asked_for(request.id, request.model, self._queues)
        queue.line.append(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        own = self._open(worker)
        reason = IDLE
        if own is None:
            queue = self._longest_waiting(now)
            if queue is None:
                return None
            own = self._begin(worker, queue)
            self._take(own, now)
        else:
            if not self._others_wait(own):
                own.room = own.max_batch - own.table.size
            if own.room > 0 and (own.queue.line.size() > 0 or own.queue.late.size() > 0):
                reason = SLACK if self._take(own, now) else DEADLINE
        return self._run_top(worker, own, reason)

    def running(self, worker: int) -> Fifo | None:
        """The line from which requests may enter the table of `worker`; None if it is empty."""
        own = self._open(worker)
        return None if own is None else own.queue.line

    def start(self, worker: int, line: Fifo, group: Sequence[Request], reason: str, now: float) -> Task:
        """In place of `next_task` where the table is empty: it takes `group`, requests that wait no more, and is then
        open to `line`, one of `lines`."""
        own = self._begin(worker, self._by_line[line])
        for request in group:
            own.enter(request, self.single_s(own.queue, request), request.deadline - now)
        own.table.push(tuple(group))
        return self._run_top(worker, own, reason)

    def go_on(self, worker: int) -> Task:
        """In place of `next_task` where the table is not empty: nobody may enter."""
        own = self._open(worker)
        assert own is not None
        return self._run_top(worker, own, IDLE)

    def _open(self, worker: int) -> WorkerTable | None:
        own = self._tables[worker]
        return None if own is None or own.table.size == 0 else own

    def _begin(self, worker: int, queue: Waiting) -> WorkerTable:
        """An empty table for that model: that which the worker had, if it was for it."""
        own = self._tables[worker]
        if own is None or own.queue is not queue:
            by_request = queue.times.sections.any or self._active_only or self._defer_late
            own = WorkerTable(queue, queue.max_batches[worker], self._equal_timesteps, by_request)
            self._tables[worker] = own
        return own

    def _run_top(self, worker: int, own: WorkerTable, reason: str) -> Task:
        top = own.table.stack[-1]
        task = Task(
            self._tasks,
            own.queue.line.model,
            top.requests,
            top.node,
            own.table.next_stop(),
            True,
            reason=MERGE if own.table.merged else reason,
        )
        self._tasks += 1
        self._running[task.id] = worker
        return task

    def _is_late(self, queue: Waiting, request: Request, now: float) -> bool:
        return self.single_s(queue, request) > request.deadline - now

    def _put_aside(self, queue: Waiting) -> None:
        """Let the first request of a line wait until the others are served."""
        queue.late.append(queue.line.first(), queue.line.oldest())
        queue.line.drop_first()

    def _longest_waiting(self, now: float) -> Waiting | None:
        """The queue whose first request has waited longest; late ones count only where no other waits."""
        found: Waiting | None = None
        oldest = math.inf
        for queue in self._queue_list:
            if self._defer_late:
                while queue.line.size() > 0 and self._is_late(queue, queue.line.first(), now):
                    self._put_aside(queue)
            if queue.line.oldest() < oldest:
                oldest = queue.line.oldest()
                found = queue
        if found is None and self._defer_late:
            for queue in self._queue_list:
                if queue.late.oldest() < oldest:
                    oldest = queue.late.oldest()
                    found = queue
        return found

    def _others_wait(self, own: WorkerTable) -> bool:
        """Whether requests of other models wait, but for those that were put aside."""
        if len(self._queue_list) == 1:
            return False
        return any(queue is not own.queue and queue.line.size() > 0 for queue in self._queue_list)

    def _take(self, own: WorkerTable, now: float) -> bool:
        """Push the waiting requests that may enter now, as one sub-batch; whether there are any. An empty table gets at
        least one."""
        queue = own.queue
        joining = own.table.size > 0
        late = not joining and queue.line.size() == 0
        line = queue.late if late else queue.line
        newcomers: list[Request] = []
        own.look(self._active_only)
        while own.room > 0 and line.size() > 0:
            request = line.first()
            single_s = self.single_s(queue, request)
            if joining and not self._keep_slack(own, newcomers, request, single_s, now):
                break
            if self._defer_late and not late and self._is_late(queue, request, now):
                self._put_aside(queue)
                continue
            if late:
                line.drop_first()  # if its worker is lost, it goes back to the other line
            else:
                line.take(1)
            own.enter(request, single_s, math.inf if late else request.deadline - now)
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
        return own.scope_s + single_s <= own.scope_budget_s and self._others_keep_slack(
            own, now + own.single_s + single_s
        )

    def _others_keep_slack(self, own: WorkerTable, done: float) -> bool:
        """Whether the first request of each other model keeps its slack if this worker is at work until `done`."""
        for queue in self._queue_list:
            if queue is not own.queue and queue.line.size() > 0:
                request = queue.line.first()
                if done + self.single_s(queue, request) > request.deadline:
                    return False
        return True

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:
            self._queues[task.model].line.put_back(self.lost(task))
            return []
        own = self._tables[self._running.pop(task.id)]
        assert own is not None
        finished = list(own.table.advance(task.stop, task.ended))
        if own.table.size == 0:
            own.clear()
        else:
            for request in finished:
                own.leave(request)
        return finished

    def lost(self, task: Task) -> list[Request]:
        """The worker was lost, and with it all that it had computed: who was in its table, and must wait again."""
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
        return queue is not None and (queue.line.remove(request) or queue.late.remove(request))

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
    """`oracle`: the same with a perfect slack predictor: the latency of every batch size and the true output lengths.

    Before a request enters, it plays the rest of the table's schedule through, as it would go without further arrivals,
    and lets it enter if all requests in the slack's scope meet their deadlines in that. What it foresees is slack. It
    is no bound on mean latency: who is let in because nobody is late by it may delay the others by more than it gains.
    It is for comparison: it reads `Request.output_len`, which nobody can know, and its decisions take time in
    proportion to the sub-batches."""

    def single_s(self, queue: Waiting, request: Request) -> float:
        return queue.times.whole(1, request.input_len, request.output_len)

    def _keep_slack(
        self, own: WorkerTable, newcomers: list[Request], request: Request, single_s: float, now: float
    ) -> bool:
        times = own.queue.times
        table = own.table.copy()
        exempt = {inside for inside, (_, budget_s) in own.inside.items() if budget_s == math.inf}
        if self._active_only:
            for below in table.stack[:-1]:
                exempt.update([inside.id for inside in below.requests])
        table.push((*newcomers, request))
        done = now
        while table.size > 0:
            top = table.stack[-1]
            length = max([request.input_len for request in top.requests])
            stop = table.next_stop(outputs_known=True)
            done += times.duration(len(top.requests), length, top.node, stop)
            for finished in table.advance(stop, table.outputs_complete(stop)):
                if done > finished.deadline and finished.id not in exempt:
                    return False
        return self._others_keep_slack(own, done)


@settings(tasks="nodes")
class Lazy(LimitAndPrediction):
    """Preempt and merge batches at node boundaries while every request keeps its slack (LazyBatching)."""

    defer_late: bool = setting(
        default=False, help="Let requests that cannot meet their deadline any more wait until the others are served."
    )

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return LazyBatching(context.slowest(), context.workers, self.max_batch, steps, self.defer_late)


@settings()
class Oracle(Lazy):
    """Decide as `lazy` does, but know the true length of every output: a bound that no server reaches."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return OracleLazyBatching(context.slowest(), context.workers, self.max_batch, steps, self.defer_late)
