"""Rules about many requests: that none starves, that memory is bounded, and that calls do not become slow.

One worker serves while others keep waiting. These runs are the same for every seed."""

import gc
import math
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import TypeVar

from headrace.batching.conformance.bench import MODELS, Bench
from headrace.batching.conformance.instruments import Broken, Instruments
from headrace.batching.graphs.execution import Decoding
from headrace.batching.policy import BOUNDED_MEMORY, COST, NO_STARVATION, Policy
from headrace.batching.request import Request, Task

T = TypeVar("T")
TASKS = 400  # within which a request must begin, first with tasks of a second, then with tasks of hours
LONG_S = 1e4
SERVED = 200
WITHDRAWN = 300
FEW, MANY = 250, 4000  # waiting requests, whose ratio is 16
MAX_RATIO = 64  # of times: 16 would be in proportion, 256 the square
CALLS = 20
ROUNDS = 5
NOISE_S = 0.001


class _Loop:
    """One worker that serves a policy's requests."""

    def __init__(self, bench: Bench, instruments: Instruments) -> None:
        self.policy: Policy = bench.build(1)
        self.now = 0.0
        self.running: list[Task] = []
        self.waiting: dict[int, Request] = {}  # submitted, and not ended
        self.begun: set[int] = set()
        self._bench = bench
        self._instruments = instruments
        self._decoding = Decoding()
        self._requests = 0

    def submit(self, model: str, input_len: float = 1.0) -> Request:
        """Submit a request. Return it."""
        request = Request(self._requests, model, self.now, input_len=input_len)
        self._requests += 1
        self._call("submit", lambda: self.policy.submit(request, self.now))
        self.waiting[request.id] = request
        return request

    def withdraw(self, request: Request) -> bool:
        """Withdraw a request. Return whether the policy gave it back."""
        answer = self._call("withdraw", lambda: self.policy.withdraw(request, self.now))
        if answer:
            del self.waiting[request.id]
        return answer

    def serve(self, task_s: float) -> list[Request]:
        """Let the worker take a task, and end its first. Return the requests that this finishes."""
        while len(self.running) < self.policy.ahead:
            task = self._call("next_task", lambda: self.policy.next_task(0, self.now))
            if task is None:
                break
            self.running.append(task)
            self.begun.update(request.id for request in task.requests)
        if not self.running:
            wakeup = self._call("wakeup", self.policy.wakeup)
            self.now = max(self.now + task_s, wakeup if wakeup < math.inf else 0.0)
            return []
        self.now += task_s
        ended = self._ended(self.running.pop(0))
        finished = self._call("complete", lambda: self.policy.complete(ended, self.now))
        for request in finished:
            self.waiting.pop(request.id)
            self.begun.discard(request.id)
        return finished

    def _ended(self, task: Task) -> Task:
        if task.preemptible:
            sections = self._bench.times[task.model].sections
            return self._decoding.end(task, self._decoding.stop(task, sections), sections)
        if not task.cells:
            return task
        unfold = self._bench.cells[task.model].unfold
        ended = [
            request
            for request, cell in zip(task.requests, task.cells, strict=True)
            if 0 <= unfold(request).open_from <= cell and cell - unfold(request).open_from + 1 >= request.output_len
        ]
        return task.ended_at(task.stop, tuple(ended))

    def _call(self, name: str, function: Callable[[], T]) -> T:
        with self._instruments.around(name):
            return function()


def starves(bench: Bench, instruments: Instruments) -> Broken | None:
    """Tell whether a request never begins while a stream of others comes."""
    for of_stream in MODELS:
        for of_one in MODELS:
            loop = _Loop(bench, instruments)
            waiting = 2 * min(bench.build(1).largest_batch(of_stream), 64) + 2
            for _ in range(waiting):
                loop.submit(of_stream)
            for _ in range(10):
                for request in loop.serve(1.0):
                    loop.submit(request.model)
            one = loop.submit(of_one)
            came = loop.now
            loop.submit(of_stream)
            finished = 0
            for task in range(2 * TASKS):
                ended = loop.serve(1.0 if task < TASKS else LONG_S)
                finished += len(ended)
                for _ in ended:
                    loop.submit(of_stream)
                if one.id in loop.begun or one.id not in loop.waiting:
                    break
            else:
                return Broken(
                    NO_STARVATION,
                    f"a request of {of_one} did not begin while {finished} others that came later were served; let it "
                    "begin in its turn",
                    (
                        f"   0.000 s  submit {waiting} requests of {of_stream}; for each that ends another comes",
                        f"{came:8.3f} s  submit request {one.id} of {of_one}",
                        f"{loop.now:8.3f} s  {finished} requests that came later have ended, and request {one.id} "
                        "has not begun",
                    ),
                )
    return None


