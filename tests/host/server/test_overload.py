"""Test overload, workers that die, clients that leave, and the end of the server. Every request is answered."""

import json
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from PIL import Image
from processes import lives
from running import HELD, IMAGE_FILE, SPEC, scale_request, scaled, serving, until
from tritonclient.utils import InferenceServerException

from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import Damaged

INFER = "/v2/models/scale/infer"


def infer(server, first, **parameters):
    """Return status, headers and body of the answer."""
    return server.request("POST", INFER, scale_request(first, **parameters))


def test_what_goes_beyond_the_queue_is_refused_at_once_on_both_transports():
    with serving("--max-queue", "2", models=("scale",)) as server:
        with ThreadPoolExecutor(2) as threads:
            held = [threads.submit(infer, server, HELD) for _ in range(2)]
            until(lambda: 'headrace_in_flight{model="scale"} 2.0' in server.metrics())
            status, headers, body = infer(server, 1.0)
            assert status == 503 and headers["retry-after"] == "1" and b"its limit is 2" in body
            with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
                tensor = tritonclient.grpc.InferInput("x", [1, 4], "FP32")
                tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
                with pytest.raises(InferenceServerException, match="RESOURCE_EXHAUSTED"):
                    client.infer("scale", [tensor])
            assert not any(one.done() for one in held)
            server.let_go()
            assert [done.result()[0] for done in held] == [200, 200]
        assert infer(server, 1.0)[0] == 200
        assert 'outcome="shed",transport="grpc"} 1.0' in server.metrics()


def test_a_request_that_could_not_begin_by_its_timeout_is_dropped_where_that_is_asked_for():
    with serving("--drop-late", models=("scale",)) as server:
        with ThreadPoolExecutor(5) as threads:
            held = threads.submit(infer, server, HELD)
            until(lambda: 'headrace_in_flight{model="scale"} 1.0' in server.metrics())
            # Two behind it: one task may be sent ahead.
            late = [threads.submit(infer, server, 1.0)]
            late += [threads.submit(infer, server, 2.0, timeout=50_000) for _ in range(3)]
            until(lambda: any(one.done() for one in late[1:]))
            server.let_go()
            assert held.result()[0] == 200
            late = [one.result() for one in late]
        assert {each[0] for each in late} <= {200, 504} and 504 in {each[0] for each in late[1:]}
        assert 'outcome="late"' in server.metrics()


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_client_that_goes_takes_out_what_has_not_begun(transport):
    with serving("--max-queue", "8", models=("scale",)) as server:
        with ThreadPoolExecutor(3) as threads:
            held = [threads.submit(infer, server, HELD) for _ in range(2)]
            until(lambda: 'headrace_in_flight{model="scale"} 2.0' in server.metrics())
            module = tritonclient.http if transport == "http" else tritonclient.grpc
            tensor = module.InferInput("x", [1, 4], "FP32")
            tensor.set_data_from_numpy(np.float32([[13, 0, 0, 0]]))  # it would kill the worker
            if transport == "http":
                connection = server.connection()
                connection.request("POST", INFER, json.dumps(scale_request(13.0)))
                until(lambda: 'headrace_in_flight{model="scale"} 3.0' in server.metrics())
                connection.close()
            else:
                with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
                    call = client.async_infer("scale", [tensor], callback=lambda result, error: None)
                    until(lambda: 'headrace_in_flight{model="scale"} 3.0' in server.metrics())
                    call.cancel()
                    until(lambda: 'headrace_in_flight{model="scale"} 3.0' not in server.metrics())
            until(lambda: 'headrace_in_flight{model="scale"} 2.0' in server.metrics())
            server.let_go()
            assert [done.result()[0] for done in held] == [200, 200]
        assert infer(server, 1.0)[0] == 200
        assert "headrace_workers_lost_total 0.0" in server.metrics()
        until(lambda: f'outcome="cancelled",transport="{transport}"}} 1.0' in server.metrics())


def test_a_stream_whose_client_goes_takes_out_what_has_not_begun():
    with serving(models=("scale",)) as server:
        with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
            client.start_stream(lambda result, error: None)
            tensor = tritonclient.grpc.InferInput("x", [1, 4], "FP32")
            for number in range(100):  # more than a stream has in flight
                first = HELD if number < 8 else 13  # what begins is held; the others would kill the worker
                tensor.set_data_from_numpy(np.float32([[first, 0, 0, 0]]))
                client.async_stream_infer("scale", [tensor])
            until(lambda: 'headrace_in_flight{model="scale"} 64.0' in server.metrics())
            client.stop_stream(cancel_requests=True)
        running = re.compile(r'headrace_in_flight{model="scale"} [0-8]\.0')  # a task of 4, and one sent ahead
        until(lambda: running.search(server.metrics()))
        server.let_go()
        until(lambda: 'headrace_in_flight{model="scale"} 0.0' in server.metrics())
        assert infer(server, 1.0)[0] == 200
        assert "headrace_workers_lost_total 0.0" in server.metrics()


