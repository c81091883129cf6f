"""Test mutated requests on both transports. Each one ends, memory and event loop keep their limits, and exact answers
continue."""

import concurrent.futures
import contextlib
import gzip
import json
import os
import random
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import running
from grpc_fronts import FRONTS
from running import IMAGE_FILE, serving, write_profile
from tritonclient.grpc import service_pb2 as pb

CLIENTS = 6  # at a time
BODY_MIB, BODIES_MIB, ANSWER_MIB = 2, 16, 2
# The server may have so much beside what it has after the first mutants: what all requests and their answers may hold,
# and what the allocators keep.
BUDGET = (2 * BODIES_MIB + CLIENTS * ANSWER_MIB + 48) << 20
LOOP_S = 0.1  # CPU time of a turn: twice the bound, for a core whose sibling is busy
INFER = b"/inference.GRPCInferenceService/ModelInfer"
ENDS_S = 60.0  # a client waits so long for an answer or an end; only a server that hangs needs it
# The command, on a loop that counts the CPU time of its turns, and writes the longest of the last requests when asked.
TIMED = """
import signal, sys, uvloop
from loop_time import TimedLoop
loops = []
def new_event_loop():
    loops.append(TimedLoop())
    return loops[-1]
uvloop.new_event_loop = new_event_loop
def tell(*_):
    open("longest", "w").write(f"{loops[0].longest_s}\\n")
signal.signal(signal.SIGUSR2, tell)
from headrace.host.cli.main import main
main()
"""


def request(*firsts: float, **parameters: Any) -> dict[str, Any]:
    """Return a request for `deep`, whose numbers have no meaning, in contrast to those for `scale`."""
    rows = [[first, *[1.0] * 7] for first in firsts]
    tensor = {"name": "input", "datatype": "FP32", "shape": [len(rows), 8], "data": rows}
    return {"inputs": [tensor], "parameters": parameters}


