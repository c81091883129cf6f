"""The conformance check passes right policies, and names the rule that a wrong policy breaks with a short history."""

import gc
import itertools
import math
import random
import time
from dataclasses import dataclass

import pytest

from headrace.batching import Task, UnknownModel, policy_names
from headrace.batching.conformance import CallTooLong, History, Instruments, check_policy
from headrace.batching.conformance.histories import ASK, COME, END, Event
from headrace.batching.conformance.instruments import Broken
from headrace.batching.conformance.shrink import shrink, simpler_histories
from headrace.batching.policy import CELL_ORDER, COST, NODE_ORDER, RETURNS, RULES
from headrace.batching.registry import policy_settings

NODES = {"a": 3, "b": 4}
FEW = 5  # events


class Right:
    """Serves requests one by one, in order, as whole graphs. Each wrong policy below changes one thing."""

    ahead = 1

    def __init__(self, workers):
        self.waiting, self.running, self.tasks = {}, {}, 0

    def submit(self, request, now):
        self.check(request.model)
        self.waiting[request.id] = request

    def check(self, model):
        if model not in NODES:
            raise UnknownModel.among(model, NODES)

    def next_task(self, worker, now):
        return self.task(self.take()) if self.waiting else None

    def take(self):
        return self.waiting.pop(next(iter(self.waiting)))

    def task(self, *requests, start=0, stop=None, **more):
        self.tasks += 1
        self.running.update((request.id, request) for request in requests)
        return Task(self.tasks, requests[0].model, requests, start, stop or NODES[requests[0].model], **more)

    def complete(self, task, now):
        for request in task.requests:
            self.running.pop(request.id, None)
        if task.stop == task.start:
            self.again(task)
            return []
        return list(task.requests)

    def again(self, task):
        self.waiting.update((request.id, request) for request in task.requests)

    def withdraw(self, request, now):
        return self.waiting.pop(request.id, None) is not None

    def wakeup(self):
        return math.inf

    def latest_start(self, request):
        return request.deadline

    def largest_batch(self, model):
        self.check(model)
        return 2


class RightNodes(Right):
    """Runs the three nodes of model a one by one on the same worker. Requests of b run as whole graphs."""

    tasks_of = "nodes"

    def __init__(self, workers):
        super().__init__(workers)
        self.on, self.next = {}, {}  # worker of a task; by worker, the request that goes on there and its node

    def next_task(self, worker, now):
        if worker in self.next:
            return self.node(worker, *self.next.pop(worker))
        if not self.waiting:
            return None
        request = self.take()
        return self.node(worker, request, 0) if request.model == "a" else self.task(request)

    def node(self, worker, request, at):
        task = self.task(request, start=at, stop=at + 1, preemptible=True)
        self.on[task.id] = worker
        return task

    def complete(self, task, now):
        worker = self.on.pop(task.id, None)
        finished = super().complete(task, now)
        if worker is None or not finished or task.stop == 3:
            return finished
        self.next[worker] = (finished[0], task.stop)
        return []


class RightCells(Right):
    """Runs the cells of one request after the other, on one worker."""

    tasks_of = "cells"

    def __init__(self, workers):
        super().__init__(workers)
        self.done = {}

    def next_task(self, worker, now):
        if not self.waiting or self.running:
            return None
        request = next(iter(self.waiting.values()))
        return self.cell(request, self.done.get(request.id, 0))

    def cell(self, request, cell):
        kind = 1 if request.model == "b" and cell >= request.input_len else 0
        return self.task(request, start=kind, stop=kind + 1, cells=(cell,))

    def complete(self, task, now):
        self.running.clear()
        for request in task.requests:
            done = self.done.pop(request.id, 0) + 1
            if task.stop == task.start:
                continue
            if request in task.ended or (request.model == "a" and done == request.input_len):
                self.waiting.pop(request.id)
                return [request]
            self.done[request.id] = done
        if task.stop == task.start and not task.requests:  # the driver has given up on it
            number = next(iter(self.waiting))
            self.waiting.pop(number)
            self.done.pop(number, None)
        return []

    def withdraw(self, request, now):
        if request.id in self.running or request.id in self.done:
            return False
        return super().withdraw(request, now)


