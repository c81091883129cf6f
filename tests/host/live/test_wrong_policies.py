"""A policy that breaks a rule is caught by both drivers, the simulator and the live runtime, with the same message."""

import asyncio
import logging
import math
import re
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from virtual_worker import STRAIGHT, TRANSLATOR, Flat, balanced, serve, value

from headrace.batching import ModelGraph, NodeTimes, PolicyError, Request, Task
from headrace.batching import request as request_module
from headrace.batching.graphs.cell_graph import lstm
from headrace.host.cli.main import main
from headrace.host.live.results import RuntimeClosed
from headrace.sim.engine import Arrivals, run

TIMES = {
    "net": NodeTimes(STRAIGHT, Flat(1.0)),
    "other": NodeTimes(ModelGraph("other", STRAIGHT.nodes), Flat(1.0)),
    "translator": NodeTimes(ModelGraph("translator", TRANSLATOR.nodes), Flat(1.0)),
}
# When requests come, and of which model. Both drivers number them in this order.
REQUESTS = ((0.0, "net"), (0.0, "net"), (0.0, "other"), (3.0, "net"), (20.0, "net"))


class Right:
    """Serves requests one by one, in order, as whole graphs; each wrong policy below overrides one of its methods."""

    ahead = 1

    def __init__(self):
        self.waiting, self.running, self.ended, self.tasks = [], [], [], 0

    def submit(self, request, now):
        self.waiting.append(request)

    def next_task(self, worker, now):
        if not self.waiting:
            return None
        return self.task((self.waiting.pop(0),))

    def task(self, requests, start=0, stop=8, model=None, **more):
        self.tasks += 1
        self.running.extend(requests)
        return Task(self.tasks - 1, model or requests[0].model, requests, start, stop, **more)

    def complete(self, task, now):
        for request in task.requests:
            self.running.remove(request)
        self.ended.extend(task.requests)
        return list(task.requests)

    def withdraw(self, request, now):
        if request in self.waiting:
            self.waiting.remove(request)
            return True
        return False

    def wakeup(self):
        return math.inf

    def latest_start(self, request):
        return request.deadline

    def largest_batch(self, model):
        return 2


CASES = {}  # name: (class, what the message says after the policy's name, whether late requests are dropped)


def case(says, drop_late=False):
    def keep(cls):
        CASES[cls.__name__] = (cls, says, drop_late)
        return cls

    return keep


@case("task 0 runs nodes 0 to 9; the graph has 8; run them all, or make the task preemptible")
class StopsBeyondTheGraph(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), 0, 9)


@case("task 0 runs nodes 3 to 9; the graph has 8; stop there at most")
class PreemptibleBeyondTheGraph(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), 3, 9, preemptible=True)


@case("task 0 runs nodes 8 to 9; the graph has 8; stop there at most")
class StartsBehindTheGraph(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), 8, 9, preemptible=True)


@case("task 0 runs nodes 2 to 8; the graph has 8; run them all, or make the task preemptible")
class SkipsNodes(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), 2, 8)


@case("task 0 runs nodes 3 to 3; start at 0 or above, and stop above that")
class RunsNothing(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), 3, 3, preemptible=True)


@case("task 0 runs nodes 5 to 2; start at 0 or above, and stop above that")
class RunsBackwards(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), 5, 2, preemptible=True)


@case("task 0 runs nodes -1 to 2; start at 0 or above, and stop above that")
class StartsBeforeTheGraph(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), -1, 2, preemptible=True)


@case("task 0 has cells; workers run model 'net' by nodes; leave them out")
class RunsCells(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), 0, 1, cells=(0,))


@case("task 0 has no requests; return None to leave the worker idle")
class RunsNobody(Right):
    def next_task(self, worker, now):
        return self.task((), model="net")


@case("task 0 has request 77, which has ended or was never submitted; give it requests that wait")
class MakesRequestsUp(Right):
    def next_task(self, worker, now):
        return self.task((Request(77, "net", 0.0),))


@case("task 0 has 5 for a request; give it requests that were submitted")
class RunsNumbers(Right):
    def next_task(self, worker, now):
        self.tasks += 1
        return Task(0, "net", (5,), 0, 8)


@case("complete finished 'net', which did not end with task 0; return each request once, with the task that ends it")
class FinishesTexts(Right):
    def complete(self, task, now):
        return ["net"]


@case("task 0 has request 0 as a copy; give it the object that was submitted")
class CopiesRequests(Right):
    def next_task(self, worker, now):
        return self.task((Request(0, "net", 0.0),))


