"""Test that both fronts of gRPC carry the same calls, and refuse the same ones."""

import contextlib
import gzip
import re
import socket
import ssl
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from certificates import write_certificates
from grpc_fronts import BOTH, WITH_TLS, front_alone, no_native
from http2_frames import PREFACE, RPC, frame, frame_from, head, message
from running import HELD, serving, until
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import UsageError
from headrace.host.dpu.specs import MAX_MEGAPIXELS, Damaged
from headrace.host.server.group import Preprocessors
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.service import Service
from headrace.host.server.transport.grpc import fronts
from headrace.host.server.transport.grpc.native_server import NativeServer
from headrace.host.server.transport.grpc.server import GrpcServer
from headrace.host.server.transport.tls import Tls

OK, EXHAUSTED, INVALID = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT
ON_NATIVE = pytest.mark.parametrize("front", BOTH[:1], indirect=True, scope="module")


@pytest.fixture(scope="module", params=[*BOTH, *WITH_TLS])
def front(request):
    return request.param


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(front, files):
    options = ["--grpc-front", front.removesuffix(", TLS")]
    if front.endswith("TLS"):
        options += ["--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem")]
    limits = "--max-body-mib 1 --max-bodies-mib 8 --max-head-kib 4 --client-timeout-s 1 --max-connections 64"
    with serving(*options, *limits.split(), models=("scale",), tls=front.endswith("TLS")) as running:
        yield running
        assert running.lives()
        status, said = running.end()
        assert status == 0 and "Traceback" not in said, said


@pytest.fixture
def channel(server, front, files):
    secure = grpc.ssl_channel_credentials((files / "ca.pem").read_bytes())
    url = server.url("grpc")
    with grpc.secure_channel(url, secure) if front.endswith("TLS") else grpc.insecure_channel(url) as found:
        yield found


def asked(*firsts, id=""):
    rows = np.array([[first, 1, 2, 3] for first in firsts], np.float32)
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=rows.shape)
    return pb.ModelInferRequest(model_name="scale", id=id, inputs=[tensor], raw_input_contents=[rows.tobytes()])


def firsts_of(raw):
    answer = pb.ModelInferResponse.FromString(raw)
    return answer.id, np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(-1, 4)[:, 0].tolist()


def infer(channel, message, **more):
    return firsts_of(channel.unary_unary(f"{RPC}/ModelInfer")(message.SerializeToString(), timeout=30, **more))


def refusal(call, *given, **more):
    with pytest.raises(grpc.RpcError) as refused:
        call(*given, **{"timeout": 30, **more})
    return refused.value.code(), refused.value.details()


@pytest.mark.parametrize("size", [0, 10, 16_000, 70_000, 900_000])
def test_messages_of_every_size_come_and_go_whole(channel, size):
    id = "".join(chr(97 + number % 26) for number in range(size))
    assert infer(channel, asked(1.5, 2.5, id=id)) == (id, [3.0, 5.0])


def test_many_calls_of_one_connection_each_get_their_own_answer(channel):
    with ThreadPoolExecutor(16) as threads:
        found = threads.map(lambda number: infer(channel, asked(number, id=str(number) * 3000)), range(100, 200))
        assert list(found) == [(str(number) * 3000, [2.0 * number]) for number in range(100, 200)]


