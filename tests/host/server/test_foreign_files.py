"""Test harmful model files: a load that never ends, weights that contain themselves, a table with endless nesting."""

import hashlib
import json
import math
import signal
import socket
import threading
from pathlib import Path

import pytest
import torch
from running import HELD, scale_request, scaled, serving, until, write_profile

from headrace.batching import UsageError
from headrace.host.server.settings import ModelSettings, with_settings
from headrace.host.workers.networks.foreign.rules import FileRules

WAITS = """
import os, time

def net():
    with open("reader", "w") as file:
        file.write(str(os.getpid()))
    os.rename("reader", "reading")
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "waits.toml").write_text('source = "waits:net"\npolicy = "serial"\n')
    return tmp_path


def reading(server) -> int:
    """Return the process that reads the waiting model, as soon as it has begun."""
    until(lambda: (server.folder / "reading").exists())
    return int((server.folder / "reading").read_text())


def begun(server, answers):
    """Start a client that loads the waiting model."""
    (server.folder / "waits.py").write_text(WAITS)
    load = ("POST", "/v2/repository/models/waits/load")
    thread = threading.Thread(target=lambda: answers.append(server.error(*load)))
    thread.start()
    return thread, reading(server)


def served_deep():
    """Return weights of the network `deep`."""
    return {"0.weight": torch.full((4, 8), 0.5), "2.weight": torch.full((1, 4), 0.5)}


def ended(process):
    return not Path(f"/proc/{process}").exists()


@pytest.mark.slow
def test_an_unload_ends_the_load_and_the_process_that_reads(folder):
    with serving("--repository", str(folder), models=("scale",)) as server:
        answers = []
        thread, process = begun(server, answers)
        assert server.request("POST", "/v2/repository/models/waits/unload")[0] == 200
        thread.join(20)
        ((status, error),) = answers
        assert status == 400 and "was cancelled by an unload" in error
        until(lambda: ended(process))
        status, _, body = server.request("POST", "/v2/models/scale/infer", scale_request(2.0))
        assert status == 200 and scaled(body)[0, 0] == 4
        assert server.error("POST", "/v2/repository/models/waits/unload")[0] == 404
        assert server.end()[0] == 0


def unloaded(server) -> None:
    assert server.request("POST", "/v2/repository/models/waits/unload")[0] == 200


def unloaded_by_a_client_that_leaves(server) -> None:
    host, port = server.url().rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(
            b"POST /v2/repository/models/waits/unload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
        )


@pytest.mark.parametrize("unload", [unloaded, unloaded_by_a_client_that_leaves])
def test_an_unload_ends_the_load_of_a_model_that_is_served_and_the_model(folder, unload):
    (folder / "waits.toml").write_text('source = "served:scale"\npolicy = "serial"\nprofile = "waits.json"\n')
    write_profile(folder, "waits")
    with serving("--repository", str(folder), models=("scale",)) as server:
        assert server.request("POST", "/v2/repository/models/waits/load")[0] == 200
        (folder / "waits.toml").write_text('source = "waits:net"\npolicy = "serial"\n')
        answers = []
        thread, process = begun(server, answers)
        assert server.request("POST", "/v2/models/waits/infer", scale_request(2.0))[0] == 200
        unload(server)
        thread.join(20)
        assert answers[0][0] == 400
        until(lambda: ended(process))
        until(lambda: server.request("POST", "/v2/models/waits/infer", scale_request(2.0))[0] == 404)
        until(lambda: len(server.workers()) == 1)


@pytest.mark.slow
def test_a_server_that_is_about_to_end_loads_nothing_more(folder):
    with serving("--repository", str(folder), models=("scale",)) as server:
        answers = []
        held = ("POST", "/v2/models/scale/infer", scale_request(HELD))
        thread = threading.Thread(target=lambda: answers.append(server.request(*held)[0]))
        thread.start()
        until(lambda: 'headrace_in_flight{model="scale"} 1.0' in server.metrics())
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.request("GET", "/v2/health/ready")[0] == 503)
        status, error = server.error("POST", "/v2/repository/models/waits/load")
        assert status == 503 and "shutting down; load the model on another server" in error
        server.let_go()
        thread.join(20)
        assert answers == [200] and server.process.wait(20) == 0


def test_a_signal_ends_a_server_whose_model_is_being_read(folder):
    with serving("--repository", str(folder), models=("scale",)) as server:
        answers = []
        thread, process = begun(server, answers)
        code, said = server.end(timeout_s=20.0)
        thread.join(20)
        assert code == 0 and "Traceback" not in said and ended(process)
        assert answers and answers[0][0] == 400


def test_files_that_harm_are_refused_and_the_server_lives(tmp_path):
    state = {"weight": torch.ones(4)}
    state["model"] = state
    torch.save(state, tmp_path / "itself.pt")
    (tmp_path / "itself.toml").write_text('source = "served:deep"\npolicy = "serial"\nweights = "itself.pt"\n')
    (tmp_path / "nested.toml").write_text("source = " + "[" * 20_000)
    (tmp_path / "large.toml").write_text('source = "' + "a" * (2 << 20) + '"')
    (tmp_path / "digest.toml").write_text(
        f'source = "served:deep"\npolicy = "serial"\nweights = "itself.pt"\nweights-sha256 = "{"0" * 64}"\n'
    )
    deep = served_deep()
    deep["0.weight"][0, 0] = math.nan
    torch.save(deep, tmp_path / "nan.pt")
    (tmp_path / "nan.toml").write_text('source = "served:deep"\npolicy = "serial"\nweights = "nan.pt"\n')
    with serving("--repository", str(tmp_path), models=("scale",)) as server:
        for name, text in {
            "itself": "a table in it holds itself",
            "nested": "nested.toml: it nests too deep",
            "large": "large.toml: it has more than 1048576 bytes",
            "digest": "000000000000... is expected",
            "nan": "'0.weight' has 1 values that are NaN or infinite",
        }.items():
            status, error = server.error("POST", f"/v2/repository/models/{name}/load")
            assert status == 400 and text in error and len(error) < 500, error
        code, said = server.end()
        assert code == 0 and "Traceback" not in said and len(said) < 10_000


def test_weights_that_are_no_numbers_are_served_if_asked(tmp_path):
    """The worker also reads the file, so it must accept the weights, too."""
    deep = served_deep()
    deep["0.weight"][0, 0] = -math.inf  # which ReLU makes 0
    torch.save(deep, tmp_path / "inf.pt")
    digest = hashlib.sha256((tmp_path / "inf.pt").read_bytes()).hexdigest()
    for name, more in (("inf", f'weights-sha256 = "{digest}"'), ("strict", "allow-nonfinite-weights = false")):
        write_profile(tmp_path, name)
        (tmp_path / f"{name}.toml").write_text(
            f'source = "served:deep"\npolicy = "serial"\nprofile = "{name}.json"\nweights = "inf.pt"\n{more}\n'
        )
    with serving("--repository", str(tmp_path), "--allow-nonfinite-weights", models=("scale",)) as server:
        assert server.error("POST", "/v2/repository/models/strict/load")[0] == 400
        assert server.request("POST", "/v2/repository/models/inf/load")[0] == 200
        given = {"name": "input", "datatype": "FP32", "shape": [1, 8], "data": [1.0] * 8}
        status, _, answer = server.request("POST", "/v2/models/inf/infer", {"inputs": [given]})
        assert status == 200 and json.loads(answer)["outputs"][0]["data"] == [6.0]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"source": "resnet18", "sha256": "0" * 64}, "sha256 is for a file .pt2, and its source is 'resnet18'"),
        ({"source": "net.pt2", "sha256": "0" * 63}, "give the 64 hexadecimal digits that sha256sum prints"),
        ({"source": "net.pt2", "weights-sha256": "0" * 64}, "weights-sha256 is given without weights"),
        ({"read-memory-mib": 63}, "read-memory-mib is 63: give 64 to 16777216"),
        ({"source": ["x" * 10_000]}, "give a text"),
    ],
)
def test_settings_of_files_that_make_no_sense_are_refused(table, text):
    with pytest.raises(UsageError) as refused:
        with_settings(ModelSettings("m", "resnet18"), table, "here")
    assert text in str(refused.value) and len(str(refused.value)) < 500


def test_settings_of_files_become_rules():
    table = {"source": "net.pt2", "sha256": "a" * 64, "weights": "w.pt", "weights-sha256": "B" * 64}
    found = with_settings(
        ModelSettings("m", "x"), table | {"read-memory-mib": 100, "allow-nonfinite-weights": True}, ""
    )
    assert found.rules == FileRules("a" * 64, "B" * 64, True, 100)
