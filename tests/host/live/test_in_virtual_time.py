"""The live runtime's own behaviour at exact instants, in virtual time: windows, deadlines, faults, pauses, the end."""

import asyncio
import errno
import itertools
import logging
import math

import numpy as np
import pytest
from virtual_time import LoopClock
from virtual_worker import OPAQUE, STRAIGHT, Flat, serve, value

from headrace.batching import (
    BadInput,
    EarliestDeadlineBatching,
    GraphBatching,
    LazyBatching,
    NodeTimes,
    Profile,
    ProfilePoint,
    SerialBatching,
    UnknownModel,
    WorkConservingBatching,
)
from headrace.host.live.results import NoWorker, Overloaded, RuntimeClosed, TooLate
from headrace.host.live.runtime import Runtime
from headrace.host.live.supervision import LONGEST_PAUSE_S
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import ModelError
from headrace.sim.engine import Arrivals
from headrace.sim.engine import run as simulate

TASK_S = 0.01
TIMES = {"net": NodeTimes(OPAQUE, Flat(TASK_S))}
NODE_TIMES = {"net": NodeTimes(STRAIGHT, Flat(1.0))}  # eight nodes


def graph(window_s=0.02, max_batch=4):
    return GraphBatching([OPAQUE], window_s, max_batch)


def at(*instants):
    return pytest.approx(list(instants), abs=1e-9, rel=0)


def clock():
    return asyncio.get_running_loop().time()


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def ask(runtime, *firsts, **options):
    return [asyncio.create_task(runtime.infer("net", value(first), **options)) for first in firsts]


async def finished(calls):
    return [inference.served.finished for inference in await asyncio.gather(*calls)]


# ---- windows and turns ----


def test_a_lone_request_starts_when_its_window_ends_and_says_so():
    async def body(runtime, _, served):
        times = (await runtime.infer("net", value())).served
        assert [times.queued, times.started, times.finished] == at(0.0, 0.1, 0.11)
        assert [execution.task.reason for execution in served.executions] == ["window"]
        assert runtime.statistics().reasons == {"window": 1}

    serve(graph(window_s=0.1), TIMES, body)


def test_an_alarm_rings_when_its_time_has_come_though_times_are_rounded(monkeypatch):
    """Times count from an origin, and the sum of both is rounded. An alarm that rang too early would be set anew to the
    same time, for ever."""
    monkeypatch.setattr("virtual_time.MAX_TURNS", 1000)

    async def body(runtime, _, served):
        for _ in range(200):
            times = (await runtime.infer("net", value())).served
            assert times.started - times.queued == pytest.approx(0.1, abs=1e-9)
            await asyncio.sleep(0.0137)

    serve(graph(window_s=0.1), TIMES, body, origin=7.3)  # sums of both have fewer digits for a time than it has itself


class Withholding:
    """LazyBatching that keeps request 1 back until 6.5 s. It also wants to be asked at 3.5 s, for nothing."""

    def __init__(self):
        self._policy = LazyBatching(NODE_TIMES, 2, 8)
        self._kept, self._instants = None, [3.5, 6.5]

    def __getattr__(self, name):
        return getattr(self._policy, name)

    def submit(self, request, now):
        if request.id == 1:
            self._kept = request
        else:
            self._policy.submit(request, now)

    def next_task(self, worker, now):
        self._instants = [instant for instant in self._instants if instant > now]
        if not self._instants and self._kept is not None:
            self._policy.submit(self._kept, now)
            self._kept = None
        return self._policy.next_task(worker, now)

    def wakeup(self):
        return min([*self._instants, self._policy.wakeup()])


def test_a_wakeup_interrupts_what_runs_though_no_task_follows_as_in_the_simulator():
    arrivals = [0.0, 0.25]
    load = Arrivals(["net"] * 2, arrivals, [math.inf] * 2, [1.0] * 2, [1] * 2)
    simulated = simulate(Withholding(), load, NODE_TIMES, 2)

    async def body(runtime, _, served):
        first = ask(runtime, 0.0)
        await asyncio.sleep(arrivals[1])
        assert await finished(first + ask(runtime, 0.0)) == at(*simulated.finished)
        return served.schedule

    schedule = serve(Withholding(), NODE_TIMES, body, workers=2)
    assert schedule[:2] == [(0, 0, 1, [0]), (0, 1, 4, [0])]  # for the arrival, and for the wakeup
    assert len(schedule) == simulated.tasks