@pytest.mark.parametrize("coding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_messages_are_read(channel, coding):
    id = "x" * 100_000
    assert infer(channel, asked(4, id=id), compression=coding) == (id, [8.0])
    streamed = channel.stream_stream(f"{RPC}/ModelStreamInfer")(
        iter([asked(4, id=id).SerializeToString()]), compression=coding, timeout=30
    )
    (answer,) = [pb.ModelStreamInferResponse.FromString(each).infer_response for each in streamed]
    assert firsts_of(answer.SerializeToString()) == (id, [8.0])


def test_what_compressed_messages_held_is_free_again(channel):
    """Each message has 0.9 MB without compression, and all of them together more than the 8 MiB that there are."""
    raw = asked(4, id="x" * 900_000).SerializeToString()
    unary = channel.unary_unary(f"{RPC}/ModelInfer")
    for _ in range(12):
        assert firsts_of(unary(raw, compression=grpc.Compression.Gzip, timeout=30))[1] == [8.0]
    call = channel.stream_stream(f"{RPC}/ModelStreamInfer")
    streamed = call(iter([raw] * 12), compression=grpc.Compression.Gzip, timeout=60)
    found = [pb.ModelStreamInferResponse.FromString(each) for each in streamed]
    assert [each.error_message for each in found] == [""] * 12


def test_a_compressed_message_is_bounded_by_its_size_without_compression(channel):
    code, text = refusal(
        channel.unary_unary(f"{RPC}/ModelInfer"),
        asked(1, id="x" * (2 << 20)).SerializeToString(),
        compression=grpc.Compression.Gzip,
    )
    assert code is EXHAUSTED and "larger than max" in text


def test_messages_and_metadata_beyond_the_limits_are_refused(channel):
    infers = channel.unary_unary(f"{RPC}/ModelInfer")
    code, text = refusal(infers, bytes((1 << 20) + 1))
    assert code is EXHAUSTED and "larger than max" in text
    code, _ = refusal(infers, asked(1).SerializeToString(), metadata=[("x", "y" * 5000)])
    assert code is EXHAUSTED
    assert infer(channel, asked(1, id="x"), metadata=[("x", "y" * 3000)]) == ("x", [2.0])


def test_a_method_that_is_not_there_is_unimplemented(channel):
    for path in ("/inference.GRPCInferenceService/Nothing", "/nobody/ModelInfer", f"{RPC}/CudaSharedMemoryStatus"):
        assert refusal(channel.unary_unary(path), b"")[0] is grpc.StatusCode.UNIMPLEMENTED


def test_errors_have_their_status_and_any_text(channel):
    unknown = pb.ModelInferRequest(model_name="caf\u00e9 100 %\n").SerializeToString()
    code, text = refusal(channel.unary_unary(f"{RPC}/ModelInfer"), unknown)
    assert code is grpc.StatusCode.NOT_FOUND and "100 %" in text
    assert refusal(channel.unary_unary(f"{RPC}/ModelInfer"), b"\xff\xff")[0] is INVALID


def test_a_call_whose_time_is_over_is_cancelled(server, channel):
    """The held request has begun, so the one after it waits. Nobody cancels that one but its own deadline."""
    with ThreadPoolExecutor(2) as threads:
        (server.folder / "go").unlink(missing_ok=True)
        held = [threads.submit(infer, channel, asked(HELD)) for _ in range(2)]
        until(lambda: 'headrace_in_flight{model="scale"} 2.0' in server.metrics())
        before = cancelled(server)
        code, _ = refusal(channel.unary_unary(f"{RPC}/ModelInfer"), asked(13).SerializeToString(), timeout=0.3)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        until(lambda: cancelled(server) == before + 1)
        server.let_go()
        assert [each.result()[1] for each in held] == [[2 * HELD]] * 2


def cancelled(server):
    found = re.search(r'outcome="cancelled",transport="grpc"} (\S+)', server.metrics())
    return float(found[1]) if found else 0.0


def test_a_stream_keeps_the_order_of_many_messages(channel):
    numbers = range(100, 400)
    messages = (asked(number, id=str(number) * 500).SerializeToString() for number in numbers)
    streamed = channel.stream_stream(f"{RPC}/ModelStreamInfer")(messages, timeout=60)
    found = [pb.ModelStreamInferResponse.FromString(each).infer_response.id for each in streamed]
    assert found == [str(number) * 500 for number in numbers]


# ---- bytes that no client of gRPC sends ----


def spoken(server, *frames):
    """Send frames after the server's first one. Return its frames as (kind, flags, stream, payload), until it ends a
    stream or closes."""
    host, port = server.ports["grpc"].split(":")
    found = []
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as file:
        connection.sendall(PREFACE + frame(4, 0, 0) + frame(4, 1, 0))
        found.append(frame_from(file))  # a server that closes early may reset what it sent and nobody has read
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"".join(frames))
            while (got := frame_from(file)) is not None:
                found.append(got)
                if got[0] in (3, 7) or (got[0] in (0, 1) and got[1] & 1):
                    break
    return found


