"""Test an unchanged tritonclient on both transports of one server, and the protocol's rules on JSON and bytes."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import threading

import cv2
import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from running import IMAGE_FILE, SPEC, scale_request, scaled, serving, until
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from headrace.host.dpu.reference.image import preprocess

TRANSPORTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture
def client(server, transport):
    with TRANSPORTS[transport].InferenceServerClient(server.url(transport)) as found:
        yield found


def tensor(transport, name, array, datatype="FP32"):
    found = TRANSPORTS[transport].InferInput(name, list(array.shape), datatype)
    found.set_data_from_numpy(array)
    return found


def wanted(transport, name, classes=0):
    return TRANSPORTS[transport].InferRequestedOutput(name, class_count=classes)


def plain(transport, answer):
    """Return a message as the JSON that HTTP sends."""
    from google.protobuf import json_format

    return answer if transport == "http" else json_format.MessageToDict(answer, preserving_proto_field_name=True)


def test_a_server_says_what_it_is_and_has(client, transport):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("scale")
    assert client.is_model_ready("scale", "1")
    assert not client.is_model_ready("scale", "2") and not client.is_model_ready("nobody")
    assert plain(transport, client.get_server_metadata())["name"] == "headrace"
    metadata = plain(transport, client.get_model_metadata("pair"))
    assert [(each["name"], each["datatype"]) for each in metadata["inputs"]] == [("ids", "INT64"), ("mask", "BOOL")]
    assert [list(map(int, each["shape"])) for each in metadata["outputs"]] == [[-1, -1], [-1, 1]]
    config = plain(transport, client.get_model_config("means"))
    config = config.get("config", config)
    assert config["max_batch_size"] == 256
    assert [(each["name"], each["data_type"], list(map(int, each["dims"]))) for each in config["input"]] == [
        ("x", "TYPE_FP32", [3, 64, 64]),
        ("IMAGE", "TYPE_STRING", [1]),
    ]
    index = plain(transport, client.get_model_repository_index())
    index = index if transport == "http" else index["models"]
    assert {(each["name"], each["state"]) for each in index} == {(n, "READY") for n in ("scale", "means", "pair")}


def test_every_row_of_a_request_is_answered_in_its_place(client, transport):
    rows = np.arange(40, dtype=np.float32).reshape(10, 4)  # more than a batch of the policy's
    answer = client.infer("scale", [tensor(transport, "x", rows)], request_id="seven")
    np.testing.assert_array_equal(answer.as_numpy("output"), 2 * rows)
    response = answer.get_response()
    assert (response["id"] if transport == "http" else response.id) == "seven"


def test_several_inputs_and_outputs_go_by_their_names(client, transport):
    ids, mask = np.array([[3, 4, 5]]), np.array([[True, False, True]])
    inputs = [tensor(transport, "mask", mask, "BOOL"), tensor(transport, "ids", ids, "INT64")]
    answer = client.infer("pair", inputs)
    assert answer.as_numpy("kept").tolist() == [[3, 0, 5]] and answer.as_numpy("sum").tolist() == [[8]]
    only = client.infer("pair", inputs, outputs=[wanted(transport, "sum")])
    assert only.as_numpy("sum").tolist() == [[8]] and only.as_numpy("kept") is None


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_images_are_preprocessed_as_opencv_does_it(client, transport, suffix):
    image_file = cv2.imencode(suffix, cv2.imdecode(np.frombuffer(IMAGE_FILE, np.uint8), cv2.IMREAD_COLOR))[1].tobytes()
    expected = preprocess(image_file, SPEC).mean((1, 2))
    image_files = np.array([image_file, image_file], object)
    for shape in ((2,), (2, 1)):
        answer = client.infer("means", [tensor(transport, "IMAGE", image_files.reshape(shape), "BYTES")])
        np.testing.assert_allclose(answer.as_numpy("output"), [expected, expected], rtol=1e-5)


def test_classification_gives_the_labels_of_the_largest(client, transport):
    values = np.broadcast_to(np.array([0.25, 2, -1], np.float32)[:, None, None], (3, 64, 64))[None]
    answer = client.infer(
        "means", [tensor(transport, "x", np.ascontiguousarray(values))], outputs=[wanted(transport, "output", 2)]
    )
    assert answer.as_numpy("output").tolist() == [[b"2.000000:1:green", b"0.250000:0:red"]]


def test_what_is_asked_wrongly_is_refused_with_a_reason(client, transport):
    row = np.zeros((1, 4), np.float32)
    cases = [
        ("nobody", tensor(transport, "x", row), {}, "there is no model 'nobody'"),
        ("scale", tensor(transport, "x", row), {"model_version": "7"}, "no version '7'"),
        ("scale", tensor(transport, "y", row), {}, "no input 'y'"),
        ("scale", tensor(transport, "x", row.astype(np.float64), "FP64"), {}, "float64"),
        ("scale", tensor(transport, "x", np.zeros((1, 5), np.float32)), {}, "5"),
        ("scale", tensor(transport, "x", np.zeros((0, 4), np.float32)), {}, "first dimension"),
        ("scale", tensor(transport, "x", np.zeros((257, 4), np.float32)), {}, "257 rows"),
        ("scale", tensor(transport, "x", row), {"outputs": [wanted(transport, "none")]}, "no output 'none'"),
        ("means", tensor(transport, "IMAGE", np.array([b"BM, a bitmap"], object), "BYTES"), {}, "not a JPEG"),
        (
            "means",
            tensor(transport, "IMAGE", np.array([IMAGE_FILE[:50]], object), "BYTES"),
            {},
            "it is no JPEG, PNG or WebP file with a header",
        ),
        ("scale", tensor(transport, "x", np.float32([[666, 0, 0, 0]])), {}, "unlucky number"),
    ]
    for model, given, more, text in cases:
        with pytest.raises(InferenceServerException, match=re.escape(text)):
            client.infer(model, [given], **more)


def test_statistics_count_rows_and_batches(client, transport):
    def of_scale():
        (found,) = plain(transport, client.get_inference_statistics("scale"))["model_stats"]
        success = found.get("inference_stats", {}).get("success", {})  # protobuf's JSON leaves out what is 0
        return int(found.get("inference_count", 0)), int(success.get("count", 0))

    before = of_scale()
    client.infer("scale", [tensor(transport, "x", np.ones((3, 4), np.float32))])
    after = of_scale()
    assert (after[0] - before[0], after[1] - before[1]) == (3, 1)


def test_json_of_both_forms_and_bytes_give_the_same(server):
    nested = scale_request(1.5, 2.5)
    flat = {"inputs": [{**nested["inputs"][0], "data": [1.5, 1, 2, 3, 2.5, 1, 2, 3]}]}
    answers = [server.request("POST", "/v2/models/scale/infer", body) for body in (nested, flat)]
    raw = np.float32([[1.5, 1, 2, 3], [2.5, 1, 2, 3]])
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": raw.nbytes}}
    header = json.dumps({"inputs": [tensor]}).encode()
    answers.append(
        server.request(
            "POST",
            "/v2/models/scale/versions/1/infer",
            header + raw.tobytes(),
            {"Inference-Header-Content-Length": str(len(header))},
        )
    )
    for status, headers, body in answers:
        assert status == 200 and headers["content-type"] == "application/json"
        np.testing.assert_array_equal(scaled(body), 2 * raw)


@pytest.mark.parametrize("asked", [None, "gzip", "deflate"])
@pytest.mark.parametrize("given", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_requests_and_answers_may_be_compressed(server, given, asked, binary):
    rows = np.arange(400, dtype=np.float32).reshape(100, 4)
    x = tritonclient.http.InferInput("x", [100, 4], "FP32")
    x.set_data_from_numpy(rows, binary_data=binary)
    output = tritonclient.http.InferRequestedOutput("output", binary_data=binary)
    with tritonclient.http.InferenceServerClient(server.url()) as client:
        answer = client.infer(
            "scale", [x], outputs=[output], request_compression_algorithm=given, response_compression_algorithm=asked
        )
    np.testing.assert_array_equal(answer.as_numpy("output"), 2 * rows)


def test_a_body_may_come_in_chunks(server):
    """Requests sends such a body from a generator, and curl from a pipe."""
    body = json.dumps(scale_request(3.0)).encode()
    with contextlib.closing(server.connection()) as connection:
        for _ in range(2):
            connection.request(
                "POST",
                "/v2/models/scale/infer",
                iter([body[:10], body[10:]]),
                encode_chunked=True,
                headers={"Transfer-Encoding": "chunked"},
            )
            assert scaled(connection.getresponse().read())[0, 0] == 6


def test_a_file_alone_is_a_request(server):
    """The content type does not matter, because curl says that the body is a form."""
    expected = preprocess(IMAGE_FILE, SPEC).mean((1, 2))
    for kind in ("image/jpeg", "application/x-www-form-urlencoded", "application/octet-stream"):
        status, _, answer = server.request("POST", "/v2/models/means/infer", IMAGE_FILE, {"Content-Type": kind})
        assert status == 200
        np.testing.assert_allclose(json.loads(answer)["outputs"][0]["data"], expected, rtol=1e-5)
    assert "no input 'IMAGE'" in server.error("POST", "/v2/models/scale/infer", IMAGE_FILE)[1]
    gif = server.error("POST", "/v2/models/means/infer", b"GIF89a" + bytes(40), {"Content-Type": "image/gif"})
    assert gif[0] == 400 and "not JSON, nor a JPEG, PNG, WebP, WAV or FLAC file" in gif[1]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl_sends_files_and_what_comes_from_a_pipe(server):
    def curl(model, body, *options):
        url = f"http://{server.url()}/v2/models/{model}/infer"
        command = ["curl", "--noproxy", "*", "--silent", "--fail-with-body", *options, url]
        return subprocess.run(command, input=body, capture_output=True, check=True, timeout=30).stdout

    expected = preprocess(IMAGE_FILE, SPEC).mean((1, 2))
    for header in ([], ["--header", "Content-Type: image/jpeg"]):
        answer = json.loads(curl("means", IMAGE_FILE, "--data-binary", "@-", *header))
        np.testing.assert_allclose(answer["outputs"][0]["data"], expected, rtol=1e-5)
    body = json.dumps(scale_request(3.0)).encode()
    assert scaled(curl("scale", body, "--request", "POST", "--upload-file", "-"))[0, 0] == 6


def test_files_are_base64_in_json(server):
    text = base64.b64encode(IMAGE_FILE).decode()
    image_file = {
        "name": "IMAGE",
        "datatype": "BYTES",
        "shape": [2],
        "data": [text, text],
        "parameters": {"base64": True},
    }
    status, _, answer = server.request("POST", "/v2/models/means/infer", {"inputs": [image_file]})
    assert status == 200
    found = np.array(json.loads(answer)["outputs"][0]["data"]).reshape(2, 3)
    np.testing.assert_allclose(found, [preprocess(IMAGE_FILE, SPEC).mean((1, 2))] * 2, rtol=1e-5)
    for changes, words in (
        ({"data": ["no base64!", text]}, "not base64"),
        ({"parameters": {}}, 'the parameter "base64": true'),
        ({"datatype": "FP32", "data": [1.0, 2.0]}, "not base64"),
    ):
        status, error = server.error("POST", "/v2/models/means/infer", {"inputs": [{**image_file, **changes}]})
        assert status == 400 and words in error, error


def test_json_is_compressed_for_who_accepts_it_and_tensors_for_who_asks_for_nothing_else(server):
    request = scale_request(*[1.5] * 200)
    for codings, binary, compressed in (
        ("gzip, deflate", False, True),
        ("gzip, deflate", True, False),
        ("gzip", True, True),
    ):
        asked = {**request, "outputs": [{"name": "output", "parameters": {"binary_data": binary}}]}
        status, headers, _ = server.request("POST", "/v2/models/scale/infer", asked, {"Accept-Encoding": codings})
        assert status == 200 and ("content-encoding" in headers) == compressed
    assert server.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"}, port="metrics")[1]["content-encoding"]


def test_outputs_are_bytes_after_the_json_if_the_request_asks_for_it(server):
    asked = scale_request(4.0, binary_data_output=True)
    status, headers, body = server.request("POST", "/v2/models/scale/infer", asked)
    length = int(headers["inference-header-content-length"])
    (output,) = json.loads(body[:length])["outputs"]
    assert status == 200 and output["parameters"] == {"binary_data_size": 16} and "data" not in output
    assert np.frombuffer(body[length:], np.float32).tolist() == [8, 2, 4, 6]


def test_numbers_that_json_has_not_are_given_as_bytes_alone(server):
    status, text = server.error("POST", "/v2/models/scale/infer", scale_request(-3e38))
    assert status == 500 and "ask for binary data" in text
    status, headers, body = server.request(
        "POST", "/v2/models/scale/infer", scale_request(-3e38, binary_data_output=True)
    )
    assert status == 200 and np.isinf(
        np.frombuffer(body[int(headers["inference-header-content-length"]) :], np.float32)[0]
    )


def test_a_stream_answers_in_order_and_goes_on_after_an_error(server):
    answers, done = [], threading.Event()

    def on_answer(result, error):
        answers.append(str(error) if error else result.as_numpy("output")[0, 0])
        if len(answers) == 20:
            done.set()

    with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
        client.start_stream(on_answer)
        for number in range(20):
            first = 666 if number == 7 else 100 + number
            client.async_stream_infer("scale", [tensor("grpc", "x", np.float32([[first, 0, 0, 0]]))])
        assert done.wait(20)
        client.stop_stream()
    assert "unlucky number" in answers.pop(7)
    assert answers == [200 + 2 * number for number in range(20) if number != 7]


def test_grpc_takes_typed_contents_too_and_names_what_it_has_not(server):
    with grpc.insecure_channel(server.url("grpc")) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        asked = service_pb2.ModelInferRequest(model_name="scale")
        asked.inputs.add(name="x", datatype="FP32", shape=[1, 4]).contents.fp32_contents[:] = [1, 2, 3, 4]
        answer = stub.ModelInfer(asked)
        assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [2, 4, 6, 8]
        with pytest.raises(grpc.RpcError) as refused:
            stub.CudaSharedMemoryStatus(service_pb2.CudaSharedMemoryStatusRequest())
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_metrics_tell_how_late_the_event_loop_is(server):
    def looks():
        return float(re.search(r"^headrace_loop_lag_seconds_count (\S+)$", server.metrics(), re.MULTILINE)[1])

    before = looks()
    until(lambda: looks() >= before + 3)


def test_metrics_tell_outcomes_times_and_why_batches_left(server):
    server.request("POST", "/v2/models/scale/infer", scale_request(1.0))
    server.error("POST", "/v2/models/nobody/infer", scale_request(1.0))
    text = server.metrics()
    for pattern in (
        r'headrace_requests_total\{model="scale",outcome="ok",transport="http"\} [1-9]',
        r'headrace_requests_total\{model="",outcome="unknown",transport="http"\} [1-9]',
        r'headrace_queue_seconds_count\{model="scale"\} [1-9]',
        r'headrace_batch_size_bucket\{le="1.0",model="scale"\} [1-9]',
        r'headrace_tasks_total\{model="scale",reason="idle"\} [1-9]',
        r"headrace_workers_up 1.0",
        r'headrace_in_flight\{model="scale"\} 0.0',
    ):
        assert re.search(pattern, text), pattern