def test_a_killed_worker_costs_no_request():
    with serving(models=("scale",)) as server:
        (worker,) = server.workers()
        threading.Timer(0.5, os.kill, (worker, signal.SIGKILL)).start()
        answers = []
        with ThreadPoolExecutor(8) as threads:

            def load():
                answers.extend(threads.map(lambda n: (n, *infer(server, float(n))), range(100, 108)))

            until(lambda: load() or "headrace_workers_lost_total 1.0" in server.metrics())
            load()
        assert len(answers) > 8
        for number, status, _, body in answers:
            assert status == 200 and scaled(body)[0, 0] == 2 * number
        assert "headrace_workers_lost_total 1.0" in server.metrics()


@pytest.mark.slow
def test_many_times_too_many_requests_are_each_answered_though_a_worker_dies():
    with serving("--max-queue", "8", models=("scale",)) as server:
        (worker,) = server.workers()
        threading.Timer(0.5, os.kill, (worker, signal.SIGKILL)).start()
        end = time.monotonic() + 2

        def load(_):
            statuses = []
            while time.monotonic() < end:
                statuses.append(infer(server, 1000.01)[0])
            return statuses

        with ThreadPoolExecutor(24) as threads:
            statuses = [status for found in threads.map(load, range(24)) for status in found]
        assert set(statuses) == {200, 503}
        text = server.metrics()
        found = re.findall(r'headrace_requests_total{.*outcome="(\w+)",transport="http"} (\S+)', text)
        counted = {name: float(number) for name, number in found}
        assert counted["ok"] == statuses.count(200) and sum(counted.values()) == len(statuses)
        assert 'headrace_in_flight{model="scale"} 0.0' in text and "headrace_workers_lost_total 1.0" in text
        _, said = server.end()
        assert server.process.returncode == 0 and "fork" not in said


def test_a_request_that_kills_its_worker_twice_fails_and_the_server_goes_on():
    with serving(models=("scale",)) as server:
        status, headers, body = infer(server, 13.0)
        assert status == 503 and b"died" in body and "retry-after" in headers
        assert infer(server, 1.0)[0] == 200


def test_at_sigterm_what_was_let_in_is_answered_and_what_comes_is_told_to_go():
    with serving(models=("scale",)) as server:
        idle = server.connection()
        idle.request("GET", "/v2/health/ready")
        assert idle.getresponse().read() == b""
        with ThreadPoolExecutor(6) as threads:
            held = [threads.submit(infer, server, HELD) for _ in range(6)]
            until(lambda: 'headrace_in_flight{model="scale"} 6.0' in server.metrics())
            server.process.send_signal(signal.SIGTERM)
            until(lambda: server.request("GET", "/v2/health/ready")[0] == 503)
            status, headers, body = infer(server, 1.0)
            assert status == 503 and b"shutting down" in body and "retry-after" in headers
            assert server.request("GET", "/v2/health/live")[0] == 200
            server.let_go()
            assert [done.result()[0] for done in held] == [200] * 6
        _, said = server.process.communicate(timeout=15)
        assert server.process.returncode == 0 and "Traceback" not in said


@pytest.mark.slow
def test_what_takes_longer_than_the_drain_is_cut_and_said():
    with serving("--drain-s", "0.5", models=("scale",)) as server, ThreadPoolExecutor(1) as threads:
        held = threads.submit(infer, server, HELD)
        until(lambda: 'headrace_in_flight{model="scale"} 1.0' in server.metrics())
        code, said = server.end()
        assert code == 1 and "were cut" in said
        assert held.exception() is not None or held.result()[0] == 503


@pytest.mark.timed  # it bounds how long something takes
def test_a_second_signal_ends_it_at_once():
    with serving(models=("scale",)) as server:
        workers = server.workers()
        with ThreadPoolExecutor(1) as threads:
            held = threads.submit(infer, server, HELD)
            until(lambda: 'headrace_in_flight{model="scale"} 1.0' in server.metrics())
            server.process.send_signal(signal.SIGTERM)
            until(lambda: server.request("GET", "/v2/health/ready")[0] == 503)
            began = time.monotonic()
            code, _ = server.end()
            assert time.monotonic() - began < 2
            assert code == 128 + signal.SIGTERM  # 1 if it had waited for the request, as long as --drain-s lets it
            assert held.exception() is not None
        until(lambda: not any(map(lives, workers)))


