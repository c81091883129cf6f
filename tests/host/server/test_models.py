"""Test which models may be served: with policies of their own, step models, exported programs, and models that come and
go."""

import concurrent.futures
import fcntl
import json
import queue
import signal
import socket
import threading
import time

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from running import HELD, scale_request, scaled, serving, until, write_profile
from tritonclient.utils import InferenceServerException

from headrace.host.workers.networks.sequence_networks import Network, tree_of
from headrace.host.workers.networks.step_models import load_steps, run_alone

SMALL = {"hidden": 16, "vocabulary": 50}
SIZES = "hidden = 16\nvocabulary = 50\n"
STEPS = SIZES + "max-batch = 4\n"
MODELS = f"""
[[models]]
name = "alone"
source = "served:scale"
policy = "serial"
profile = "PROFILE"
sla-ms = 20
max-queue = 3

[[models]]
name = "batched"
source = "served:scale"
policy = "work-conserving"
profile = "PROFILE"

[[models]]
name = "deep"
source = "served:deep"
policy = "lazy"
max-batch = 2

[[models]]
name = "cells"
source = "seq2seq"
policy = "cellular"
{STEPS}
[[models]]
name = "trees"
source = "treelstm"
policy = "cellular"
{STEPS}
[[models]]
name = "words"
source = "transformer"
policy = "lazy"
{SIZES}max-batch = 2
longest-output = 20

[[models]]
name = "state"
source = "lstm"
policy = "cellular"
{STEPS}
"""
NETWORKS = {
    name: Network(name, kind, **SMALL)
    for name, kind in (("cells", "seq2seq"), ("trees", "treelstm"), ("state", "lstm"))
}
NETWORKS["words"] = Network("words", "transformer", **SMALL, longest_output=20)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")
    file = folder / "server.toml"
    file.write_text(MODELS.replace("PROFILE", str(write_profile(folder, "scale"))))
    with serving("--config", str(file), models=(), profiled=False) as server:
        yield server


@pytest.fixture(params=["http", "grpc"])
def transport(request):
    return {"http": tritonclient.http, "grpc": tritonclient.grpc}[request.param]


@pytest.fixture
def client(server, transport):
    with transport.InferenceServerClient(server.url(transport.__name__.rpartition(".")[2])) as client:
        yield client


def tokens(transport, *rows, name="tokens"):
    array = np.array(rows, np.int64)
    given = transport.InferInput(name, list(array.shape), "INT64")
    given.set_data_from_numpy(array)
    return given


def test_every_model_is_served_by_its_own_policy(server):
    policies = {}
    for name in ("alone", "batched", "deep", "cells", "words"):
        config = json.loads(server.request("GET", f"/v2/models/{name}/config")[2])
        policies[name] = config["parameters"]["policy"]["string_value"]
    assert policies == {
        "alone": "serial",
        "batched": "work-conserving",
        "deep": "lazy",
        "cells": "cellular",
        "words": "lazy",
    }
    for name in ("alone", "batched"):
        status, _, body = server.request("POST", f"/v2/models/{name}/infer", scale_request(1.0, 2.0))
        assert status == 200 and scaled(body)[:, 0].tolist() == [2, 4]
    assert server.error("POST", "/v2/models/alone/infer", scale_request(*[1.0] * 4))[0] == 400  # its own max-queue
    statistics = json.loads(server.request("GET", "/v2/models/alone/stats")[2])["model_stats"][0]
    assert {entry["batch_size"] for entry in statistics["batch_stats"]} == {1}


@pytest.mark.parametrize("model", ["cells", "words"])
def test_a_decoder_says_what_it_says_alone(client, transport, model):
    loaded = load_steps(NETWORKS[model])
    rows = [[5, 6, 7, 8], [9, 10, 11, 12]]
    expected = [run_alone(loaded, row, 6) for row in rows]
    if len({len(each) for each in expected}) == 1:
        answer = client.infer(model, [tokens(transport, *rows)], parameters={"max_tokens": 6})
        assert answer.as_numpy("tokens").tolist() == expected
    for row, alone in zip(rows, expected, strict=True):
        answer = client.infer(model, [tokens(transport, row)], parameters={"max_tokens": 6})
        assert answer.as_numpy("tokens").tolist() == [alone]