def test_what_happens_in_one_turn_is_told_before_the_policy_is_asked():
    """Eight requests at one instant make one batch, as in the simulator; asked at each, they would make two."""

    async def body(runtime, _, served):
        assert await finished(ask(runtime, *[0.0] * 8)) == at(*[TASK_S] * 8)
        assert served.schedule == [(0, 0, 1, list(range(8)))]

    serve(WorkConservingBatching([OPAQUE], 8), TIMES, body)


def test_whole_graph_batches_take_the_modelled_time_and_are_not_interrupted():
    async def body(runtime, _, served):
        calls = ask(runtime, 0.0)
        await asyncio.sleep(0.2)
        calls += ask(runtime, 0.0)
        await asyncio.sleep(2.8)
        calls += ask(runtime, 0.0)
        done = await asyncio.gather(*calls)
        assert [one.served.finished for one in done] == at(9.0, 9.0, 17.0)
        assert [one.execute_s for one in done] == at(8.0, 8.0, 8.0)
        assert served.schedule == [(0, 0, 8, [0, 1]), (0, 0, 8, [2])]

    serve(GraphBatching([STRAIGHT], 1.0, 4), NODE_TIMES, body)


def test_accelerators_work_side_by_side():
    async def body(runtime, _, served):
        calls = ask(runtime, 0.0)
        await asyncio.sleep(0.2)  # at one instant they would be one batch
        assert await finished(calls + ask(runtime, 0.0)) == at(8.0, 8.2)
        assert {execution.worker for execution in served.executions} == {0, 1}

    serve(LazyBatching(NODE_TIMES, 2), NODE_TIMES, body, workers=2)


def test_an_interrupted_task_ends_at_its_first_boundary_and_newcomers_join_it():
    """The second request comes while the first one's task is in node 0: both run together from node 1 on."""

    async def body(runtime, _, served):
        calls = ask(runtime, 0.0)
        await asyncio.sleep(0.2)
        assert await finished(calls + ask(runtime, 0.0)) == at(9.0, 9.0)
        assert served.schedule == [(0, 0, 1, [0]), (0, 0, 1, [1]), (0, 1, 8, [0, 1])]

    serve(LazyBatching(NODE_TIMES, 1, 8), NODE_TIMES, body)


def test_an_idle_runtime_asks_its_policy_nothing():
    asked = []

    async def body(runtime, *_):
        before = len(asked)
        await asyncio.sleep(60.0)
        assert len(asked) == before

    serve(Watched(graph(), asked.append), TIMES, body)


# ---- workers that are lost ----


def test_requests_of_a_killed_worker_run_again_and_the_worker_comes_back():
    async def body(runtime, workers, served):
        calls = ask(runtime, *[1000.75] * 4)
        await asyncio.sleep(0.3)
        workers[0].die()
        # The first is a suspect now. Each worker has begun a suspect's turn already, so another's comes next.
        assert await finished(calls) == at(1.82, 0.76, 1.06, 1.52)
        assert runtime.statistics().workers_lost == 1 and runtime.statistics().workers_up == 2
        assert workers[0].starts == at(0.0, 0.3)
        assert {execution.worker for execution in served.executions[-2:]} == {0, 1}

    serve(SerialBatching([OPAQUE], workers=2), TIMES, body, workers=2)


def test_both_workers_killed_at_once_cost_nobody_an_answer():
    async def body(runtime, workers, _):
        calls = ask(runtime, *[1000.5] * 8)
        await asyncio.sleep(0.3)
        for worker in workers:
            worker.die()
        assert max(await finished(calls)) == pytest.approx(0.3 + 4 * 0.51)
        assert runtime.statistics().workers_lost == 2

    serve(SerialBatching([OPAQUE], workers=2), TIMES, body, workers=2)


def test_a_request_that_kills_fails_with_its_second_kill_and_takes_nobody_along():
    async def body(runtime, *_):
        good, (bad,) = ask(runtime, *[0.0] * 5), ask(runtime, 13)
        good += ask(runtime, *[0.0] * 3)
        assert max(await finished(good)) == pytest.approx(8 * TASK_S)  # each alone, and the two kills take no time
        with pytest.raises(WorkerLost, match="died"):
            await bad
        assert (runtime.ledger.finished, runtime.ledger.failed, runtime.statistics().workers_lost) == (8, 1, 2)

    serve(WorkConservingBatching([OPAQUE], 8), TIMES, body)


