"""Test the limits on one client, option by option: sizes, nesting, and the time for which it may hold resources."""

import asyncio
import contextlib
import json
import re
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import virtual_time
from grpc_fronts import FRONTS
from running import scale_request, scaled, serving, until
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from headrace.host.dpu.specs import Damaged
from headrace.host.server.group import Preprocessors
from headrace.host.server.protocol.limits import BYTES_PER_S, Limits
from headrace.host.server.service import Service
from headrace.host.server.transport.grpc.aio_server import _Entrance

INFER = "/v2/models/scale/infer"
RPC = "/inference.GRPCInferenceService"


@pytest.fixture(scope="module", params=FRONTS)
def front(request):
    return request.param


def limited(client_timeout_s, front="auto"):
    """Run a server with low limits. Its clients must send and receive within the given time."""
    options = {
        "max-body-mib": 1,
        "max-bodies-mib": 2,
        "max-head-kib": 4,
        "max-json-kib": 512,
        "max-elements": 1000,
        "max-connections": 64,
        "client-timeout-s": client_timeout_s,
        "max-queue": 64,
        "grpc-front": front,
    }
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    return serving(*given, models=("scale",))


@pytest.fixture(scope="module")
def server(front):
    with limited(client_timeout_s=1, front=front) as running:
        yield running
        assert running.lives()
        code, said = running.end()
        assert code == 0 and "Traceback" not in said


@pytest.fixture(scope="module")
def patient(front):
    """A server that lets a client hold its room for minutes, so that a busy machine cannot outlast it."""
    with limited(client_timeout_s=120, front=front) as running:
        yield running


@pytest.fixture
def client(server):
    with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as found:
        yield found


def infer(client, elements=4, **more):
    given = tritonclient.grpc.InferInput("x", [1, elements], "FP32")
    given.set_data_from_numpy(np.ones((1, elements), np.float32))
    return client.infer("scale", [given], **more).as_numpy("output")


def status_of(call, *given, **more):
    with pytest.raises(InferenceServerException) as error:
        call(*given, **more)
    return error.value.status(), error.value.message()


def text_of(call, *given, **more):
    """Return the text of the error, or nothing if there is none."""
    try:
        call(*given, **more)
    except InferenceServerException as error:
        return error.message()
    return ""


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[" * 9 + b"]" * 9, "must be a JSON object"),
        (b'{"a":' + b"[" * 1025 + b"]" * 1025 + b"}", "too deep"),
        (json.dumps({"a": "[" * 100, "inputs": []}).encode(), "has no input"),
        (json.dumps({"a": '"[' * 100 + "\\", "b": "[" * 9, "inputs": []}).encode(), "has no input"),
        (json.dumps({"a": [[[[[[[1]]]]]]]}).encode(), "has no input"),
        (b" " * (600 << 10), "of JSON; send at most 524288"),
        (json.dumps({"inputs": [{"name": "x", "shape": [1001]}]}).encode(), "too many elements; send at most 1000"),
    ],
)
def test_json_is_bounded_in_length_depth_and_elements(server, body, text):
    status, error = server.error("POST", INFER, body)
    assert status == 400 and text in error, error


