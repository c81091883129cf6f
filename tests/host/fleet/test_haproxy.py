"""Test the configuration of HAProxy with HAProxy itself, and its process."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import tritonclient.grpc
import tritonclient.utils
import trustme
from small_server import Quiet, Small, ask

from headrace.batching import HeadraceError, UsageError
from headrace.host.fleet.haproxy import STALE, Place, Proxy, ProxySettings, configuration
from headrace.host.server.transport.grpc.endpoints import SERVICE

FDS = {"http": 3, "grpc": 4, "metrics": 5}
SOAK = Path(__file__).parents[3] / "scripts" / "soak_front.py"
STATISTICS = {name: Path("/nowhere", f"{name} of statistics.sock") for name in ("http", "grpc")}
PLAIN = ProxySettings(
    replicas=4, again=1 << 20, client_s=15.0, head=32 << 10, drain_s=5.0, connections=1024, statistics=STATISTICS
)


def program():
    return shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")


@pytest.fixture
def pair(tmp_path):
    found = tmp_path / "it's a pair.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(found)
    return found


def check(text, folder):
    """Let HAProxy check a configuration, with open ports as it needs them, and return the finished process."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        for fd in FDS.values():
            text = text.replace(f"fd@{fd}", f"fd@{port.fileno()}")
        (folder / "haproxy.cfg").write_text(text)
        return subprocess.run(
            [program(), "-c", "-V", "-f", folder / "haproxy.cfg"],
            capture_output=True,
            text=True,
            pass_fds=[port.fileno()],
        )


@pytest.mark.parametrize("places", [{}, {0: Place("10.0.0.1:8000", "10.0.0.1:8001"), 3: Place("[::1]:1", "[::1]:2")}])
@pytest.mark.parametrize("token", [None, "secret", 'it\'s "$HOME" #1\\'])
@pytest.mark.parametrize("secure", [False, True])
def test_haproxy_takes_it_without_a_warning(places, token, secure, pair, tmp_path):
    settings = replace(PLAIN, token=token, pair=pair if secure else None)
    done = check(configuration(settings, FDS, tmp_path / "a socket", places), tmp_path)
    assert done.returncode == 0 and "WARNING" not in done.stdout + done.stderr, done.stdout + done.stderr


class Backend(Small):
    """Stand in for a replica over HTTP. It answers with its name after `delay_s`."""

    def __init__(self, name, delay_s=0.0):
        self.asked, self.delay_s, self.status = [], delay_s, 200
        backend = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(200, name)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                backend.asked.append(len(body))
                time.sleep(backend.delay_s)
                if backend.status == 0:  # as a process that is killed
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                self.answer(backend.status, name)

        super().__init__(Handler)
        self.place = Place(self.address, "127.0.0.1:1")


@pytest.fixture
def backends():
    found = [Backend(b"a"), Backend(b"b")]
    yield found
    for each in found:
        each.close()


@pytest.fixture
def new_proxy(tmp_path):
    started = []

    def new(**changes):
        ports = {name: socket.create_server(("127.0.0.1", 0)) for name in FDS}
        found = Proxy(replace(PLAIN, **changes), ports, tmp_path)
        found.address, found.grpc_address = ports["http"].getsockname(), ports["grpc"].getsockname()
        started.append(found)
        found.start()
        return found

    yield new
    for each in started:
        each.stop()


@pytest.fixture
def proxy(new_proxy):
    return new_proxy()


def post(proxy, size=10, timeout=30, **headers):
    return ask(proxy.address, "/v2/models/m/infer", bytes(size), timeout, **headers)


def get(proxy, path):
    return ask(proxy.address, path)[1]