def test_sixteen_requests_that_kill_among_eight_hundred_fail_alone():
    bad = set(range(25, 800, 50))

    async def body(runtime, *_):
        calls = ask(runtime, *(13 if n in bad else 0 for n in range(800)))
        for n, one in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
            assert isinstance(one, WorkerLost) if n in bad else one.output.shape == (3,)
        assert (runtime.ledger.finished, runtime.ledger.failed) == (784, 16)
        assert runtime.statistics().workers_lost == 32

    serve(WorkConservingBatching([OPAQUE], 8), TIMES, body, workers=2, slots=800)


def test_a_request_that_raises_takes_nobody_along():
    async def body(runtime, *_):
        calls = ask(runtime, *(666 if n in (3, 11) else 0 for n in range(16)))
        for n, one in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
            if n in (3, 11):
                assert isinstance(one, ModelError) and "unlucky number" in str(one)
            else:
                assert one.output.shape == (3,)
        assert (runtime.ledger.finished, runtime.ledger.failed, runtime.statistics().workers_lost) == (14, 2, 0)

    serve(WorkConservingBatching([OPAQUE], 8), TIMES, body)


def test_suspects_do_not_hold_up_the_others():
    """While eight suspects are looked for one by one, newcomers take turns with them."""

    async def body(runtime, *_):
        slow, (bad,) = ask(runtime, *[1000.125] * 7), ask(runtime, 13)
        await until(lambda: runtime.statistics().workers_lost == 1)
        asked = clock()
        newcomer = await runtime.infer("net", value())
        assert newcomer.served.finished <= asked + 0.135 + TASK_S + 1e-9  # one suspect at most ran before it
        assert sum(call.done() for call in slow) <= 1
        await asyncio.gather(*slow)
        with pytest.raises(WorkerLost):
            await bad

    serve(WorkConservingBatching([OPAQUE], 8), TIMES, body)


def test_a_hanging_request_fails_after_its_attempts_and_the_others_finish():
    async def body(runtime, workers, _):
        (poison,) = ask(runtime, 1050)
        await asyncio.sleep(0.05)
        others = ask(runtime, 0, 0, 0)
        with pytest.raises(WorkerLost, match=r"within 1\.0 s"):
            await poison
        assert workers[0].starts == at(0.0, 1.1, 2.2) and clock() == pytest.approx(2.2)  # looked for every 0.1 s
        await asyncio.gather(*others)
        assert (runtime.ledger.finished, runtime.ledger.failed, runtime.statistics().workers_lost) == (3, 1, 2)

    serve(SerialBatching([OPAQUE]), TIMES, body, task_timeout_s=1.0, attempts=2)


def test_a_worker_that_hangs_is_killed_and_started_again():
    async def body(runtime, workers, _):
        workers[0].hang()
        assert await finished(ask(runtime, 0)) == at(1.1 + TASK_S)
        assert runtime.statistics().workers_lost == 1

    serve(graph(), TIMES, body, task_timeout_s=1.0)


def test_twelve_kills_in_a_row_lose_no_request():
    async def body(runtime, workers, _):
        calls = ask(runtime, *[1000.015625] * 200)
        for n in range(12):
            await asyncio.sleep(0.1)
            workers[n % 2].die()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, WorkerLost) or one.output.shape == (3,) for one in done)
        assert runtime.statistics().workers_lost == 12 and runtime.statistics().workers_up == 2
        await runtime.infer("net", value())
        assert runtime.ledger.submitted == 201

    serve(WorkConservingBatching([OPAQUE], 4), TIMES, body, slots=256, workers=2)


