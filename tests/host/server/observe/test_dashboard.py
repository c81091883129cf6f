"""Test the numbers of the live page: percentiles, seconds and loads, in limited memory and within microseconds."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from running import IMAGE_FILE, scale_request, serving, until

from headrace.batching import Request, Task
from headrace.host.dpu.fair_pool import UnitState
from headrace.host.live.results import Execution, WorkerState
from headrace.host.server.observe import dashboard
from headrace.host.server.observe.dashboard import Dashboard
from headrace.host.server.observe.watch import RequestTrace, Snapshot
from headrace.host.server.protocol.messages import OK, Outcome

NOTHING = Snapshot([], 0, [], {}, {}, {}, {}, {}, {}, 0)


def of(*models, look=lambda: NOTHING, clock=time.monotonic):
    watched = Dashboard(look, clock)
    for model in models:
        watched.add(model)
    return watched


def trace(model, took_s, at=None, outcome=OK):
    answered = time.monotonic() if at is None else at
    return RequestTrace(model, "http", arrived=answered - took_s, outcome=outcome, answered=answered)


def execution(model="m", size=1, reason="full", at=0.0, id=0):
    requests = tuple(Request(id + number, model, at - 0.05) for number in range(size))
    return Execution(0, Task(id, model, requests, 0, 1, reason=reason), at - 0.03, at - 0.02, at - 0.02, at, at, None)


def turned(watched, seconds=1.0):
    """Let so many seconds pass, to the middle of a second, because sums of floats round either way at its edge."""
    watched._roll(watched._turns + seconds - 0.5)


@settings(deadline=None)
@given(st.lists(st.floats(2e-5, 900), min_size=1, max_size=300))
def test_percentiles_are_within_a_half_step_of_the_scale(times):
    watched = of("m")
    for took_s in times:
        watched.answered(trace("m", took_s, watched._began + 0.5))
    turned(watched)
    found = watched.status()["seconds"]
    for percentile in (50, 95, 99):
        exact = np.percentile(times, percentile, method="inverted_cdf") * 1e3
        assert found[f"p{percentile}_ms"] == [pytest.approx(exact, rel=0.041)]
    assert found["answered"] == [len(times)]


def test_a_second_that_nobody_was_there_for_is_empty_and_only_the_last_are_kept():
    watched = of("m")
    watched.answered(trace("m", 0.01, watched._began + 0.5))
    watched.answered(trace("m", 0.01, watched._began + 3.5))
    turned(watched)
    found = watched.status()["seconds"]
    assert found["answered"] == [1, 0, 0, 1] and found["last"] == 3
    assert found["p50_ms"][1:3] == [None, None]
    assert watched.status(since=1)["seconds"]["answered"] == [0, 1]
    assert watched.status(since=3)["seconds"]["answered"] == [] == watched.status(since=99)["seconds"]["answered"]
    turned(watched, 1e6)
    again = watched.status()["seconds"]
    assert again["answered"] == [0] * (dashboard.SECONDS - 1) and again["last"] == 1_000_003


def test_models_are_counted_separately_and_together():
    watched = of("a", "b")
    at = watched._began
    watched.answered(trace("a", 0.01, at))
    watched.answered(trace("b", 0.02, at, Outcome("shed", 503, "RESOURCE_EXHAUSTED")))
    watched.answered(trace("nobody", 0.02, at, Outcome("unknown", 404, "NOT_FOUND")))
    watched.executed("w", at, execution("a", 3))
    watched.executed("w", at, execution("b", 2, "knee"))
    turned(watched)
    every, only = watched.status(), watched.status("a")
    assert every["outcomes"] == {"ok": 1, "shed": 1, "unknown": 1} and only["outcomes"] == {"ok": 1}
    assert every["seconds"]["failed"] == [1] and only["seconds"]["failed"] == [0]
    assert every["sizes"] == [(2, 1), (3, 1)] and only["sizes"] == [(3, 1)]
    assert every["reasons"] == {"full": 1, "knee": 1} and [b["reason"] for b in only["batches"]] == ["full"]
    batch = only["batches"][0]
    assert (batch["waited_ms"], batch["took_ms"], batch["worker"]) == (pytest.approx(20), pytest.approx(20), "w")


def test_load_is_the_share_of_the_last_seconds_also_of_names_that_are_alike():
    clock = SimpleNamespace(now=100.0)
    busy = [1.0, 5.0]

    def look():
        workers = [WorkerState("cpu 0", True, busy[0], None)]
        return Snapshot(workers, 0, [UnitState("cpu 0", busy[1], False)], {}, {}, {}, {}, {}, {}, 0)

    async def run():
        async with of("m", look=look, clock=lambda: clock.now) as watched:
            then, _ = watched._busy[0]
            busy[:] = [busy[0] + 10.0, busy[1]]
            clock.now += 0.05
            found = watched.status()
            assert found["workers"][0]["load"] == 1.0 and found["units"][0]["load"] == 0.0
            busy[:] = [1.0 + (clock.now - then) / 2, 5.0]
            assert watched.status()["workers"][0]["load"] == pytest.approx(0.5)

    asyncio.run(run())


def test_memory_is_bounded_whatever_comes():
    watched = of("m")
    for number in range(2000):
        at = watched._began + number / 4
        watched.answered(trace("m", 0.01, at))
        watched.executed("w", at, execution(size=1 + number % 8, id=number))
    assert len(watched._batches) == dashboard.BATCHES and len(watched._seconds) == dashboard.SECONDS
    assert len(json.dumps(watched.status())) < 30_000


def test_workers_of_every_policy_have_names_of_their_own():
    with serving("--policy", "serial", "--policy", "work-conserving", models=("scale", "means")) as server:
        assert server.request("POST", "/v2/models/scale/infer", scale_request(1.0))[0] == 200
        assert server.request("POST", "/photo/means", IMAGE_FILE)[0] == 200
        status = json.loads(server.request("GET", "/status")[2])
        assert [worker["name"] for worker in status["workers"]] == ["cpu 0", "cpu 0 (means)"]
        assert {(each["model"], each["worker"]) for each in status["batches"]} == {
            ("scale", "cpu 0"),
            ("means", "cpu 0 (means)"),
        }
        assert [(each["name"], each["policy"]) for each in status["models"]] == [
            ("scale", "serial"),
            ("means", "work-conserving"),
        ]
        samples = [
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in text_string_to_metric_families(server.metrics())
            for sample in family.samples
        ]
        assert len(set(samples)) == len(samples)  # Prometheus takes no series twice
        names = {name for name, _ in samples}
        for stage in ("preprocess", "queue", "batch", "execute", "request"):
            assert f"headrace_{stage}_seconds_bucket" in names
        assert names >= {
            "headrace_requests_total",
            "headrace_tasks_total",
            "headrace_batch_size_bucket",
            "headrace_workers_up",
            "headrace_workers_lost_total",
            "headrace_cus_up",
            "headrace_queue_depth",
            "headrace_arena_used",
            "headrace_worker_busy_seconds_total",
            "headrace_cu_busy_seconds_total",
            "headrace_in_flight",
        }


def test_a_file_that_is_no_image_is_refused_with_a_reason():
    with serving(models=("scale", "means")) as server:
        for image in (b"", b"text", IMAGE_FILE[:200], b"\x89PNG\r\n\x1a\n" + bytes(100)):
            status, text = server.error("POST", "/photo/means", image)
            assert status == 400 and text
        assert server.error("POST", "/photo/scale", IMAGE_FILE) == (400, "model 'scale' takes no images")
        assert server.error("POST", "/photo/nobody", IMAGE_FILE)[0] == 404
        assert server.request("POST", "/photo/means", IMAGE_FILE)[0] == 200


def test_what_waits_and_what_runs_is_told_while_it_does():
    with serving(models=("scale",)) as server:

        def status(query=""):
            code, _, body = server.request("GET", f"/status{query}")
            assert code == 200
            return json.loads(body)

        infer = ("POST", "/v2/models/scale/infer", scale_request(1002.0))
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(server.request, *infer)
            until(lambda: status()["now"]["running"] == 1)
            more = threads.submit(server.request, "POST", "/v2/models/scale/infer", scale_request(*range(12)))
            until(lambda: status()["now"]["in_flight"] == 13)
            now = status()
            assert now["now"]["waiting"] == 12 and now["now"]["running"] == 1
            assert now["workers"] == [
                {"name": "cpu 0", "up": True, "load": pytest.approx(0.5, abs=0.5), "at": {"model": "scale", "size": 1}}
            ]
            metrics = server.metrics()
            assert 'headrace_queue_depth{model="scale",stage="queue"} 12.0' in metrics
            assert 'headrace_queue_depth{model="scale",stage="execute"} 1.0' in metrics
            assert 'headrace_arena_used{arena="scale"} 13.0' in metrics
            assert 'headrace_arena_size{arena="scale"} 256.0' in metrics
            assert first.result()[0] == 200 and more.result()[0] == 200
        assert status()["now"] == {"in_flight": 0, "preprocessing": 0, "waiting": 0, "running": 0}
        assert 'headrace_batch_seconds_count{model="scale"} 4.0' in server.metrics()
        assert 'headrace_tasks_total{model="scale",reason=' in server.metrics()
        assert status()["outcomes"] == {"ok": 2}
        assert server.error("GET", "/status?model=nobody")[0] == 404
        assert server.error("GET", "/status?since=later") == (400, "since must be the number of a second, or -1")
        assert server.error("POST", "/status")[0] == 405
