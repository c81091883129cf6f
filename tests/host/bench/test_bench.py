"""Test `headrace bench` against a real server, and against small servers that stall, refuse, break off or do not speak
HTTP."""

import asyncio
import contextlib
import json
import math
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import numpy as np
import pytest
import trustme
import virtual_time
from command import COMMAND, headrace, headrace_here
from running import IMAGE_FILE, serving, until
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from virtual_time import LoopClock

from headrace.host.bench.client import RequestOptions, Status
from headrace.host.bench.grpc_client import GrpcTarget
from headrace.host.bench.http_client import HttpTarget
from headrace.host.bench.inputs import Tensor
from headrace.host.bench.plan import planned, replayed
from headrace.host.bench.report import result
from headrace.host.bench.run import ClosedLoop, LoadGenerator, OpenLoop, run
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.transport.http.connection import HttpServer, Response
from headrace.host.server.transport.http.endpoints import refusal

TRANSPORTS = ("http", "grpc")
ONE_QUICK = ("http", pytest.param("grpc", marks=pytest.mark.slow))  # what has a server of its own, or waits for seconds


@pytest.fixture(scope="module")
def server():
    """Start a server with shared memory and with timeouts that count."""
    with serving("--shared-memory", "--drop-late", "--slo-ms", "60000") as server:
        yield server


@pytest.fixture(scope="module")
def alone():
    """Start a server of one model."""
    with serving(models=("scale",)) as server:
        yield server


def bench(url, *options, status=0):
    """Return the result of one run, or the error text if another exit status is expected."""
    done = headrace_here("bench", url, *options, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)["runs"][0] if status == 0 else done.stderr


def url_of(server, transport):
    return f"{transport}://{server.url(transport)}"


# ---- exact instants: one process of the load generator and an HTTP server in virtual time ----

