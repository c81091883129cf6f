"""Profile, plan, serve, measure: what `headrace plan --tune` predicts of this machine is what clients see.

The network sleeps, so that its time depends little on what else the machine does. What remains are the server's and
the client's own milliseconds on a machine of continuous integration: hence the tolerance, half as much again, of the
median and the 90th percentile. `python -m benchmarks.plan` looks at the 99th, with real networks."""

import contextlib
import json
import os
import shlex
import signal
import subprocess

import pytest
from command import COMMAND

SOURCE = """
import time, torch

class Sleeper(torch.nn.Module):
    "Takes 40 ms, and 10 ms for each of its batch."
    input_shape = (1,)

    def forward(self, x):
        time.sleep(40e-3 + 10e-3 * len(x))
        return x
"""
RATE = 14.0


@pytest.fixture
def headrace_in(tmp_path):
    """Runs `headrace` where the network is; its JSON."""
    (tmp_path / "sleeping.py").write_text(SOURCE)

    def run(*words):
        done = subprocess.run([*COMMAND, *words, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@contextlib.contextmanager
def served(folder, command):
    ports = [word for port in ("http", "grpc", "metrics") for word in (f"--{port}", "127.0.0.1:0")]
    words = [*COMMAND, *shlex.split(command)[1:], *ports, "--json"]
    environment = {**os.environ, "no_proxy": "*"}
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield json.loads(process.stdout.readline())["http"]
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.timed
def test_what_is_planned_on_this_machine_is_served_with_the_latency_that_was_predicted(headrace_in, tmp_path):
    model = ("--model", "sleeping:Sleeper")
    profile = headrace_in("profile", *model, "--workers", "1", "--max-batch", "8", "-o", "sleeper.json")
    assert [point["batch"] for point in profile["points"]] == [1, 2, 4, 8]
    on = ("--accelerator", "profile", "--profile", "sleeper.json", "--rate-rps", str(RATE), "--slo-ms", "400")
    best = headrace_in("plan", "--tune", "graph,preba", *model, *on)["best"]
    with served(tmp_path, best["serve"]) as address:
        load = ("--rate-rps", str(RATE), "--requests", "120", "--seed", "1")
        (measured,) = headrace_in("bench", f"http://{address}", *model, *load)["runs"]
    assert measured["finished"] == 120
    simulated = headrace_in(*shlex.split(best["simulate"])[1:], "--requests", "120", "--seed", "1")  # same arrivals
    for value in ("p50", "p90"):
        assert 0.8 < measured["latency_ms"][value] / simulated["latency_ms"][value] < 1.5
    assert measured["batch_size_mean"] == pytest.approx(simulated["batch_size_mean"], rel=0.3)
    assert simulated["latency_ms"]["p99"] == pytest.approx(best["confirmed_ms"]["mean"], rel=0.4)  # of few requests
