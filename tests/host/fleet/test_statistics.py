"""Test the statistics of a fleet with replicas that count, hang, disappear and send invalid answers. test_fleet
tests them with real replicas."""

import contextlib
import http.client
import json
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import tritonclient.grpc
import tritonclient.utils
from hypothesis import given
from hypothesis import strategies as st
from small_server import Quiet, Small, ask

from headrace.batching import HeadraceError
from headrace.host.fleet.haproxy import Place, Proxy, ProxySettings
from headrace.host.fleet.statistics import ASK_S, QUERIED_S, Counts, Statistics
from headrace.host.network.browsers import BrowserGuard


def entry(name, count, batches=(), last=0):
    """Return a model's entry as a server makes it, with `count` requests of 10 ns each."""
    parts = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    return {
        "name": name,
        "version": "1",
        "last_inference": last,
        "inference_count": count,
        "execution_count": sum(batches),
        "inference_stats": {part: {"count": count, "ns": 10 * count} for part in parts},
        "batch_stats": [
            {"batch_size": size, "compute_infer": {"count": number, "ns": 100 * number}}
            for size, number in enumerate(batches, 1)
            if number
        ],
    }


def test_counts_are_sums_and_the_last_inference_is_the_last_of_all():
    counts = Counts()
    counts.take(("a", 1), [entry("m", 5, (1, 2), last=7), entry("n", 1)])
    counts.take(("b", 1), [entry("m", 4, (0, 1, 1), last=3), entry("n", 2)])
    assert counts.total() == {"m": entry("m", 9, (1, 3, 1), last=7), "n": entry("n", 3)}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.booleans()), max_size=30))
def test_whatever_ends_and_begins_sums_are_all_that_was_told_and_never_fall(steps):
    counts, number, told, before = Counts(), [0] * 4, {}, 0
    counts.take(("one that stays", 0), [entry("m", 0)])
    for replica, more, ends in steps:
        life = (str(replica), number[replica])
        told[life] = told.get(life, 0) + more
        counts.take(life, [entry("m", told[life], (told[life],))])
        if ends:
            counts.end(life)
            number[replica] += 1
        total = counts.total()["m"]
        assert total == {**entry("m", sum(told.values()), (sum(told.values()),))} and total["inference_count"] >= before
        before = total["inference_count"]


def test_a_model_that_nobody_serves_any_more_is_not_told_of_and_goes_on_when_it_comes_back():
    counts = Counts()
    counts.take(("a", 1), [entry("old", 5)])
    counts.take(("b", 1), [entry("new", 1)])
    counts.end(("a", 1))
    assert counts.total() == {"new": entry("new", 1)}
    counts.take(("a", 2), [entry("old", 2)])
    assert counts.total()["old"] == entry("old", 7)


class Replica(Small):
    """Report `count` requests, or the answer `body`, after `delay_s`."""

    def __init__(self, count=0):
        self.count, self.delay_s, self.body, self.asked, self.tokens = count, 0.0, None, 0, set()
        replica = self

        class Handler(Quiet):
            def do_GET(self):
                if self.path == "/v2/health/ready":
                    body = b""
                else:
                    replica.asked += 1
                    replica.tokens.add(self.headers["authorization"])
                    body = replica.body or json.dumps({"model_stats": [entry("m", replica.count)]}).encode()
                    time.sleep(replica.delay_s)
                self.answer(401 if body == b"no" else 200, body)

        super().__init__(Handler)


@pytest.fixture
def replicas():
    found = [Replica(10), Replica(1)]
    yield found
    for each in found:
        each.close()


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as found:  # pytest's own have names too long for a socket
        yield Path(found)


@pytest.fixture
def statistics(folder):
    with Statistics(folder, "secret", secure=False) as found:
        yield found


def lives(*replicas):
    return {(str(number), 0): each.address for number, each in enumerate(replicas) if each is not None}


def asked(statistics, name="m", version=""):
    """Query the statistics by gRPC, as HAProxy passes the call on."""
    with grpc.insecure_channel(f"unix:{statistics.sockets['grpc']}") as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelStatistics",
            request_serializer=tritonclient.grpc.service_pb2.ModelStatisticsRequest.SerializeToString,
            response_deserializer=tritonclient.grpc.service_pb2.ModelStatisticsResponse.FromString,
        )
        return call(tritonclient.grpc.service_pb2.ModelStatisticsRequest(name=name, version=version), timeout=30)


def count(statistics):
    (found,) = asked(statistics).model_stats
    return found.inference_count


def test_what_a_replica_counted_stays_when_it_has_ended(statistics, replicas):
    statistics.replicas(lives(*replicas))
    assert count(statistics) == 11 and replicas[0].tokens == {"Bearer secret"}
    replicas[0].count = 12
    statistics.query().result(QUERIED_S)  # as before a replica is told to end
    statistics.replicas(lives(None, replicas[1]))
    replicas[0].count = 100  # which nobody asks for any more
    assert count(statistics) == 13
    statistics.replicas({**lives(None, replicas[1]), ("0", 1): replicas[0].address})
    replicas[0].count = 1  # it counts anew
    assert count(statistics) == 14