@case("task 2 has request 0, which has ended or was never submitted; give it requests that wait")
class RunsAgain(Right):
    def next_task(self, worker, now):
        return self.task((self.ended[0] if self.ended else self.waiting.pop(0),))


@case("task 1 has request 0, which runs already; wait until its task has ended")
class RunsOnTwoWorkers(Right):
    def next_task(self, worker, now):
        return self.task((self.running[0] if self.running else self.waiting.pop(0),))


@case("task 2 has request 0, which runs already; wait until its task has ended")
class GoesOnOnTwoWorkers(Right):
    """A batch ends at node 3, and two workers get what is left of it."""

    def next_task(self, worker, now):
        if self.tasks == 0:
            self.batch = (self.waiting.pop(0),)
            return self.task(self.batch, 0, 3, preemptible=True)
        return None if self.running and self.tasks == 1 else self.task(self.batch, 3, 8, preemptible=True)

    def complete(self, task, now):
        super().complete(task, now)
        return []


@case("task 0 has request 0 twice; give it each request once")
class RunsOneTwice(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting[0], self.waiting[0]))


@case("task 0 has request 2 of model 'other'; it is of model 'net'; batch one model")
class MixesModels(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting[0], self.waiting[2]))


@case("task 0 is of model 'bert'; workers have net, other, translator")
class ServesAnUnknownModel(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting[0],), model="bert")


@case("task 0 has a batch of 2, and largest_batch('net') is 1; make smaller batches, or return the largest there")
class BatchesTooMany(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting[0], self.waiting[1]))

    def largest_batch(self, model):
        return 1


@case("largest_batch('net') is 'many'; give a whole number of 1 or more")
class HasNoLargestBatch(Right):
    def largest_batch(self, model):
        return "many"


@case("ahead is 0; give a whole number of 1 or more")
class WorksNotAhead(Right):
    ahead = 0


@case("it has no method 'withdraw'; give it one (batching/policy.py has its contract)")
class HasNoWithdraw(Right):
    withdraw = None


@case("next_task returned a list; return a Task, or None to leave the worker idle")
class ReturnsAList(Right):
    def next_task(self, worker, now):
        return [self.waiting[0]]


@case("next_task returned 0; return a Task, or None to leave the worker idle")
class ReturnsANumber(Right):
    def next_task(self, worker, now):
        return 0


@case(
    "task 1 has its requests in a list; give it a tuple"
    if request_module.__file__.endswith(".py")
    else "next_task raised TypeError: *; mend it, as a policy must not raise there"
)
class GivesRequestsInAList(Right):
    """The compiled `Task` refuses a list itself. The first task is right."""

    def next_task(self, worker, now):
        requests = (self.waiting.pop(0),)
        return self.task(requests if self.tasks == 0 else list(requests))


@case(
    "next_task raised ZeroDivisionError: integer division or modulo by zero; mend it, as a policy must not raise there"
)
class RaisesWhenAsked(Right):
    def next_task(self, worker, now):
        return 1 // 0


@case("submit raised KeyError: 'net'; mend it, as a policy must not raise there")
class RaisesAtSubmit(Right):
    def submit(self, request, now):
        {}[request.model]


@case("complete raised KeyError: 0; mend it, as a policy must not raise there")
class RaisesAtTheEnd(Right):
    def complete(self, task, now):
        {}[task.id]


@case("complete returned None; return a list of the requests that finished")
class CompletesNothing(Right):
    def complete(self, task, now):
        return None


@case(
    "complete finished request 2, which did not end with task 0; return each request once, with the task that ends it"
)
class FinishesWhoWaits(Right):
    def complete(self, task, now):
        return [self.waiting[0]]


@case(
    "complete finished request 0, which did not end with task 0; return each request once, with the task that ends it"
)
class FinishesTwice(Right):
    def complete(self, task, now):
        return [*task.requests, *task.requests]


@case("complete finished request 0 at node 1 of 8; finish a request when its last node has run")
class FinishesHalfWay(Right):
    def next_task(self, worker, now):
        return self.task((self.waiting.pop(0),), 0, 3, preemptible=True)


@case("wakeup returned nan; return a time in seconds, or math.inf")
class WakesAtNan(Right):
    def next_task(self, worker, now):
        return None

    def wakeup(self):
        return math.nan