def test_an_encoder_gives_its_state_and_a_tree_its_root(client, transport):
    answer = client.infer("state", [tokens(transport, [3, 4, 5])])
    name = client.get_model_metadata("state").outputs[0].name if transport is tritonclient.grpc else None
    state = answer.as_numpy(name or client.get_model_metadata("state")["outputs"][0]["name"])
    torch.testing.assert_close(torch.tensor(state[0]), run_alone(load_steps(NETWORKS["state"]), [3, 4, 5]))
    words, parents = [4, 5, 6], [4, 4, 5, 5, 0]
    answer = client.infer("trees", [tokens(transport, words, name="words"), tokens(transport, parents, name="parents")])
    root = run_alone(load_steps(NETWORKS["trees"]), tree_of(words, parents))
    torch.testing.assert_close(torch.tensor(answer.as_numpy(answer_name(answer, transport))[0]), root)


def answer_name(answer, transport):
    response = answer.get_response()
    return response["outputs"][0]["name"] if transport is tritonclient.http else response.outputs[0].name


def test_what_is_no_sentence_is_refused_with_a_reason(client, transport):
    cases = [
        ("cells", [tokens(transport, [])], "empty sequence"),
        ("cells", [tokens(transport, [51])], "51"),
        ("cells", [tokens(transport, [1], name="x")], "takes tokens; the request has x"),
        ("words", [tokens(transport, [1] * 129)], "at most 128 tokens"),
        ("trees", [tokens(transport, [1, 2], name="words"), tokens(transport, [2, 1], name="parents")], "give one"),
        ("trees", [tokens(transport, [1, 2], name="words")], "takes words and parents"),
    ]
    for model, inputs, text in cases:
        with pytest.raises(InferenceServerException, match=text):
            client.infer(model, inputs)
    with pytest.raises(InferenceServerException, match="at most 20 steps"):
        client.infer("words", [tokens(transport, [1])], parameters={"max_tokens": 21})
    floats = transport.InferInput("tokens", [1, 2], "FP32")
    floats.set_data_from_numpy(np.ones((1, 2), np.float32))
    with pytest.raises(InferenceServerException, match="whole numbers of shape"):
        client.infer("cells", [floats])


def streamed(server, *requests, empty_final=False):
    """Return the answers for each request id: arrays of tokens, errors, and True for an empty last one."""
    found, done = {}, queue.Queue()

    def heard(result, error):
        done.put((result, error))

    with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
        client.start_stream(heard)
        for id, (model, inputs, parameters) in enumerate(requests, 1):
            client.async_stream_infer(
                model, inputs, request_id=str(id), parameters=parameters, enable_empty_final_response=empty_final
            )
        ends = 0
        while ends < len(requests):
            result, error = done.get(timeout=30)
            if error is not None:
                ends += 1
                found.setdefault("errors", []).append(str(error))
                continue
            response = result.get_response()
            id = int(response.id)
            if response.parameters["triton_final_response"].bool_param:
                ends += 1
                found.setdefault(id, []).append(True)
            else:
                found.setdefault(id, []).append(result.as_numpy("tokens"))
        client.stop_stream()
    return found


def test_a_stream_gives_each_token_as_it_comes_and_says_which_is_the_last(server):
    rows = [[5, 6, 7], [9, 10], [20]]
    asked = [("cells", [tokens(tritonclient.grpc, row)], {"max_tokens": 8}) for row in rows]
    found = streamed(server, *asked, ("cells", [tokens(tritonclient.grpc, [99])], {}), empty_final=True)
    loaded = load_steps(NETWORKS["cells"])
    for id, row in enumerate(rows, 1):
        *came, last = found[id]
        assert last is True and [each.tolist() for each in came] == [[[token]] for token in run_alone(loaded, row, 8)]
    assert len(found["errors"]) == 1 and "99" in found["errors"][0]


def test_a_client_that_leaves_a_stream_takes_its_requests_along(server):
    with tritonclient.grpc.InferenceServerClient(server.url("grpc")) as client:
        heard = threading.Event()
        client.start_stream(lambda result, error: heard.set())
        client.async_stream_infer("cells", [tokens(tritonclient.grpc, [5] * 100)], parameters={"max_tokens": 100})
        assert heard.wait(20)
        client.stop_stream(cancel_requests=True)
    until(lambda: 'headrace_in_flight{model="cells"} 0.0' in server.metrics())
    assert server.lives()


