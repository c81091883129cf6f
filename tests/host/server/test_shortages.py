"""Test that a server survives a shortage of a resource, and serves again soon after the shortage ends."""

import contextlib
import http.client
import json
import os
import runpy
import signal
import threading
import time
from pathlib import Path

import pytest
from running import scale_request, scaled, serving, until, write_profile

pytestmark = pytest.mark.slow
SHORT = runpy.run_path(str(Path(__file__).parents[3] / "scripts/shortages.py"))
LASTS_S = 2.0
SOON_S = 30.0  # 10 s are promised; a machine that is busy with other tests may take longer


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Start a server with two workers, a log on a disk of its own, and clients that send requests all the time."""
    with SHORT["small_disk"](tmp_path_factory.mktemp("disk") / "log") as disk:
        log = [] if disk is None else ["--access-log", str(disk / "access.log")]
        repository = tmp_path_factory.mktemp("repository")
        table = 'source = "served:scale"\npolicy = "work-conserving"\nprofile = "m.json"\n'
        (repository / "more.toml").write_text(table)
        write_profile(repository, "m")
        options = ("--workers", "2", "--client-timeout-s", "5", "--repository", str(repository))
        with serving(*options, *log, models=("scale",)) as server:
            until(lambda: workers_up(server) == 2)
            yield server, disk
            assert server.end()[0] == 0


def workers_up(server) -> int:
    lines = server.metrics().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("headrace_workers_up")))


@contextlib.contextmanager
def asked_all_the_time(server):
    """Send requests on connections of their own. Each one is answered or its connection ends."""
    over = threading.Event()

    def ask():
        while not over.wait(0.02):
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                server.request("POST", "/v2/models/scale/infer", scale_request(1.0, 2.0))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a request has neither an answer nor an end"


def well(server) -> bool:
    """Return whether all workers are in service and a request is answered exactly."""
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        status, _, body = server.request("POST", "/v2/models/scale/infer", scale_request(5.0))
        return status == 200 and scaled(body).tolist() == [[10.0, 2.0, 4.0, 6.0]] and workers_up(server) == 2
    return False


@pytest.mark.parametrize("name", [*SHORT["SHORTAGES"], "space"])
def test_it_serves_again_soon_after_a_shortage(served, name):
    server, disk = served
    if name == "space" and disk is None:
        pytest.skip("this process may mount no file system")
    shortage = SHORT["no_space"](disk) if name == "space" else SHORT["SHORTAGES"][name]
    pid = server.process.pid
    with asked_all_the_time(server):
        with shortage(pid):
            if found := SHORT["workers"](pid):
                os.kill(found[-1], signal.SIGKILL)  # its next start meets the shortage
            time.sleep(LASTS_S)
            assert server.process.poll() is None
        until(lambda: well(server), SOON_S)
    assert server.lives() and server.request("GET", "/v2/health/ready")[0] == 200
    if name == "space":
        log = disk / "access.log"
        until(lambda: log.read_text().endswith("\n"))  # the rest of a line for which there was no room
        assert all(json.loads(line) for line in log.read_text().splitlines())


@pytest.mark.parametrize("name", ["descriptors", "memory"])
def test_a_model_that_meets_a_shortage_is_loaded_when_it_is_over(served, name):
    server, _ = served
    with SHORT["SHORTAGES"][name](server.process.pid), contextlib.suppress(OSError, http.client.HTTPException):
        status, text = server.error("POST", "/v2/repository/models/more/load")
        assert status >= 400 and "Traceback" not in text
    until(lambda: server.request("POST", "/v2/repository/models/more/load")[0] == 200, SOON_S)
    assert server.request("POST", "/v2/models/more/infer", scale_request(4.0))[0] == 200
    assert server.request("POST", "/v2/repository/models/more/unload")[0] == 200
    until(lambda: well(server), SOON_S)


def test_a_server_that_is_killed_leaves_whole_lines(tmp_path):
    log = tmp_path / "access.log"
    with serving("--access-log", str(log), models=("scale",)) as server:
        with asked_all_the_time(server):
            until(lambda: log.stat().st_size > 20_000)
            server.process.kill()
        server.process.wait()
    whole, _, torn = log.read_text().rpartition("\n")
    assert torn == "" and all(json.loads(line)["model"] == "scale" for line in whole.splitlines())
