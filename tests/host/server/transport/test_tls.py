"""Test encrypted ports with real clients, and certificates that cannot be used."""

import http.client
import shutil
import socket
import ssl
import subprocess

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from certificates import write_certificates
from command import headrace_here
from running import scale_request, scaled, serving

INFER = "/v2/models/scale/infer"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Provide a folder with a server's `cert.pem` and `key.pem`, `ca.pem` which signed it, and others."""
    return write_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(files):
    with serving(
        "--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem"), models=("scale",)
    ) as running:
        yield running
        code, said = running.end()
        assert code == 0 and "Traceback" not in said


def rows(module, count=2):
    given = module.InferInput("x", [count, 4], "FP32")
    data = np.arange(4 * count, dtype=np.float32).reshape(count, 4)
    given.set_data_from_numpy(data)
    return given, 2 * data


def test_triton_clients_infer_over_tls(server, files):
    context = {"ssl_context_factory": lambda: ssl.create_default_context(cafile=files / "ca.pem")}
    clients = [
        (tritonclient.http, tritonclient.http.InferenceServerClient(server.url("http"), ssl=True, **context)),
        (
            tritonclient.grpc,
            tritonclient.grpc.InferenceServerClient(
                server.url("grpc"), ssl=True, root_certificates=str(files / "ca.pem")
            ),
        ),
    ]
    for module, client in clients:
        with client:
            given, expected = rows(module, 200)
            np.testing.assert_array_equal(client.infer("scale", [given]).as_numpy("output"), expected)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl_reads_metrics_over_tls(server, files):
    command = [
        "curl",
        "--noproxy",
        "*",
        "-sSf",
        "--cacert",
        files / "ca.pem",
        f"https://{server.url('metrics')}/metrics",
    ]
    assert b"headrace_requests_total" in subprocess.run(command, capture_output=True, check=True, timeout=30).stdout


def test_large_bodies_and_refusals_come_through(server, files):
    host, port = server.url("http").split(":")
    context = ssl.create_default_context(cafile=files / "ca.pem")
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
    body = str(scale_request(5.0)).replace("'", '"').encode() + 3_000_000 * b" "
    for _ in range(2):
        connection.request("POST", INFER, body)
        answer = connection.getresponse()
        assert answer.status == 200 and scaled(answer.read())[0, 0] == 10
    connection.request("POST", INFER, headers={"Content-Length": str(1 << 40)})
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("port", ["http", "grpc", "metrics"])
def test_plain_bytes_and_old_tls_get_nowhere(server, files, port):
    host, number = server.url(port).split(":")
    with socket.create_connection((host, int(number)), timeout=10) as client:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"HTTP/" not in client.recv(1000)
    context = ssl.create_default_context(cafile=files / "ca.pem")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection((host, int(number)), timeout=10) as client, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(client, server_hostname="localhost")
    assert server.process.poll() is None


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("cert", "key", "text"),
    [
        ("cert.pem", "other.pem", "does not belong to --tls-cert"),
        ("none.pem", "key.pem", "--tls-cert"),
        ("cert.pem", "none.pem", "--tls-key"),
        ("key.pem", "key.pem", "--tls-cert"),
        ("cert.pem", "encrypted.pem", "protected by a password"),
        ("cert.pem", "missing.pem", "missing.pem"),
        ("cert.pem", None, "give both"),
        (None, "key.pem", "give both"),
    ],
)
def test_files_that_do_not_go_together_are_told_in_a_line(files, cert, key, text):
    options = [] if cert is None else ["--tls-cert", files / cert]
    options += [] if key is None else ["--tls-key", files / key]
    done = headrace_here("serve", *options)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
