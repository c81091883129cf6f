"""Test errors that are reported before serving, and ways to start and to end."""

import shutil
import socket
import subprocess

import pytest
from command import headrace_here
from running import scale_request, scaled, serving

from headrace.batching import UsageError
from headrace.host.network.address import Address


@pytest.mark.parametrize(
    "command",
    [
        *(("serve", option) for option in ("--http", "--grpc", "--metrics")),
        ("render", "--engine", "http://127.0.0.1:1", "--model", ".", "--http"),
    ],
)
def test_other_machines_are_served_only_where_that_is_said(command):
    done = headrace_here(*command, "0.0.0.0:0")
    assert done.returncode == 2 and "--token-file" in done.stderr and "--insecure" in done.stderr


def test_only_addresses_that_this_machine_alone_reaches_are_loopback():
    loopback = ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "localhost:80"]
    assert [Address.parsed("--http", text).is_loopback() for text in loopback] == [True] * 4
    assert [Address.parsed("--http", text).is_loopback() for text in ("0.0.0.0:80", "[::]:80", "10.0.0.1:80")] == [
        False
    ] * 3
    for text in ("", "8000", "localhost", ":8000", "a:b", "a:65536"):
        with pytest.raises(UsageError, match="give HOST:PORT"):
            Address.parsed("--http", text)


@pytest.mark.parametrize("port", ["http", "grpc", "metrics"])
def test_a_port_that_is_taken_is_named_at_once(port):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = headrace_here("serve", f"--{port}", address)  # of a network whose profile would have to be measured
        assert done.returncode == 2 and f"headrace: --{port} {address}: Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--model", "a=resnet18", "--model", "a=resnet50"), "its own name"),
        (("--model", "a/b=resnet18"), "letters, digits"),
        (("--weights", "", "--weights", ""), "2 for 1 models"),
        (("--policy", "cellular"), "serves step models"),
        (("--policy", "lazy", "--model", "lstm", "--input-shape", "3"), "leave out --input-shape"),
        (("--policy", "best"), "choose from serial"),
        (("--policy", "lazy", "--policy", "serial"), "2 for 1 models"),
        (("--xclbin", "x"), "x"),
        (("--launch", "queue"), "--launch is for the DPU"),
        (("--repository", "nowhere"), "No such file"),
        (("--trace", "no/such/folder"), "name a file that can be written"),
        (("--access-log", "no/such/folder"), "give a file that can be written"),
        (("--otlp", "collector:4317"), "give http://HOST:PORT"),
        (("--allow-host", "gpu:80"), "give a name without scheme and port"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, text):
    done = headrace_here("serve", *options)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            "max-quue = 5",
            "there is no setting 'max-quue'; known are access-log, allow-host, allow-nonfinite-weights, bucket-s, "
            "bucket-width,",
        ),
        ("max-queue = 1.5", "max-queue is 1.5: it must be of type int; give 1 to 65536"),
        ("max-queue = 0", "max-queue is 0: give 1 to 65536"),
        ("max-queue = true", "max-queue is True: it must be of type int; give 1 to 65536"),
        ("max-queue = [5]", "max-queue is [5]: it must be of type int; give 1 to 65536"),
        ("model = [true]", "give a text or a number, or a list of these"),
        ("sla-ms = [nan]", "slo-ms is nan: give a number of 0.001 or more"),
        ("sla-ms = [1, 2]", "--slo-ms: 2 for 1 models; give one for all, or one for each"),
        ("models = 1", "give tables, each under [[models]]"),
        ("[[models]]", "has no source"),
        ("[[models]]\nsource = 1", "has no source"),
        (
            '[[models]]\nsource = "resnet18"\npolcy = "lazy"',
            "there is no setting 'polcy'; known are allow-nonfinite-weights, bucket-s, bucket-width, by-phase, "
            "coverage, crop, ",
        ),
        (
            '[[models]]\nsource = "resnet18"\npolicy = "best"',
            "policy 'best': there is no such policy; choose from serial,",
        ),
        ('[[models]]\nsource = "resnet18"\nmax-queue = 0', "max-queue is 0: give 1 to 65536"),
        (
            '[[models]]\nsource = "resnet18"\nmax-batch = true',
            "max-batch is True: it must be of type int; give 1 to 1024",
        ),
        ('[[models]]\nsource = "resnet18"\nwhole = 1', "give true or false"),
        ('[[models]]\nsource = "resnet18"\nsla-ms = inf', "slo-ms is inf: give a finite number"),
        ('[[models]]\nsource = "resnet18"\nname = "../up"', "a name of letters, digits"),
        ('[[models]]\nsource = "resnet18"\nweights = "missing"', "--weights missing: No such file"),
        ('[[models]]\nsource = "resnet18"\nworkers = "gpu:1"', "give a number of 1 to 64, or npu:N"),
        ('model = ["resnet18"]\n[[models]]\nsource = "resnet18"', "give the models in one of these places"),
        ('weights = ["a"]\n[[models]]\nsource = "resnet18"', "say it in the model's table"),
        ('[[models]]\nsource = "resnet18"\n[[models]]\nsource = "resnet18"', "two are named 'resnet18'"),
        ("drop-late = 1", "give true or false"),
        ("orient = 6", "give true or false"),
        ("sla-ms = nan", "slo-ms is nan: give a number of 0.001 or more"),
        ('policy = "best"', "choose from serial"),
        ('token-file = "missing"', "No such file"),
        ("[", "server.toml: "),
        ("\x00", "this is no text file, for it holds a zero byte"),
    ],
)
def test_a_file_of_settings_is_checked_as_options_are(settings, text, tmp_path):
    file = tmp_path / "server.toml"
    file.write_text(settings)
    done = headrace_here("serve", "--config", file)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_file_gives_what_the_command_line_leaves_open(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text('max-queue = 3\npolicy = "serial"\ndrop-late = true\nmodel = ["overridden"]\n')
    with serving("--config", str(file), models=("scale",)) as server:
        status, error = server.error("POST", "/v2/models/scale/infer", scale_request(1.0, 2.0, 3.0, 4.0))
        assert status == 400 and "at most 3" in error


@pytest.mark.parametrize("content", ["", "two words", "x" * 5000, "\u00e9"])
def test_a_token_that_no_header_could_bring_is_refused(content, tmp_path):
    file = tmp_path / "token"
    file.write_text(content)
    done = headrace_here("serve", "--token-file", file)
    assert done.returncode == 2 and "printable" in done.stderr


SLOWER = [pytest.param(name, marks=pytest.mark.slow) for name in ("serial", "graph", "smdp")]


@pytest.mark.parametrize("policy", ["preba", *SLOWER])
def test_policies_of_whole_networks_serve_and_end_soon(policy):
    with serving("--policy", policy, models=("scale",)) as server:
        status, _, body = server.request("POST", "/v2/models/scale/infer", scale_request(3.0, 4.0))
        assert status == 200 and scaled(body)[:, 0].tolist() == [6, 8]
        assert server.end(timeout_s=15)[0] == 0


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl_is_served():
    with serving(models=("scale",)) as server:
        tensor = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'
        url = f"http://{server.url()}/v2/models/scale/infer"
        command = ["curl", "--noproxy", "*", "--silent", "--show-error", "--fail", "--data", tensor, url]
        done = subprocess.run(command, capture_output=True, timeout=30)
        assert done.returncode == 0 and scaled(done.stdout).tolist() == [[2, 4, 6, 8]]