@dataclass(frozen=True)
class Whole:
    """Settings that make a policy of a class."""

    cls: type

    def build(self, context):
        return self.cls(context.workers)


@dataclass(frozen=True)
class Nodes(Whole):
    tasks = "nodes"


@dataclass(frozen=True)
class Cells(Whole):
    tasks = "cells"


def check(cls, seed=0, **more):
    made = {"nodes": Nodes, "cells": Cells}.get(getattr(cls, "tasks_of", ""), Whole)
    return check_policy(made(cls), seed=seed, **more)


WRONG = {}  # name: (class, the rule that it breaks)


def breaks(rule):
    def keep(cls):
        WRONG[cls.__name__] = (cls, rule)
        return cls

    return keep


@breaks("methods")
class HasNoWithdraw(Right):
    withdraw = None


@breaks("methods")
class HandsOutNothing(Right):
    ahead = 0


@breaks("no-errors")
class DividesByZero(Right):
    def next_task(self, worker, now):
        return super().next_task(worker, 1 / (2 - len(self.waiting)))


@breaks("no-errors")
class CannotBeMade(Right):
    def __init__(self, workers):
        raise KeyError("model")


@breaks("no-errors")
class EndsTheProcess(Right):
    def complete(self, task, now):
        raise SystemExit(3)


@breaks("answers")
class WithdrawsNone(Right):
    def withdraw(self, request, now):
        self.waiting.pop(request.id, None)


@breaks("answers")
class WakesAtNan(Right):
    def next_task(self, worker, now):
        return super().next_task(worker, now) if len(self.waiting) > 1 else None

    def wakeup(self):
        return math.nan


@breaks("no-clock")
class ReadsTheClock(Right):
    def next_task(self, worker, now):
        return super().next_task(worker, time.monotonic())


@breaks("no-clock")
class Prints(Right):
    def withdraw(self, request, now):
        print("withdrawn")
        return super().withdraw(request, now)


class IsCollected(Right):
    """The garbage collector runs within a call, as it may in any."""

    def next_task(self, worker, now):
        gc.collect(0)
        return super().next_task(worker, now)


def test_what_the_garbage_collector_calls_is_not_the_policys():
    read = []

    def callback(phase, _):
        read.append(time.perf_counter())

    gc.callbacks.append(callback)
    try:
        found = check(IsCollected)
    finally:
        gc.callbacks.remove(callback)
    assert read and found.broken is None


@breaks("same-answers")
class ServesByChance(Right):
    count = itertools.count()

    def next_task(self, worker, now):
        if next(self.count) % 3 == 0 and len(self.waiting) > 1:
            self.waiting = dict(reversed(self.waiting.items()))
        return super().next_task(worker, now)


@breaks("unknown-model")
class TakesAnyModel(Right):
    def check(self, model):
        pass


@breaks("unknown-model")
class KeepsWhatItRefused(Right):
    def submit(self, request, now):
        self.last = request
        super().submit(request, now)
        self.last = None


@breaks("one-model")
class MixesModels(Right):
    def next_task(self, worker, now):
        return self.task(self.take(), self.take()) if len(self.waiting) > 1 else super().next_task(worker, now)


@breaks("waiting-requests")
class RunsWhatHasEnded(Right):
    ended = None

    def next_task(self, worker, now):
        return self.task(self.ended) if self.ended else super().next_task(worker, now)

    def complete(self, task, now):
        finished = super().complete(task, now)
        self.ended = finished[0] if finished else None
        return finished


@breaks("waiting-requests")
class RunsOneTwiceInABatch(Right):
    def next_task(self, worker, now):
        return self.task(*[self.take()] * 2) if len(self.waiting) == 2 else super().next_task(worker, now)


@breaks("one-task")
class RunsOnTwoWorkers(Right):
    def next_task(self, worker, now):
        return super().next_task(worker, now) or (self.task(*self.running.values()) if self.running else None)


@breaks("batch-limit")
class BatchesThree(Right):
    def next_task(self, worker, now):
        if [each.model for each in self.waiting.values()] == ["a"] * 3:
            return self.task(*[self.take() for _ in range(3)])
        return super().next_task(worker, now)


