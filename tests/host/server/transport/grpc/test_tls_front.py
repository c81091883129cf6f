"""Test TLS in the native front: what it requires of a handshake, and that bad ones do not harm others."""

import contextlib
import os
import re
import select
import shutil
import socket
import ssl
import subprocess

import grpc
import numpy as np
import pytest
from certificates import write_certificates
from grpc_fronts import front_alone, no_native_tls
from http2_frames import PREFACE, RPC, frame, head, message
from running import serving, until
from tritonclient.grpc import service_pb2 as pb

pytestmark = no_native_tls
CONNECTIONS = 8  # the server's limit
ATTEMPTS = 10
WINDOW_UPDATE = re.compile(rb"\0\0\x04\x08\0\0\0\0\0....", re.DOTALL)  # the last of the server's first frames


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(files):
    options = ["--tls-cert", files / "cert.pem", "--tls-key", files / "key.pem", "--grpc-front", "native"]
    options += ["--client-timeout-s", 1, "--max-connections", CONNECTIONS]
    with serving(*map(str, options), models=("wide",), tls=True) as running:
        yield running
        status, said = running.end()
        assert status == 0 and "Traceback" not in said, said


def works(server, files):
    """Tell whether a client with a new connection gets the answer to a tensor that goes to a slot."""
    credentials = grpc.ssl_channel_credentials((files / "ca.pem").read_bytes())
    values = np.random.default_rng(0).random(20_000, np.float32)
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=(1, 20_000))
    asked = pb.ModelInferRequest(model_name="wide", inputs=[tensor], raw_input_contents=[values.tobytes()])
    with grpc.secure_channel(server.url("grpc"), credentials) as channel:
        raw = channel.unary_unary(f"{RPC}/ModelInfer")(asked.SerializeToString(), timeout=30, wait_for_ready=True)
    found = pb.ModelInferResponse.FromString(raw).raw_output_contents[0]
    return np.array_equal(np.frombuffer(found, np.float32), 2 * values)


def connected(server):
    host, port = server.url("grpc").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def context(files, *protocols):
    made = ssl.create_default_context(cafile=files / "ca.pem")
    if protocols:
        made.set_alpn_protocols(protocols)
    return made


def secured(server, made):
    return made.wrap_socket(connected(server), server_hostname="localhost")


def is_closed(connection):
    """Wait for the next bytes, or for the end. Raises TimeoutError."""
    try:
        return connection.recv(100) == b""
    except (ConnectionError, ssl.SSLError):
        return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_carry_http2(server, files, version):
    made = context(files, "http/1.1", "h2")
    made.minimum_version = made.maximum_version = version
    with secured(server, made) as connection:
        assert connection.selected_alpn_protocol() == "h2" and connection.version() == version.name.replace("_", ".")
        connection.sendall(PREFACE + frame(4, 0, 0))
        assert connection.recv(9)[3] == 4  # SETTINGS


def test_a_client_that_offers_another_protocol_is_told_so(server, files):
    with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        secured(server, context(files, "http/1.1"))


def test_a_client_that_offers_no_protocol_is_disconnected(server, files):
    with secured(server, context(files)) as connection:
        assert is_closed(connection)


def asks_again(server, files):
    """Let s_client ask for another handshake, and return what it said.

    In its input, a line with R does so. It comes after the first frames of the server, because s_client ends at data
    within a handshake."""
    command = ["openssl", "s_client", "-connect", server.url("grpc"), "-tls1_2", "-alpn", "h2"]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([*command, "-CAfile", files / "ca.pem"], **piped) as client:
        said = b""
        while not WINDOW_UPDATE.search(said):
            piece = os.read(client.stdout.fileno(), 1 << 16)
            if not piece:
                break
            said += piece
        return said + client.communicate(b"R\n", timeout=30)[0]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_a_client_cannot_ask_for_another_handshake(server, files):
    """On a busy machine a client may ask so late that the server has ended the connection; then the next one asks."""
    for _ in range(ATTEMPTS):
        said = asks_again(server, files)
        if b"no renegotiation" in said:
            break
    assert b"RENEGOTIATING" in said and b"no renegotiation" in said
    assert works(server, files)


def hello(files):
    """Return the first bytes of a handshake."""
    out = ssl.MemoryBIO()
    half = context(files, "h2").wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    return out.read()


BAD = {
    "nothing": lambda whole: b"",
    "half": lambda whole: whole[: len(whole) // 2],
    "without an end": lambda whole: whole,
    "plain HTTP/2": lambda whole: PREFACE + frame(4, 0, 0),
    "noise": lambda whole: bytes(range(256)) * 300,
    "a record of zeros": lambda whole: b"\x16\x03\x01\x40\0" + bytes(1 << 14),
    "a changed hello": lambda whole: whole[:60] + bytes(60) + whole[120:],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_handshakes_end_and_leave_room_for_good_ones(server, files, bad):
    """Three times as many clients as there are connections begin badly, and stay connected. The limit of time ends
    handshakes that do not go on."""
    clients = [connected(server) for _ in range(3 * CONNECTIONS)]
    for client in clients:
        with contextlib.suppress(ConnectionError):  # the server may have closed it
            client.sendall(bad(hello(files)))
    assert works(server, files)
    for client in clients:
        client.settimeout(10)
        while not is_closed(client):
            pass
        client.close()


RECORD = b"\x17\x03\x03"  # data of TLS 1.2 and later; the length follows


def test_clients_that_do_not_end_their_handshakes_take_half_of_the_connections(files):
    pair = {"certificate": (files / "cert.pem").read_bytes(), "key": (files / "key.pem").read_bytes()}
    with front_alone(connections=CONNECTIONS, **pair) as (_, address), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(CONNECTIONS)]
        assert all(map(is_closed, clients[CONNECTIONS // 2 :]))
        assert not select.select(clients[: CONNECTIONS // 2], [], [], 0)[0]  # the limit of time is a minute
        clients[0].close()

        def handshake():
            try:
                raw = stack.enter_context(socket.create_connection(address, timeout=10))
                return context(files, "h2").wrap_socket(raw, server_hostname="localhost")
            except (ConnectionError, ssl.SSLError):
                return None  # the server has not seen yet that the first client left

        until(lambda: (found := handshake()) and found.recv(9)[3] == 4)


ENDS = {
    "closes without notice": lambda connection: connection.close(),
    "sends noise in place of a record": lambda connection: os.write(
        connection.fileno(), b"\x17\x03\x03\0\x20" + bytes(32)
    ),
    "stops within a record": lambda connection: os.write(connection.fileno(), b"\x17\x03\x03\x40\0" + bytes(32)),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_connections_that_end_within_a_message_leave_no_trace(server, files, end):
    held = []
    for _ in range(2 * CONNECTIONS):
        connection = secured(server, context(files, "h2"))
        connection.sendall(PREFACE + frame(4, 0, 0) + head() + frame(0, 0, 1, message(bytes(100_000))[:9000]))
        end(connection)
        held.append(connection)
        if len(held) == CONNECTIONS // 2:
            assert works(server, files)
            while held:
                held.pop().close()
    assert works(server, files)


def test_the_front_says_that_its_files_are_wrong(files):
    cert, key = (files / "cert.pem").read_bytes(), (files / "other.pem").read_bytes()
    for pair in ((cert, key), (b"", key), (cert, b"x")):
        with pytest.raises(ValueError, match="PEM"), front_alone(certificate=pair[0], key=pair[1]):
            pass
