"""A live run ends when all requests are answered, with the error of one that is not, or after a bound."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from headrace.batching import HeadraceError, Served
from headrace.host.validation import live


class FakeRuntime:
    """Answers each request after `delay_s`; the request of number `fails` has an error."""

    origin = 0.0

    def __init__(self, delay_s=0.0, fails=None):
        self.delay_s, self.fails, self.arrivals = delay_s, fails, []

    async def infer(self, model, given, *, arrival, deadline):
        self.arrivals.append(arrival)
        await asyncio.sleep(self.delay_s)
        if given == self.fails:
            raise ValueError("the worker was lost")
        return SimpleNamespace(served=Served(arrival, arrival, arrival, arrival + self.delay_s, deadline, 1))


def send(runtime, count=4):
    return asyncio.run(live.open_loop(runtime, "net", lambda number: (number, {}), np.arange(1, count + 1) / 100, 0.5))


def test_every_request_is_sent_at_its_planned_time_and_answered():
    runtime = FakeRuntime()
    served, late = send(runtime)
    assert len(served) == len(late) == 4 and all(each >= 0 for each in late)
    assert np.diff(runtime.arrivals) == pytest.approx([0.01] * 3)
    assert all(each.deadline - each.arrival == pytest.approx(0.5) for each in served)


def test_the_error_of_a_request_ends_the_run():
    with pytest.raises(ValueError, match="the worker was lost"):
        send(FakeRuntime(fails=2))


def test_a_run_without_answers_ends_after_a_bound(monkeypatch):
    monkeypatch.setattr(live, "END_S", 0.05)
    with pytest.raises(HeadraceError, match="4 of 4 requests were not answered"):
        send(FakeRuntime(delay_s=60.0))