@breaks("batch-limit")
class RunsNobody(Right):
    def next_task(self, worker, now):
        return Task(0, "a", (), 0, 3)


@breaks("node-order")
class SkipsANode(RightNodes):
    def node(self, worker, request, at):
        return super().node(worker, request, 2 if at == 1 else at)


@breaks("node-order")
class BeginsAgain(RightNodes):
    def node(self, worker, request, at):
        return super().node(worker, request, at if len(self.waiting) < 2 else 0)


@breaks("node-order")
class GoesOnElsewhere(RightNodes):
    def next_task(self, worker, now):
        if worker == 1 and 0 in self.next and 1 not in self.next:
            self.next[1] = self.next.pop(0)
        return super().next_task(worker, now)


@breaks("node-order")
class RunsPartOfAGraph(Right):
    def next_task(self, worker, now):
        return self.task(self.take(), stop=2) if self.waiting else None


@breaks("cell-order")
class SkipsACell(RightCells):
    def cell(self, request, cell):
        return super().cell(request, cell + 1)


@breaks("cell-order")
class RunsADecoderAsAnEncoder(RightCells):
    def cell(self, request, cell):
        return self.task(request, start=0, stop=1, cells=(cell,))


@breaks("reason")
class HasItsOwnReason(Right):
    def task(self, *requests, **more):
        return super().task(*requests, reason="because", **more)


@breaks("finishes")
class FinishesAfterOneNode(RightNodes):
    def complete(self, task, now):
        return super().complete(task, now) or [each for each in task.requests if task.stop > task.start]


@breaks("finishes")
class FinishesTwice(Right):
    def complete(self, task, now):
        return super().complete(task, now) * 2


@breaks("finishes")
class FinishesNothing(Right):
    def complete(self, task, now):
        super().complete(task, now)
        return []


@breaks("finishes")
class FinishesAfterOneCell(RightCells):
    def complete(self, task, now):
        if task.stop > task.start:
            self.running.clear()
            self.waiting.pop(task.requests[0].id)
            return list(task.requests)
        return super().complete(task, now)


@breaks("nothing-lost")
class WaitsForCompany(Right):
    def next_task(self, worker, now):
        return super().next_task(worker, now) if len(self.waiting) > 1 else None


@breaks("nothing-lost")
class ForgetsLostTasks(Right):
    def again(self, task):
        self.gone = {request.id: request for request in task.requests}

    def withdraw(self, request, now):
        return super().withdraw(request, now) or self.__dict__.get("gone", {}).pop(request.id, None) is not None


@breaks("lost-worker")
class FinishesLostTasks(Right):
    def complete(self, task, now):
        super().complete(task, now)
        return list(task.requests)


@breaks("withdrawal")
class WithdrawsNothing(Right):
    def withdraw(self, request, now):
        return False


@breaks("withdrawal")
class WithdrawsWhatRuns(Right):
    def withdraw(self, request, now):
        return super().withdraw(request, now) or self.running.get(request.id) is not None


@breaks("forgets")
class KeepsWithdrawn(Right):
    last = None

    def withdraw(self, request, now):
        if request.id in self.waiting:
            self.last = request
        return super().withdraw(request, now)


@breaks("wakeup")
class WakesInThePast(Right):
    def next_task(self, worker, now):
        return None

    def wakeup(self):
        return 0.0


@breaks("wakeup")
class WakesForNobody(Right):
    def wakeup(self):
        return 1e9


@breaks("latest-start")
class StartsTooLate(Right):
    def latest_start(self, request):
        return request.deadline + 1.0


@breaks("no-starvation")
class ServesTheLastFirst(Right):
    def take(self):
        return self.waiting.popitem()[1]


@breaks("no-starvation")
class PrefersModelA(Right):
    def take(self):
        first = min(self.waiting, key=lambda number: self.waiting[number].model)
        return self.waiting.pop(first)


@breaks("bounded-memory")
class CountsWhatItServed(Right):
    def __init__(self, workers):
        super().__init__(workers)
        self.served = []

    def complete(self, task, now):
        self.served.append(now)
        return super().complete(task, now)