BEGIN = 16.0  # of a run; this and the other times are multiples of 1/256 s, which floats hold exactly
MESSAGES = [b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n%d" % number for number in range(3)]


def generated(plan, handler, connections=1000):
    """Return the outcome of the plan and the time that it took from its begin."""

    async def main():
        server = HttpServer(handler, refusal, Limits())
        generator = LoadGenerator(plan, MESSAGES, LoopClock())
        target = HttpTarget(*await server.start("127.0.0.1", 0))
        async with target.client(generator.on_answer, connections, clock) as client:
            await generator.run(client, BEGIN)
            answers, took_s = generator.answers(0.0), clock() - BEGIN
        await server.stop(1.0)
        return answers, took_s

    return virtual_time.run(main())


def clock():
    return asyncio.get_running_loop().time()


def of(answers, **options):
    return result(answers, rate_rps=None, timeout_s=None, before=None, after=None, seed=0, **options)


class StallingHandler:
    """Answer at once, except that no request from number `after` on (counted from 1) is answered for `length_s`."""

    def __init__(self, after, length_s):
        self._after, self._length_s, self._over = after, length_s, 0.0
        self.bodies = []

    async def __call__(self, request):
        self.bodies.append(bytes(request.body))
        if len(self.bodies) == self._after:
            self._over = clock() + self._length_s
        await asyncio.sleep(self._over - clock())
        return Response(200)


def test_requests_leave_at_their_instants_in_turn_however_slow_the_answers_are():
    handler = StallingHandler(1, 64.0)
    planned = np.array([0.0, 0.25, 0.25, 1.0] + 100 * [1.5])  # more at one instant than leave between two looks
    answers, took_s = generated(OpenLoop(planned, 100.0), handler)
    assert answers.planned.tolist() == answers.sent.tolist() == planned.tolist()
    assert set(answers.ended) == {64.0} == {took_s} and answers.of(Status.OK).all()
    assert Counter(handler.bodies) == {b"0": 35, b"1": 35, b"2": 34} and handler.bodies[:4] == [b"0", b"1", b"2", b"0"]


def test_a_server_that_stalls_is_not_hidden_by_a_client_that_waits():
    """A stall of 1 s in 4 s at 128 requests/s delays a quarter of all requests, by half a second on average. A
    client with one request at a time would see one slow request in 300."""
    planned = np.arange(512) / 128
    answers, _ = generated(OpenLoop(planned, 10.0), StallingHandler(193, 1.0))
    stalled = (planned >= 1.5) & (planned < 2.5)
    assert answers.sent.tolist() == planned.tolist() and answers.of(Status.OK).all()
    assert answers.ended.tolist() == np.where(stalled, 2.5, planned).tolist()
    found = of(answers)
    assert found["latency_ms"]["max"] == 1000 and found["latency_ms"]["p99"] > 800 and found["latency_ms"]["p90"] > 300
    assert found["lateness_ms"]["max"] == 0  # it is the server's doing


def test_requests_that_wait_for_a_connection_wait_since_they_were_planned():
    planned = np.arange(256) / 128
    answers, _ = generated(OpenLoop(planned, 10.0), StallingHandler(65, 1.0), connections=1)
    waited = (planned > 0.5) & (planned < 1.5)
    assert answers.of(Status.OK).all()
    assert answers.sent.tolist() == np.where(waited, 1.5, planned).tolist()
    assert answers.ended.tolist() == np.where(planned == 0.5, 1.5, answers.sent).tolist()
    found = of(answers)
    assert found["latency_ms"]["p90"] > 500 and found["lateness_ms"]["max"] == pytest.approx(1000 * (1 - 1 / 128))
    assert found["service_ms"]["p90"] == 0 and found["service_ms"]["max"] == 1000  # of those that it had, but one


def test_what_is_not_answered_is_waited_for_exactly_as_long_as_said():
    async def handler(request):
        await asyncio.sleep(0.5 if request.body != b"1" else math.inf)
        return Response(200)

    planned = np.array([0.0, 0.25, 0.5, 1.0, 1.25])
    answers, took_s = generated(OpenLoop(planned, 3.0), handler)
    assert took_s == 4.25
    assert answers.status.tolist() == [Status.OK, Status.UNANSWERED, Status.OK, Status.OK, Status.UNANSWERED]
    np.testing.assert_array_equal(answers.ended, [0.5, math.nan, 1.0, 1.5, math.nan])
    none, took_s = generated(OpenLoop(planned[1:2], 0.5), StallingHandler(1, math.inf))
    assert took_s == 0.75 and of(none)["statuses"]["unanswered"] == of(none)["failed"] == 1
    assert of(none)["latency_ms"]["p50"] is None and of(none)["throughput_rps"] is None


@pytest.mark.parametrize(("length_s", "rounds"), [(0.5, 32), (0.5 + 1 / 256, 33)])
def test_a_closed_loop_keeps_as_many_on_their_way(length_s, rounds):
    in_flight, seen = 0, Counter()

    async def handler(request):
        nonlocal in_flight
        in_flight += 1
        await asyncio.sleep(0)
        seen[in_flight] += 1
        await asyncio.sleep(1 / 64)
        in_flight -= 1
        return Response(200)

    answers, took_s = generated(ClosedLoop(3, length_s, 10.0), handler)
    assert answers.planned.tolist() == answers.sent.tolist() == np.repeat(np.arange(rounds) / 64, 3).tolist()
    assert answers.ended.tolist() == (answers.sent + 1 / 64).tolist() and took_s == rounds / 64
    assert max(seen) == 3 and answers.of(Status.OK).all()
    found = of(answers)
    # Little's law: mean in flight = rate x mean time.
    assert found["throughput_rps"] * found["latency_ms"]["mean"] / 1e3 == pytest.approx(3, rel=1e-12)


@pytest.mark.parametrize("plan", [OpenLoop(np.empty(0), 5.0), ClosedLoop(0, 5.0, 5.0)])
def test_a_process_that_has_nothing_to_send_ends_at_once(plan):
    answers, took_s = generated(plan, StallingHandler(1, 1.0))
    assert len(answers.planned) == 0 and took_s == 0.0


def test_a_plan_is_dealt_to_processes_without_loss():
    planned = np.arange(10) / 4
    parts = [OpenLoop(planned, 5.0).dealt(number, 3) for number in range(3)]
    assert [part.planned.tolist() for part in parts] == [planned[number::3].tolist() for number in range(3)]
    assert [ClosedLoop(5, 1.0, 5.0).dealt(number, 3).concurrency for number in range(3)] == [2, 2, 1]


# ---- a real server ----


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_the_only_model_need_not_be_named(transport, server, alone):
    assert bench(url_of(alone, transport), "--requests", "5")["finished"] == 5
    assert "choose one with --model" in bench(url_of(server, transport), "--requests", "5", status=2)


@pytest.mark.quick(2)
@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_request_is_sent_once_and_counted(server, transport, processes):
    before = headrace_of(server, "scale")
    found = bench(
        url_of(server, transport),
        "--model",
        "scale",
        "--rate-rps",
        "200",
        "--requests",
        "101",
        "--processes",
        str(processes),
    )
    assert found["requests"] == found["finished"] == found["statuses"]["ok"] == 101
    assert found["failed"] == found["shed"] == found["dropped"] == 0
    assert headrace_of(server, "scale") - before == 101 + 1  # one is sent ahead, to see whether the server takes it
    latency, service, late = found["latency_ms"], found["service_ms"], found["lateness_ms"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    assert late["p50"] >= 0 and service["mean"] + late["mean"] == pytest.approx(latency["mean"])
    assert 1 <= found["batch_size_mean"] <= 4 and found["queue_ms"] >= 0
    assert found["rate_rps"] == 200 and found["seed"] == 0 and found["client_cpu_us"] > 0


def headrace_of(server, model):
    status, _, body = server.request("GET", f"/v2/models/{model}/stats")
    assert status == 200
    return json.loads(body)["model_stats"][0]["inference_count"]


@pytest.mark.quick(3)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("model", ["scale", "means", "pair"])
def test_tensors_are_made_after_the_models_metadata(server, transport, model):
    found = bench(url_of(server, transport), "--model", model, "--requests", "9", "--open-size", "5")
    assert found["finished"] == 9


@pytest.mark.parametrize(("transport", "name"), [("http", "."), ("grpc", "one.jpg")], ids=["folder", "file"])
def test_image_files_are_sent_and_labels_come_back(server, transport, name, tmp_path):
    (tmp_path / "one.jpg").write_bytes(IMAGE_FILE)
    (tmp_path / "two.jpeg").write_bytes(IMAGE_FILE)
    (tmp_path / "notes.txt").write_text("no photo")
    options = ("--model", "means", "--input", str(tmp_path / name), "--classes", "2", "--requests", "9")
    assert bench(url_of(server, transport), *options)["finished"] == 9


@pytest.mark.timed  # as many requests as a quiet machine answers
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_closed_loop_of_real_clients(server, transport):
    found = bench(
        url_of(server, transport), "--model", "scale", "--concurrency", "3", "--duration-s", "0.5", "--processes", "2"
    )
    assert found["finished"] == found["requests"] > 10 and found["rate_rps"] is None


def test_a_table_a_plot_and_rates(server, tmp_path):
    plot = tmp_path / "plot.png"
    done = headrace(
        "bench",
        url_of(server, "http"),
        "--model",
        "scale",
        "--rate-rps",
        "50,100",
        "--duration-s",
        "0.2",
        "--plot",
        str(plot),
        "--arrivals",
        "bursts",
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("│")]
    assert [(row[1], row[3], row[5]) for row in rows] == [("50", "10", "10"), ("100", "20", "20")]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_trace_is_replayed_at_its_times(server, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{at},scale,1,1\n" for at in (0.1, 0.1, 0.3, 0.4))
    trace.write_text("arrival_s,model,input_len,output_len\n" + rows)
    found = bench(url_of(server, "http"), "--model", "scale", "--arrivals", str(trace))
    assert found["requests"] == found["finished"] == 4 and found["wall_s"] >= 0.4
    assert replayed(trace, "scale", 3).tolist() == [0.1, 0.1, 0.3]


@pytest.mark.parametrize("transport", ONE_QUICK)
def test_shed_requests_and_those_without_a_worker_have_different_statuses(transport):
    with serving("--max-queue", "2", "--sla-ms", "1", models=("slow",)) as server:
        found = bench(url_of(server, transport), "--model", "slow", "--rate-rps", "2000", "--requests", "400")
        assert found["shed"] == found["statuses"]["shed"] > 0 and found["failed"] == 0
        assert found["shed"] + found["finished"] == 400
        target = target_of(server, transport)
        model = target.metadata("slow")
        deadly = np.float32([[13, 0, 0, 0]])  # kills the worker
        message = target.message(model, [tensor(model.inputs[0], deadly)], RequestOptions())
        answers = run(target, OpenLoop(np.array([0.0]), 30.0), [message], processes=1, connections=1)
        assert answers.status.tolist() == [Status.UNAVAILABLE] and "died" in answers.error_texts[Status.UNAVAILABLE][0]


def target_of(server, transport):
    host, port = server.url(transport).rsplit(":", 1)
    return {"http": HttpTarget, "grpc": GrpcTarget}[transport](host, int(port))


def tensor(metadata, array):
    return Tensor(metadata.name, metadata.datatype, array)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_timeout_reaches_the_server(server, transport):
    target = target_of(server, transport)
    model = target.metadata("scale")
    slow = target.message(model, [tensor(model.inputs[0], np.float32([[1001, 0, 0, 0]]))], RequestOptions())
    quick = target.message(
        model, [tensor(model.inputs[0], np.ones((1, 4), np.float32))], RequestOptions(timeout_us=50_000)
    )
    times = np.array([0.0, 0.1, 0.15, 0.2])  # one task may be sent ahead
    answers = run(target, OpenLoop(times, 30.0), [slow, quick, quick, quick], processes=1, connections=9)
    assert answers.status[0] == Status.OK and Status.LATE in answers.status[2:]
    found = result(answers, rate_rps=None, timeout_s=0.05, before=None, after=None, seed=0)
    assert found["sla_violation_rate"] >= 0.5 and found["dropped"] >= 1


@pytest.mark.parametrize("transport", ONE_QUICK)
def test_the_token_of_a_server_that_wants_one_and_shared_memory_where_there_is_none(transport, tmp_path):
    token = tmp_path / "token"
    token.write_text("open-sesame\n")
    with serving("--token-file", str(token), models=("scale",)) as server:
        options = ("--model", "scale", "--requests", "5")
        assert bench(url_of(server, transport), *options, "--token-file", str(token))["finished"] == 5
        assert "token" in bench(url_of(server, transport), *options, status=1)
        options += ("--token-file", str(token), "--shared-memory")
        said = bench(url_of(server, transport), *options, status=1)
        assert len(said.splitlines()) == 1 and "--shared-memory" in said


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tensors_may_lie_in_shared_memory(server, transport):
    options = ("--requests", "20", "--shared-memory")
    assert bench(url_of(server, transport), "--model", "scale", *options)["finished"] == 20
    assert not list(Path("/dev/shm").glob("headrace-bench-*"))
    status, _, body = server.request("GET", "/v2/systemsharedmemory/status")
    assert status == 200 and json.loads(body) == []
    said = bench(url_of(server, transport), "--model", "pair", *options, status=2)
    assert "is not known in advance" in said


@pytest.mark.parametrize("transport", [pytest.param("http", marks=pytest.mark.slow), "grpc"])
def test_tls_with_certificates_to_trust(transport, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    files = ("--tls-cert", str(tmp_path / "server.pem"), "--tls-key", str(tmp_path / "server.pem"))
    with serving(*files, models=("scale",)) as server:
        url = f"{transport}s://{server.url(transport)}"
        options = ("--model", "scale", "--requests", "20")
        assert bench(url, *options, "--ca-file", str(tmp_path / "ca.pem"))["finished"] == 20
        assert len(bench(url, *options, status=1).splitlines()) == 1  # nobody on this machine vouches for it


# ---- servers that are not as they should be ----


class Handler(BaseHTTPRequestHandler):
    """Implement as much of the protocol as the tests need. `answer` decides how a request ends."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        if self.path == "/v2":
            self.reply(200, {"name": "small", "version": "1", "extensions": self.server.extensions})
        elif self.path == "/v2/models/net":
            tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
            self.reply(200, {"name": "net", "inputs": [tensor], "outputs": [{**tensor, "name": "y"}]})
        else:
            self.reply(404, {"error": "not here"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(body)
        self.server.answer(self, len(self.server.bodies))

    def reply(self, status, value, **headers):
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def small_server(answer, extensions=("binary_tensor_data",)):
    class Server(ThreadingHTTPServer):
        request_queue_size = 1024
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    server.answer, server.extensions, server.bodies = answer, list(extensions), []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class StallingGrpc(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Delay all answers once for a second, from request number 150 on."""

    def __init__(self):
        self._count = 0
        self._lock = threading.Lock()

    def ModelMetadata(self, request, context):
        tensor = pb.ModelMetadataResponse.TensorMetadata(name="x", datatype="FP32", shape=[-1, 2])
        return pb.ModelMetadataResponse(name="net", inputs=[tensor], outputs=[tensor])

    def ModelInfer(self, request, context):
        assert len(request.raw_input_contents[0]) == 8
        with self._lock:
            self._count += 1
            if self._count == 150:
                time.sleep(1.0)
        return pb.ModelInferResponse(model_name="net")


@pytest.mark.slow
@pytest.mark.timed
def test_a_grpc_server_that_stalls_is_not_hidden_by_a_client_that_waits():
    """Repeat the test above over gRPC in virtual time, at 100 requests/s for 4 s."""
    server = grpc.server(futures.ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(StallingGrpc(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        found = bench(f"grpc://127.0.0.1:{port}", "--model", "net", "--rate-rps", "100", "--requests", "400")
    finally:
        server.stop(None)
    assert found["finished"] == 400
    latency = found["latency_ms"]
    assert latency["max"] >= 950 and latency["p99"] > 800 and latency["p90"] > 300
    assert found["lateness_ms"]["p99"] < 500  # it is the server's doing


def test_a_server_without_binary_tensors_gets_json():
    with small_server(lambda handler, _: handler.reply(200, {"outputs": []}), extensions=()) as (server, url):
        assert bench(url, "--model", "net", "--requests", "3")["finished"] == 3
        (tensor,) = json.loads(server.bodies[-1])["inputs"]
        assert tensor["datatype"] == "FP32" and tensor["shape"] == [1, 2] and len(tensor["data"]) == 2


def test_how_requests_end_is_counted_by_kind():
    def answer(handler, number):
        match number % 7:
            case 0:
                handler.reply(503, {"error": "too many"}, retry_after="1")
            case 2:
                handler.reply(503, {"error": "no worker"})
            case 3:
                handler.reply(504, {"error": "too late"})
            case 4:
                handler.reply(500, {"error": "broken"})
            case 5:
                handler.close_connection = True
            case 6:
                handler.reply(429, {"error": "slow down"})
            case _:
                handler.reply(200, {"outputs": []})

    with small_server(answer) as (_, url):
        done = headrace_here("bench", url, "--model", "net", "--rate-rps", "500", "--requests", "70", "--json")
    found = json.loads(done.stdout)
    statuses = found["runs"][0]["statuses"]
    assert statuses == {"ok": 10, "shed": 20, "late": 10, "unavailable": 10, "error": 10, "unanswered": 10}
    assert found["runs"][0]["failed"] == 30 and found["runs"][0]["dropped"] == 10
    assert "500 requests/s: error: 500: broken" in found["warnings"]
    assert "headrace: warning: 500 requests/s: late: 504: too late" in done.stderr


def test_a_real_run_waits_no_longer_than_said_for_what_is_never_answered():
    held = threading.Event()

    def answer(handler, number):
        if number > 1:  # the first one sees whether the server is there
            held.wait(60)
        handler.reply(200, {"outputs": []})

    with small_server(answer) as (_, url):
        began = time.monotonic()
        found = bench(url, "--model", "net", "--requests", "5", "--rate-rps", "100", "--wait-s", "0.5")
        took_s = time.monotonic() - began
        held.set()
    assert found["statuses"]["unanswered"] == found["failed"] == 5 and took_s < 10  # the default of --wait-s


def test_a_body_in_chunks_is_an_answer():
    def answer(handler, _):
        handler.send_response(200)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for piece in (b'5\r\n{"out\r\n', b'9\r\nputs": []\r\n', b"1\r\n}\r\n", b"0\r\n\r\n"):
            handler.wfile.write(piece)
            time.sleep(0.001)

    with small_server(answer) as (_, url):
        assert bench(url, "--model", "net", "--requests", "20")["finished"] == 20


def test_a_request_that_the_server_refuses_ends_it_at_once_with_the_servers_words():
    with small_server(lambda handler, _: handler.reply(400, {"error": "x must be 3 wide"})) as (server, url):
        assert "refuses the first request: 400: x must be 3 wide" in bench(url, "--model", "net", status=1)
        assert len(server.bodies) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_model_that_the_server_has_not(server, transport):
    said = bench(url_of(server, transport), "--model", "other", status=1)
    assert "there is no model 'other'" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "grpc://127.0.0.1:1"])
def test_a_server_that_is_not_there(url):
    said = bench(url, status=1)
    assert said.startswith(f"headrace: {url.partition('//')[2]}") and len(said.splitlines()) == 1


def test_what_is_no_server_of_the_protocol(tmp_path):
    class Silent(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    assert "Open Inference Protocol" in bench(f"http://127.0.0.1:{server.server_port}", status=1)
    server.shutdown()


# ---- usage ----


@pytest.mark.parametrize(
    ("arguments", "wording"),
    [
        (("127.0.0.1:8000",), "give http://HOST:PORT or grpc://HOST:PORT"),
        (("ftp://h:1",), "give http://HOST:PORT"),
        (("http://h:1", "--ca-file", "plain.txt"), "--ca-file is for https and grpcs"),
        (("grpcs://h:1", "--ca-file", "plain.txt"), "give certificates in PEM format"),
        (("http://h:x",), "give http://HOST:PORT"),
        (("http://[::1",), "give http://HOST:PORT"),
        (("http://h:1/path",), "give http://HOST:PORT"),
        (("http://",), "give http://HOST:PORT"),
        (("http://h:1", "--requests", "5", "--duration-s", "1"), "exclude each other"),
        (("http://h:1", "--requests", "5", "--concurrency", "1"), "exclude each other"),
        (("http://h:1", "--rate-rps", "5", "--concurrency", "1"), "exclude each other"),
        (("http://h:1", "--arrivals", "trace.csv"), "--arrivals trace.csv: No such file"),
        (("http://h:1", "--input", "missing.jpg"), "--input missing.jpg: No such file"),
        (("http://h:1", "--plot", "plot.txt"), "ends in .png"),
        (("http://h:1", "--rate-rps", "1e6", "--duration-s", "1000"), "at most 10000000 requests"),
    ],
)
def test_bad_usage_is_told_in_one_line(arguments, wording, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.txt").write_text("no certificate")
    done = headrace_here("bench", *arguments)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert wording in done.stderr


@pytest.mark.parametrize(("model", "image"), [("scale", True), ("means", False)])
def test_inputs_that_the_model_does_not_take(server, model, image, tmp_path):
    given = tmp_path / "photo.jpg"
    if image:
        given.write_bytes(IMAGE_FILE)
    else:
        given.mkdir()
    done = headrace_here("bench", url_of(server, "http"), "--model", model, "--input", str(given))
    assert done.returncode == 2 and "--input" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_plan_is_a_function_of_its_seed():
    for arrivals in ("poisson", "bursts"):
        first, again, other = (planned(arrivals, 100.0, 500, seed) for seed in (1, 1, 2))
        assert (first == again).all() and (first != other).any() and (np.diff(first) >= 0).all()
    assert planned("poisson", 100.0, 20_000, 0)[-1] == pytest.approx(200, rel=0.05)


# ---- the end ----


@pytest.mark.quick(2)
@pytest.mark.timed
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_ends_it_soon_and_leaves_nothing_running(server, transport, begun):
    before = headrace_of(server, "scale")
    process = subprocess.Popen(
        [*COMMAND, "bench", url_of(server, transport), "--model", "scale", "--requests", "100000", "--processes", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    if begun:
        until(lambda: headrace_of(server, "scale") > before + 10, 60)
    else:
        time.sleep(0.7)
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == "" and time.monotonic() - began < 4
    assert err.splitlines()[-1:] == ["headrace: interrupted"] and "Traceback" not in err
    until(lambda: not in_session(process.pid), 5)


@pytest.mark.slow
def test_its_processes_end_when_it_is_killed(server):
    before = headrace_of(server, "scale")
    process = subprocess.Popen(
        [*COMMAND, "bench", url_of(server, "http"), "--model", "scale", "--requests", "100000", "--processes", "2"],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: headrace_of(server, "scale") > before + 10, 60)
    assert len(in_session(process.pid)) >= 3
    process.kill()
    process.wait()
    until(lambda: not in_session(process.pid), 10)


def in_session(session):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                found.append(int(stat.parent.name))
    return found