def http(target: str, body: bytes, *headers: str) -> bytes:
    head = [f"POST {target} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def chunked(target: str, body: bytes) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    half = len(body) // 2
    pieces = [body[:half], body[half:], b""]
    return head.encode() + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def http_seeds() -> list[bytes]:
    deep, means = "/v2/models/deep/infer", "/v2/models/means/infer"
    plain = json.dumps(request(1.0, 2.0, priority=1)).encode()
    many = json.dumps(request(3.0) | {"outputs": [{"name": "output"}] * 3}).encode()
    raw = np.arange(16, dtype=np.float32).tobytes()
    tensor = {"name": "input", "datatype": "FP32", "shape": [2, 8], "parameters": {"binary_data_size": len(raw)}}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    elements = len(IMAGE_FILE).to_bytes(4, "little") + IMAGE_FILE
    image = {"name": "image", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(elements)}}
    asked = json.dumps({"inputs": [image]}).encode()
    length = "Inference-Header-Content-Length: {}".format
    bomb = gzip.compress(b'{"inputs":[' + b" " * (8 << 20) + b"]}")
    gets = ["/v2", "/v2/health/ready", "/v2/models/deep", "/v2/models/deep/stats", "/", "/live/status?model=means"]
    return [
        http(deep, plain),
        http(deep, plain, "Content-Type: application/json", "Accept-Encoding: gzip", "traceparent: 00-1-2-03"),
        http(deep, many, "Connection: close"),
        http(deep, gzip.compress(plain), "Content-Encoding: gzip"),
        http(deep, bomb, "Content-Encoding: gzip"),
        http(deep, header + raw, length(len(header))),
        http(means, asked + elements, length(len(asked))),
        http(means, IMAGE_FILE, "Content-Type: image/jpeg"),
        chunked(deep, plain),
        http("/v2/repository/index", b"{}"),
        *(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() for target in gets),
        b"HEAD /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]


def grpc_seeds() -> list[bytes]:
    row = np.arange(8, dtype=np.float32).tobytes()
    Input, Output = pb.ModelInferRequest.InferInputTensor, pb.ModelInferRequest.InferRequestedOutputTensor
    raw = pb.ModelInferRequest(
        model_name="deep", id="a", inputs=[Input(name="input", datatype="FP32", shape=[1, 8])], raw_input_contents=[row]
    )
    typed = pb.ModelInferRequest(
        model_name="deep",
        inputs=[
            Input(
                name="input", datatype="FP32", shape=[2, 8], contents=pb.InferTensorContents(fp32_contents=[1.0] * 16)
            )
        ],
        outputs=[Output(name="output")] * 2,
        parameters={"timeout": pb.InferParameter(int64_param=10**6)},
    )
    image = pb.ModelInferRequest(
        model_name="means",
        inputs=[Input(name="image", datatype="BYTES", shape=[1])],
        raw_input_contents=[len(IMAGE_FILE).to_bytes(4, "little") + IMAGE_FILE],
    )
    empty = pb.ModelInferRequest(model_name="deep", inputs=[Input()] * 40, outputs=[Output()] * 40)
    return [message.SerializeToString() for message in (raw, typed, image, empty)]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def http2(message: bytes, path: bytes = INFER) -> bytes:
    """Return a connection of one call, with headers as literals that are not indexed (RFC 7541, section 6.2.2)."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"127.0.0.1"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]
    block = b"".join(b"\0" + b"".join(bytes([len(text)]) + text for text in pair) for pair in fields)
    settings = frame(4, 0, 0, b"\0\3\0\0\0\x64\0\4\0\0\xff\xff") + frame(4, 1, 0, b"")
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + frame(1, 4, 1, block) + frame(0, 1, 1, body)


def http2_seeds() -> list[bytes]:
    calls = [http2(message) for message in grpc_seeds()[:2]]
    more = frame(6, 0, 0, b"12345678") + frame(3, 0, 1, b"\0\0\0\x08") + frame(8, 0, 0, b"\0\0\1\0")
    return [*calls, calls[0] + more]


NUMBERS = [b"0", b"-1", b"4294967296", b"18446744073709551616", b"1e999", b"99999999999", b"NaN", b"[]", b'"']


def mutated(chance: random.Random, seeds: list[bytes]) -> bytes:
    """Return a seed with one to six changes: bits, bytes, numbers, and pieces that are cut, doubled or taken from
    another seed."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        if not data:
            break
        # Half of the changes are in front, where the structure is: photos are long.
        at = chance.randrange(len(data) if chance.random() < 0.5 else min(len(data), 400))
        size = chance.choice((1, 2, 4, 30, 300))
        match chance.randrange(7):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + size] = chance.randbytes(chance.choice((size, size, 1)))
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size] * chance.choice((1, 2, 50))
            case 4:
                other = chance.choice(seeds)
                start = chance.randrange(len(other))
                data[at:at] = other[start : start + size]
            case 5:
                del data[at:]
            case 6:
                digits = [found.span() for found in re.finditer(rb"[0-9]+", data[:2000])]
                if digits:
                    start, end = chance.choice(digits)
                    data[start:end] = chance.choice(NUMBERS)
    return bytes(data)


def connected(address: str) -> socket.socket:
    """Return a connection, also while the gRPC server is being replaced."""
    host, port = address.rsplit(":", 1)
    end = time.monotonic() + ENDS_S
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=ENDS_S)
        except (ConnectionRefusedError, ConnectionResetError):
            assert time.monotonic() < end, f"nobody listens on {address}"
            time.sleep(0.02)


def ends(address: str, data: bytes) -> None:
    """Send bytes and nothing more, and read to the end of the connection. Raises TimeoutError if it does not end."""
    with connected(address) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
        except TimeoutError:
            raise
        except OSError:  # the server has cut it
            pass


