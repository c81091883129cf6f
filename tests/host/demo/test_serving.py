"""Live runs on real worker processes: late arrivals, answers that never come, what is kept."""

import asyncio
import time

import cv2
import numpy as np
import pytest
from serving import serve
from small_nets import NET, graphs, small, tasks, tensor  # noqa: F401 - a fixture

from headrace.batching import SerialBatching
from headrace.host.demo.equality import Equality, Prepared
from headrace.host.demo.inputs.images import Photo
from headrace.host.demo.serving import PARTS, Arrivals, Photos, run_arrivals
from headrace.host.dpu.preprocessor import CpuPreprocessor
from headrace.host.dpu.reference.image import ImageSpec, preprocess

pytestmark = pytest.mark.usefixtures("small")

HANGS = 1060.0  # a first element that makes the network sleep for a minute
SPEC = ImageSpec(4, 4, 4)


def source(tensors, photos=None, preprocessor=None):
    photos = photos or [Photo(f"photo {number}", b"") for number in range(len(tensors))]
    return Photos(Prepared(photos, tensors, tensors, {}, Equality(), None, {}), preprocessor)


def run(given, at, *, drain_timeout_s=60.0, beside=None, on_answer=lambda *_: None):
    """A run of one request each at the times `at`, while `beside` is called in the loop."""
    executions = []

    async def body(runtime, _):
        if beside is not None:
            asyncio.get_running_loop().call_later(at[0] - 0.05, beside)
        return await run_arrivals(
            "beforehand",
            "serial",
            runtime,
            executions,
            {NET: given},
            Arrivals(np.array(at), [NET] * len(at)),
            seed=0,
            sla_s=1.0,
            drain_timeout_s=drain_timeout_s,
            on_answer=on_answer,
            on_done=lambda: None,
        )

    return serve(SerialBatching(graphs()), tasks(), body, on_execution=executions.append)


def test_what_has_no_answer_in_time_has_failed_and_the_run_is_reported():
    started = time.monotonic()
    done = run(source([tensor(), tensor(HANGS), tensor()]), [0.05, 0.3, 0.35], drain_timeout_s=1.0)
    assert time.monotonic() - started < 40  # of which the worker's start is the most
    assert [record.error for record in done.records] == [None] + ["not answered within 1 s of the last arrival"] * 2
    assert (done.result["requests"], done.result["finished"], done.result["failed"]) == (3, 1, 2)
    (answered,) = (record for record in done.records if record.served is not None)
    latency_s = answered.served.finished + done.origin - answered.arrival
    assert done.result["latency_ms"]["max"] == pytest.approx(1e3 * latency_s) and done.result["wall_s"] < 10


def test_how_late_a_request_was_sent_is_told_apart_and_is_part_of_its_latency():
    free = []

    def busy():
        time.sleep(0.2)
        free.append(time.monotonic())

    done = run(source([tensor()]), [0.3, 0.6], beside=busy)  # a busy loop: 150 ms late
    late = done.result["arrival_late_ms"]
    assert late["max"] >= 150 and set(late) == set(done.result["latency_ms"])
    first = done.records[0]
    assert free[0] <= first.sent < first.served.finished + done.origin
    assert max(record.sent - record.arrival for record in done.records) == pytest.approx(late["max"] / 1e3)
    assert first.served.finished + done.origin - first.arrival > 0.15
    assert all(record.sent >= record.arrival for record in done.records)
    assert sum(done.breakdown_ms().values()) == pytest.approx(done.result["latency_ms"]["mean"])
    assert done.breakdown_ms()["sent_late"] == pytest.approx(late["mean"])


def test_a_run_keeps_times_and_no_tensors():
    jpeg = cv2.imencode(".jpg", np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8))[1].tobytes()
    good = source([preprocess(jpeg, SPEC)], [Photo("noise", jpeg)], CpuPreprocessor(SPEC))
    outputs = []
    done = run(good, [0.05, 0.1], on_answer=lambda model, photo, given: outputs.append((model, photo, given)))
    assert [record.equal for record in done.records] == [True, True]
    assert all(record.preprocessed.tensor.size == 0 for record in done.records)
    assert [(model, photo, given["output"].shape) for model, photo, given in outputs] == [(NET, "noise", (5,))] * 2
    assert not any(hasattr(record, "inference") for record in done.records)
    assert set(done.breakdown_ms()) == set(PARTS) and done.breakdown_ms()["preprocess"] > 0


def test_a_tensor_that_differs_from_its_reference_is_found():
    jpeg = cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8))[1].tobytes()
    other = preprocess(jpeg, SPEC) + np.float32(0.25)
    (record,) = run(source([other], [Photo("black", jpeg)], CpuPreprocessor(SPEC)), [0.05]).records
    assert record.equal is False and record.max_difference == pytest.approx(0.25, abs=1e-6)


def test_an_error_of_one_request_is_recorded_and_the_others_are_answered():
    done = run(source([tensor(), tensor(666.0)]), [0.05, 0.1, 0.15])
    assert [record.error is None for record in done.records] == [True, False, True]
    assert "unlucky number" in done.records[1].error and done.result["failed"] == 1
    assert done.result["reasons"] == {"idle": 3} and len(done.executions) == 3