def test_binary_tensors_may_be_longer_than_json(server):
    header = json.dumps({"inputs": [{"name": "x", "parameters": {"binary_data_size": 1}, "shape": []}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    status, error = server.error("POST", INFER, header + bytes(600 << 10), headers)
    assert status == 400 and "datatype" in error


def test_a_request_that_does_not_come_to_its_end_is_told(server):
    assert server.raw(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n", then_s=60).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_heads_are_bounded_on_both_transports(server, client):
    assert server.request("GET", "/v2", headers={"x": "y" * 3000})[0] == 200
    assert server.request("GET", "/v2", headers={"x": "y" * 5000})[0] == 431
    infer(client, headers={"x": "y" * 3000})
    assert status_of(infer, client, headers={"x": "y" * 5000})[0] == "StatusCode.RESOURCE_EXHAUSTED"


def test_grpc_tensors_and_messages_are_bounded(client):
    assert "send at most 1000" in status_of(infer, client, 1001)[1]
    status, text = status_of(infer, client, 600_000)
    assert status == "StatusCode.RESOURCE_EXHAUSTED" and "larger than max" in text


def test_grpc_connections_are_bounded(server):
    host, port = server.ports["grpc"].split(":")

    def is_refused_among_others() -> bool:
        with contextlib.ExitStack() as stack:
            for _ in range(90):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
            try:
                with grpc.insecure_channel(server.url("grpc")) as channel:
                    channel.unary_unary(f"{RPC}/ServerLive")(b"", timeout=2)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                return True
        return False

    # Who says nothing is let go of after a second, and a busy machine may take that long to come to the call.
    until(is_refused_among_others)
    until(lambda: lives(server))


def lives(server):
    with grpc.insecure_channel(server.url("grpc")) as channel, contextlib.suppress(grpc.RpcError):
        return bool(channel.unary_unary(f"{RPC}/ServerLive")(b"", timeout=2))
    return False


def frame(kind, flags, stream, payload=b""):
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


@contextlib.contextmanager
def speaking_http2(server, window=65535):
    """Return a connection that has begun and grants streams this window."""
    host, port = server.ports["grpc"].split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, window)))
        connection.sendall(frame(4, 1, 0))  # what the server says is taken
        yield connection


def call(connection, method, stream=1):
    """Begin a call: a head without compression (RFC 7541, section 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"{RPC}/{method}",
        ":authority": "a",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in field) for field in fields.items())
    connection.sendall(frame(1, 4, stream, block))


def message(raw):
    return b"\0" + struct.pack(">I", len(raw)) + raw


def end(connection, stream=1):
    """Wait until the server ends the stream, by END_STREAM, RST_STREAM or the end of the connection."""
    with connection.makefile("rb") as file:
        while len(head := file.read(9)) == 9:
            file.read(int.from_bytes(head[:3], "big"))
            if int.from_bytes(head[5:], "big") == stream and (head[3] == 3 or head[4] & 1):
                return


def test_messages_that_do_not_come_keep_others_out_where_each_has_the_largest_room(server, client, front):
    """The native front counts the bytes that came, so these calls take 1,000 bytes and keep nobody out."""
    with stalled_calls(server):
        if front == "native":
            assert infer(client)[0, 0] == 2
            return
        status, text = status_of(infer, client)
        assert status == "StatusCode.RESOURCE_EXHAUSTED" and "no room" in text
    until(lambda: status_is_ok(client))


@pytest.mark.slow
def test_a_real_call_whose_message_does_not_come_is_ended(server, client):
    with stalled_calls(server) as calls:
        end(calls[1])  # after 1 s, and what 1 MiB takes
        until(lambda: status_is_ok(client))
        assert client.is_server_live()


@contextlib.contextmanager
def stalled_calls(server):
    """Start two calls that send half of their messages: one in a place of gRPC, and one in a place of the server
    itself."""
    with speaking_http2(server) as first, speaking_http2(server) as second:
        for connection in (first, second):
            call(connection, "ModelInfer")
            connection.sendall(frame(0, 0, 1, message(bytes(1000))[:500]))
            time.sleep(0.3)
        yield first, second


class Aborted(Exception):
    """A call ended with a status."""


@dataclass
class MemoryCall:
    """A call without a transport. Its message arrives `after_s` seconds after the server begins to read it."""

    after_s: float

    async def read(self):
        await asyncio.sleep(self.after_s)
        return b"message"

    async def abort(self, status, text):
        raise Aborted(status)

    def invocation_metadata(self):
        return ()

    def peer(self):
        return "memory"


def test_messages_that_do_not_come_hold_their_places_for_a_bounded_time():
    limits = Limits(body=1 << 20, bodies=2 << 20, client_s=1.0)  # two places: one is gRPC's, one the server's own
    bound_s = limits.client_s + limits.body / BYTES_PER_S

    async def answer(message, context):
        return b"answer to " + message

    async def main():
        clock = asyncio.get_running_loop().time
        entrance = _Entrance(Service(Preprocessors(Path, 1, Damaged.STRICT, False)), limits)
        handler = entrance.unary(answer)

        async def continuation(_):
            return handler

        details = SimpleNamespace(invocation_metadata=())

        async def ended(at, after_s):
            """Make a call as gRPC does. Return its answer or status, and the instant."""
            await asyncio.sleep(at)
            context = MemoryCall(after_s)
            let_in = await entrance.intercept_service(continuation, details)
            try:
                if let_in.request_streaming:
                    return await let_in.stream_unary(None, context), clock()
                return await let_in.unary_unary(await context.read(), context), clock()
            except Aborted as end:
                return *end.args, clock()

        return await asyncio.gather(
            ended(0.0, 3600.0),  # in gRPC's place, which has no bound
            ended(0.0, 3600.0),
            ended(0.25, 0.0),  # finds no room
            ended(bound_s - 0.75, 0.25),  # finds the second one's
            ended(4000.0, 0.0),
        )

    assert virtual_time.run(main()) == [
        (b"answer to message", 3600.0),
        (grpc.StatusCode.DEADLINE_EXCEEDED, bound_s),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 0.25 + limits.client_s),
        (b"answer to message", bound_s + 0.25),
        (b"answer to message", 4000.0),
    ]


def test_answers_of_grpc_have_room_or_another_says_so():
    """Answers count together with messages until the client has received them, which is when the call's task ends."""
    limits = Limits(body=1 << 20, bodies=1 << 20)

    async def answer(message, context):
        return bytes(int(message))

    async def main():
        entrance = _Entrance(Service(Preprocessors(Path, 1, Damaged.STRICT, False)), limits)
        answered = entrance.unary(answer).unary_unary

        async def call(size):
            try:
                return len(await answered(b"%d" % size, MemoryCall(0.0)))
            except Aborted as end:
                return end.args[0]

        async def taken_late(size):
            found = await call(size)
            await asyncio.sleep(10.0)
            return found

        late = asyncio.create_task(taken_late(limits.bodies - 100))  # so that messages have room
        await asyncio.sleep(1.0)
        at_once = [await asyncio.create_task(call(size)) for size in (100_000, 60_000)]
        whole = await late
        await asyncio.sleep(0)
        return whole, at_once, await asyncio.create_task(call(limits.bodies - 100))

    full = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert virtual_time.run(main()) == (limits.bodies - 100, [full, 60_000], limits.bodies - 100)


def status_is_ok(client, **more):
    with contextlib.suppress(InferenceServerException):
        return infer(client, **more)[0, 0] == 2
    return False


def test_answers_that_are_not_taken_are_bounded(patient):
    asked = service_pb2.ModelInferRequest(model_name="scale", id="x" * 59_000, raw_input_contents=[bytes(16)])
    asked.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    data = message(asked.SerializeToString())
    with tritonclient.grpc.InferenceServerClient(patient.url("grpc")) as client:
        with contextlib.ExitStack() as stack:
            for _ in range(30):
                connection = stack.enter_context(speaking_http2(patient, window=0))
                call(connection, "ModelInfer")
                for at in range(0, len(data), 10_000):
                    connection.sendall(frame(0, at + 10_000 >= len(data), 1, data[at : at + 10_000]))
            until(lambda: "no room" in text_of(infer, client, request_id="x" * 500_000))
        until(lambda: status_is_ok(client, request_id="x" * 500_000))


def test_a_stream_whose_answers_are_not_taken_is_read_no_further(patient):
    """The server waits long for its client, which may be slow on a busy machine. So the stream is open to the end."""
    asked = service_pb2.ModelInferRequest(model_name="nobody", id="x" * 100_000).SerializeToString()
    taken = 0

    def requests():
        nonlocal taken
        for number in range(3000):  # 300 MB
            taken = number
            yield asked

    with grpc.insecure_channel(patient.url("grpc")) as channel:
        before = memory(patient)
        running = channel.stream_stream(f"{RPC}/ModelStreamInfer")(requests())
        until(lambda: taken > 100, 60)
        time.sleep(2)
        assert taken < 1000 and memory(patient) < before + (100 << 20)
        assert running.is_active()
        running.cancel()


def memory(server):
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    return int(found[1]) << 10


@pytest.mark.slow
def test_many_requests_leave_the_memory_as_it_was(server):
    def load(count):
        body = json.dumps(scale_request(1.0)).encode() + b" " * 400_000
        for number in range(count):
            if number % 3 == 0:
                assert server.request("POST", INFER, b"[" * 400_000)[0] == 400
            else:
                assert scaled(server.request("POST", INFER, body)[2])[0, 0] == 2

    load(30)
    before = memory(server)
    load(150)
    assert memory(server) < before + (30 << 20)
