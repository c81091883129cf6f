"""A policy of an installed package is used like a built-in one: on the command line, in files and in Python.

The package in package/ is built and installed by pip into a fresh environment, which sees Headrace and what that needs.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "package"
NETWORK = """
import torch

class Double(torch.nn.Module):
    input_shape = (4,)

    def forward(self, x):
        return 2 * x
"""
RUN = ("simulate", "--model", "resnet50", "--requests", "300", "--rate-rps", "800", "--policy", "patient")


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The Python of an environment into which the package was installed, without a network."""
    folder = tmp_path_factory.mktemp("outside")
    venv.create(folder / "env", with_pip=False)
    found = folder / "env" / "bin" / "python"
    packages = folder / "env" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (packages / "headrace_here.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    source = folder / "package"  # a build leaves files there
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    install = [found, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", source]
    done = subprocess.run(install, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return found


# Each command is a fork of a process that has imported the command line, because a new process takes half a second.
FORKS = """
import json, os, sys
import headrace.host.cli.simulate.command, headrace.sim.run
from headrace.host.cli.main import main
for line in sys.stdin:
    code, arguments, folder, out, err = json.loads(line)
    pid = os.fork()
    if not pid:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        sys.argv = ["headrace", *arguments]
        sys.path.insert(0, "")
        status = 0
        try:
            exec(compile(code, "program", "exec"), {"__name__": "__main__"})
        except SystemExit as ended:
            status = int(ended.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
MAIN = "from headrace.host.cli.main import main; main()"


@pytest.fixture(scope="module")
def forks(python):
    """The process of that environment of which each command is a fork."""
    with subprocess.Popen([python, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()
    assert process.returncode == 0


@pytest.fixture
def run(forks, tmp_path, tmp_path_factory):
    """Run a command of that environment in an empty folder. Return its status, its output and its errors."""
    out, err = (tmp_path_factory.mktemp("streams") / name for name in ("out", "err"))

    def run(*arguments: object, program: str = MAIN) -> tuple[int, str, str]:
        forks.stdin.write(json.dumps([program, [*map(str, arguments)], *map(str, (tmp_path, out, err))]) + "\n")
        forks.stdin.flush()
        return int(forks.stdout.readline()), out.read_text(), err.read_text()

    return run


@pytest.fixture
def headrace(run):
    """Run a command as `run` does, and return the output of one that succeeds."""

    def succeed(*arguments: object, program: str = MAIN) -> str:
        status, out, err = run(*arguments, program=program)
        assert status == 0, err
        return out

    return succeed


def simulated(patience_ms: float) -> str:
    """Return a program that simulates what RUN does, and prints the result as JSON."""
    return (
        "import headrace, json\n"
        "run = {'requests': 300, 'rate_rps': 800, 'policy': 'patient'}\n"
        f"result = headrace.simulate('resnet50', **run, patience_ms={patience_ms})\n"
        "print(json.dumps(result.to_dict()))"
    )


def test_it_is_simulated_by_its_name(headrace):
    short = json.loads(headrace(*RUN, "--set", "patience_ms=0", "--json"))
    long = json.loads(headrace(*RUN, "--set", "patience_ms=3", "--json"))
    assert short["finished"] == long["finished"] == 300
    assert short["batch_size_mean"] < long["batch_size_mean"] <= 16
    assert long["settings"]["policy"] == "patient"
    assert long["settings"]["patience_ms"] == 3 and long["settings"]["max_batch"] == 16


def test_a_wrong_value_is_refused_as_with_a_built_in_policy(run):
    for text, words in (
        ("patience_ms=-1", "give a number of 0 or more"),
        ("patience=1", "known are max_batch, patience_ms"),
    ):
        status, _, err = run(*RUN, "--set", text)
        assert status == 2 and words in err, err


def test_it_and_its_settings_stand_in_a_table_of_a_file(headrace, tmp_path):
    (tmp_path / "run.toml").write_text(
        'model = "resnet50"\nrequests = 300\nrate-rps = 800\n[policy]\nname = "patient"\npatience-ms = 3\n'
    )
    of_file = json.loads(headrace("simulate", "--config", "run.toml", "--json"))
    of_options = json.loads(headrace(*RUN, "--set", "patience_ms=3", "--json"))
    assert of_file | {"wall_s": 0} == of_options | {"wall_s": 0}


def test_a_grid_varies_its_setting(headrace, tmp_path):
    (tmp_path / "grid.toml").write_text(
        'model = "resnet50"\nrequests = 300\nrate-rps = 800\npolicy = "patient"\npatience-ms = [0, 3]\n'
    )
    runs = json.loads(headrace("simulate", "--grid", "grid.toml", "--json"))
    assert [each["settings"]["patience_ms"] for each in runs] == [0, 3]
    assert runs[0]["result"]["batch_size_mean"] < runs[1]["result"]["batch_size_mean"]


def test_python_gives_what_the_command_gives(headrace):
    of_command = json.loads(headrace(*RUN, "--set", "patience_ms=3", "--json"))
    of_python = json.loads(headrace(program=simulated(3)))
    assert of_python | {"wall_s": 0} == of_command | {"wall_s": 0}


def test_a_sweep_takes_its_objects_by_several_processes(headrace):
    program = (
        "import headrace\nfrom headrace_patient import Patient\n"
        "policies = [Patient(patience_ms=each) for each in (0, 1, 2, 3, 4)]\n"
        "for row in headrace.sweep('resnet50', policy=policies, requests=100).to_dicts(): print(row['policy'])"
    )
    assert headrace(program=program).split() == [
        "patient(patience_ms=0)",
        "patient(patience_ms=1)",
        "patient",
        "patient(patience_ms=3)",
        "patient(patience_ms=4)",
    ]


def test_a_server_answers_with_it(python, tmp_path):
    (tmp_path / "double.py").write_text(NETWORK)
    words = ["--model", "double:Double", "--workers", "1", "--max-batch", "4", "--policy", "patient"]
    addresses = [f"--{each}=127.0.0.1:0" for each in ("http", "grpc", "metrics")]
    program = "from headrace.host.cli.main import main; main()"
    command = [python, "-c", program, "serve", *words, "--set", "patience_ms=1", *addresses, "--json"]
    with (
        open(tmp_path / "log", "w") as log,
        subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        ) as server,
    ):
        try:
            line = server.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            ready = json.loads(line)
            tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
            url = f"http://{ready['http']}/v2/models/{ready['models'][0]}/infer"
            with urllib.request.urlopen(url, json.dumps({"inputs": [tensor]}).encode(), timeout=30) as answer:
                assert json.load(answer)["outputs"][0]["data"] == [2, 4, 6, 8]
        finally:
            server.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(30)
            server.kill()
    assert server.returncode == 0


def test_it_is_listed_and_explained(headrace):
    listed = headrace("policies")
    assert "patient" in listed and "headrace-patient" in listed
    explained = headrace("policies", "patient")
    assert "patience_ms" in explained and "How long nobody must have joined." in explained


def test_its_model_graph_its_traffic_and_its_router_are_used_by_their_names(headrace):
    words = ("--model", "one-product", "--traffic", "pulses", "--set", "max_batch=5", "--policy", "graph", "--json")
    alone = json.loads(headrace("simulate", *words))
    assert alone["finished"] == 50 and alone["batch_size_mean"] == 5
    assert (alone["settings"]["model"], alone["settings"]["traffic"]) == ("one-product", "pulses")
    fleet = json.loads(headrace("simulate", *words, "--servers", "3", "--router", "always-first"))
    assert fleet["latency_ms"] == alone["latency_ms"] and fleet["settings"]["router"] == "always-first"


def test_a_wrong_name_is_refused_with_the_names_of_the_package(run):
    for words, told in (
        (("--model", "one-produkt"), "did you mean one-product?"),
        (("--traffic", "pulse"), "choose from poisson, deterministic, mmpp, pulses, or give module:Class"),
        (("--servers", "2", "--router", "first"), "join-idle, always-first, or give module:Class"),
        (("--policy", "patent"), "earliest-deadline, patient, or give module:Class"),
    ):
        status, _, err = run("simulate", *words)
        assert status == 2 and told in err, err


def test_it_keeps_the_rules_of_policies(headrace):
    assert "keeps all" in headrace("check-policy", "patient")


# A policy of steps

STEPS = ("simulate", "--step-model", "times:Times", "--kv-blocks", "100", "--requests", "20", "--rate-rps", "2")
TIMES = """
class Times:
    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 0.001 * (1 + sum(new for new, _ in prefill) + decode_requests)
"""


def test_its_policy_of_steps_is_simulated_checked_and_listed(headrace, tmp_path):
    (tmp_path / "times.py").write_text(TIMES)
    words = (*STEPS, "--prompt-tokens", "100", "--output-tokens", "10", "--policy", "one-at-a-time")
    found = json.loads(headrace(*words, "--set", "chunk=50", "--json"))
    assert found["finished"] == 20 and found["batch_size_mean"] == 1
    assert (found["settings"]["policy"], found["settings"]["chunk"]) == ("one-at-a-time", 50)
    program = (
        "import headrace, times\nfrom headrace_one_at_a_time import OneAtATime\n"
        "requests = [headrace.StepRequest(n, 0.0, 100, 10) for n in range(3)]\n"
        "run = {'kv_blocks': 100, 'policy': OneAtATime(chunk=50)}\n"
        "print(headrace.simulate_decoding(requests, times.Times(), **run).latency_ms['max'])"
    )
    # Two chunks of 50 tokens and nine steps of one token for each request, one request after another.
    assert float(headrace(program=program)) == pytest.approx(3 * (2 * 51 + 9 * 2))
    assert "keeps all" in headrace("check-policy", "one-at-a-time", "--examples", "20")
    listed = headrace("policies")
    assert "one-at-a-time" in listed
    explained = headrace("policies", "one-at-a-time")
    assert "steps of a model that decodes" in explained and "headrace-patient" in explained


def test_a_policy_of_the_other_kind_is_refused_with_what_to_do(run, tmp_path):
    (tmp_path / "times.py").write_text(TIMES)
    for words, told in (
        (
            (*STEPS, "--policy", "patient"),
            "lazy, cellular, prefill-first, one-at-a-time, or give module:Class",
        ),
        ((*STEPS, "--policy", "headrace_patient:Patient"), "it is no policy for models that decode"),
        (("simulate", "--policy", "one-at-a-time"), "it is for models that decode; give such a model"),
        (("simulate", "--policy", "headrace_one_at_a_time:OneAtATime"), "it is for models that decode"),
    ):
        status, _, err = run(*words)
        assert status == 2 and told in err, err
