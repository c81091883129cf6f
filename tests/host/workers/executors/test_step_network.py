"""Step models under node-level policies: every request gets the output that it has alone.

This holds whatever requests join, leave, are interrupted or lost.
"""

import random
import sys
import weakref
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from headrace.batching import BadInput, LazyBatching, NodeTimes, Request, Task, UsageError
from headrace.batching.request import UNTIL_END
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.executors.step_network import StepNetwork
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.step_models import LoadedSteps, load_steps, run_alone
from headrace.host.workers.networks.steps import EOS

EXAMPLES = Path(__file__).parents[4] / "examples"
ROOM = {"longest_input": 12, "longest_output": 10}
NETWORKS = {
    "lstm": Network("lstm", "lstm", 16, 40, seed=3, **ROOM),
    "seq2seq": Network("seq2seq", "seq2seq", 32, 12, seed=6, **ROOM),
    "transformer": Network("transformer", "transformer", 32, 12, seed=1, heads=4, **ROOM),
    "own": Network("own", "moving_average:Model", **ROOM),
    "stray": Network("stray", "small_steps:stray", **ROOM),
    "sections": Network("sections", "small_steps:sections", seed=4, **ROOM),
}
LONG = Network("long", "moving_average:Model", longest_input=60, longest_output=10)  # of 64 that it has room for


@cache
def loaded(kind: str) -> LoadedSteps:
    sys.path.insert(0, str(EXAMPLES))
    try:
        return load_steps(LONG if kind == "long" else NETWORKS[kind])
    finally:
        sys.path.remove(str(EXAMPLES))


@cache
def alone(kind: str, tokens: tuple[int, ...], limit: int):
    return run_alone(loaded(kind), tokens, limit)


class Served:
    """A step network with slots, and requests of random tokens in them."""

    def __init__(self, kind: str, slots: int, rng: random.Random) -> None:
        self.kind, self.rng = kind, rng
        self.signature = loaded(kind).signature
        self.arena = SlotArena({kind: (self.signature.inputs, self.signature.outputs)}, slots)
        weakref.finalize(self, self.arena.close)
        self.views = self.arena.views[kind]
        self.network = StepNetwork(loaded(kind), self.views, torch.device("cpu"), slots)
        self.slots: dict[int, int] = {}
        self.tokens: dict[int, tuple[int, ...]] = {}

    def request(self, id: int, length: int | None = None, limit: int | None = None) -> Request:
        tokens = tuple(self.rng.randrange(self.signature.vocabulary) for _ in range(length or self.rng.randint(1, 12)))
        slot = self.arena.acquire(self.kind)
        self.views.inputs[0].at(slot, len(tokens))[...] = tokens
        self.views.outputs[0].at(slot, 10)[...] = -7
        self.slots[id], self.tokens[id] = slot, tokens
        limit = limit or self.rng.randint(1, 10)
        return Request(id, self.kind, 0.0, deadline=1e9, input_len=float(len(tokens)), output_len=limit)

    def run(self, task: Task, interrupt_sent=lambda: False) -> Task:
        return self.network.run(task, [self.slots[request.id] for request in task.requests], interrupt_sent)

    def check(self, request: Request, task: Task) -> None:
        """Check the output, and that nothing is written after it in the slot. Then free the slot."""
        slot = self.slots.pop(request.id)
        expected = alone(self.kind, self.tokens[request.id], request.output_len)
        if isinstance(expected, list):
            (lengths,) = self.network.output_lengths(task)
            length = lengths[[one.id for one in task.requests].index(request.id)]
            assert self.views.outputs[0].at(slot, 10).tolist() == expected + [-7] * (10 - length)
        else:
            assert self.network.output_lengths(task) == []
            np.testing.assert_allclose(self.views.outputs[0].at(slot), expected.numpy(), rtol=1e-4, atol=1e-5)
        self.arena.release(self.kind, slot)


class Unit:
    def latency(self, node: int, batch: int, length: float) -> float:
        return 1.0


@pytest.mark.parametrize("kind", NETWORKS)
@examples(12, 100)
@given(
    seed=st.integers(0, 1 << 32), slots=st.integers(1, 6), interrupts=st.floats(0, 1), losses=st.sampled_from([0, 0.1])
)
def test_lazy_batching_gives_each_request_the_output_it_has_alone(kind, seed, slots, interrupts, losses):
    rng = random.Random(seed)
    served = Served(kind, slots, rng)
    policy = LazyBatching({kind: NodeTimes(served.network.graph, Unit())}, 1, slots, {kind: 10})
    submitted = finished = 0

    def arrive() -> bool:
        nonlocal submitted
        if submitted < 14 and served.arena.free(kind) and rng.random() < 0.5:
            policy.submit(served.request(submitted), 0.0)
            submitted += 1
        return rng.random() < interrupts

    while finished < 14:
        arrive()
        task = policy.next_task(0, 0.0)
        if task is None:
            continue
        ended = served.run(task, arrive)
        if rng.random() < losses:
            served.network.drop()
            assert policy.complete(task.lost(task.requests), 0.0) == []
            continue
        assert task.start < ended.stop <= task.stop
        for request in policy.complete(ended, 0.0):
            served.check(request, ended)
            finished += 1