VALID = asked(5).SerializeToString()
HOSTILE = {
    "no message": [head(flags=5)],
    "an empty frame at the end": [head(), frame(0, 1, 1)],
    "half a prefix": [head(), frame(0, 1, 1, b"\0\0")],
    "a message that is cut off": [head(), frame(0, 1, 1, message(bytes(100))[:50])],
    "a length that lies": [head(), frame(0, 1, 1, b"\0\xff\xff\xff\xff" + bytes(10))],
    "an unknown flag": [head(), frame(0, 1, 1, message(VALID, 7))],
    "an unknown coding": [head(**{"grpc-encoding": b"snappy"}), frame(0, 1, 1, message(VALID, 1))],
    "a coding that is not said": [head(), frame(0, 1, 1, message(gzip.compress(VALID), 1))],
    "bytes that are not compressed": [head(**{"grpc-encoding": b"gzip"}), frame(0, 1, 1, message(VALID, 1))],
    "compressed bytes that are cut off": [
        head(**{"grpc-encoding": b"deflate"}),
        frame(0, 1, 1, message(zlib.compress(VALID)[:-9], 1)),
    ],
    "a path that is no text": [head(b"/\xb8\xff/ModelInfer"), frame(0, 1, 1, message(VALID))],
    "a stream whose message is cut off": [
        head(f"{RPC}/ModelStreamInfer".encode()),
        frame(0, 1, 1, message(VALID) + message(VALID)[:9]),
    ],
    "another method": [head(**{":method": b"GET"}), frame(0, 1, 1, message(VALID))],
    "another content": [head(**{"content-type": b"text/html"}), frame(0, 1, 1, message(VALID))],
    "a frame on a stream that is not open": [frame(0, 1, 9, message(VALID))],
    "an even stream": [head(stream=2)],
    "a window of zero": [frame(8, 0, 0, bytes(4))],
    "a long frame": [head(), frame(0, 0, 1, bytes(2 << 20))],
    "headers that go on for ever": [head(flags=0), *[frame(9, 0, 1, b"\0\1a\1b" * 200)] * 40],
    "no settings": [b"\0" * 200],
}


@ON_NATIVE
@pytest.mark.parametrize("frames", HOSTILE.values(), ids=HOSTILE)
def test_bytes_that_no_client_sends_end_their_call_or_connection(server, channel, frames):
    assert spoken(server, *frames)[0][0] == 4  # SETTINGS
    assert infer(channel, asked(3, id="a")) == ("a", [6.0])


@ON_NATIVE
def test_what_refused_and_left_calls_held_is_free_again(server, channel):
    """Each call sends most of 1 MiB, of 8 MiB that there are, and leaves in one of the ways that there are."""
    almost = message(bytes(1 << 20))[:-100]
    pieces = [frame(0, 0, 1, almost[at : at + 16_000]) for at in range(0, len(almost), 16_000)]
    ways = ([], [frame(3, 0, 1, struct.pack(">I", 8))], [frame(0, 1, 1)])  # leaves, resets, or ends too early
    for _ in range(5):
        for way in ways:
            host, port = server.ports["grpc"].split(":")
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                window = frame(4, 0, 0) + frame(4, 1, 0)
                connection.sendall(PREFACE + window + head() + b"".join(pieces) + b"".join(way))
    for _ in range(5):
        assert infer(channel, asked(3, id="x" * 900_000))[1] == [6.0]