def test_one_that_does_not_tell_keeps_nobody_and_counts_as_it_did(statistics, replicas):
    statistics.replicas(lives(*replicas))
    assert count(statistics) == 11
    replicas[0].delay_s, replicas[0].count, replicas[1].count = 60.0, 20, 2
    began = time.monotonic()
    assert count(statistics) == 12 and time.monotonic() - began < ASK_S + 2
    replicas[0].close()
    assert count(statistics) == 12


NONSENSE = (
    b"no",
    b"{",
    b"[]",
    b'{"error": "none"}',
    b'{"model_stats": 5}',
    b'{"model_stats": [{}]}',
    b'{"model_stats": [{"name": []}]}',
    b'{"model_stats": [{"name": "m", "inference_count": {}}]}',
    b"\xff" * 100,
)


@pytest.mark.parametrize("body", NONSENSE)
def test_one_that_tells_something_else_counts_as_it_did(statistics, replicas, body):
    statistics.replicas(lives(*replicas))
    assert count(statistics) == 11
    replicas[0].body, replicas[1].count = body, 2
    assert count(statistics) == 12


def test_an_answer_counts_what_was_there_when_it_was_asked_for(statistics, replicas):
    """This also holds while another query runs. Callers that wait for the next query share it."""
    statistics.replicas(lives(*replicas))
    count(statistics)
    replicas[0].delay_s = 1.0
    with ThreadPoolExecutor(20) as clients:
        first = clients.submit(count, statistics)
        before = replicas[0].asked
        while replicas[0].asked == before:
            time.sleep(0.01)
        time.sleep(0.1)  # it has made its answer of the first
        replicas[0].count = 20
        later = [clients.submit(count, statistics) for _ in range(10)]
        assert [each.result() for each in later] == [21] * 10 and first.result() == 11
    assert replicas[0].asked - before <= 4  # one of them may be the one that nobody asks for


def test_one_that_ends_while_it_is_asked_is_counted_once(statistics, replicas):
    statistics.replicas(lives(*replicas))
    assert count(statistics) == 11
    replicas[0].delay_s = 1.0
    with ThreadPoolExecutor(1) as client:
        before = replicas[0].asked
        answer = client.submit(count, statistics)
        while replicas[0].asked == before:
            time.sleep(0.01)
        statistics.replicas(lives(None, replicas[1]))
        assert answer.result() == 11 == count(statistics)


def test_clients_of_the_front_get_sums_and_errors_as_from_a_server(statistics, replicas, folder):
    ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    settings = ProxySettings(3, 1 << 20, 15.0, 32 << 10, 64, 1.0, statistics.sockets)
    proxy = Proxy(settings, dict(zip(("http", "grpc", "metrics"), ports, strict=True)), folder)
    by_http, by_grpc, _ = (port.getsockname() for port in ports)
    proxy.start()
    try:
        with tritonclient.grpc.InferenceServerClient("{}:{}".format(*by_grpc)) as client:
            status, told = get(by_http, "/v2/models/m/stats")
            assert status == 503 and told == {"error": "no replica is ready; try again"}
            with pytest.raises(tritonclient.utils.InferenceServerException, match="UNAVAILABLE"):
                client.get_inference_statistics("m")
            statistics.replicas(lives(*replicas))
            for slot, each in enumerate(replicas):
                proxy.put(slot, Place(each.address, "127.0.0.1:1"))
            for path in ("m/stats", "m/versions/1/stats", "stats", "m/stats/"):
                assert get(by_http, f"/v2/models/{path}") == (200, {"model_stats": [entry("m", 11)]})
            (found,) = client.get_inference_statistics().model_stats
            assert (found.name, found.inference_count, found.inference_stats.queue.ns) == ("m", 11, 110)
            status, told = get(by_http, "/v2/models/no%20such/stats")
            assert status == 404 and told == {
                "error": "there is no model 'no such'; the repository index lists those that there are"
            }
            assert get(by_http, "/v2/models/m/versions/2/stats")[0] == 404
            with pytest.raises(tritonclient.utils.InferenceServerException, match=r"NOT_FOUND.*there is no model 'x'"):
                client.get_inference_statistics("x")
    finally:
        proxy.stop()


def get(address, path):
    status, body = ask(address, path)
    return status, json.loads(body)


def test_a_folder_that_holds_no_socket_is_told(tmp_path):
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with pytest.raises(HeadraceError, match="set TMPDIR"), Statistics(folder, None, secure=False):
        pass


def test_a_page_of_another_site_reads_no_statistics(folder):
    def asked_as(host):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(found.sockets["http"]))
        with contextlib.closing(connection):
            connection.request("GET", "/v2/models/stats", headers={"Host": host})
            return connection.getresponse().status

    with Statistics(folder, None, secure=False, guard=BrowserGuard()) as found:
        assert asked_as("evil.example") == 421 and asked_as("127.0.0.1:8000") == 503  # there are no replicas
