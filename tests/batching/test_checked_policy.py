"""What the checks of a policy's answers let pass and what they refuse, where no driver comes to it by itself.

The rules that both drivers report are in tests/host/live/test_wrong_policies.py."""

import math

import numpy as np
import pytest

from headrace.batching import (
    CheckedPolicy,
    Ledger,
    ModelGraph,
    Node,
    NodeKind,
    PolicyError,
    Request,
    Task,
    UnknownModel,
)
from headrace.batching.graphs.execution import Sections

STRAIGHT = Sections(ModelGraph("net", tuple(Node(letter) for letter in "ABCD")))
TRANSLATOR = Sections(ModelGraph("gnmt", (Node("e", NodeKind.ENCODER), Node("d", NodeKind.DECODER), Node("out"))))


class Scripted:
    """Answers what the test sets."""

    ahead = 1

    def __init__(self):
        self.task, self.finished, self.at, self.largest, self.withdrawn = None, [], math.inf, 4, True

    def submit(self, request, now):
        if request.model == "bert":
            raise UnknownModel("there is no model 'bert'")

    def next_task(self, worker, now):
        return self.task

    def complete(self, task, now):
        return self.finished

    def withdraw(self, request, now):
        return self.withdrawn

    def wakeup(self):
        return self.at

    def latest_start(self, request):
        return self.at

    def largest_batch(self, model):
        return self.largest


class Bench:
    """A policy behind the checks, with `count` requests submitted."""

    def __init__(self, count=3, cells=False, model="net"):
        self.policy, self.ledger = Scripted(), Ledger()
        models = {"net": STRAIGHT, "gnmt": TRANSLATOR, "whole": None}
        self.checked = CheckedPolicy(self.policy, models, cells, self.ledger)
        self.requests = tuple(Request(number, model, 0.0) for number in range(count))
        for request in self.requests:
            self.ledger.submit(request)
            self.checked.submit(request, 0.0)

    def run(self, *requests, start=0, stop=4, preemptible=True, model=None, cells=()):
        """Hand out a task."""
        self.policy.task = Task(9, model or requests[0].model, requests, start, stop, preemptible, cells=cells)
        return self.checked.next_task(0, 0.0)

    def end(self, task, *finished, at=None):
        self.policy.finished = list(finished)
        return self.checked.complete(task.ended_at(task.stop if at is None else at), 1.0)


def test_a_request_that_is_withdrawn_cannot_run():
    bench = Bench()
    first, second, _ = bench.requests
    assert bench.checked.withdraw(first, 0.0) is True
    with pytest.raises(PolicyError, match="task 9 has request 0, which has ended or was never submitted"):
        bench.run(first, second)


def test_a_request_that_runs_cannot_be_withdrawn():
    bench = Bench()
    first, *_ = bench.requests
    bench.run(first)
    bench.policy.withdrawn = False
    assert bench.checked.withdraw(first, 0.0) is False
    bench.policy.withdrawn = True
    with pytest.raises(PolicyError, match="withdraw returned True for request 0, which runs"):
        bench.checked.withdraw(first, 0.0)


def test_between_two_of_its_tasks_a_request_may_run_again_or_begin_anew():
    bench = Bench()
    first, second, third = bench.requests
    assert bench.end(bench.run(first, second, stop=2)) == []
    assert bench.checked.withdraw(first, 0.0) is True
    assert bench.end(bench.run(second, third, stop=2)) == []
    task = bench.run(third, second, start=2)
    assert bench.end(task, second) == [second]
    assert bench.end(bench.run(third), third) == [third]


def test_a_batch_that_goes_on_is_known_by_its_model_too():
    bench = Bench()
    requests = bench.requests[:2]
    bench.policy.task = task = Task(9, "net", requests, 0, 2, True)
    bench.end(bench.checked.next_task(0, 0.0))
    bench.policy.task = Task(10, "net", requests, 2, 4, True)
    assert bench.checked.next_task(0, 0.0) is bench.policy.task
    bench.end(task)
    bench.policy.task = Task(11, "gnmt", requests, 0, 1, True)
    with pytest.raises(PolicyError, match="task 11 has request 0 of model 'net'; it is of model 'gnmt'"):
        bench.checked.next_task(0, 0.0)