def grows(bench: Bench, instruments: Instruments) -> Broken | None:
    """Tell whether a policy grows with the requests that it served, or that were withdrawn."""
    loop = _Loop(bench, instruments)

    def serve(requests: int) -> int:
        for number in range(requests):
            loop.submit(MODELS[number % 2])
            for _ in range(50 if number % 10 == 9 else 1):
                if loop.waiting:
                    loop.serve(1.0)
        for _ in range(20 * requests):
            if not loop.waiting:
                break
            loop.serve(1.0)
        return entries([loop.policy])

    first = serve(SERVED)
    grown = serve(2 * SERVED) - first
    if grown > SERVED:
        return Broken(
            BOUNDED_MEMORY,
            f"it has {grown} more entries after it served {2 * SERVED} more requests; forget requests that have ended",
            (f"{loop.now:8.3f} s  {3 * SERVED} requests have come and ended, {grown} entries stay of the last ones",),
        )
    before = entries([loop.policy])
    requests = [loop.submit(MODELS[number % 2]) for number in range(WITHDRAWN)]
    for request in requests:
        loop.withdraw(request)
    grown = entries([loop.policy]) - before
    if grown > WITHDRAWN // 3:
        return Broken(
            BOUNDED_MEMORY,
            f"it has {grown} more entries after {WITHDRAWN} requests were withdrawn; forget them at once",
            (f"{loop.now:8.3f} s  {WITHDRAWN} requests were submitted and withdrawn, {grown} entries stay",),
        )
    return None


def slows_down(bench: Bench, instruments: Instruments) -> Broken | None:
    """Tell whether calls take longer than in proportion to the waiting requests. Needs a clock."""
    assert instruments.cpu_s is not None
    cpu_s = instruments.cpu_s
    loops = [_Loop(bench, instruments) for _ in range(2)]
    for loop, count in zip(loops, (FEW, MANY), strict=True):
        for number in range(count):
            loop.submit(MODELS[number % 2])

    def serve(loop: _Loop) -> None:
        for _ in range(CALLS):
            for request in loop.serve(1.0):
                loop.submit(request.model)

    def withdraw(loop: _Loop) -> None:
        waiting = [request for number, request in loop.waiting.items() if number not in loop.begun]
        for request in waiting[-CALLS // 2 :]:
            if loop.withdraw(request):
                loop.submit(request.model)

    for what, work in (("decisions", serve), ("withdrawals", withdraw)):
        least = [math.inf, math.inf]
        for _ in range(ROUNDS):
            for place, loop in enumerate(loops):
                began = cpu_s()
                work(loop)
                least[place] = min(least[place], cpu_s() - began)
        if least[1] > MAX_RATIO * least[0] + NOISE_S:
            return Broken(
                COST,
                f"{what} take {least[1] / least[0]:.0f} times as long where {MANY // FEW} times as many requests wait; "
                "look at each of them once at most",
                (
                    f"with {FEW} requests waiting, {CALLS} {what} take {1e3 * least[0]:.2f} ms",
                    f"with {MANY} requests waiting, {CALLS} {what} take {1e3 * least[1]:.2f} ms",
                ),
            )
    return None


def entries(roots: Iterable[object]) -> int:
    """Return how many entries all lists, dictionaries and other containers have that can be reached from the roots."""
    seen: set[int] = set()
    following: list[object] = list(roots)
    total = 0
    while following:
        found = following.pop()
        if id(found) in seen or isinstance(found, (type, FunctionType, ModuleType)):
            continue
        seen.add(id(found))
        if hasattr(found, "__len__") and not isinstance(found, str):
            total += len(found)
        following += gc.get_referents(found)
    return total
