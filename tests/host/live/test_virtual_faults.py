"""Faults in any order, in virtual time: the accounts agree at every step, and whoever asked is answered in time."""

import asyncio
import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from make_policy import make_policy
from properties import examples
from virtual_time import LoopClock, VirtualLoop
from virtual_worker import STRAIGHT, Served, VirtualWorker, balanced, value

from headrace.batching import NodeTimes
from headrace.host.live.results import NoWorker, Overloaded, RuntimeClosed, TooLate
from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import ModelError

SLOTS = 12
TIMEOUT_S, OUTAGE_S, ATTEMPTS = 1.0, 3.0, 2
# What one request may cost at most: its attempts, the pause after each, and what it waits for among all the others.
ANSWERED_S = SLOTS * (ATTEMPTS * 4 * (TIMEOUT_S + 0.5)) + OUTAGE_S
ERRORS = (NoWorker, Overloaded, RuntimeClosed, TooLate, WorkerLost, ModelError)


class Sublinear:
    def latency(self, node, batch, length):
        return (4.0 + batch + 0.3 * node) * 1e-3


class Faults(RuleBasedStateMachine):
    calls = Bundle("calls")

    @initialize(
        name=st.sampled_from(["serial", "graph", "work-conserving", "lazy", "preba-lazy", "earliest-deadline"]),
        workers=st.integers(1, 3),
        drop_late=st.booleans(),
    )
    def open(self, name, workers, drop_late):
        self.loop = VirtualLoop(horizon_s=1e5)
        times = {"net": NodeTimes(STRAIGHT, Sublinear())}
        self.served = Served(times, SLOTS)
        self.workers = [
            VirtualWorker(f"npu {n}", self.served.tasks, times, self.served.completed, 0.01) for n in range(workers)
        ]
        policy = make_policy(name, times, workers=workers, window_s=0.01, max_batch=4)
        self.pool = WorkerPool(self.workers)
        self.asked = []  # when, the caller, the first number of its input
        self.drop_late = drop_late

        async def opened():
            await self.pool.__aenter__()
            self.runtime = Runtime(
                policy,
                self.pool,
                self.served.tasks,
                RuntimeSettings(task_timeout_s=TIMEOUT_S, outage_s=OUTAGE_S, attempts=ATTEMPTS, drop_late=drop_late),
                clock=LoopClock(),
            )
            await self.runtime.__aenter__()

        self.loop.run_until_complete(opened())

    def run(self, seconds):
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def ask(self, first, left_s):
        deadline = self.loop.time() - self.runtime.origin + left_s
        call = self.loop.create_task(self.runtime.infer("net", value(first), deadline=deadline))
        self.asked.append((self.loop.time(), call, first))
        return call

    @rule(target=calls, count=st.integers(1, 5), left_s=st.sampled_from([math.inf, 0.02, 0.1]))
    def arrive(self, count, left_s):
        return multiple(*(self.ask(0.0, left_s) for _ in range(count)))

    @rule(target=calls, first=st.sampled_from([666.0, 13.0, 1000.2, 1000.7, 1060.0]))
    def arrive_with_a_fault(self, first):
        """One that raises, kills, is slow, or hangs beyond the time-out."""
        return self.ask(first, math.inf)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.005, 0.03, 0.2, 1.1, 4.0]))
    def time_passes(self, seconds):
        self.run(seconds)

    @rule(call=consumes(calls))
    def cancel(self, call):
        call.cancel()

    @rule(data=st.data())
    def kill(self, data):
        data.draw(st.sampled_from(self.workers), "worker").die()

    @rule(data=st.data())
    def hang(self, data):
        data.draw(st.sampled_from(self.workers), "worker").hang()

    @rule(data=st.data())
    def break_or_mend(self, data):
        """While it is broken, it does not start again."""
        worker = data.draw(st.sampled_from(self.workers), "worker")
        worker.broken = None if worker.broken else "no such file"

    @rule()
    def close(self):
        """Whoever is in flight is answered by the time that it has closed."""
        before = self.loop.time()
        self.run(0.0)  # who was created just now has asked
        self.loop.run_until_complete(self.runtime.close())
        self.run(0.0)
        assert self.loop.time() - before <= 6.0
        assert all(call.done() for _, call, _ in self.asked)

    @invariant()
    def the_accounts_agree(self):
        self.runtime.ledger.check()
        assert balanced(self.runtime)
        statistics = self.runtime.statistics()
        in_flight = sum(statistics.waiting.values()) + sum(statistics.running.values())
        assert in_flight == self.runtime.ledger.in_flight
        assert min([0, *statistics.waiting.values(), *statistics.running.values()]) == 0

    @invariant()
    def whoever_asked_is_answered_in_bounded_time(self):
        for when, call, _ in self.asked:
            assert call.done() or self.loop.time() - when <= ANSWERED_S

    def teardown(self):
        if not hasattr(self, "runtime"):
            return
        try:
            for worker in self.workers:
                worker.broken = None
            self.run(ANSWERED_S)
            assert all(call.done() for _, call, _ in self.asked)
            for _, call, first in self.asked:
                if call.cancelled():
                    continue
                error = call.exception()
                assert error is None or isinstance(error, ERRORS), error
                assert not isinstance(error, TooLate) or self.drop_late
                assert error is not None or first not in (666.0, 13.0, 1060.0)
                assert not isinstance(error, ModelError) or first == 666.0
            ledger = self.runtime.ledger
            assert ledger.in_flight == 0 and balanced(self.runtime)
            cancelled = sum(call.cancelled() for _, call, _ in self.asked)
            answered = sum(not call.cancelled() and call.exception() is None for _, call, _ in self.asked)
            assert answered <= ledger.finished <= answered + cancelled
            assert self.served.tasks.arena_use() == {"net": (0, SLOTS)}
            assert not self.served.completed or max(self.served.completed.values()) == 1
            self.loop.run_until_complete(self.runtime.close())
            self.loop.run_until_complete(self.pool.close())
            assert not asyncio.all_tasks(self.loop)
        finally:
            self.served.tasks.close()
            self.loop.close()


TestFaults = Faults.TestCase
TestFaults.settings = settings(examples(12, 400), stateful_step_count=25)