class Fuzzed:
    """A server, and the requests that it gets between the mutants."""

    def __init__(self, server):
        self.server = server
        self._channel = grpc.insecure_channel(server.ports["grpc"])
        self._infer = self._channel.unary_unary(INFER.decode())

    def send(self, number: int) -> None:
        chance = random.Random(number)
        match number % 4:
            case 0 | 1:
                ends(self.server.ports["http"], mutated(chance, HTTP))
            case 2:
                with contextlib.suppress(grpc.RpcError):
                    self._infer(mutated(chance, GRPC), timeout=ENDS_S)
            case 3:
                ends(self.server.ports["grpc"], mutated(chance, HTTP2))

    def memory(self, field: str) -> int:
        """Return `VmRSS` in bytes, or `VmHWM`, its maximum so far."""
        told = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", told)[1]) << 10

    def begin(self, asked: Any) -> grpc.Future:
        return self._infer.future(asked.SerializeToString(), timeout=ENDS_S)

    def answers_exactly(self, number: int) -> None:
        rows = [float(number), float(number % 7)]
        status, _, body = self.server.request("POST", "/v2/models/deep/infer", request(*rows))
        assert status == 200 and json.loads(body)["outputs"][0]["data"] == [first + 7 for first in rows]
        asked = pb.ModelInferRequest.FromString(GRPC[0])
        asked.raw_input_contents[0] = np.array([[number, *[1] * 7]], np.float32).tobytes()
        (raw,) = pb.ModelInferResponse.FromString(self._answer(asked.SerializeToString())).raw_output_contents
        assert np.frombuffer(raw, np.float32).tolist() == [number + 7]

    def _answer(self, message: bytes) -> bytes:
        """Return an answer. Calls may be cancelled while the gRPC server is being replaced."""
        end = time.monotonic() + ENDS_S
        while True:
            try:
                return self._infer(message, timeout=ENDS_S, wait_for_ready=True)
            except grpc.RpcError as error:
                replaced = error.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
                if not replaced or time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def longest_turn_s(self) -> float:
        told = self.server.folder / "longest"
        told.unlink(missing_ok=True)
        self.server.process.send_signal(running.signal.SIGUSR2)
        running.until(lambda: told.exists() and told.read_text().endswith("\n"))
        return float(told.read_text())


HTTP, GRPC, HTTP2 = http_seeds(), grpc_seeds(), http2_seeds()


@pytest.fixture(params=FRONTS)
def fuzzed(request, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "twice.toml").write_text(
        'source = "served:scale"\npolicy = "work-conserving"\nprofile = "twice.json"\n'
    )
    write_profile(tmp_path, "twice")
    options = {
        "--max-body-mib": BODY_MIB,
        "--max-bodies-mib": BODIES_MIB,
        "--max-answer-mib": ANSWER_MIB,
        "--max-json-kib": 1024,
        "--client-timeout-s": 5,
        "--repository": tmp_path,
        "--max-request-megapixels": 8,
        "--grpc-front": request.param,
    }
    given = [str(part) for pair in options.items() for part in pair]
    with serving(*given, models=("deep", "means"), program=[sys.executable, "-c", TIMED]) as server:
        yield Fuzzed(server)
        status, said = server.end()
        assert status == 0 and not re.search("Traceback|never retrieved|hpack", said), said[-4000:]


def run(fuzzed: Fuzzed, mutants: int, batch: int = 1000) -> None:
    """Run the mutants in batches. Raises AssertionError if a limit does not hold after a batch; the mutants' numbers
    repeat it."""
    warm = 0
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        for first in range(0, mutants, batch):
            list(clients.map(fuzzed.send, range(first, first + batch)))
            fuzzed.answers_exactly(first + 1)
            if not warm:
                warm = fuzzed.memory("VmRSS")
            here = f"mutants {first} to {first + batch}"
            assert fuzzed.memory("VmHWM") < warm + BUDGET, here
            assert fuzzed.longest_turn_s() < LOOP_S, here
    assert fuzzed.memory("VmRSS") < warm + BUDGET / 2


def test_eight_hundred_mutants_leave_the_server_as_it_was(fuzzed):
    run(fuzzed, 800, batch=200)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_two_hundred_thousand_mutants_leave_the_server_as_it_was(fuzzed):
    run(fuzzed, int(os.environ.get("HEADRACE_MUTANTS", 200_000)))


@pytest.mark.slow
def test_a_call_whose_name_is_no_text_ends_neither_the_server_nor_calls_that_are_under_way():
    """grpc.aio ends its server on such a call."""
    with serving("--grpc-front", "aio", models=("scale", "deep")) as server:
        fuzzed = Fuzzed(server)
        row = np.array([[running.HELD, 1, 2, 3]], np.float32)
        tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 4])
        held = pb.ModelInferRequest(model_name="scale", inputs=[tensor], raw_input_contents=[row.tobytes()])
        under_way = fuzzed.begin(held)
        running.until(lambda: 'headrace_in_flight{model="scale"} 1.0' in server.metrics())
        for _ in range(3):
            ends(server.ports["grpc"], http2(GRPC[0], b"/\xb8\xff/ModelInfer"))
            server.let_go()  # the only worker
            fuzzed.answers_exactly(7)
        (raw,) = pb.ModelInferResponse.FromString(under_way.result()).raw_output_contents
        assert raw == (2 * row).tobytes()
        assert server.end()[0] == 0
