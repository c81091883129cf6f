"""Test a fleet with TLS and a token. Clients see one server, and the front also reaches the replicas by TLS."""

import ssl
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import trustme
from running_fleet import MODEL, Fleet

pytestmark = [pytest.mark.timed, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    issued = ca.issue_cert("127.0.0.1")
    for part in issued.cert_chain_pems:
        part.write_to_path(folder / "cert.pem", append=True)
    issued.private_key_pem.write_to_path(folder / "key.pem")
    (folder / "token").write_text("it's-a-secret\n")
    return folder


@pytest.fixture(scope="module")
def fleet(files):
    found = Fleet(
        "local",
        "--tls-cert",
        str(files / "cert.pem"),
        "--tls-key",
        str(files / "key.pem"),
        "--token-file",
        str(files / "token"),
        insecure=False,
    )
    yield found
    assert found.end() == 0


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc])
def module(request):
    return request.param


@pytest.fixture
def client(fleet, files, module):
    authorities = str(files / "ca.pem")
    if module is tritonclient.http:
        return module.InferenceServerClient(
            fleet.ready["http"], ssl=True, ssl_context_factory=lambda: ssl.create_default_context(cafile=authorities)
        )
    return module.InferenceServerClient(fleet.ready["grpc"], ssl=True, root_certificates=authorities)


def test_clients_with_the_token_are_served_by_tls_and_others_are_not(client, module):
    given = module.InferInput("x", [1, 3, 224, 224], "FP32")
    given.set_data_from_numpy(np.zeros((1, 3, 224, 224), np.float32))
    answer = client.infer(MODEL, [given], headers={"authorization": "Bearer it's-a-secret"})
    assert answer.as_numpy("output").shape == (1, 1000)
    with pytest.raises(Exception, match="Bearer TOKEN"):
        client.infer(MODEL, [given])


def test_statistics_ask_for_the_token(client):
    assert client.get_inference_statistics(MODEL, headers={"authorization": "Bearer it's-a-secret"})
    with pytest.raises(Exception, match="Bearer TOKEN"):
        client.get_inference_statistics(MODEL)


def test_metrics_ask_for_the_token(fleet, files):
    context = ssl.create_default_context(cafile=files / "ca.pem")
    url = f"https://{fleet.ready['metrics']}/metrics"
    asked = urllib.request.Request(url, headers={"authorization": "Bearer it's-a-secret"})
    assert b"haproxy_server_status" in urllib.request.urlopen(asked, context=context, timeout=20).read()
    end = time.monotonic() + 20
    for backend in ("http", "grpc"):  # the replica is found ready, by TLS, for each
        found = f'haproxy_server_check_status{{proxy="{backend}",server="s0",state="L7OK"}} 1'.encode()
        while found not in urllib.request.urlopen(asked, context=context, timeout=20).read():
            assert time.monotonic() < end
            time.sleep(0.2)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, context=context, timeout=20)