@ON_NATIVE
def test_calls_that_together_exceed_the_room_are_refused(server):
    """Ten calls hold 0.9 MiB each, of 8 MiB that there are. The limit of time then frees their room."""
    almost = message(bytes(1 << 20))[: 900 << 10]
    pieces = [frame(0, 0, 1, almost[at : at + 16_000]) for at in range(0, len(almost), 16_000)]
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            host, port = server.ports["grpc"].split(":")
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            connection.sendall(PREFACE + frame(4, 0, 0) + frame(4, 1, 0) + head() + b"".join(pieces))
        refused = r'outcome="shed",transport="grpc"} [1-9]'
        until(lambda: re.search(refused, server.metrics()))
        until(lambda: re.search(r'outcome="late",transport="grpc"} [1-9]', server.metrics()))
    with grpc.insecure_channel(server.url("grpc")) as channel:
        assert infer(channel, asked(3, id="x" * 900_000))[1] == [6.0]


@ON_NATIVE
def test_a_client_that_takes_nothing_of_its_answer_is_reset(server, channel):
    """The client gives streams a window of 0, and acknowledges the server's settings."""
    window = frame(4, 0, 0, struct.pack(">HI", 4, 0))
    found = spoken(server, window, head(), frame(0, 1, 1, message(VALID)))
    assert found[-1][0] == 3 and found[-1][3] == struct.pack(">I", 8)  # RST_STREAM with CANCEL
    assert infer(channel, asked(3, id="a")) == ("a", [6.0])


# ---- connections on which nothing comes ----


@contextlib.contextmanager
def silent(client_s, idle_s):
    """Run a front by itself, with these limits of time, and yield a connection to it on which the client has spoken."""
    with front_alone(client_s, idle_s) as (_, address), socket.create_connection(address, timeout=30) as connection:
        connection.sendall(PREFACE + frame(4, 0, 0) + frame(4, 1, 0))
        yield connection


def kinds_until_the_end(connection):
    """Return the kinds of the frames that come until the server closes the connection."""
    found = []
    with connection.makefile("rb") as file, contextlib.suppress(ConnectionError):
        while (got := frame_from(file)) is not None:
            found.append(got[0])
    return found


@no_native
def test_a_connection_without_calls_ends_after_a_while():
    with silent(client_s=60.0, idle_s=0.1) as connection:
        assert kinds_until_the_end(connection)[-1] == 7  # GOAWAY


@no_native
def test_a_client_that_does_not_answer_a_ping_is_gone():
    """A stream is open, so that the connection is in use, but nothing comes on it."""
    with silent(client_s=0.3, idle_s=0.1) as connection:
        connection.sendall(head(f"{RPC}/ModelStreamInfer".encode()))
        assert kinds_until_the_end(connection)[-1] == 6  # PING


# ---- the choice ----


@pytest.fixture
def service():
    return Service(Preprocessors(lambda: None, MAX_MEGAPIXELS, Damaged.STRICT, orient=False))


@pytest.fixture
def tls():
    return Tls(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), b"", b"")


@pytest.mark.parametrize(
    ("front", "installed", "encrypted", "chosen"),
    [
        ("auto", True, False, NativeServer),
        ("auto", False, False, GrpcServer),
        ("auto", True, True, GrpcServer),
        ("native", True, False, NativeServer),
        ("native", False, False, "libnghttp2-dev"),
        ("native", True, True, "libssl-dev"),
        ("auto", "with TLS", True, NativeServer),
        ("native", "with TLS", True, NativeServer),
        ("aio", True, False, GrpcServer),
    ],
)
def test_the_native_front_serves_where_it_is_and_can(front, installed, encrypted, chosen, service, tls, monkeypatch):
    def native_front(tls=False):
        return object if installed and (not tls or installed == "with TLS") else None

    monkeypatch.setattr(fronts, "native_front", native_front)

    def made():
        return fronts.grpc_server(fronts.GrpcFront(front), service, Limits(), None, tls if encrypted else None)

    if isinstance(chosen, str):
        with pytest.raises(UsageError, match=chosen):
            made()
    else:
        assert type(made()) is chosen