@pytest.mark.parametrize(
    "transport", [tritonclient.grpc, pytest.param(tritonclient.http, marks=pytest.mark.slow)], ids=["grpc", "http"]
)
def test_a_model_comes_from_the_repository_and_goes_again(transport, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "twice.toml").write_text('source = "served:scale"\npolicy = "serial"\nprofile = "profiles/twice.json"\n')
    (folder / "profiles").mkdir()
    write_profile(folder / "profiles", "twice")
    (folder / "broken.toml").write_text('source = "served:nothing"\n')
    (folder / "unknown.toml").write_text("polcy = 1\n")
    batch = torch.export.Dim("batch", min=1, max=64)
    net = torch.export.export(torch.nn.ReLU(), (torch.randn(2, 3),), dynamic_shapes=({0: batch},))
    torch.export.save(net, folder / "relu.pt2")
    with (
        serving("--repository", str(folder), models=("scale",)) as server,
        transport.InferenceServerClient(server.url(transport.__name__.rpartition(".")[2])) as client,
    ):

        def states():
            index = json.loads(server.request("POST", "/v2/repository/index")[2])
            return {each["name"]: (each["state"], each["reason"]) for each in index}

        away = ("UNAVAILABLE", "unloaded")
        assert states() == {"scale": ("READY", ""), "twice": away, "broken": away, "unknown": away, "relu": away}
        assert not client.is_model_ready("twice")
        workers = len(server.workers())
        for name in ("twice", "relu"):
            client.load_model(name)
            assert client.is_model_ready(name) and states()[name] == ("READY", "")
        status, _, body = server.request("POST", "/v2/models/twice/infer", scale_request(3.0))
        assert status == 200 and scaled(body)[0, 0] == 6
        given = transport.InferInput("input", [2, 3], "FP32")
        given.set_data_from_numpy(np.float32([[-1, 0, 1], [2, -2, 3]]))
        assert client.infer("relu", [given]).as_numpy("output").tolist() == [[0, 0, 1], [2, 0, 3]]
        before = set(server.workers())
        client.load_model("twice")  # anew
        assert server.request("POST", "/v2/models/twice/infer", scale_request(3.0))[0] == 200
        assert len(server.workers()) == len(before) and set(server.workers()) != before
        wrong = {
            "broken": "failed",
            "unknown": "no setting 'polcy'",
            "../models/twice": "there is no",
            "no": "no model",
        }
        for name, text in wrong.items():
            with pytest.raises(InferenceServerException, match=text):
                client.load_model(name)
        for name in ("twice", "relu"):
            client.unload_model(name)
            assert not client.is_model_ready(name) and states()[name] == away
            with pytest.raises(InferenceServerException, match="no model"):
                client.unload_model(name)
        assert len(server.workers()) == workers and server.lives()
        client.unload_model("scale")  # what came by option goes too
        assert server.workers() == []
        assert server.error("POST", "/v2/models/scale/infer", scale_request(3.0))[0] == 404
        assert server.end()[0] == 0


@pytest.mark.slow
def test_a_client_that_leaves_leaks_no_worker_and_no_memory(tmp_path):
    """A load or unload belongs to the server. It ends as if its client had waited."""
    (tmp_path / "twice.toml").write_text('source = "served:scale"\npolicy = "serial"\nprofile = "twice.json"\n')
    write_profile(tmp_path, "twice")
    with serving("--repository", str(tmp_path), models=("scale",)) as server:

        def ask_and_leave(what: str) -> None:
            host, port = server.ports["http"].rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=10) as client:
                head = (
                    f"POST /v2/repository/models/twice/{what} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
                )
                client.sendall(head.encode())
                time.sleep(0.1)  # it has begun

        def ask(answered) -> None:
            answered.set_result(server.request("POST", "/v2/models/twice/infer", scale_request(HELD))[0])

        def ready() -> bool:
            return server.request("GET", "/v2/models/twice/ready")[0] == 200

        before, mapped, opened = len(server.workers()), server.mappings(), server.descriptors()
        for _ in range(3):
            ask_and_leave("load")
            until(ready)
            assert len(server.workers()) == before + 1
            (server.folder / "go").unlink(missing_ok=True)
            answered = concurrent.futures.Future()
            send = threading.Thread(target=ask, args=(answered,))
            send.start()
            until(lambda: 'headrace_in_flight{model="twice"} 1.0' in server.metrics())
            ask_and_leave("unload")  # while the model is at work
            until(lambda: not ready())
            server.let_go()
            send.join(30)
            assert answered.result(0) == 200
            until(lambda: len(server.workers()) == before)
            until(lambda: server.mappings() == mapped)
            until(lambda: server.descriptors() <= opened)
        assert server.end()[0] == 0


