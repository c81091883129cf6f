"""Whole-graph batching by deadline: the mechanism that `earliest-deadline` and `deferred` share.

Each model has a line, the earliest deadline first, and the times of its batches are known. A batch is the first of the
line and as many behind it as leave the first in time:

- It has at most the target of its first request: the largest batch that runs, and of which the next one runs, within
  what that request had left when it entered: (1 + 1 / workers) * latency(batch) <= that. Nexus (Shen et al., SOSP 2019)
  has this for one worker, where a request may just have missed a batch and waits for that to end; with more of them
  running in turn the wait is that much shorter (Symphony, Chen et al., 2023, arXiv 2308.07470).
- Early drop (Nexus, its sliding window): who is so late that the batch would be smaller with it than without it is
  passed over. Nexus drops those; so does a driver here that is told to drop what is late, as soon as they cannot be
  met alone (`latest_start`, as Clockwork does: Gujarati et al., OSDI 2020). Else they run when that delays nobody
  who can be met.

A prediction is taken to last `MARGIN` longer than it says: batches that run scatter, and these policies leave no time
to spare. Outputs are taken to be `dec_timesteps` long, as only the run itself will tell. Every request is passed over
at most once; beside that a decision looks at no more than a batch of each model, however many wait.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.batching.errors import UnknownModel, check_max_batch, check_workers
from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.policies.shared.fifo import Fifo
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S
from headrace.batching.policies.shared.single_input import SingleInputTimes, assumed_steps
from headrace.batching.request import DEADLINE, FULL, IDLE, Request, Task

MARGIN = 0.1
_KEEP = 64  # places of entries that have left, before they are given up; few, as a fleet has many lines
_GONE: Final = Request(-1, "", 0.0)  # stands where a request has left


def due_of(request: Request) -> float:
    """By what (s) a line is ordered: the deadline; for who has none, when others with one have overtaken it for long
    enough."""
    return request.deadline if request.deadline < math.inf else request.arrival + MAX_WAIT_S


class DeadlineQueue:
    """What waits for one model, by `due` and then in order of entry; entries before `head` have left. `passed` has
    those that were passed over."""

    def __init__(self, times: NodeTimes, dec_timesteps: int, max_batch: int, workers: int) -> None:
        check_max_batch(max_batch)
        self.model: str = times.graph.name
        self.nodes: int = len(times.graph.nodes)
        self.max_batch: int = max_batch
        self.passed: Fifo = Fifo(times.graph)
        self.requests: list[Request] = []
        self.due: list[float] = []
        self.since: list[float] = []
        self.head: int = 0
        self.count: int = 0  # how large its batch is, as of the last decision
        self.leaves: float = math.inf  # when that leaves if nothing else happens and a worker is idle (s)
        self.single: SingleInputTimes = SingleInputTimes(times, dec_timesteps)
        self._times: NodeTimes = times
        self._dec_timesteps: int = dec_timesteps
        self._turns: float = 1.0 + 1.0 / workers
        self._by_steps: dict[int, list[float]] = {}

    def size(self) -> int:
        return len(self.requests) - self.head

    def oldest(self) -> float:
        """When the first of the line entered; inf if nothing waits."""
        return self.since[self.head] if self.head < len(self.since) else math.inf

    def insert(self, request: Request, since: float) -> None:
        due = due_of(request)
        place = len(self.requests)
        if place > self.head and self.due[place - 1] > due:
            place = bisect_right(self.due, due, self.head)
        self.requests.insert(place, request)
        self.due.insert(place, due)
        self.since.insert(place, since)

    def remove(self, request: Request) -> bool:
        """Remove `request` wherever it stands; False if it does not wait here."""
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
        self._forget_taken()  # it left the line when it was passed over, and nothing of it may stay
        return True

    def put_back(self, requests: Iterable[Request]) -> None:
        """As if they had entered on arrival."""
        self._forget_taken()
        self.passed.put_back(())  # forgets whom it has let go, too
        for request in requests:
            self.insert(request, request.arrival)

    def take(self, count: int) -> tuple[Request, ...]:
        """Remove and return the first `count`."""
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
        """What a batch is taken to run for (s), its longest input being `length`."""
        whole = steps(length)
        known = self._by_steps.get(whole)
        if known is None:
            known = [0.0]
            self._by_steps[whole] = known
        while len(known) <= count:
            known.append((1.0 + MARGIN) * self._times.whole(len(known), float(whole), self._dec_timesteps))
        return known[count]

    def budget_s(self, place: int) -> float:
        """What the request at `place` had left when it entered."""
        return self.requests[place].deadline - self.since[place]

    def too_large(self, count: int, length: float, budget_s: float) -> bool:
        """Whether a batch is beyond the target of a first request with that budget, or the limit."""
        if count == 1:
            return False
        return count > self.max_batch or self._turns * self.predicted_s(count, length) > budget_s

    def fit(self, now: float) -> int:
        """The batch (requests) that the first leads if it leaves now; 0 if even alone it is late."""
        budget_s = self.budget_s(self.head)
        deadline = math.inf
        length = 1.0
        count = 0
        while count < self.size():
            request = self.requests[self.head + count]
            deadline = min(deadline, request.deadline)
            length = max(length, request.input_len)
            # Compared as `Deferred` computes it: what leaves at the last moment must fit, to the last bit.
            if self.too_large(count + 1, length, budget_s) or now > deadline - self.predicted_s(count + 1, length):
                break
            count += 1
        return count

    def reachable(self, now: float) -> int:
        """The largest batch that would be in time if it left now, whoever leads it."""
        length = self.tightest()[1]
        least = 0
        most = min(self.size(), self.max_batch)
        while least < most:
            count = (least + most + 1) // 2
            place = bisect_left(self.due, now + self.predicted_s(count, length), self.head)
            if place + count <= len(self.due) and not self.too_large(count, length, self.budget_s(place)):
                least = count
            else:
                most = count - 1
        return least

    def pass_over(self, now: float) -> int:
        """Pass over who is first and makes the batch smaller by that, or cannot be met; how large it then is, 0 if
        there is nobody."""
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
        """Pass over all before the first `count` who are in time in a batch of that size."""
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
        """The earliest deadline, and the length of the longest input, of all that may be in the next batch."""
        deadline = math.inf
        length = 1.0
        for request in self.requests[self.head : self.head + self.max_batch]:
            deadline = min(deadline, request.deadline)
            length = max(length, request.input_len)
        return deadline, length

    def take_passed(self, now: float, until: float) -> tuple[Request, ...]:
        """Of those passed over, a batch that is done by `until`, if there is one."""
        line = self.passed
        length = 1.0
        count = 0
        for request in line.peek(self.max_batch):
            length = max(length, request.input_len)
            if now + self.predicted_s(count + 1, length) > until:
                break
            count += 1
        return line.take(count) if count > 0 else ()


class DeadlineBatching(ABC):
    """A `Policy`. `times` has the latencies of each model on these workers, `dec_timesteps` the decoder steps assumed
    for each model that has a decoder. Raises UsageError."""

    def __init__(
        self,
        times: Mapping[str, NodeTimes],
        workers: int,
        max_batch: int = 64,
        dec_timesteps: Mapping[str, int] | None = None,
    ) -> None:
        check_workers(workers)
        assumed = assumed_steps(times, dec_timesteps)
        self.ahead: Final[int] = 1
        self._lines: dict[str, DeadlineQueue] = {
            model: DeadlineQueue(known, assumed[model], max_batch, workers) for model, known in times.items()
        }
        self.line_list: Final[list[DeadlineQueue]] = list(self._lines.values())
        self.workers: Final[int] = workers
        self._tasks: int = 0

    @abstractmethod
    def plan(self) -> None:
        """Set `leaves` of every line in which somebody waits."""

    @abstractmethod
    def urgency(self, line: DeadlineQueue) -> float:
        """Of several batches that may leave, that with the least goes first."""

    def submit(self, request: Request, now: float) -> None:
        line = self._lines.get(request.model)
        if line is None:
            raise UnknownModel.asked_for(request.id, request.model, self._lines)
        line.insert(request, now)

    def next_task(self, worker: int, now: float) -> Task | None:
        for line in self.line_list:
            line.count = line.pass_over(now)
        self.plan()
        found: DeadlineQueue | None = None
        least = math.inf
        until = math.inf
        for line in self.line_list:
            if line.count == 0:
                continue
            until = min(until, line.leaves)
            if line.leaves <= now:
                urgency = self.urgency(line)
                if found is None or urgency < least or (urgency == least and line.oldest() < found.oldest()):
                    found = line
                    least = urgency
        if found is None:
            return self._passed(now, until)
        reason = self.reason(found)
        return self._task(found, found.take(found.count), reason)

    def reason(self, line: DeadlineQueue) -> str:
        """Why its batch leaves now."""
        if line.count == line.max_batch:
            return FULL
        return DEADLINE if line.count < line.size() else IDLE

    def _passed(self, now: float, until: float) -> Task | None:
        """A batch of those passed over longest ago, if it is done by the time at which others are to leave."""
        found: DeadlineQueue | None = None
        for line in self.line_list:
            if line.passed.size() > 0 and (found is None or line.passed.oldest() < found.passed.oldest()):
                found = line
        if found is None:
            return None
        batch = found.take_passed(now, until)
        return self._task(found, batch, IDLE) if batch else None

    def _task(self, line: DeadlineQueue, batch: tuple[Request, ...], reason: str) -> Task:
        task = Task(self._tasks, line.model, batch, 0, line.nodes, reason=reason)
        self._tasks += 1
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self._lines[task.model].put_back(task.requests)
            return []
        return list(task.requests)

    def withdraw(self, request: Request, now: float) -> bool:
        line = self._lines.get(request.model)
        return line is not None and line.remove(request)

    def latest_start(self, request: Request) -> float:
        return request.deadline - self._lines[request.model].single.estimate(request)

    def largest_batch(self, model: str) -> int:
        line = self._lines.get(model)
        if line is None:
            raise UnknownModel.among(model, self._lines)
        return line.max_batch

    def wakeup(self) -> float:
        self.plan()
        first = math.inf
        for line in self.line_list:
            if line.size() > 0:
                first = min(first, line.leaves)
        return first
