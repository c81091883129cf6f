"""Whole-graph batching by deadline: the mechanism of `earliest-deadline` and `deferred`.

Each model has a queue with the earliest deadline first, and the times of its batches are known. A batch consists of the
first request of the queue and as many after it as leave the first one in time. Two rules limit it:

1. Target batch size. Let B be the time that the first request had left when it entered. The batch must satisfy (1 + 1 /
workers) * latency(batch) <= B. Then the batch and the wait for a worker fit into B. Source: Nexus (Shen et al., SOSP
2019) for one worker, where a request may just have missed a batch and must wait for its end. With several workers that
take turns the wait is shorter by that factor: Symphony (Chen et al., 2023, arXiv 2308.07470).
2. Early drop. A request is passed over if it is so late that the batch would be smaller with it than without it.
Source: the sliding window of Nexus. Nexus drops such requests. Here they run later, when that delays no request that
can still meet its deadline.

A driver can be set to drop late requests. It then drops a request as soon as it could not meet its deadline even alone
(`latest_start`). Source: Clockwork (Gujarati et al., OSDI 2020).

Beyond the papers:

- A prediction is extended by the share `MARGIN`. Real batches scatter, and these policies leave no spare time.
- Outputs are assumed to have `dec_timesteps` steps, because only the run shows their true length.
- Each request is passed over at most once. Apart from that, a decision looks at no more than one batch of each model,
  however many requests wait.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.batching.errors import BadInput, UnknownModel, check_max_batch, check_workers
from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.policies.shared.fifo import Fifo
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S
from headrace.batching.policies.shared.single_input import SingleInputTimes, assumed_steps
from headrace.batching.request import DEADLINE, FULL, IDLE, Request, Task

MARGIN = 0.1
_KEEP = 64  # entries that have left are kept up to this number; it is small, because a fleet has many queues
_GONE: Final = Request(-1, "", 0.0)  # stands where a request has left


def due_of(request: Request) -> float:
    """Return the time (s) by which the queue is ordered.

    That is the deadline. A request without a deadline gets the time at which later requests have overtaken it for long
    enough."""
    return request.deadline if request.deadline < math.inf else request.arrival + MAX_WAIT_S


class DeadlineQueue:
    """The waiting requests of one model, by due time and then by order of entry.

    Entries before `head` have left. `passed` has the requests that were passed over.

    Args:
        times: The node latencies of the model.
        dec_timesteps: The number of decoder steps that is assumed for every output.
        max_batch: The largest batch.
        workers: The number of workers.
        max_tokens: The most tokens of a batch, the sum of its input lengths.
    """

    def __init__(
        self, times: NodeTimes, dec_timesteps: int, max_batch: int, workers: int, max_tokens: float = math.inf
    ) -> None:
        check_max_batch(max_batch)
        self.model: str = times.graph.name
        self.nodes: int = len(times.graph.nodes)
        self.max_batch: int = max_batch
        self.max_tokens: float = max_tokens
        self.passed: Fifo = Fifo(times.graph)
        self.requests: list[Request] = []
        self.due: list[float] = []
        self.since: list[float] = []
        self.head: int = 0
        self.count: int = 0  # the size of its batch, by the last decision
        self.leaves: float = math.inf  # when the batch leaves if nothing else happens and a worker is idle (s)
        self.single: SingleInputTimes = SingleInputTimes(times, dec_timesteps)
        self._times: NodeTimes = times
        self._dec_timesteps: int = dec_timesteps
        self._turns: float = 1.0 + 1.0 / workers
        self._by_steps: dict[int, list[float]] = {}

    def size(self) -> int:
        """Return the number of waiting requests, without those that were passed over."""
        return len(self.requests) - self.head

    def oldest(self) -> float:
        """Return the time (s) at which the first of the queue entered; inf if no request waits."""
        return self.since[self.head] if self.head < len(self.since) else math.inf

    def insert(self, request: Request, since: float) -> None:
        """Add a request that entered at `since` (s)."""
        due = due_of(request)
        place = len(self.requests)
        if place > self.head and self.due[place - 1] > due:
            place = bisect_right(self.due, due, self.head)
        self.requests.insert(place, request)
        self.due.insert(place, due)
        self.since.insert(place, since)

    def remove(self, request: Request) -> bool:
        """Remove `request` wherever it stands. Return False if it does not wait here."""
        due = due_of(request)
        place = bisect_right(self.due, due, self.head) - 1
        while place >= self.head and self.due[place] == due:
            if self.requests[place].id == request.id:
                del self.requests[place]
                del self.due[place]
                del self.since[place]
                return True
            place -= 1
        if not self.passed.remove(request):
            return False
        self._forget_taken()  # its entry in the queue is still there from before it was passed over
        return True

    def put_back(self, requests: Iterable[Request]) -> None:
        """Add requests that were taken before, as if they had entered on arrival."""
        self._forget_taken()
        self.passed.put_back(())  # this deletes the entries that have left, too
        for request in requests:
            self.insert(request, request.arrival)

    def take(self, count: int) -> tuple[Request, ...]:
        """Remove and return the first `count` requests."""
        stop = self.head + count
        batch = tuple(self.requests[self.head : stop])
        self.head = stop
        if stop >= _KEEP and 2 * stop >= len(self.requests):
            self._forget_taken()
        return batch

    def _forget_taken(self) -> None:
        del self.requests[: self.head]
        del self.due[: self.head]
        del self.since[: self.head]
        self.head = 0

    def predicted_s(self, count: int, length: float) -> float:
        """Return the predicted time (s) of a batch of inputs of this length, MARGIN included."""
        length_steps = steps(length)
        known = self._by_steps.get(length_steps)
        if known is None:
            known = [0.0]
            self._by_steps[length_steps] = known
        while len(known) <= count:
            known.append((1.0 + MARGIN) * self._times.whole(len(known), float(length_steps), self._dec_timesteps))
        return known[count]

    def full(self) -> bool:
        """Return whether the next batch can have no more requests, or no more tokens."""
        return self.size() >= self.max_batch or self._tokens(self.head, self.size()) >= self.max_tokens

    def at_limit(self) -> bool:
        """Return whether the batch of the last decision has all requests or tokens that a batch may have."""
        if self.count == self.max_batch:
            return True
        if self.max_tokens == math.inf:
            return False
        return (
            self._tokens(self.head, self.count) >= self.max_tokens
            or self._tokens(self.head, self.count + 1) > self.max_tokens
        )

    def _tokens(self, place: int, count: int) -> float:
        """Return the tokens of `count` requests from `place` on. Without a limit it does not count them."""
        if self.max_tokens == math.inf:
            return 0.0
        tokens = 0.0
        for request in self.requests[place : place + count]:
            tokens += request.input_len
        return tokens

    def _length(self, longest: float, tokens: float, count: int) -> float:
        """Return the length that decides the time of a batch: the longest, or the mean where a batch joins inputs."""
        return tokens / count if self._times.joined else longest

    def budget_s(self, place: int) -> float:
        """Return the time (s) that the request at `place` had left when it entered."""
        return self.requests[place].deadline - self.since[place]

    def too_large(self, count: int, length: float, budget_s: float) -> bool:
        """Return whether a batch exceeds the limit, or the target of a first request with this budget."""
        if count == 1:
            return False
        return count > self.max_batch or self._turns * self.predicted_s(count, length) > budget_s

    def fit(self, now: float) -> int:
        """Return the size of the batch that the first request leads if it leaves now; 0 if the request is late even
        alone."""
        budget_s = self.budget_s(self.head)
        deadline = math.inf
        longest = 1.0
        tokens = 0.0
        count = 0
        while count < self.size():
            request = self.requests[self.head + count]
            deadline = min(deadline, request.deadline)
            longest = max(longest, request.input_len)
            tokens += request.input_len
            if tokens > self.max_tokens:
                break
            length = self._length(longest, tokens, count + 1)
            # `Deferred` computes the same difference, so a batch that leaves at its last moment fits to the last bit.
            if self.too_large(count + 1, length, budget_s) or now > deadline - self.predicted_s(count + 1, length):
                break
            count += 1
        return count

    def reachable(self, now: float) -> int:
        """Return the size of the largest batch that would be in time if it left now, whichever request leads it."""
        length = self.tightest()[1]
        lower = 0
        upper = min(self.size(), self.max_batch)
        while lower < upper:
            count = (lower + upper + 1) // 2
            place = bisect_left(self.due, now + self.predicted_s(count, length), self.head)
            if (
                place + count <= len(self.due)
                and not self.too_large(count, length, self.budget_s(place))
                and self._tokens(place, count) <= self.max_tokens
            ):
                lower = count
            else:
                upper = count - 1
        return lower

    def pass_over(self, now: float) -> int:
        """Pass over first requests that cannot be in time, or that make the batch smaller. Return the size of the
        batch.

        The result is 0 if no request is left."""
        while self.size() > 0:
            count = self.fit(now)
            if count < self.size():
                reachable = self.reachable(now)
                if reachable > count:
                    self._stand_back(reachable, now)
                    count = self.fit(now)
            if count > 0:
                return count
            since = self.oldest()
            self.passed.append(self.take(1)[0], since)
        return 0

    def _stand_back(self, count: int, now: float) -> None:
        """Pass over requests until the first `count` of the queue are in time in a batch of that size."""
        deadline = now + self.predicted_s(count, self.tightest()[1])
        stay: list[int] = []
        place = self.head
        while len(stay) < count and place < len(self.requests):
            if self.requests[place].deadline >= deadline:
                stay.append(place)
            else:
                self.passed.append(self.requests[place], self.since[place])
            place += 1
        self.requests[place - len(stay) : place] = [self.requests[number] for number in stay]
        self.due[place - len(stay) : place] = [self.due[number] for number in stay]
        self.since[place - len(stay) : place] = [self.since[number] for number in stay]
        first = place - len(stay)
        for left in range(self.head, first):  # nothing may stay of one that is withdrawn later
            self.requests[left] = _GONE
        self.take(first - self.head)

    def tightest(self) -> tuple[float, float]:
        """Return the earliest deadline (s) and the input length of all requests that may be in the next batch."""
        deadline = math.inf
        longest = 1.0
        tokens = 0.0
        count = 0
        for request in self.requests[self.head : self.head + self.max_batch]:
            if count > 0 and tokens + request.input_len > self.max_tokens:
                break
            deadline = min(deadline, request.deadline)
            longest = max(longest, request.input_len)
            tokens += request.input_len
            count += 1
        return deadline, self._length(longest, tokens, max(count, 1))

    def take_passed(self, now: float, until: float) -> tuple[Request, ...]:
        """Remove and return a batch of passed-over requests that ends by `until` (s). It is empty if there is none."""
        passed = self.passed
        longest = 1.0
        tokens = 0.0
        count = 0
        for request in passed.peek(self.max_batch):
            longest = max(longest, request.input_len)
            tokens += request.input_len
            length = self._length(longest, tokens, count + 1)
            if tokens > self.max_tokens or now + self.predicted_s(count + 1, length) > until:
                break
            count += 1
        return passed.take(count) if count > 0 else ()


class DeadlineBatching(ABC):
    """A `Policy` with one deadline queue for each model.

    Args:
        times: By model, the node latencies on these workers.
        workers: The number of workers.
        max_batch: The largest batch.
        dec_timesteps: By model that has a decoder, the number of decoder steps that is assumed for every output.
        max_tokens: The most tokens of a batch, the sum of its input lengths.

    Raises:
        UsageError: An argument is out of range, or a model with a decoder has no `dec_timesteps`.
    """

    def __init__(
        self,
        times: Mapping[str, NodeTimes],
        workers: int,
        max_batch: int = 64,
        dec_timesteps: Mapping[str, int] | None = None,
        max_tokens: float = math.inf,
    ) -> None:
        check_workers(workers)
        assumed = assumed_steps(times, dec_timesteps)
        self.ahead: Final[int] = 1
        self._queues: dict[str, DeadlineQueue] = {
            model: DeadlineQueue(known, assumed[model], max_batch, workers, max_tokens)
            for model, known in times.items()
        }
        self.queue_list: Final[list[DeadlineQueue]] = list(self._queues.values())
        self.workers: Final[int] = workers
        self._tasks: int = 0

    @abstractmethod
    def plan(self) -> None:
        """Set `leaves` of every queue in which requests wait."""

    @abstractmethod
    def urgency(self, queue: DeadlineQueue) -> float:
        """Return the urgency of a queue's batch. Of several batches that may leave, the one with the lowest value goes
        first."""

    def submit(self, request: Request, now: float) -> None:
        queue = self._queues.get(request.model)
        if queue is None:
            raise UnknownModel.asked_for(request.id, request.model, self._queues)
        if request.input_len > queue.max_tokens:
            raise BadInput.too_many_tokens(request.id, request.input_len, queue.max_tokens)
        queue.insert(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        for queue in self.queue_list:
            queue.count = queue.pass_over(now)
        self.plan()
        urgent: DeadlineQueue | None = None
        least = math.inf
        until = math.inf
        for queue in self.queue_list:
            if queue.count == 0:
                continue
            until = min(until, queue.leaves)
            if queue.leaves <= now:
                urgency = self.urgency(queue)
                if urgent is None or urgency < least or (urgency == least and queue.oldest() < urgent.oldest()):
                    urgent = queue
                    least = urgency
        if urgent is None:
            return self._passed(now, until)
        reason = self.reason(urgent)
        return self._task(urgent, urgent.take(urgent.count), reason)

    def reason(self, queue: DeadlineQueue) -> str:
        """Return the reason why the queue's batch leaves now."""
        if queue.at_limit():
            return FULL
        return DEADLINE if queue.count < queue.size() else IDLE

    def _passed(self, now: float, until: float) -> Task | None:
        """Return a task of passed-over requests, or None.

        It takes the queue that passed over a request longest ago. The task must end by `until` (s), when others are to
        leave."""
        longest: DeadlineQueue | None = None
        for queue in self.queue_list:
            if queue.passed.size() > 0 and (longest is None or queue.passed.oldest() < longest.passed.oldest()):
                longest = queue
        if longest is None:
            return None
        batch = longest.take_passed(now, until)
        return self._task(longest, batch, IDLE) if batch else None

    def _task(self, queue: DeadlineQueue, batch: tuple[Request, ...], reason: str) -> Task:
        task = Task(self._tasks, queue.model, batch, 0, queue.nodes, reason=reason)
        self._tasks += 1
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self._queues[task.model].put_back(task.requests)
            return []
        return list(task.requests)

    def withdraw(self, request: Request, now: float) -> bool:
        queue = self._queues.get(request.model)
        return queue is not None and queue.remove(request)

    def latest_start(self, request: Request) -> float:
        return request.deadline - self._queues[request.model].single.estimate(request)

    def largest_batch(self, model: str) -> int:
        queue = self._queues.get(model)
        if queue is None:
            raise UnknownModel.among(model, self._queues)
        return queue.max_batch

    def wakeup(self) -> float:
        self.plan()
        first = math.inf
        for queue in self.queue_list:
            if queue.size() > 0:
                first = min(first, queue.leaves)
        return first