@pytest.mark.slow
def test_a_reader_of_its_words_that_stalls_holds_up_nothing(tmp_path):
    (tmp_path / "twice.toml").write_text('source = "served:scale"\npolicy = "serial"\nprofile = "twice.json"\n')
    write_profile(tmp_path, "twice")
    with serving("--repository", str(tmp_path), models=("scale",)) as server:
        fcntl.fcntl(server.process.stderr, fcntl.F_SETPIPE_SZ, 4096)  # the least: so it is full soon
        for _ in range(60):  # each has its lines
            assert server.request("POST", "/v2/repository/models/twice/load")[0] == 200
        assert server.request("POST", "/v2/models/twice/infer", scale_request(3.0))[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_requests_in_flight_are_answered_while_their_model_is_loaded_anew_or_unloaded(tmp_path):
    (tmp_path / "scale.toml").write_text('source = "served:scale"\npolicy = "serial"\nprofile = "scale.json"\n')
    write_profile(tmp_path, "scale")
    with serving("--repository", str(tmp_path), models=("scale",)) as server:
        statuses = []

        def send():
            statuses.append(server.request("POST", "/v2/models/scale/infer", scale_request(1001.0))[0])

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: 'headrace_in_flight{model="scale"} 3.0' in server.metrics())
        loaded = []
        load = ("POST", "/v2/repository/models/scale/load")
        loading = threading.Thread(target=lambda: loaded.append(server.request(*load)[0]))
        loading.start()
        meanwhile = []
        while loading.is_alive():  # at least once
            meanwhile.append(server.request("POST", "/v2/models/scale/infer", scale_request(1.0))[0])
        loading.join()
        assert loaded == [200] and set(meanwhile) == {200}
        for thread in threads:
            thread.join(30)
        assert statuses == [200] * 3
        assert server.request("POST", "/v2/models/scale/infer", scale_request(1.0))[0] == 200


def test_nothing_is_loaded_where_that_was_not_enabled(server, client):
    for call in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException, match="start it with --repository FOLDER"):
            call("alone")
    assert server.error("POST", "/v2/repository/models/alone/unload")[0] == 400
    assert server.request("POST", "/v2/models/alone/infer", scale_request(1.0))[0] == 200


def test_parameters_that_would_change_what_is_loaded_are_refused(tmp_path):
    (tmp_path / "scale.toml").write_text('source = "served:scale"\n')
    with serving("--repository", str(tmp_path), models=("scale",)) as server:
        body = {"parameters": {"config": "{}"}}
        status, error = server.error("POST", "/v2/repository/models/scale/load", body)
        assert status == 400 and "leave out the parameters" in error


@pytest.mark.slow
def test_what_a_program_of_ones_own_is_called_by(tmp_path):
    batch = torch.export.Dim("batch", min=1, max=8)
    path = tmp_path / "relu.pt2"
    net = torch.export.export(torch.nn.ReLU(), (torch.randn(2, 3),), dynamic_shapes=({0: batch},))
    torch.export.save(net, path)
    profile = write_profile(tmp_path, "relu")
    with serving("--model", str(path), "--profile", str(profile), models=(), profiled=False) as server:
        body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 3], "data": [-1, 0, 2]}]}
        status, _, answer = server.request("POST", "/v2/models/relu/infer", body)
        assert status == 200 and json.loads(answer)["outputs"][0]["data"] == [0, 0, 2]