@case("wakeup returned 'soon'; return a time in seconds, or math.inf")
class WakesSoon(Right):
    def next_task(self, worker, now):
        return None

    def wakeup(self):
        return "soon"


@case(
    "wakeup returned a time in the past 101 times in turn, and no task followed; "
    "return a later time, or a task from next_task when that time comes"
)
class WakesInThePast(Right):
    def next_task(self, worker, now):
        return None

    def wakeup(self):
        return 0.0


@case("wakeup raised RuntimeError: no; mend it, as a policy must not raise there")
class RaisesAtWakeup(Right):
    def next_task(self, worker, now):
        return None

    def wakeup(self):
        raise RuntimeError("no")


@case("latest_start returned nan; return a time in seconds, or math.inf", drop_late=True)
class StartsAtNan(Right):
    def latest_start(self, request):
        return math.nan


@case("latest_start returned None; return a time in seconds, or math.inf", drop_late=True)
class StartsAtNone(Right):
    def latest_start(self, request):
        return None


@case("latest_start raised ValueError: no; mend it, as a policy must not raise there", drop_late=True)
class RaisesAtLatestStart(Right):
    def latest_start(self, request):
        raise ValueError("no")


@case("withdraw returned None; return True or False", drop_late=True)
class WithdrawsNone(Right):
    def withdraw(self, request, now):
        return None


@case("withdraw raised ValueError: no; mend it, as a policy must not raise there", drop_late=True)
class RaisesAtWithdraw(Right):
    def withdraw(self, request, now):
        raise ValueError("no")


def expected(name):
    cls, says, _ = CASES[name]
    text = re.escape(f"policy '{cls.__module__}:{name}' broke a rule: {says}").replace(r"\*", ".*")
    return f"^{text}$"


def deadline(at, drop_late):
    return at + 2.0 if drop_late else math.inf


@pytest.mark.parametrize("name", CASES)
def test_the_simulator_ends_with_the_rule_that_was_broken(name):
    cls, _, drop_late = CASES[name]
    load = Arrivals(
        [model for _, model in REQUESTS],
        [at for at, _ in REQUESTS],
        [deadline(at, drop_late) for at, _ in REQUESTS],
        [1.0] * len(REQUESTS),
        [1] * len(REQUESTS),
    )
    with pytest.raises(PolicyError, match=expected(name)):
        run(cls(), load, TIMES, 2, drop_late=drop_late)


def serve_live(policy, drop_late=False):
    """Return what each request of REQUESTS was answered with."""

    async def body(runtime, *_):
        calls = []
        for at, model in REQUESTS:
            if at > runtime.now():
                await asyncio.sleep(at - runtime.now())
            due = deadline(runtime.now(), drop_late)
            calls.append(asyncio.create_task(runtime.infer(model, value(), deadline=due)))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert balanced(runtime) and runtime.ledger.in_flight == 0 and runtime.broken
        asked = runtime.now()
        with pytest.raises(RuntimeClosed) as later:
            await runtime.infer("net", value())
        assert runtime.now() == asked
        return [*answers, later.value]

    return serve(policy, TIMES, body, workers=2, drop_late=drop_late)


@pytest.mark.quick(21)
@pytest.mark.parametrize("name", CASES)
def test_the_live_runtime_answers_every_request_with_the_rule_that_was_broken(name, caplog):
    cls, _, drop_late = CASES[name]
    with caplog.at_level(logging.CRITICAL, "headrace"):
        if name in ("WorksNotAhead", "HasNoWithdraw"):
            with pytest.raises(PolicyError, match=expected(name)):
                serve_live(cls(), drop_late)
            return
        answers = serve_live(cls(), drop_late)
    failed = [answer for answer in answers if isinstance(answer, RuntimeClosed)]
    assert failed and all(re.search(expected(name), str(answer)) for answer in failed)
    assert isinstance(failed[-1].__cause__, PolicyError)


class FinishesLostTasks(Right):
    ahead = 2  # the second task has not begun when the worker dies, so its request is the policy's again

    def complete(self, task, now):
        return list(task.requests)


class KeepsLostRequests(FinishesLostTasks):
    """Puts requests of a lost task back, and hands them out again."""

    def complete(self, task, now):
        if task.stop == task.start:
            self.waiting[:0] = task.requests
            return []
        return list(task.requests)


