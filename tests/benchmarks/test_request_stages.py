"""The timers of a request's stages, by a clock that only the timed functions move on, and the summary of rounds."""

import asyncio

import pytest

from benchmarks import stage_server
from benchmarks.request_stages import summary
from benchmarks.stage_server import REST, Timers


@pytest.fixture
def work(monkeypatch):
    """Provide `work(ns)`, which takes time."""
    now = 0

    def work(ns):
        nonlocal now
        now += ns

    monkeypatch.setattr(stage_server, "_clock", lambda: now)
    return work


def test_a_stage_counts_without_the_stages_that_it_calls(work):
    timers = Timers()
    inner = timers.timed("inner", lambda: work(3))
    outer = timers.timed("outer", lambda: (work(10), inner(), inner(), work(1)))
    outer()
    work(100)
    inner()
    assert timers.ns == {"outer": 11, "inner": 9}
    assert timers.calls == {"outer": 1, "inner": 3}
    assert timers.us(2, process_ns=1000) == {"outer": 0.0055, "inner": 0.0045, REST: 0.49}


def test_a_coroutine_counts_while_it_runs_and_not_while_it_waits(work):
    timers = Timers()

    async def waiting():
        work(5)
        await asyncio.sleep(0)
        work(2)
        raise ValueError

    async def other():
        work(1000)

    async def both():
        return await asyncio.gather(timers.timed("stage", waiting)(), other(), return_exceptions=True)

    found, _ = asyncio.run(both())
    assert isinstance(found, ValueError)
    assert timers.ns == {"stage": 7}


def test_the_timers_own_time_is_taken_off(monkeypatch):
    ticks = iter(range(0, 10**9, 10))
    monkeypatch.setattr(stage_server, "_clock", lambda: next(ticks))  # a timer takes 10 ns in its stage, and 10 outside
    timers = Timers()
    inner = timers.timed("inner", lambda: None)
    timers.timed("outer", lambda: (inner(), inner()))()
    assert timers.ns == {"inner": 20, "outer": 30}
    assert timers.us(1, process_ns=60) == pytest.approx({"inner": 0.0, "outer": 0.0, REST: 0.0}, abs=1e-4)


def test_rounds_with_more_answers_count_more():
    rounds = [
        {"answers": 1, "rps": 1.0, "server_s": 1.0, "worker_s": 0.0},
        {"answers": 3, "rps": 3.0, "server_s": 1.0, "worker_s": 2.0},
    ]
    assert summary(rounds) == {"server_us": 0.5e6, "worker_us": 0.5e6, "rps": 2.0, "rounds": rounds}
