"""How long a worker that stands in for hardware takes for a task. No clock runs here."""

import time

import pytest

from headrace.batching import ModelGraph, Node, NodeKind, NodeTimes, Profile, ProfilePoint, Request, Task
from headrace.host.workers.messages import write_nodes
from headrace.host.workers.simulated import SimulatedExecutor


class Tenth:
    def latency(self, node, batch, length):
        return 0.1


class Sleeper:
    """Records how long the worker sleeps."""

    def sleep(self, until):
        self.seconds = until - time.monotonic()


@pytest.mark.parametrize(("padded_to", "steps"), [(0.0, 21), (30.0, 30)])
def test_a_batch_takes_as_long_as_what_it_is_padded_to(padded_to, steps):
    graph = ModelGraph("lstm", (Node("cell", NodeKind.ENCODER),))
    requests = tuple(Request(number, "lstm", 0.0, input_len=length) for number, length in enumerate((21, 4)))
    task = Task(0, "lstm", requests, 0, 1, padded_to=padded_to)
    sleeper = Sleeper()
    SimulatedExecutor([NodeTimes(graph, Tenth())]).run(memoryview(write_nodes(0, task, [0, 1])), sleeper)
    assert sleeper.seconds == pytest.approx(0.1 * steps, abs=0.09)


def test_a_batch_of_a_measured_network_takes_as_long_as_its_longest_input():
    points = [
        ProfilePoint(batch, 0.1 * batch * seconds, 10.0, 100.0 * seconds) for seconds in (1, 5) for batch in (1, 2)
    ]
    profile = Profile("net", 1, tuple(points), step_s=0.01)
    requests = tuple(Request(number, "net", 0.0, input_len=length) for number, length in enumerate((100, 300)))
    sleeper = Sleeper()
    SimulatedExecutor([profile.times()]).run(
        memoryview(write_nodes(0, Task(0, "net", requests, 0, 1), [0, 1])), sleeper
    )
    assert sleeper.seconds == pytest.approx(0.6, abs=0.09)
