"""Test a fleet on a Ray cluster of three nodes, all on this machine, under requests of real clients, which notice no
failure. Clients use TLS and a token; the fleets of the slow tests serve everybody.

The tests depend on each other's order. Each one finds the fleet as the previous one left it."""

import os
import signal
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from command import headrace
from processes import lives, words
from running_fleet import LIGHT, MODEL, Fleet, Load, Secured, descendants, until

pytestmark = [pytest.mark.timed, pytest.mark.in_order, pytest.mark.timeout(600)]


REPLICAS = 2  # for three nodes with a core each: an update finds room, and a worker has at least one
HEAD = {"num_cpus": 1, "include_dashboard": False, "resources": {"pair": 2, "single": 1}}


@pytest.fixture(scope="module")
def three():
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # other tests would keep replicas of a low priority from the cores
        yield from started(Cluster)


def started(Cluster):
    nodes = Cluster(initialize_head=True, head_node_args=HEAD)
    try:
        nodes.workers = [nodes.add_node(num_cpus=1, resources={"fpga": 1}) for _ in range(2)]
        yield nodes
    finally:
        nodes.shutdown()


@pytest.fixture(scope="module")
def broken(three, tmp_path_factory):
    """Provide a node that lacks this Headrace."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['headrace'] = None\n")
    node = three.add_node(num_cpus=0, resources={"broken": 1}, env_vars={"PYTHONPATH": str(folder)})
    yield
    three.remove_node(node)


def raylet(node):
    return node.all_processes["raylet"][0].process.pid


@pytest.fixture(scope="module")
def secured(three, tmp_path_factory):
    return Secured(tmp_path_factory.mktemp("secured"), three.head_node.node_ip_address)


@pytest.fixture(scope="module")
def fleet(three, secured):
    found = Fleet(three.address, "--replicas", str(REPLICAS), access=secured)
    yield found
    found.process.kill()
    found.process.wait()


def test_replicas_answer_by_one_address(fleet):
    assert len({each["http"] for each in fleet.ready["replicas"]}) == REPLICAS
    with Load(fleet) as load:
        pass
    assert not load.errors
    counts = [fleet.counted(url=each["http"]) for each in fleet.ready["replicas"]]
    assert min(counts) > 0 and sum(counts) == sum(load.answered) == fleet.counted()


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_clients_without_the_token_are_refused(fleet, module):
    given = module.InferInput("x", [1, 3, 224, 224], "FP32")
    given.set_data_from_numpy(np.zeros((1, 3, 224, 224), np.float32))
    with fleet.client(module) as client:
        with pytest.raises(Exception, match="Bearer TOKEN"):
            client.infer(MODEL, [given])
        with pytest.raises(Exception, match="Bearer TOKEN"):
            client.get_inference_statistics(MODEL)


def test_metrics_ask_for_the_token(fleet, secured):
    url, context = f"https://{fleet.ready['metrics']}/metrics", secured.context()
    asked = urllib.request.Request(url, headers=secured.headers())

    def metrics():
        return urllib.request.urlopen(asked, context=context, timeout=20).read().decode()

    for backend in ("http", "grpc"):  # each replica is found ready, by TLS, for each
        for slot in range(REPLICAS):
            found = f'haproxy_server_check_status{{proxy="{backend}",server="s{slot}",state="L7OK"}} 1'
            until(lambda found=found: found in metrics())
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, context=context, timeout=20)


def test_a_replica_that_is_killed_is_missed_by_nobody_and_comes_back(fleet):
    with Load(fleet) as load:
        os.kill(fleet.ready["replicas"][0]["pid"], signal.SIGKILL)
        load.more()
        until(lambda: fleet.heard("replica 0", "ended by SIGKILL"))
        until(lambda: len(fleet.heard("replica 0", "ready, HTTP")) == 2, fleet.said)
        load.more()
    assert not load.errors


@pytest.mark.slow
def test_a_replica_that_hangs_is_gone_around(fleet):
    pid = fleet.ready["replicas"][1]["pid"]
    with Load(fleet) as load:
        os.kill(pid, signal.SIGSTOP)
        try:
            load.more()
        finally:
            os.kill(pid, signal.SIGCONT)
        load.more()
    assert not load.errors


def test_an_update_replaces_all_and_fails_no_request(fleet):
    before = descendants(fleet.process.pid)
    since, count = len(fleet.said), fleet.counted()
    with Load(fleet) as load:
        done = fleet.update("--workers", "npu:2", *LIGHT[2:])
    assert (done.returncode, load.errors) == (0, []), (done.stderr, load.errors)
    assert fleet.counted() == count + sum(load.answered), "of the replicas that are gone, too"
    assert len(fleet.heard("ready, HTTP", since=since)) == REPLICAS == len(fleet.heard("stopped", since=since))
    assert not fleet.heard("ends first", since=since), "there was room beside the old ones"
    assert not any(lives(each["pid"]) for each in fleet.ready["replicas"][1:])
    assert descendants(fleet.process.pid) == before, "HAProxy is the same one"


@pytest.mark.slow
def test_an_update_to_what_does_not_start_leaves_the_old_ones(fleet, tmp_path):
    since = len(fleet.said)
    with Load(fleet) as load:
        done = fleet.update("--workers", "npu:1", "--model", MODEL, "--profile", "/dev/null/profile")
        assert done.returncode == 2  # which can be seen here already
        done = fleet.update("--workers", "1", "--model", f"{MODEL}=no_such:network", "--drain-s", "10")
        load.more()
    assert done.returncode == 1 and "no_such" in done.stderr and not load.errors
    assert not fleet.heard("stopped", since=since)
    (tmp_path / "token").write_text("secret")
    done = fleet.update("--token-file", str(tmp_path / "token"), *LIGHT)
    assert done.returncode == 1 and "--token-file differs from the fleet's" in done.stderr


@pytest.mark.slow
def test_a_node_that_is_killed_is_missed_by_nobody_and_its_replica_goes_elsewhere(fleet, three):
    since = len(fleet.said)
    # One of the two workers may have none.
    node = next(node for node in three.workers if any("serve" in words(pid) for pid in descendants(raylet(node))))
    with Load(fleet) as load:
        three.remove_node(node, allow_graceful=False)
        until(lambda: fleet.heard("lost with its node", since=since), fleet.said)
        until(lambda: fleet.heard("ready, HTTP", since=since), fleet.said)
        load.more()
    assert not load.errors


def test_at_the_end_all_is_answered_and_nothing_is_left(fleet):
    with Load(fleet) as load:
        left = descendants(fleet.process.pid)
        assert left
    assert fleet.end() == 0 and not load.errors
    until(lambda: not any(lives(pid) for pid in left))
    for line in fleet.heard("ready, HTTP"):
        url = line.partition("HTTP ")[2].partition(",")[0]
        with pytest.raises(OSError):
            tritonclient.http.InferenceServerClient(url).is_server_live()


@pytest.mark.slow
def test_what_the_cluster_has_no_room_for_is_told(three):
    serve = (
        "serve",
        "--ray",
        three.address,
        "--insecure",
        *LIGHT,
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
    )
    done = headrace(*serve, "--replicas", "3", "--resources", "pair=1")  # which the head has, and no test takes away
    assert done.returncode == 2
    assert "--replicas 3: each needs 1 pair, and the cluster has 2; give at most 2" in done.stderr
    done = headrace(*serve, "--resources", "mig-1g.5gb=1")
    assert done.returncode == 2 and "the cluster has 0 mig-1g.5gb" in done.stderr


@pytest.mark.slow
def test_what_no_replica_can_serve_ends_the_start(three):
    serve = (
        "serve",
        "--ray",
        three.address,
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--workers",
        "1",
    )
    done = headrace(*serve, "--model", "no_such:network", "--insecure")
    assert done.returncode == 2 and "no_such" in done.stderr.splitlines()[-1]


def test_a_node_without_headrace_is_told(three, broken):
    done = headrace(
        "serve",
        "--ray",
        three.address,
        "--insecure",
        *LIGHT,
        "--http",
        "127.0.0.1:0",
        "--grpc",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--resources",
        "broken=1",
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert "replica 0 cannot start: " in line and "headrace" in line and "install the same Headrace there" in line


@pytest.mark.slow
def test_an_update_with_no_node_to_spare_ends_an_old_one_first_and_fails_no_request(three):
    fleet = Fleet(three.address, "--replicas", "2", "--resources", "pair=1")
    with Load(fleet) as load:
        fleet.process.send_signal(signal.SIGHUP)  # as --update without options
        until(lambda: fleet.heard("ends first"), fleet.said)
        second = fleet.update()
        until(lambda: fleet.heard("update: done"), fleet.said)
        load.more()
    assert second.returncode == 1 and "another update is in progress" in second.stderr
    assert len(fleet.heard("ends first")) == 2 and not load.errors
    assert fleet.end() == 0


@pytest.mark.slow
def test_a_replica_that_does_not_come_back_is_replaced_by_an_update(three, tmp_path):
    (tmp_path / "net.py").write_text("from torch import nn\ndef network():\n    return nn.Flatten()\n")
    options = ("--workers", "1", "--model", "net:network", "--input-shape", "3x8x8", "--drain-s", "10")
    fleet = Fleet(three.address, served=options, cwd=tmp_path)
    (tmp_path / "net.py").write_text("")
    os.kill(fleet.ready["replicas"][0]["pid"], signal.SIGKILL)
    until(lambda: len(fleet.heard("ended, and is started again")) >= 4, fleet.said)
    failed = fleet.update(*options)
    assert failed.returncode == 1 and "net" in failed.stderr, failed.stderr
    done = fleet.update(*LIGHT)
    assert done.returncode == 0, (done.stderr, fleet.said)
    with Load(fleet) as load:
        pass
    assert not load.errors and fleet.end() == 0


@pytest.mark.slow
def test_the_fleet_goes_with_its_front(three):
    fleet = Fleet(three.address, "--resources", "single=1", room_s=2)  # so an update finds no room, whatever ran before
    with Load(fleet):
        pass
    fleet.process.send_signal(signal.SIGHUP)
    until(lambda: fleet.heard("update: no node has room for another", "and no other replica serves"), fleet.said)
    asked = fleet.update("--drain-s", "11")
    assert asked.returncode == 1 and "--drain-s differs from the fleet's" in asked.stderr
    left = {*descendants(fleet.process.pid), fleet.ready["replicas"][0]["pid"]}
    fleet.process.kill()
    fleet.process.wait()
    until(lambda: not any(lives(pid) for pid in left))
