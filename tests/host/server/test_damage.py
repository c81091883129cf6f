"""Test bytes that no client should send. The server always answers with the reason and continues."""

import gzip
import json
import re
import selectors
import socket
import struct

import cv2
import grpc
import numpy as np
import pytest
import tritonclient.grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples
from running import scale_request, scaled, serving, until
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

INFER = "/v2/models/scale/infer"


@pytest.fixture(scope="module")
def server():
    with serving(
        "--max-body-mib",
        "1",
        "--max-bodies-mib",
        "2",
        "--max-connections",
        "64",
        "--max-megapixels",
        "1",
        "--max-request-megapixels",
        "3",
    ) as running:
        yield running
        assert running.lives()
        status, _, body = running.request("POST", INFER, scale_request(2.0))
        assert status == 200 and scaled(body)[0, 0] == 4
        code, said = running.end()
        assert code == 0 and "Traceback" not in said


def changed(**more):
    return {"inputs": [{**scale_request(1.0)["inputs"][0], **more}]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "not JSON"),
        (b"{", "the body is not JSON: "),
        (b"--7d1\r\nContent-Disposition: form-data; name=file\r\n\r\n\xff\xd8\xff", "the body is a form"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"inputs": [' + b'{"a":' * 50_000, "not JSON"),
        (b'{"inputs": ' + b"9" * 10_000 + b"}", "not JSON"),
        ([], "must be a JSON object"),
        ({"inputs": {}}, "inputs must be a list"),
        ({"inputs": [7]}, "inputs must be a list"),
        ({"inputs": []}, "has no input"),
        ({}, "has no input"),
        ({"inputs": [{}]}, "an input has no name"),
        ({"inputs": 2 * scale_request(1.0)["inputs"]}, "has input 'x' twice"),
        ({**scale_request(1.0), "outputs": 3 * [{"name": "output"}]}, "asks for output 'output' 3 times"),
        ({**scale_request(1.0), "outputs": 1025 * [{}]}, "1025 outputs; send at most 1024"),
        ({"inputs": 1025 * [{}]}, "1025 inputs; send at most 1024"),
        ({**scale_request(1.0), "id": 7}, "id must be a string"),
        ({**scale_request(1.0), "outputs": [{"name": 5}]}, "an output has no name"),
        ({**scale_request(1.0), "parameters": 5}, "parameters must be"),
        (scale_request(1.0, timeout="soon"), "the parameter timeout"),
        (scale_request(1.0, timeout=-5), "the parameter timeout"),
        (scale_request(1.0, priority=1.5), "the parameter priority"),
        (changed(datatype="FP128"), "unknown datatype 'FP128'"),
        (changed(datatype=None), "unknown datatype None"),
        (changed(datatype=["FP32"]), "unknown datatype"),
        (changed(shape=[4]), "not a list of FP32|does not fit its data"),
        (changed(shape=[-1, 4]), "give its shape as a list"),
        (changed(shape=[1, 4.0]), "give its shape as a list"),
        (changed(shape=[True, 4]), "give its shape as a list"),
        (changed(shape="14"), "give its shape as a list"),
        (changed(shape=[1] * 9), "give its shape as a list"),
        (changed(shape=[2**13, 2**13]), "does not fit"),
        (changed(shape=[2**40, 2**40]), "elements; send at most"),
        (changed(shape=[2**63]), "give its shape as a list"),
        (changed(data=5), "neither data"),
        (changed(data=["1", "2", "3", "4"]), "not a list of FP32"),
        (changed(data=["x" * 100_000, 2, 3, 4]), "not a list of FP32"),
        (changed(data=[[1, 2], [3, [4]]]), "does not fit its data; give a list of FP32"),
        (changed(data=[1, 2, 3]), "does not fit the 3"),
        (changed(data=[None, 2, 3, 4]), "not a list of FP32"),
        (changed(datatype="INT8", data=[1, 2, 3, 400]), "outside the range of INT8"),
        (changed(datatype="INT8", data=[1, 2, 3, 4.5]), "not a list of INT8"),
        (changed(datatype="BOOL", data=[1, 0, 1, 0]), "not a list of BOOL"),
        (changed(datatype="BYTES", data=["a", "b"]), "does not fit the 2"),
        (changed(parameters={"binary_data_size": 16}), "binary_data_size of 16, but only 0 bytes are left"),
        (changed(parameters={"binary_data_size": -16}), "binary_data_size must be"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [NaN]}]}', "not JSON"),
    ],
)
def test_a_body_that_is_wrong_is_a_bad_request(server, body, text):
    status, error = server.error("POST", INFER, body)
    assert status == 400 and re.search(text, error), error