def test_without_any_worker_requests_are_answered_in_bounded_time_and_served_when_one_is_back():
    async def body(runtime, workers, _):
        (begun,) = ask(runtime, 1000.5)
        await asyncio.sleep(0.2)
        workers[0].broken = "there is no file smallnet.py"
        workers[0].die()
        for call in [begun, *ask(runtime, 0)]:
            with pytest.raises(NoWorker, match=r"no file smallnet\.py"):  # and why it does not start
                await call
            assert 4.2 <= clock() <= 4.3 + 1e-9  # looked for every 0.1 s
        asked = clock()
        with pytest.raises(NoWorker):
            await runtime.infer("net", value())
        assert clock() == asked
        workers[0].broken = None
        await until(lambda: runtime.statistics().workers_up == 1)
        assert workers[0].starts == at(0.0, 0.2, 0.3, 0.5, 0.9, 1.7, 3.3, 6.5)
        await runtime.infer("net", value())

    serve(graph(), TIMES, body, outage_s=4.0)


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "too many files"), OSError(errno.EAGAIN, "no process"), MemoryError(), KeyError(1)]
)
def test_whatever_a_start_raises_the_next_one_is_tried_and_nothing_ends_the_runtime(error):
    async def body(runtime, workers, _):
        workers[0].broken = error
        workers[0].die()
        await asyncio.sleep(1.0)
        assert workers[0].starts == at(0.0, 0.0, 0.1, 0.3, 0.7)
        workers[0].broken = None
        assert await finished(ask(runtime, 0)) == at(1.5 + TASK_S)

    serve(WorkConservingBatching([OPAQUE], 4), TIMES, body)


def test_a_worker_whose_end_fails_is_started_again(monkeypatch):
    async def body(runtime, workers, _):
        async def stop():
            monkeypatch.undo()
            raise OSError(errno.EMFILE, "too many files")

        monkeypatch.setattr(workers[0], "stop", stop)
        (call,) = ask(runtime, 13.0)
        with pytest.raises(WorkerLost, match="too many files"):
            await call
        assert (await runtime.infer("net", value())).output.shape == (3,)

    serve(WorkConservingBatching([OPAQUE], 4), TIMES, body, attempts=1)


def test_pauses_between_starts_grow_and_stay_short_enough_to_serve_within_ten_seconds():
    async def body(runtime, workers, _):
        workers[0].broken = "not yet"
        workers[0].die()
        await asyncio.sleep(60.0)
        starts = workers[0].starts[1:]
        pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
        assert pauses == at(*(0.1 * 2**n for n in range(6)), *[LONGEST_PAUSE_S] * (len(pauses) - 6))
        assert len(pauses) == 14 and LONGEST_PAUSE_S < 10.0

    serve(graph(), TIMES, body)


def test_a_task_beyond_its_time_limit_loses_the_accelerator_and_its_request():
    async def body(runtime, *_):
        with pytest.raises(WorkerLost, match=r"npu 0 did not answer within 0\.25 s"):
            await runtime.infer("net", value())
        assert runtime.statistics().workers_lost == 2  # with the first of its two attempts, too
        assert clock() == pytest.approx(0.6)

    serve(GraphBatching([STRAIGHT], 0.0), NODE_TIMES, body, task_timeout_s=0.25)


# ---- what is refused or shed ----


def test_more_requests_than_slots_are_shed_with_a_clear_error():
    async def body(runtime, *_):
        done = await asyncio.gather(*ask(runtime, *[0] * 6), return_exceptions=True)
        assert sum(isinstance(one, Overloaded) for one in done) == 2
        assert (runtime.ledger.finished, runtime.ledger.shed) == (4, 2)

    serve(graph(), TIMES, body, slots=4)


def test_ten_times_the_load_that_can_be_served_is_answered_or_shed():
    async def body(runtime, *_):
        calls = []
        for _ in range(400):  # 2000/s; a worker serves 4 in 20 ms, 200/s
            calls += ask(runtime, 1000.0025)
            await asyncio.sleep(0.0005)
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, Overloaded) or one.output.shape == (3,) for one in done)
        assert runtime.ledger.shed > 300 and runtime.ledger.finished >= 40
        assert max(one.served.finished - one.served.arrival for one in done if not isinstance(one, Overloaded)) < 0.11

    serve(graph(0.001), TIMES, body, slots=16)


def test_a_bad_input_is_refused_and_costs_nothing():
    async def body(runtime, _, served):
        with pytest.raises(UnknownModel):
            await runtime.infer("other", value())
        for given, options, text in [
            (np.zeros(3, np.float32), {}, r"float32\(3,\)"),
            (value().astype(np.float64), {}, "float64"),
            ({"y": value()}, {}, "has no input 'y'"),
            ({}, {}, "no input"),
            (value(), {"arrival": math.nan}, "arrival is nan"),
            (value(), {"deadline": math.nan}, "deadline nan"),
            (value(), {"input_len": math.nan}, "_len is"),
            (value(), {"input_len": 0}, "_len is"),
            (value(), {"output_len": 0}, "_len is"),
            (value(), {"output_len": 2.5}, "_len is"),
        ]:
            with pytest.raises(BadInput, match=text):
                await runtime.infer("net", given, **options)
        assert runtime.ledger.submitted == 0 and served.tasks.arena.free("net") == 16
        assert await finished(ask(runtime, 0)) == at(0.02 + TASK_S)

    serve(graph(), TIMES, body)


