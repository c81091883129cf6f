"""Test the times that the benchmark of dispatch takes from the tasks of a run."""

import pytest

from benchmarks.dispatch import dispatch_of
from headrace.batching import Request, Task
from headrace.host.live.results import Execution


def execution(handed, started, ended, finished, *arrivals):
    requests = tuple(Request(number, "net", arrival) for number, arrival in enumerate(arrivals))
    return Execution(0, Task(0, "net", requests, 0, 1), handed, started, started, ended, finished, None)


def test_dispatch_is_the_time_of_a_batch_outside_its_worker():
    found = dispatch_of([execution(1.0, 1.25, 3.0, 3.5, 0.0, 0.5)], latency_s=6.5)
    assert found["dispatch_us"]["to_worker"] == {"median": 250_000, "mean": 250_000}
    assert found["dispatch_us"]["to_runtime"]["mean"] == 500_000
    assert found["share"] == pytest.approx(2 * 0.75 / 6.5), "each request of the batch waits for it"


def test_a_task_that_waits_at_its_worker_counts_from_the_end_of_the_one_before():
    first, second = execution(0.0, 0.0, 2.0, 2.0, 0.0), execution(0.5, 2.125, 3.0, 3.0, 0.5)
    assert dispatch_of([first, second], 1.0)["dispatch_us"]["to_worker"]["mean"] == pytest.approx(62_500)


def test_the_turn_round_is_that_of_batches_that_waited():
    waited = [execution(n, n, n + 0.75, n + 0.8, n - 0.5) for n in range(30)]
    assert dispatch_of(waited, 1.0)["turn_us"]["median"] == pytest.approx(250_000)
    came_later = [execution(n, n, n + 0.75, n + 0.8, n - 0.125) for n in range(30)]
    assert dispatch_of(came_later, 1.0)["turn_us"] is None