@pytest.mark.parametrize("kind", NETWORKS)
@examples(12, 100)
@given(seed=st.integers(0, 1 << 32), size=st.integers(1, 6))
def test_a_whole_graph_task_gives_each_request_the_output_it_has_alone(kind, seed, size):
    served = Served(kind, 6, random.Random(seed))
    nodes = len(served.network.graph.nodes)
    for turn in range(2):  # in the second the slots hold the states of the first
        requests = tuple(served.request(10 * turn + number) for number in range(size))
        task = served.run(Task(turn, kind, requests, 0, nodes))
        assert task.stop == nodes
        for request in requests:
            served.check(request, task)


def test_a_preemptible_run_asks_at_each_boundary_behind_the_first_and_ends_with_the_first_output():
    served = Served("transformer", 2, random.Random(0))
    requests = (served.request(0, limit=4), served.request(1, limit=2))
    assert not any(EOS in alone("transformer", served.tokens[r.id], r.output_len) for r in requests)
    asked = []
    task = served.run(Task(0, "", requests, 0, UNTIL_END, True), lambda: asked.append(True))
    assert (task.stop, task.ended, len(asked)) == (3, requests[1:], 2)  # the encoder and two decoder steps
    assert served.network.output_lengths(task) == [[2, 2]]
    served.check(requests[1], task)
    task = served.run(Task(1, "", requests[:1], 1, UNTIL_END, True), lambda: True)
    assert (task.stop, task.ended) == (2, ())
    task = served.run(Task(2, "", requests[:1], 1, UNTIL_END, True), lambda: True)
    assert (task.stop, task.ended) == (2, requests[:1])
    served.check(requests[0], task)


def test_a_request_that_begins_again_after_its_states_were_dropped_begins_anew():
    served = Served("lstm", 1, random.Random(2))
    request = served.request(0, length=8)
    assert served.run(Task(0, "", (request,), 0, 5, True)).stop == 5
    served.network.drop()
    task = served.run(Task(1, "", (request,), 0, 8, True))
    served.check(request, task)


def test_nothing_goes_on_from_where_a_task_failed(monkeypatch):
    served = Served("lstm", 2, random.Random(2))
    requests = served.request(0, length=8), served.request(1, length=8)
    module, calls = loaded("lstm").modules[0], []
    forward = module.forward

    def fails_at_the_third(*given):
        calls.append(given)
        if len(calls) == 3:
            raise RuntimeError("out of luck")
        return forward(*given)

    monkeypatch.setattr(module, "forward", fails_at_the_third)
    for number, preemptible in enumerate((True, False)):
        calls.clear()
        with pytest.raises(RuntimeError, match="out of luck"):
            served.run(Task(number, "", requests, 0, 8 if preemptible else 1, preemptible))
    task = served.run(Task(2, "", requests, 0, 8, True))
    for request in requests:
        served.check(request, task)


def test_what_cannot_be_run_is_refused():
    served = Served("seq2seq", 1, random.Random(2))
    request = served.request(0)
    with pytest.raises(ValueError, match="states are not here"):
        served.run(Task(0, "", (request,), 1, UNTIL_END, True))
    for wrong, text in (
        (Request(0, "", 0.0, input_len=13.0), "13 tokens; give at most 12"),
        (Request(0, "", 0.0, output_len=11), "up to 11 tokens; give 1 to 10"),
    ):
        with pytest.raises(ValueError, match=text):
            served.run(Task(0, "", (wrong,), 0, 2))
    long = Served("long", 1, random.Random(2))
    with pytest.raises(BadInput, match="an input of 60 tokens and max_steps 5 need 65"):
        long.run(Task(0, "", (long.request(0, length=60, limit=5),), 0, 2))
    with pytest.raises(UsageError, match="serve it by cells"):
        StepNetwork(load_steps(Network("t", "treelstm", 8, 9)), served.views, torch.device("cpu"), 1)


def test_a_warm_up_runs_every_step_and_leaves_no_state():
    served = Served("own", 2, random.Random(2))
    served.network.warm_up(5)
    request = served.request(0)
    task = served.run(Task(0, "", (request,), 0, 2))
    served.check(request, task)