def test_times_may_be_whole_numbers_and_numbers_of_numpy():
    async def body(runtime, *_):
        for arrival, deadline in ((0, 9), (np.float64(0), np.float64(9)), (np.float32(0), np.int64(9))):
            served = (await runtime.infer("net", value(), arrival=arrival, deadline=deadline)).served
            assert (served.arrival, served.deadline) == (0.0, 9.0)

    serve(graph(), TIMES, body)


# ---- callers that give up, and deadlines ----


def test_a_caller_that_gives_up_before_its_request_began_takes_it_out_again():
    async def body(runtime, _, served):
        (running,) = ask(runtime, 1000.25)
        await asyncio.sleep(0.1)
        (waiting,) = ask(runtime, 0)
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert served.tasks.arena.free("net") == 1 and runtime.ledger.cancelled == 1
        assert await finished([running]) == at(0.26)
        assert runtime.statistics().tasks == 1  # it never ran

    serve(WorkConservingBatching([OPAQUE], 1), TIMES, body, slots=2)


def test_a_single_worker_has_the_next_request_alone_before_it_ends_the_one_before():
    async def body(runtime, workers, served):
        calls = ask(runtime, 1000.25, 0, 0)
        await asyncio.sleep(0.1)
        (worker,) = workers
        assert worker.tasks == 2
        # Only the first has begun, as in the simulator. The second cannot be taken out of its worker, the third can.
        assert (runtime.statistics().running, runtime.statistics().waiting) == ({"net": 1}, {"net": 2})
        for call in calls[1:]:
            call.cancel()
        await asyncio.gather(*calls[1:], return_exceptions=True)
        assert await finished(calls[:1]) == at(0.26)
        assert await finished(ask(runtime, 0)) == at(0.26 + 2 * TASK_S)
        assert (runtime.ledger.finished, runtime.ledger.cancelled) == (3, 1)
        first, second, _ = served.executions
        assert second.started == first.ended and second.handed < first.ended

    serve(SerialBatching([OPAQUE]), TIMES, body)


def test_a_request_that_may_be_dropped_is_not_sent_ahead():
    async def body(runtime, workers, _):
        calls = ask(runtime, 1000.25, 0)
        await asyncio.sleep(0.1)
        assert workers[0].tasks == 1
        assert await finished(calls) == at(0.26, 0.26 + TASK_S)

    serve(SerialBatching([OPAQUE]), TIMES, body, drop_late=True)


def test_a_caller_that_gives_up_later_leaves_the_accounts_in_order():
    async def body(runtime, *_):
        (caller,) = ask(runtime, 1000.25)
        await asyncio.sleep(0.1)
        caller.cancel()
        assert await finished(ask(runtime, 0)) == at(0.26 + TASK_S)
        assert (runtime.ledger.finished, runtime.ledger.cancelled) == (2, 0)

    serve(graph(0.0), TIMES, body)


def test_callers_that_give_up_at_any_time_lose_nothing():
    rng = np.random.default_rng(3)

    async def body(runtime, *_):
        calls = []
        for n in range(300):
            calls += ask(runtime, 1000.005)  # most still wait
            await asyncio.sleep(0)
            if n % 3 == 0:
                calls[int(rng.integers(len(calls)))].cancel()
            if n % 20 == 0:
                await asyncio.sleep(0.01)
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in done) > 50
        await until(lambda: runtime.ledger.in_flight == 0)
        assert runtime.ledger.cancelled > 0

    serve(graph(0.002), TIMES, body, slots=400, workers=2)