@pytest.mark.parametrize(
    ("length", "text"),
    [
        ("-1", "must be a whole number"),
        ("9" * 30, "must be a whole number"),
        ("1e3", "must be a whole number"),
        ("5", "not JSON"),
    ],
)
def test_a_header_length_that_lies_is_refused(server, length, text):
    status, error = server.error("POST", INFER, scale_request(1.0), {"Inference-Header-Content-Length": length})
    assert status == 400 and text in error


@pytest.mark.parametrize(
    ("body", "coding", "status"),
    [
        (gzip.compress(bytes(2 << 20)), "gzip", 413),  # larger than --max-body-mib
        (gzip.compress(b"{}")[:-1], "gzip", 400),
        (b"{}", "deflate", 400),
        (b"{}", "br", 415),
    ],
)
def test_a_body_that_cannot_be_uncompressed_is_refused(server, body, coding, status):
    found, headers, answer = server.request("POST", INFER, body, {"Content-Encoding": coding})
    assert found == status and b"error" in answer
    assert headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)


def binary(raw, size, **more):
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], **more, "parameters": {"binary_data_size": size}}
    header = json.dumps({"inputs": [tensor]}).encode()
    return header + raw, {"Inference-Header-Content-Length": str(len(header))}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (binary(bytes(16), 15), "needs 16 bytes; the request has 15"),
        (binary(bytes(16), 17), "binary_data_size of 17, but only 16 bytes are left"),
        (binary(bytes(20), 16), "4 bytes of the body belong to no input"),
        (binary(bytes(16), 16, shape=[2**13, 2**13]), "bytes; the request has 16"),
        (binary(bytes(16), 16, shape=[2**31, 2**31]), "elements; send at most"),
        (
            binary(struct.pack("<I", 2**32 - 1) + b"abc", 7, datatype="BYTES", shape=[1]),
            "goes beyond the end of its data",
        ),
        (binary(b"ab", 2, datatype="BYTES", shape=[1]), "end inside the length of an element"),
        (binary(b"", 0, shape=[2**28, 0]), "the request has 268435456 rows"),
        (binary(b"", 0, shape=[0, 2**61]), "elements; send at most"),
        (binary(bytes(8), 8, datatype="BYTES", shape=[1]), "does not fit the 2 elements"),
    ],
)
def test_bytes_that_do_not_fit_their_tensor_are_refused(server, given, text):
    status, error = server.error("POST", INFER, *given)
    assert status == 400 and text in error


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_an_image_of_more_pixels_than_are_allowed_is_never_decoded(server, suffix):
    for width, expected in ((1000, 200), (1100, 400)):
        image = cv2.imencode(suffix, np.zeros((1000, width, 3), np.uint8))[1].tobytes()
        raw = struct.pack("<I", len(image)) + image
        body, headers = binary(raw, len(raw), name="IMAGE", datatype="BYTES", shape=[1])
        status, _, answer = server.request("POST", "/v2/models/means/infer", body, headers)
        assert status == expected, answer


@pytest.mark.parametrize("count", [3, 4])
def test_images_of_a_request_have_a_limit_together(server, count):
    image = cv2.imencode(".png", np.zeros((1000, 1000, 3), np.uint8))[1].tobytes()
    raw = (struct.pack("<I", len(image)) + image) * count
    body, headers = binary(raw, len(raw), name="IMAGE", datatype="BYTES", shape=[count])
    status, _, answer = server.request("POST", "/v2/models/means/infer", body, headers)
    assert status == (200 if count == 3 else 400), answer
    assert count == 3 or b"the 4 images of the request have 4 megapixels together; send at most 3" in answer


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /v2 HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\n folded\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n\r\n", 400),
        (b"POST /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1048577\r\n\r\n", 413),
        (b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nx: " + b"y" * 40_000, 431),
        (bytes(range(256)) * 4 + b"\r\n\r\n", 400),
    ],
)
def test_a_head_that_is_wrong_is_refused_and_the_connection_closed(server, head, status):
    answer = server.raw(head)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()) and b'{"error":' in answer


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v3", 404),
        ("GET", "/v2/models/scale/weights", 404),
        ("GET", INFER, 405),
        ("POST", "/v2", 405),
        ("DELETE", "/v2/models/scale", 405),
        ("GET", "/v2/models/..%2f..%2fetc/ready", 404),
        ("POST", "/v2/models/scale/infer/more", 404),
        ("GET", "/v2/repository/index", 405),
    ],
)
def test_what_is_not_there_says_so(server, method, path, status):
    assert server.error(method, path)[0] == status