def test_requests_go_to_replicas_as_they_come_and_go(proxy, backends):
    status, body = post(proxy)
    assert status == 503 and b'"error":"no replica is ready; try again"' in body
    proxy.put(0, backends[0].place)
    assert post(proxy) == (200, b"a")
    proxy.put(1, backends[1].place)
    assert {post(proxy)[1] for _ in range(6)} == {b"a", b"b"}
    proxy.drain(0)
    assert {post(proxy)[1] for _ in range(6)} == {b"b"}
    proxy.remove(0)
    proxy.remove(1)
    assert post(proxy)[0] == 503
    proxy.put(0, backends[1].place)  # another in the same slot
    assert post(proxy) == (200, b"b")


def test_clients_of_grpc_are_told_that_no_replica_is_ready(proxy):
    client = tritonclient.grpc.InferenceServerClient("{}:{}".format(*proxy.grpc_address))
    with pytest.raises(tritonclient.utils.InferenceServerException) as told:
        client.get_model_metadata("m")
    assert told.value.status() == "StatusCode.UNAVAILABLE"
    assert told.value.message() == "no replica is ready; try again"


@pytest.mark.parametrize("status", [0, 503])
@pytest.mark.parametrize("size", [10, 1 << 20])
def test_a_request_that_one_replica_loses_or_refuses_is_sent_whole_to_another(proxy, backends, status, size):
    backends[0].status = status
    for slot, backend in enumerate(backends):
        proxy.put(slot, backend.place)
    assert [post(proxy, size) for _ in range(4)] == [(200, b"b")] * 4
    assert backends[0].asked and {*backends[0].asked, *backends[1].asked} == {size}


@pytest.mark.parametrize("status", [500, 504, 429])
def test_an_answer_that_is_an_error_is_an_answer(proxy, backends, status):
    for slot, backend in enumerate(backends):
        backend.status = status
        proxy.put(slot, backend.place)
    assert post(proxy)[0] == status
    assert len(backends[0].asked + backends[1].asked) == 1


def test_an_answer_has_a_bound(new_proxy, backends, monkeypatch):
    monkeypatch.setattr("headrace.host.fleet.haproxy.ANSWER_S", 1)
    proxy = new_proxy()
    with asking(proxy, backends[0], 20.0) as answer:
        assert answer.result(10) == (504, b'{"error":"the replica did not answer in time"}')


def test_what_is_in_flight_is_counted_and_goes_elsewhere_when_its_replica_is_out(proxy, backends):
    with asking(proxy, backends[0], 20.0) as answer:
        assert proxy.in_flight(0) == 1
        proxy.put(0, backends[1].place)  # which is another server: what is in flight here stays
        backends[1].delay_s = 5.0
        with ThreadPoolExecutor(1) as client:
            other = client.submit(post, proxy)
            end = time.monotonic() + 10
            while not answer.done():
                assert time.monotonic() < end
                proxy.maintain()
                time.sleep(0.1)
                backends[1].delay_s = 0.0
            assert answer.result() == other.result() == (200, b"b")
        assert backends[1].asked == [10, 10], "the other one was not cut and sent again"
        proxy.remove(0)
        assert proxy.in_flight(0) == 0


def test_a_server_that_is_used_anew_has_nothing_in_flight(proxy, backends):
    with asking(proxy, backends[0], 20.0) as answer:
        proxy.put(1, backends[1].place)
        for _ in range(PLAIN.servers - 1):  # and nobody looks meanwhile
            proxy.put(0, backends[1].place)
        assert answer.result(10) == (200, b"b")


def test_a_request_that_is_being_connected_to_a_server_that_goes_is_sent_to_another(proxy, backends, monkeypatch):
    monkeypatch.setattr("headrace.host.fleet.haproxy.CHECK_S", 0.0)
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # it takes no more connections, and refuses none
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        proxy.put(0, Place("{}:{}".format(*full.getsockname()), "127.0.0.1:1"))
        client = stack.enter_context(ThreadPoolExecutor(1))
        answer = client.submit(post, proxy)
        end = time.monotonic() + 10
        while proxy.in_flight(0) != 1:
            assert time.monotonic() < end
        proxy.put(1, backends[1].place)
        proxy.remove(0)
        while not answer.done():
            assert time.monotonic() < end
            proxy.maintain()
            time.sleep(0.05)
        assert answer.result() == (200, b"b")


