"""Test the records of a server's run: access log, Perfetto trace, and spans at an OpenTelemetry collector."""

import contextlib
import json
import re
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import grpc
import numpy as np
import pytest
import tritonclient.grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from processes import handled
from running import HELD, IMAGE_FILE, scale_request, serving, until
from tritonclient.grpc import service_pb2, service_pb2_grpc

from headrace.batching import Request, Task
from headrace.host.live.results import Execution
from headrace.host.server.observe import access_log, trace
from headrace.host.server.observe.access_log import AccessLog
from headrace.host.server.observe.watch import RequestTrace

INFER = "/v2/models/scale/infer"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keep the spans that arrive."""

    def __init__(self):
        self.services, self.spans = set(), []

    def Export(self, request, context):
        for each in request.resource_spans:
            self.services |= {a.value.string_value for a in each.resource.attributes if a.key == "service.name"}
            for scope in each.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()


@contextlib.contextmanager
def collecting():
    found = Collector()
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(found, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield found, f"http://127.0.0.1:{port}"
        server.stop(None).wait()


def over_grpc(server, **headers):
    with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
        tensor = tritonclient.grpc.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
        return client.infer("scale", [tensor], request_id="g", headers=headers)


def attributes(span):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_every_request_has_a_line_in_the_access_log(tmp_path):
    path = tmp_path / "access.jsonl"
    path.write_text("kept\n")
    with serving("--access-log", str(path), models=("scale", "means")) as server:
        body = {**scale_request(1.0, 2.0), "id": "h"}
        assert server.request("POST", INFER, body, {"traceparent": PARENT})[0] == 200
        over_grpc(server)
        assert server.request("POST", "/photo/means", IMAGE_FILE)[0] == 200
        assert server.request("POST", INFER, scale_request(666.0))[0] == 500
        assert server.request("POST", "/v2/models/nobody/infer", {})[0] == 404
        long = {**scale_request(1.0), "id": "i" * 100_000}
        status, _, answer = server.request("POST", INFER, long, {"traceparent": "t" * 10_000})
        assert status == 200 and json.loads(answer)["id"] == long["id"], "the client has its own id back, as it is"
        assert server.request("POST", f"/v2/models/{'m' * 10_000}/infer", {})[0] == 404
        assert server.end()[0] == 0
    kept, *lines = path.read_text().splitlines()
    http, by_grpc, image, failed, unknown, *cut = map(json.loads, lines)
    assert [len(cut[0]["id"]), len(cut[0]["traceparent"]), len(cut[1]["model"])] == [200] * 3
    assert max(map(len, lines)) < 2000
    assert kept == "kept"
    assert (http["model"], http["transport"], http["peer"], http["id"]) == ("scale", "http", "127.0.0.1", "h")
    assert (http["outcome"], http["status"], http["rows"], http["traceparent"]) == ("ok", 200, 2, PARENT)
    assert http["total_ms"] >= http["queue_ms"] + http["execute_ms"] > 0 and http["worker"] == "cpu 0"
    assert abs(datetime.fromisoformat(http["time"]) - datetime.now(UTC)) < timedelta(minutes=2)
    assert (by_grpc["transport"], by_grpc["status"], by_grpc["id"]) == ("grpc", "OK", "g")
    assert "127.0.0.1" in by_grpc["peer"]
    assert image["preprocess_ms"] > 0 and image["unit"] == "cpu" and image["batch"] == 1 and image["reason"]
    assert (failed["outcome"], failed["status"]) == ("failed", 500) and "unlucky" in failed["error"]
    assert (unknown["outcome"], unknown["status"], unknown["rows"]) == ("unknown", 404, 0)


@pytest.mark.slow
def test_who_comes_without_the_token_is_in_the_access_log_too(tmp_path):
    (tmp_path / "token").write_text("open-sesame")
    path = tmp_path / "access.jsonl"
    options = ("--access-log", str(path), "--token-file", str(tmp_path / "token"))
    with serving(*options, models=("scale",)) as server:
        assert server.request("POST", INFER, scale_request(1.0))[0] == 401
        with pytest.raises(tritonclient.utils.InferenceServerException, match="UNAUTHENTICATED"):
            over_grpc(server)
        with grpc.insecure_channel(server.url("grpc")) as channel, pytest.raises(grpc.RpcError) as refused:
            stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer
            next(stream(iter([service_pb2.ModelInferRequest(model_name="scale")]), timeout=20))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert server.end()[0] == 0
    assert [(each["transport"], each["outcome"]) for each in map(json.loads, path.read_text().splitlines())] == [
        ("http", "unauthorized"),
        ("grpc", "unauthorized"),
        ("grpc", "unauthorized"),
    ]
    assert "open-sesame" not in path.read_text()


def test_the_access_log_may_be_stdout():
    with serving("--access-log", "-", models=("scale",)) as server:
        assert server.request("POST", INFER, scale_request(1.0))[0] == 200
        assert json.loads(server.process.stdout.readline())["outcome"] == "ok"


def test_an_access_log_that_nobody_takes_holds_up_nothing_and_says_what_it_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(access_log, "LINES", 10)
    path = tmp_path / "log"
    with AccessLog(str(path)) as log:
        for number in range(1000):
            log.answered(RequestTrace("m", "http", id=str(number)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(line.get("left_out", 0) for line in lines) + sum("id" in line for line in lines) == 1000
    assert sum("id" in line for line in lines) < 1000


def test_a_full_disk_costs_whole_lines_that_are_counted_and_tears_none(tmp_path, monkeypatch, caplog):
    """A limit on the size of files stands in for a full disk. It accepts a part of a write and then nothing."""
    monkeypatch.setattr(access_log, "LINES", 500)
    monkeypatch.setattr(access_log, "WRITE_S", 0.01)
    path = tmp_path / "log"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def told():
        return path.read_bytes().splitlines(keepends=True)

    with AccessLog(str(path)) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_001, hard))
        try:
            for number in range(2000):
                log.answered(RequestTrace("m", "http", id=str(number)))
                until(lambda: len(log._lines) < 400 or path.stat().st_size == 10_001)
            assert not told()[-1].endswith(b"\n"), "no line is cut at this limit: choose another"
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    lines = [json.loads(line) for line in told()]
    numbers = [int(line["id"]) for line in lines if "id" in line]
    assert numbers == sorted(set(numbers)) and 500 < len(numbers) < 2000
    assert sum(line.get("left_out", 0) for line in lines) + len(numbers) == 2000
    assert caplog.text.count("the access log cannot be written") == 1


def test_a_log_that_cannot_be_reopened_goes_on_and_is_reopened_when_it_can(tmp_path, monkeypatch):
    monkeypatch.setattr(access_log, "WRITE_S", 0.01)
    folder = tmp_path / "logs"
    folder.mkdir()
    with AccessLog(str(folder / "log")) as log:
        folder.rename(tmp_path / "moved")
        log.reopen()
        log.answered(RequestTrace("m", "http", id="while it is away"))
        until(lambda: log._reopens and len(log._lines) == 1)
        folder.mkdir()
        until((folder / "log").exists)
        log.answered(RequestTrace("m", "http", id="behind"))
    assert [json.loads(line)["id"] for line in (folder / "log").read_text().splitlines()] == [
        "while it is away",
        "behind",
    ]


def test_logs_are_rotated_at_sigusr1_and_sighup_ends_the_server_when_all_is_answered(tmp_path):
    path, moved = tmp_path / "log", tmp_path / "log.1"
    log = ("--access-log", str(path))
    with handled(signal.SIGHUP, signal.SIG_DFL), serving(*log, models=("scale",)) as server:
        assert server.request("POST", INFER, {**scale_request(1.0), "id": "first"})[0] == 200
        until(lambda: path.read_text())
        path.rename(moved)
        server.process.send_signal(signal.SIGUSR1)
        until(path.exists)
        assert server.request("POST", INFER, {**scale_request(1.0), "id": "second"})[0] == 200
        with ThreadPoolExecutor() as pool:
            held = pool.submit(
                server.request, "POST", INFER, {**scale_request(HELD, timeout=60_000_000), "id": "third"}
            )
            until(lambda: in_flight(server) == 1)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: server.request("GET", "/v2/health/ready")[0] == 503)
            server.let_go()
            assert held.result()[0] == 200
        assert server.process.wait(30) == 0
    assert [json.loads(line)["id"] for line in moved.read_text().splitlines()] == ["first"]
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["second", "third"]


def in_flight(server):
    return int(float(re.search(r"^headrace_in_flight\{.*\} (\S+)$", server.metrics(), re.MULTILINE)[1]))


@pytest.mark.slow
def test_the_trace_has_every_task_and_the_images_before_them(tmp_path):
    path = tmp_path / "run.pftrace"
    with serving("--trace", str(path), models=("scale", "means")) as server:
        assert server.request("POST", INFER, scale_request(1.0, 2.0))[0] == 200
        assert server.request("POST", "/photo/means", IMAGE_FILE)[0] == 200
        assert server.end()[0] == 0
    packets = Trace.FromString(path.read_bytes()).packet
    tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in packets if p.HasField("track_descriptor")}
    began = [p.track_event for p in packets if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    ended = [p.track_event for p in packets if p.track_event.type == TrackEvent.TYPE_SLICE_END]
    assert {tracks[event.track_uuid] for event in began} == {"cpu", "cpu 0"} and len(began) == len(ended)
    (image,) = [event for event in began if event.name == "photo for means"]
    (task,) = [event for event in began if event.name.startswith("means: batch of 1, ")]
    assert list(image.flow_ids) == list(task.flow_ids) and len(task.flow_ids) == 1
    assert sum(event.name.startswith("scale: batch of") for event in began) >= 1


def test_the_trace_of_a_long_run_keeps_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "EVENTS", 100)
    with trace.Trace(tmp_path / "run.pftrace") as kept:
        for number in range(1000):
            requests = tuple(Request(4 * number + each, "m", 0.0) for each in range(4))
            task = Task(number, "m", requests, 0, 1)
            kept.executed("w", 0.0, Execution(0, task, number, number, number, number + 0.5, number + 0.5, None))
        assert len(kept._slices) == 20
    packets = Trace.FromString((tmp_path / "run.pftrace").read_bytes()).packet
    began = [p for p in packets if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert len(began) == 20 and len(began[-1].track_event.flow_ids) == 4


@pytest.mark.slow
def test_spans_go_to_a_collector_in_the_trace_of_the_request():
    with collecting() as (collector, url), serving("--otlp", url, models=("scale", "means")) as server:
        assert server.request("POST", INFER, scale_request(1.0), {"traceparent": PARENT})[0] == 200
        over_grpc(server, traceparent=PARENT)
        assert server.request("POST", "/photo/means", IMAGE_FILE)[0] == 200
        assert server.request("POST", INFER, scale_request(666.0), {"traceparent": "no-trace-context"})[0] == 500
        assert server.end()[0] == 0  # what is on its way is sent
        until(lambda: sum(span.name.startswith("infer") for span in collector.spans) == 4)
    assert collector.services == {"headrace"}
    roots = [span for span in collector.spans if span.name.startswith("infer")]
    by_http, by_grpc, image, failed = sorted(roots, key=lambda span: span.start_time_unix_nano)
    for span in (by_http, by_grpc):
        assert span.trace_id.hex() == TRACE_ID and span.parent_span_id.hex() == "b7ad6b7169203331"
    assert image.trace_id.hex() != TRACE_ID and image.parent_span_id == b""
    assert attributes(by_grpc)["headrace.transport"] == "grpc" and attributes(image)["headrace.model"] == "means"
    assert "unlucky" in failed.status.message and attributes(failed)["headrace.outcome"] == "failed"
    children = [span for span in collector.spans if span.parent_span_id == image.span_id]
    names = [span.name for span in sorted(children, key=lambda span: span.start_time_unix_nano)]
    assert names == ["preprocess", "queue", "execute"]
    for span in children:
        assert image.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= image.end_time_unix_nano
    (execute,) = [span for span in children if span.name == "execute"]
    assert attributes(execute)["headrace.batch_size"] == 1 and attributes(execute)["headrace.worker"] == "cpu 0"


def test_a_collector_that_is_not_there_holds_up_no_request_and_no_end():
    with serving("--otlp", "http://127.0.0.1:1", models=("scale",)) as server:
        with ThreadPoolExecutor(4) as threads:
            found = threads.map(lambda n: server.request("POST", INFER, scale_request(float(n)))[0], range(100, 300))
            assert set(found) == {200}
        assert server.end(timeout_s=20)[0] == 0