def test_the_largest_batch_may_grow():
    bench = Bench()
    bench.policy.largest = 2
    bench.end(bench.run(*bench.requests[:2]))
    bench.policy.largest = 3
    assert bench.run(*bench.requests).batch_size == 3


def test_a_network_in_one_piece_is_run_from_its_start():
    bench = Bench(model="whole")
    first, second, _ = bench.requests
    assert bench.run(first, stop=40, preemptible=False) is not None
    with pytest.raises(PolicyError, match="runs nodes 1 to 4; workers run model 'whole' as one piece"):
        bench.run(second, start=1)


@pytest.mark.parametrize(("start", "stop", "fits"), [(0, 50, True), (1, 50, True), (2, 3, True), (2, 4, False)])
def test_a_run_goes_on_beyond_the_last_node_only_in_an_encoder_or_a_decoder(start, stop, fits):
    bench = Bench(model="gnmt")
    if fits:
        assert bench.run(bench.requests[0], start=start, stop=stop) is not None
        return
    with pytest.raises(PolicyError, match="the graph has 3; stop there at most"):
        bench.run(bench.requests[0], start=start, stop=stop)


def test_requests_that_are_given_up_with_a_lost_task_are_not_the_policys_any_more():
    bench = Bench()
    first, second, _ = bench.requests
    bench.checked.lost(bench.run(first, second), [second], 1.0)
    assert bench.run(second) is not None
    with pytest.raises(PolicyError, match="request 0, which"):
        bench.run(first)


def test_of_cells_too():
    bench = Bench(cells=True)
    first, second, _ = bench.requests
    task = bench.run(first, second, stop=1, preemptible=False, cells=(0, 0))
    again = bench.run(
        second, second, stop=1, preemptible=False, cells=(1, 2)
    )  # it runs already, and stands in the task twice
    bench.checked.lost(task, [second], 1.0)
    assert bench.end(again, second) == [second]
    for gone in (first, second):
        with pytest.raises(PolicyError, match=f"request {gone.id}, which has ended"):
            bench.run(gone, stop=1, preemptible=False, cells=(0,))


def test_a_policy_may_refuse_a_request():
    bench = Bench()
    unknown = Request(7, "bert", 0.0)
    with pytest.raises(UnknownModel, match="there is no model 'bert'"):
        bench.checked.submit(unknown, 0.0)
    with pytest.raises(PolicyError, match="request 7 of model 'bert'"):
        bench.run(unknown, model="net")


@pytest.mark.parametrize("otherwise", ["submit", "task", "end", "later"])
def test_wakeups_in_the_past_are_counted_while_nothing_else_happens(otherwise):
    bench = Bench()
    task = bench.run(bench.requests[0])
    bench.policy.at = 1.0
    for _ in range(100):
        assert bench.checked.wakeup(1.0) == 1.0
    if otherwise == "submit":
        bench.checked.submit(Request(8, "net", 0.0), 1.0)
    elif otherwise == "task":
        bench.run(bench.requests[1])
    elif otherwise == "end":
        bench.end(task)
    else:
        assert bench.checked.wakeup(0.5) == 1.0
    for _ in range(100):
        bench.checked.wakeup(1.0)
    with pytest.raises(PolicyError, match="a time in the past 101 times in turn"):
        bench.checked.wakeup(1.0)


@pytest.mark.parametrize("number", [np.float32(2.0), np.int64(2), 2])
def test_every_kind_of_number_is_a_time(number):
    bench = Bench()
    bench.policy.at = number
    assert (bench.checked.wakeup(0.0), bench.checked.latest_start(bench.requests[0])) == (2.0, 2.0)


def test_whole_numbers_may_be_numpys():
    bench = Bench()
    bench.policy.largest = np.int64(1)
    assert bench.run(bench.requests[0]) is not None
    bench.policy.ahead = np.int64(3)
    assert CheckedPolicy(bench.policy, {}, False, Ledger()).ahead == 3


def test_whoever_waits_for_nothing_is_named():
    error = Bench().checked.left_waiting(3, 1.5)
    assert "test_checked_policy:Scripted' broke a rule: it left 3 requests waiting at 1.5 s" in str(error)