@pytest.mark.parametrize("drop", [True, False])
def test_what_has_not_begun_by_its_deadline_is_dropped_only_if_asked_for(drop):
    async def body(runtime, *_):
        (running,) = ask(runtime, 1000.5)
        await asyncio.sleep(0.1)
        (late,) = ask(runtime, 0, deadline=0.2)
        if drop:
            with pytest.raises(TooLate, match="by its deadline"):
                await late
            assert clock() == pytest.approx(0.2, abs=1e-9)  # at its deadline, not when a worker is idle
            assert runtime.ledger.dropped == 1 and not running.done()
        else:
            assert await finished([late]) == at(0.51 + TASK_S)
        assert await finished([running]) == at(0.51)

    serve(SerialBatching([OPAQUE]), TIMES, body, drop_late=drop)


def test_what_a_policy_knows_to_be_hopeless_is_dropped_before_its_deadline():
    points = (ProfilePoint(1, 0.2, 5.0), ProfilePoint(2, 0.2, 10.0))
    known = {"net": Profile("net", 1, points).times()}

    async def body(runtime, *_):
        (running,) = ask(runtime, 1000.5)
        await asyncio.sleep(0.1)
        with pytest.raises(TooLate, match=r"by its deadline, in 200\.0 ms, and takes longer than that"):
            await runtime.infer("net", value(), deadline=0.4)  # and 0.2 are needed
        assert clock() == pytest.approx(0.2, abs=1e-9)
        await running
        assert runtime.ledger.dropped == 1

    serve(EarliestDeadlineBatching(known, 1), TIMES, body, drop_late=True)


# ---- the end ----


def test_closing_answers_what_is_in_flight_at_once():
    async def body(runtime, *_):
        (running,) = ask(runtime, 1030)
        await asyncio.sleep(0.2)
        await runtime.close()
        assert clock() == pytest.approx(0.2) and not runtime.broken
        with pytest.raises(RuntimeClosed):
            await running
        with pytest.raises(RuntimeClosed):
            await runtime.infer("net", value())

    serve(graph(), TIMES, body, task_timeout_s=7200)


class Watched:
    """A policy whose `next_task` is watched; compiled classes cannot be inherited from."""

    def __init__(self, policy, watch):
        self._policy, self._watch = policy, watch

    def __getattr__(self, name):
        return getattr(self._policy, name)

    def next_task(self, worker, now):
        self._watch(now)
        return self._policy.next_task(worker, now)


def test_a_closed_runtime_asks_its_policy_nothing_more():
    asked = []

    async def body(runtime, *_):
        calls = ask(runtime, *[1000.125] * 3)
        await asyncio.sleep(0.05)
        await runtime.close()
        before = len(asked)
        assert before > 0
        await asyncio.sleep(60.0)
        assert len(asked) == before
        assert all(isinstance(call.exception(), RuntimeClosed) for call in calls)

    serve(Watched(SerialBatching([OPAQUE]), asked.append), TIMES, body)


def test_an_error_of_the_policy_ends_all_requests_and_says_so(caplog):
    def fail(now):
        if now > 0.2:
            raise KeyError("no such queue")

    async def body(runtime, *_):
        await asyncio.sleep(0.3)
        assert not runtime.broken
        for call in ask(runtime, 0, 0, 0):
            with pytest.raises(RuntimeClosed, match="no such queue"):
                await call
        with pytest.raises(RuntimeClosed, match="no such queue"):
            await runtime.infer("net", value())
        assert clock() == pytest.approx(0.3) and runtime.broken
        await runtime.close()
        assert not runtime.broken

    with caplog.at_level(logging.CRITICAL, "headrace"):
        serve(Watched(SerialBatching([OPAQUE]), fail), TIMES, body)


def test_a_task_that_raised_counts_no_nodes():
    async def body(runtime, _, served):
        with pytest.raises(ModelError):
            await runtime.infer("net", value(666))
        (execution,) = served.executions
        assert execution.error and execution.nodes == 0
        assert runtime.statistics().node_runs == runtime.statistics().request_node_runs == 0

    serve(LazyBatching(NODE_TIMES, 1, 8), NODE_TIMES, body)


# ---- pools ----


def test_the_requests_of_a_pools_runtimes_have_different_ids():
    async def body(runtime, workers, served):
        await runtime.close()
        pool = WorkerPool(workers)
        ids = []
        for _ in range(2):
            seen = served.executions.append
            async with Runtime(graph(), pool, served.tasks, clock=LoopClock(), on_execution=seen) as own:
                await own.infer("net", value())
            ids.append(served.executions[-1].task.requests[0].id)
        assert ids == [0, 1]

    serve(graph(), TIMES, body)
