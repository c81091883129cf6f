"""Test live runs on real worker processes: late arrivals, answers that never come, and the records."""

import asyncio
import time

import cv2
import numpy as np
import pytest
from serving import serve
from small_nets import NET, graphs, small, tasks, tensor  # noqa: F401 - a fixture

from headrace.batching import SerialBatching
from headrace.host.demo.inputs.prepared_files import PreparedFile
from headrace.host.demo.inputs.prepared_images import Equality, PreparedImages
from headrace.host.demo.runs.serving import PARTS, Arrivals, run_arrivals
from headrace.host.dpu.preprocessor import CpuPreprocessor
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import ImageSpec

pytestmark = pytest.mark.usefixtures("small")

HANGS = 1060.0  # a first element that makes the network sleep for a minute
SPEC = ImageSpec(4, 4, 4)


def source(tensors, files=None, preprocessor=None):
    """Return a source of photos with these references. `files` has their names and bytes."""
    files = files or [(f"photo {number}", b"") for number in range(len(tensors))]
    prepared = [PreparedFile(*file, tensor, None) for file, tensor in zip(files, tensors, strict=True)]
    return PreparedImages(prepared, {}, 0.0, equality=Equality(), clocks=None).source(preprocessor)


def run(given, at, *, drain_timeout_s=60.0, meanwhile=None, on_answer=lambda *_: None):
    """Run one request at each of the times `at`. `meanwhile` is called in the event loop just before the first."""
    executions = []

    async def body(runtime, _):
        if meanwhile is not None:
            asyncio.get_running_loop().call_later(at[0] - 0.05, meanwhile)
        return await run_arrivals(
            "beforehand",
            "serial",
            runtime,
            executions,
            {NET: given},
            Arrivals(np.array(at), [NET] * len(at)),
            seed=0,
            slo_s=1.0,
            drain_timeout_s=drain_timeout_s,
            on_answer=on_answer,
            on_done=lambda: None,
        )

    return serve(SerialBatching(graphs()), tasks(), body, on_execution=executions.append)


def test_a_request_without_an_answer_in_time_has_failed_and_the_run_is_reported():
    started = time.monotonic()
    done = run(source([tensor(), tensor(HANGS), tensor()]), [0.05, 0.3, 0.35], drain_timeout_s=1.0)
    assert time.monotonic() - started < 40  # the start of the worker takes the largest part
    assert [record.error for record in done.records] == [None] + ["not answered within 1 s of the last arrival"] * 2
    assert (done.result["requests"], done.result["finished"], done.result["failed"]) == (3, 1, 2)
    (answered,) = (record for record in done.records if record.served is not None)
    latency_s = answered.served.finished + done.origin - answered.arrival
    assert done.result["latency_ms"]["max"] == pytest.approx(1e3 * latency_s) and done.result["wall_s"] < 10


def test_how_late_a_request_was_sent_is_reported_and_is_part_of_its_latency():
    free = []

    def busy():
        time.sleep(0.2)
        free.append(time.monotonic())

    done = run(source([tensor()]), [0.3, 0.6], meanwhile=busy)  # a busy loop: 150 ms late
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
    good = source([preprocess(jpeg, SPEC)], [("noise", jpeg)], CpuPreprocessor(SPEC))
    outputs = []
    done = run(good, [0.05, 0.1], on_answer=lambda model, image, given: outputs.append((model, image, given)))
    assert [record.equal for record in done.records] == [True, True]
    assert all(record.preprocessed.tensor.size == 0 for record in done.records)
    assert [(model, image, given["output"].shape) for model, image, given in outputs] == [(NET, "noise", (5,))] * 2
    assert not any(hasattr(record, "inference") for record in done.records)
    assert set(done.breakdown_ms()) == set(PARTS) and done.breakdown_ms()["preprocess"] > 0


def test_a_tensor_that_differs_from_its_reference_is_found():
    jpeg = cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8))[1].tobytes()
    other = preprocess(jpeg, SPEC) + np.float32(0.25)
    (record,) = run(source([other], [("black", jpeg)], CpuPreprocessor(SPEC)), [0.05]).records
    assert record.equal is False and record.max_difference == pytest.approx(0.25, abs=1e-6)


def test_an_error_of_one_request_is_recorded_and_the_others_are_answered():
    done = run(source([tensor(), tensor(666.0)]), [0.05, 0.1, 0.15])
    assert [record.error is None for record in done.records] == [True, False, True]
    assert "unlucky number" in done.records[1].error and done.result["failed"] == 1
    assert done.result["reasons"] == {"idle": 3} and len(done.executions) == 3