def test_only_who_brings_the_token_is_served(tmp_path):
    file = tmp_path / "token"
    file.write_text("open-sesame\n")
    with serving("--token-file", str(file), models=("scale",)) as server:
        own = {"Authorization": "Bearer open-sesame"}
        for text in (None, "Bearer open-sesam", "open-sesame", "Basic open-sesame", "Bearer Open-sesame", "Bearer", ""):
            headers = {} if text is None else {"Authorization": text}
            status, _, body = server.request("POST", INFER, scale_request(1.0), headers)
            assert status == 401 and b"Bearer" in body
            assert server.request("GET", "/metrics", headers=headers, port="metrics")[0] == 401
        assert server.request("GET", "/v2/health/ready")[0] == 200
        for text in ("Bearer open-sesame", "bearer open-sesame", "BEARER  open-sesame"):
            assert server.request("POST", INFER, scale_request(1.0), {"Authorization": text})[0] == 200
        assert server.request("GET", "/metrics", headers=own, port="metrics")[0] == 200
        with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
            with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
                client.get_model_metadata("scale")
            assert client.get_model_metadata("scale", headers={"authorization": "Bearer open-sesame"}).name == "scale"
            errors = []
            client.start_stream(lambda result, error: errors.append(str(error)))
            until(lambda: errors)
            assert grpc.StatusCode.UNAUTHENTICATED.name in errors[0]


def test_images_go_through_the_dpu_and_unsupported_ones_to_the_cpu():
    import cv2

    pixels = cv2.imdecode(np.frombuffer(IMAGE_FILE, np.uint8), cv2.IMREAD_COLOR)
    png = cv2.imencode(".png", pixels)[1].tobytes()
    with (
        serving("--preprocess", "dpu", "--image-cus", "1", models=("means",)) as server,
        tritonclient.http.InferenceServerClient(server.url()) as client,
    ):
        for image_file in (IMAGE_FILE, png):
            tensor = tritonclient.http.InferInput("IMAGE", [1], "BYTES")
            tensor.set_data_from_numpy(np.array([image_file], object))
            answer = client.infer("means", [tensor]).as_numpy("output")
            np.testing.assert_allclose(answer, [preprocess(image_file, SPEC).mean((1, 2))], rtol=1e-5)
        assert re.findall(r'headrace_dpu_fallbacks_total\{reason="\w+"\} (\S+)', server.metrics()) == ["1.0"]


def test_damaged_images_that_are_accepted_are_marked_for_the_client_and_counted():
    damaged, spec = IMAGE_FILE[: len(IMAGE_FILE) // 2] + b"\xff\xd9", replace(SPEC, damaged=Damaged.LENIENT)
    with serving("--damaged", "lenient", models=("means",)) as server:
        with tritonclient.http.InferenceServerClient(server.url()) as client:
            tensor = tritonclient.http.InferInput("IMAGE", [3], "BYTES")
            tensor.set_data_from_numpy(np.array([damaged, IMAGE_FILE, damaged], object))
            answer = client.infer("means", [tensor])
            assert answer.get_response()["parameters"] == {"damaged_rows": "0,2"}
            expected = [preprocess(image_file, spec).mean((1, 2)) for image_file in (damaged, IMAGE_FILE, damaged)]
            np.testing.assert_allclose(answer.as_numpy("output"), expected, rtol=1e-5)
        with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
            for image_file, marks in ((damaged, {"damaged_rows": "0"}), (IMAGE_FILE, {})):
                tensor = tritonclient.grpc.InferInput("IMAGE", [1], "BYTES")
                tensor.set_data_from_numpy(np.array([image_file], object))
                found = client.infer("means", [tensor]).get_response().parameters
                assert {name: mark.string_param for name, mark in found.items()} == marks
        assert "headrace_damaged_photos_total 3.0" in server.metrics()


@pytest.mark.parametrize("preprocessor", [pytest.param("cpu", marks=pytest.mark.slow), "dpu"])
def test_images_are_turned_as_their_exif_says_with_the_option(preprocessor):
    turned = replace(SPEC, orient=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    segment = b"\xff\xe1" + (len(exif.tobytes()) + 2).to_bytes(2, "big") + exif.tobytes()
    image_file = IMAGE_FILE[:2] + segment + IMAGE_FILE[2:]
    assert not np.array_equal(preprocess(image_file, turned)[:, 0, 0], preprocess(image_file, SPEC)[:, 0, 0])
    for options, spec in ((["--orient"], turned), ([], SPEC)):
        with (
            serving("--preprocess", preprocessor, "--image-cus", "1", *options, models=("corner",)) as server,
            tritonclient.http.InferenceServerClient(server.url()) as client,
        ):
            tensor = tritonclient.http.InferInput("IMAGE", [2], "BYTES")
            tensor.set_data_from_numpy(np.array([image_file, IMAGE_FILE], object))
            expected = [preprocess(each, spec)[:, 0, 0] for each in (image_file, IMAGE_FILE)]
            np.testing.assert_allclose(client.infer("corner", [tensor]).as_numpy("output"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("workers", "answer"), [pytest.param("1", 8.0, marks=pytest.mark.slow), ("npu:2", 0.0)]
)  # a simulated NPU computes nothing
def test_node_level_policies_are_served_on_workers_and_simulated_npus(workers, answer):
    with serving("--policy", "lazy", "--workers", workers, models=("deep",), profiled=False) as server:
        tensor = {"name": "input", "datatype": "FP32", "shape": [2, 8], "data": [1.0] * 16}
        status, _, body = server.request("POST", "/v2/models/deep/infer", {"inputs": [tensor]})
        assert status == 200 and scaled(body).tolist() == [[answer], [answer]]