def test_requests_in_one_piece_are_answered_one_by_one(server):
    body = json.dumps(scale_request(5.0)).encode()
    one = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s" % (INFER.encode(), len(body), body)
    last = b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer = server.raw(3 * one + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 4 and answer.count(b"10.0") == 3


def test_a_body_is_asked_for_where_the_client_waits(server):
    body = json.dumps(scale_request(5.0)).encode()
    host, port = server.ports["http"].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(
            b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
            % (INFER.encode(), len(body))
        )
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")


def test_bodies_that_do_not_come_hold_no_place_for_ever(server):
    host, port = server.ports["http"].split(":")
    clients = [socket.create_connection((host, int(port)), timeout=10) for _ in range(3)]
    for client in clients:
        client.sendall(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nx" % INFER.encode())
    with selectors.DefaultSelector() as ready:  # which takes any descriptor; select only those below 1024
        for client in clients:
            ready.register(client, selectors.EVENT_READ)
        ((refused, _),) = ready.select(10)  # two are all that --max-bodies-mib lets in
    assert refused.fileobj.recv(1000).startswith(b"HTTP/1.1 503 ")
    for client in clients:
        client.close()
    until(lambda: server.request("POST", INFER, scale_request(1.0))[0] == 200)


def test_connections_are_bounded(server):
    host, port = server.ports["http"].split(":")
    clients = [socket.create_connection((host, int(port)), timeout=10) for _ in range(70)]
    clients[-1].sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert clients[-1].recv(1000).startswith(b"HTTP/1.1 200 ")
    with selectors.DefaultSelector() as closed:
        for client in clients:
            closed.register(client, selectors.EVENT_READ)
        until(lambda: len(closed.select(0)) >= 70 - 64)  # they have made room
    for client in clients:
        client.close()
    until(server.lives)


FUZZ = settings(examples(40, 150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
TENSOR = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "IMAGE", "y"]) | JSON,
        "datatype": st.sampled_from(["FP32", "INT64", "BYTES", "FP16", "BOOL"]) | JSON,
        "shape": st.lists(st.integers(-2, 2**65), max_size=4) | st.just([1, 4]) | JSON,
        "data": st.lists(st.integers() | st.floats(allow_nan=False), max_size=5) | JSON,
        "parameters": st.fixed_dictionaries({"binary_data_size": st.integers(-1, 20)}) | JSON,
    },
)
ASKED = st.fixed_dictionaries(
    {"inputs": st.lists(TENSOR, max_size=3) | JSON},
    optional={"outputs": JSON, "parameters": JSON, "id": JSON},
)


@FUZZ
@given(asked=ASKED, rest=st.binary(max_size=24), told=st.none() | st.integers(0, 400))
def test_any_json_and_any_bytes_after_it_are_answered(server, asked, rest, told):
    header = json.dumps(asked).encode()
    headers = {"Inference-Header-Content-Length": str(len(header) if told is None else told)}
    status, _, body = server.request("POST", INFER, header + rest, headers)
    assert status in (200, 400) and (status == 200 or json.loads(body)["error"])


@FUZZ
@given(raw=st.binary(max_size=200) | st.from_regex(rb"(GET|POST) [/a-z0-9%]{1,20} HTTP/1.1\r\n[ -~\r\n]{0,80}\r\n\r\n"))
def test_any_bytes_on_the_http_port_are_answered_or_end(server, raw):
    host, port = server.ports["http"].split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(65536)
    assert answer[:9] in (b"", b"HTTP/1.1 ")
    assert not answer.startswith(b"HTTP/1.1 500")


@FUZZ
@given(
    raw=st.binary(max_size=100)
    | st.builds(
        lambda shape, datatype, raw: service_pb2.ModelInferRequest(
            model_name="scale",
            inputs=[service_pb2.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=shape)],
            raw_input_contents=raw,
        ).SerializeToString(),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
        st.sampled_from(["FP32", "BYTES", "", "INT4"]),
        st.lists(st.binary(max_size=20), max_size=2),
    )
)
def test_any_message_on_the_grpc_port_is_answered(channel, raw):
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    with pytest.raises(grpc.RpcError) as refused:
        call(raw, timeout=10)
    assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)


def test_a_message_that_is_none_says_so_in_its_stream(channel):
    unknown = service_pb2.ModelInferRequest(model_name="nobody").SerializeToString()
    answers = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(
        iter([unknown, b"\x00", unknown]), timeout=10
    )
    texts = [service_pb2.ModelStreamInferResponse.FromString(answer).error_message for answer in answers]
    assert "there is no model" in texts[0] and "not a ModelInferRequest" in texts[1] and "there is no model" in texts[2]


@pytest.mark.slow
def test_grpc_messages_are_bounded_alone_and_together(server):
    with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:

        def refused(floats):
            given = tritonclient.grpc.InferInput("x", [1, floats], "FP32")
            given.set_data_from_numpy(np.zeros((1, floats), np.float32))
            with pytest.raises(InferenceServerException) as error:
                client.infer("scale", [given])
            return error.value.status(), error.value.message()

        assert refused(200_000)[0] == "StatusCode.INVALID_ARGUMENT"  # of 800 KB; only its shape is wrong
        status, text = refused(300_000)
        assert status == "StatusCode.RESOURCE_EXHAUSTED" and "larger than max" in text


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.url("grpc")) as found:
        yield found