@pytest.mark.parametrize(
    "options",
    [
        ["--rounds", "1", "--killed", "2"],
        pytest.param(["--rounds", "4", "--killed", "2"], marks=pytest.mark.slow),
        pytest.param(["--rounds", "4", "--killed", "1", "--http"], marks=pytest.mark.slow),
    ],
)
def test_servers_that_are_killed_together_are_missed_by_nobody(options):
    done = subprocess.run([sys.executable, SOAK, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "0 failed" in done.stdout, done.stdout + done.stderr


def test_one_that_is_killed_is_started_again_with_what_it_had(proxy, backends):
    proxy.put(2, backends[0].place)
    time.sleep(max(0.0, proxy._began + 5.1 - time.monotonic()))
    os.kill(proxy._process.pid, signal.SIGKILL)
    proxy._process.wait()
    proxy.maintain()
    assert post(proxy) == (200, b"a")
    os.kill(proxy._process.pid, signal.SIGKILL)
    proxy._process.wait()
    with pytest.raises(HeadraceError, match="HAProxy ended with status -9"):
        proxy.maintain()


def test_where_all_are_full_a_request_is_sent_at_max_ten_times(new_proxy, backends):
    proxy, more = new_proxy(replicas=100), [Backend(bytes([name])) for name in b"cdefghijkl"]
    for slot, backend in enumerate(backends + more):
        backend.status = 503
        proxy.put(slot, backend.place)
    assert post(proxy)[0] == 503
    assert sum(len(backend.asked) for backend in backends + more) == 10
    for backend in more:
        backend.close()


def test_what_comes_without_the_token_is_not_kept_to_be_sent_again(new_proxy, backends):
    proxy = new_proxy(token="secret")
    for slot, backend in enumerate(backends):
        backend.status = 0
        proxy.put(slot, backend.place)
    assert post(proxy, 1 << 16)[0] == 502
    assert len(backends[0].asked + backends[1].asked) == 1
    assert post(proxy, 1 << 16, authorization="Bearer secret")[0] == 502
    assert len(backends[0].asked + backends[1].asked) == 1 + 10


@pytest.fixture
def refusing():
    """Provide a replica that refuses each gRPC call before its message arrives, as calls without the token are."""

    def refuse(messages, context):
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")

    calls = {"ModelInfer": grpc.stream_stream_rpc_method_handler(refuse)}
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, handlers=[grpc.method_handlers_generic_handler(SERVICE, calls)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield Place("127.0.0.1:1", f"127.0.0.1:{port}")
        server.stop(None).wait()


def refusal(proxy, message, timeout=30):
    """Return the error of a gRPC call whose message is sent in the parts of an iterator."""
    with grpc.insecure_channel("{}:{}".format(*proxy.grpc_address)) as channel:
        with pytest.raises(grpc.RpcError) as told:
            channel.stream_unary(f"/{SERVICE}/ModelInfer")(message, timeout=timeout)
        return told.value


def test_clients_of_grpc_without_the_token_are_told_so(new_proxy, refusing, monkeypatch):
    # A call may take more than a second to arrive on a busy machine.
    monkeypatch.setattr("headrace.host.fleet.haproxy.UNKNOWN_S", 20)
    proxy = new_proxy(token="secret")
    proxy.put(0, refusing)

    def message():
        yield bytes(1 << 16)
        time.sleep(0.1)  # the answer, if it came now, would come before the end of the call

    with ThreadPoolExecutor(10) as clients:
        answers = set(clients.map(lambda _: refusal(proxy, message()).code(), range(100)))
    assert answers == {grpc.StatusCode.UNAUTHENTICATED}


def test_a_call_without_the_token_that_does_not_arrive_has_a_bound(new_proxy, refusing):
    proxy = new_proxy(token="secret")  # with it, HAProxy waits for more than PLAIN.client_s
    proxy.put(0, refusing)
    refused = threading.Event()

    def message():
        yield bytes(10)
        refused.wait(60)

    error = refusal(proxy, message(), timeout=PLAIN.client_s - 2)
    refused.set()
    assert error.code() is grpc.StatusCode.UNKNOWN and "status: 408" in error.details()


def test_there_are_as_many_connections_as_replicas_take(new_proxy, backends):
    proxy = new_proxy(replicas=2, connections=1)
    backends[0].delay_s = 1.0
    proxy.put(0, backends[0].place)
    with ThreadPoolExecutor(3) as clients:
        answers = [clients.submit(post, proxy) for _ in range(3)]
        time.sleep(0.5)
        assert proxy.in_flight(0) == 2
        assert [answer.result() for answer in answers] == [(200, b"a")] * 3


def test_one_started_anew_has_no_requests_for_a_replica_that_gets_no_more(proxy, backends):
    for slot, backend in enumerate(backends):
        proxy.put(slot, backend.place)
    proxy.drain(0)
    proxy.start()
    assert {post(proxy)[1] for _ in range(6)} == {b"b"}


def test_one_that_does_not_answer_in_time_is_told_again(proxy, backends):
    proxy.put(0, backends[0].place)
    os.kill(proxy._process.pid, signal.SIGSTOP)
    proxy.put(1, backends[1].place)
    assert proxy.in_flight(0) is None
    os.kill(proxy._process.pid, signal.SIGCONT)
    proxy.maintain()
    assert {post(proxy)[1] for _ in range(6)} == {b"a", b"b"}


def test_one_that_never_answers_is_started_anew(proxy, backends):
    os.kill(proxy._process.pid, signal.SIGSTOP)
    proxy.put(0, backends[0].place)
    for _ in range(STALE):
        proxy.maintain()
    assert post(proxy) == (200, b"a")


@contextlib.contextmanager
def asking(proxy, backend, delay_s):
    """Send it a request that is answered after `delay_s`, and return the result as a future."""
    backend.delay_s = delay_s
    proxy.put(0, backend.place)
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(post, proxy)
        end = time.monotonic() + 10
        while not backend.asked:
            assert time.monotonic() < end
            time.sleep(0.02)
        yield answer


def test_at_the_end_what_is_in_flight_is_answered(proxy, backends):
    with asking(proxy, backends[0], 2.0) as answer:
        assert proxy.stop()
        assert answer.result() == (200, b"a")


def test_at_the_end_what_takes_longer_is_cut(new_proxy, backends):
    proxy = new_proxy(drain_s=0.5)
    with asking(proxy, backends[0], 20.0) as answer:
        assert not proxy.stop()
        with pytest.raises((OSError, http.client.HTTPException)):
            answer.result()


def test_who_looks_at_the_page_sees_one_replica_while_it_serves(proxy, backends):
    for slot, backend in enumerate(backends):
        proxy.put(slot, backend.place)
    (seen,) = {get(proxy, path) for path in ("/", "/status?since=5", "/status") for _ in range(4)}
    assert {get(proxy, "/v2/models/m") for _ in range(4)} == {b"a", b"b"}
    proxy.remove([b"a", b"b"].index(seen))
    assert {get(proxy, "/status") for _ in range(4)} == {b"a", b"b"} - {seen}


def test_a_configuration_that_it_does_not_take_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.host.fleet.haproxy.configuration", lambda *_: "nonsense\n")
    ports = {name: socket.create_server(("127.0.0.1", 0)) for name in FDS}
    found = Proxy(PLAIN, ports, tmp_path)
    with pytest.raises(HeadraceError, match=r"HAProxy does not run: .*nonsense"):
        found.start()
    found.stop()


def test_a_machine_without_it_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(UsageError, match="apt-get install haproxy"):
        Proxy(PLAIN, {}, tmp_path)