SPENT = [0.0]  # CPU time, as a policy pretends that it takes it


@breaks("cost")
class ComparesAllPairs(Right):
    def next_task(self, worker, now):
        SPENT[0] += 1e-6 * len(self.waiting) ** 2
        return super().next_task(worker, now)


@breaks("cost")
class SearchesAllPairs(Right):
    def withdraw(self, request, now):
        SPENT[0] += 1e-6 * len(self.waiting) ** 2
        return super().withdraw(request, now)


@breaks("returns")
class Hangs(Right):
    def next_task(self, worker, now):
        if len(self.waiting) == 3:
            raise CallTooLong  # as the timer of `headrace check-policy` does
        return super().next_task(worker, now)


def checked(cls, seed=0):
    return check(cls, seed, instruments=Instruments(cpu_s=lambda: SPENT[0]))


@pytest.mark.parametrize("name", policy_names())
def test_every_built_in_policy_keeps_all_rules(name):
    found = check_policy(policy_settings(name), examples=60, seed=random.Random(name).randrange(1000))
    assert found.broken is None, "\n".join([found.broken.message, *found.broken.timeline])
    assert found.histories == 60
    assert COST not in found.passed, "there was no clock"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("graph", {"window_ms": "3000", "max_batch": "3"}),
        ("static", {"max_batch": "2"}),
        ("lazy", {"max_batch": "2", "defer_late": "true"}),
        ("preba-lazy", {"bucket_width": "2", "merge_buckets": "false"}),
        ("cellular", {"max_tasks": "1"}),
    ],
)
def test_a_policy_is_checked_with_its_settings(name, given):
    assert check_policy(policy_settings(name, given), examples=40).broken is None


@pytest.mark.parametrize("cls", [Right, RightNodes, RightCells])
def test_a_right_policy_of_a_user_keeps_all_rules(cls):
    found = checked(cls)
    assert found.broken is None, "\n".join([found.broken.message, *found.broken.timeline])
    left_out = {NODE_ORDER} if cls is RightCells else {CELL_ORDER}
    assert set(found.passed) == set(RULES) - left_out


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_policy_is_told_the_rule_that_it_breaks(name, seed):
    cls, rule = WRONG[name]
    broken = checked(cls, seed).broken
    assert broken is not None
    assert broken.rule.name == rule, "\n".join([broken.message, *broken.timeline])
    assert broken.events <= FEW
    assert broken.message and broken.timeline


def test_each_rule_has_a_wrong_policy():
    assert {rule for _, rule in WRONG.values()} == {rule.name for rule in RULES}


@pytest.mark.parametrize("name", ["GoesOnElsewhere", "BatchesThree", "SkipsACell", "ServesTheLastFirst"])
def test_the_same_seed_gives_the_same_result(name):
    cls, _ = WRONG[name]
    assert checked(cls, 7) == checked(cls, 7)


def test_the_timeline_ends_where_the_rule_is_broken():
    assert checked(BatchesThree).broken.timeline == (
        "   0.000 s  a new policy for 1 worker",
        "   0.000 s  submit 3 requests 0 to 2 of a",
        "   0.000 s  nothing more happens: workers are asked until every request has ended",
        "   0.000 s  next_task breaks the rule batch-limit",
    )


def test_a_history_is_shrunk_to_the_events_that_matter():
    """Here a rule is broken by the end of a task on worker 1 with three requests or more that have come."""

    def check(history):
        came = 0
        for number, event in enumerate(history.events):
            came += event.count if event.kind == COME else 0
            if event.kind == END and event.worker == 1 and came >= 3:
                return Broken(RETURNS, "", (), number + 1)
        return None

    rng = random.Random(3)
    kinds = [COME, ASK, END]
    events = tuple(Event(rng.choice(kinds), 1.0, rng.randrange(3), count=rng.randint(1, 9)) for _ in range(40))
    history = History(3, events)
    shrunk, broken = shrink(history, check(history), check, simpler_histories)
    assert shrunk.workers == 2
    assert shrunk.events == (Event(COME, count=3), Event(END, worker=1))
    assert broken.events == 2