@pytest.mark.parametrize("policy", [FinishesLostTasks, KeepsLostRequests])
def test_a_task_that_was_lost_with_its_worker_finishes_nobody(policy, caplog):
    async def body(runtime, workers, _):
        calls = [asyncio.create_task(runtime.infer("net", value())) for _ in range(2)]
        await asyncio.sleep(0.5)
        workers[0].die()
        return await asyncio.gather(*calls, return_exceptions=True)

    with caplog.at_level(logging.CRITICAL, "headrace"):
        answers = serve(policy(), TIMES, body)
    if policy is KeepsLostRequests:
        assert not any(isinstance(answer, Exception) for answer in answers)
    else:
        says = "complete finished request 1, which did not end with task 1"
        assert all(says in str(answer) for answer in answers)


LSTM = lstm(max_batch=4)


class RightCells(Right):
    """Runs a chain of 2 cells a request, one cell at a time."""

    def __init__(self):
        super().__init__()
        self.done = {}

    def next_task(self, worker, now):
        return self.cell(self.waiting[0]) if self.waiting and not self.running else None

    def cell(self, request, start=0, stop=1, cells=None):
        cells = (self.done.get(request.id, 0),) if cells is None else cells
        return self.task((request,), start, stop, model="lstm", cells=cells)

    def complete(self, task, now):
        self.running.clear()
        (request,) = task.requests
        self.done[request.id] = task.cells[0] + 1
        if self.done[request.id] < 2:
            return []
        self.waiting.remove(request)
        return [request]


class AnotherCell(RightCells):
    def cell(self, request):
        return super().cell(request, 1, 2)


class TwoTypesOfCells(RightCells):
    def cell(self, request):
        return super().cell(request, 0, 2)


class TwoCellsForOne(RightCells):
    def cell(self, request):
        return super().cell(request, cells=(0, 1))


class NoCells(RightCells):
    def cell(self, request):
        return super().cell(request, cells=())


class CellsOfTheEnded(RightCells):
    def next_task(self, worker, now):
        return self.cell(self.first) if self.done.get(0) == 2 else super().next_task(worker, now)

    def submit(self, request, now):
        super().submit(request, now)
        self.first = self.waiting[0]


class FinishesCellsTwice(RightCells):
    def complete(self, task, now):
        return super().complete(task, now) * 2


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (AnotherCell, "task 0 runs nodes 1 to 2; give one of the 1 cell types, and stop one above it"),
        (TwoTypesOfCells, "task 0 runs nodes 0 to 2; give one of the 1 cell types, and stop one above it"),
        (TwoCellsForOne, "task 0 has 2 cells for 1 requests; give each entry the number of its cell"),
        (NoCells, "task 0 has 0 cells for 1 requests; give each entry the number of its cell"),
        (CellsOfTheEnded, "task 2 has request 0, which has ended or was never submitted; give it requests that wait"),
        (FinishesCellsTwice, "complete finished request 0, which did not end with task 1"),
        (RightCells, None),
    ],
)
def test_a_wrong_task_of_cells_is_caught(policy, says):
    times = {"lstm": NodeTimes(LSTM.graph, Flat(1.0))}
    load = Arrivals(["lstm"] * 2, [0.0, 0.0], [math.inf] * 2, [2.0] * 2, [1] * 2)
    if says is None:
        assert run(policy(), load, times, 1, open_from=lambda _: -1).finished == [2.0, 4.0]
        return
    with pytest.raises(PolicyError, match=re.escape(says)):
        run(policy(), load, times, 1, open_from=lambda _: -1)


def test_the_command_ends_with_one_line_and_status_1(monkeypatch, capsys):
    """The policy breaks a rule in `headrace simulate`."""

    @dataclass(frozen=True)
    class Settings:
        def build(self, context):
            return RunsNothing()

    monkeypatch.setitem(sys.modules, "of_a_user", SimpleNamespace(Settings=Settings))
    monkeypatch.setattr("sys.argv", ["headrace", "simulate", "--requests", "10", "--policy", "of_a_user:Settings"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.strip().splitlines()
    assert "RunsNothing' broke a rule: task 0 runs nodes 3 to 3; start at 0" in line


def test_what_keeps_the_rules_is_served_by_both():
    load = Arrivals([m for _, m in REQUESTS], [at for at, _ in REQUESTS], [math.inf] * 5, [1.0] * 5, [1] * 5)
    assert min(run(Right(), load, TIMES, 2).finished) > 0

    async def body(runtime, *_):
        await asyncio.gather(*(runtime.infer(model, value()) for _, model in REQUESTS))
        assert not runtime.broken

    serve(Right(), TIMES, body, workers=2)
