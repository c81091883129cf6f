"""Test that wrong options of a fleet, or a wrong place to run it, are reported at once in one line."""

import os
import socket
import subprocess
import sys

import pytest
from command import headrace_here

FREE = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
FLEET = ("serve", "--ray", "127.0.0.1:1", *FREE)


def refused(done, wording):
    assert done.returncode == 2 and done.stdout == "", done
    assert wording in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        (("--replicas", "2"), "--replicas is for a fleet: give --ray ADDRESS too"),
        (("--resources", "fpga=1"), "--resources is for a fleet: give --ray ADDRESS too"),
        (("--again-kib", "64"), "--again-kib is for a fleet: give --ray ADDRESS too"),
        (("--update",), "--update is for a fleet: give --ray ADDRESS too"),
    ],
)
def test_options_of_a_fleet_without_one(options, wording):
    refused(headrace_here("serve", *FREE, *options), wording)


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        (("--repository", "."), "--repository is not for a fleet: clients would load models into one replica only"),
        (("--shared-memory",), "--shared-memory is not for a fleet"),
        (("--access-log", "-"), "--access-log -: a fleet's replicas have no terminal"),
        (("--resources", "fpga"), "--resources 'fpga': give NAME=AMOUNT"),
        (("--update", "--replicas", "2"), "--replicas: an update cannot change this"),
        (("--update", "--http", "127.0.0.1:9"), "no fleet serves HTTP on 127.0.0.1:9 here"),
        ((), "--ray 127.0.0.1:1: [Errno 111] Connection refused; give the head of a Ray cluster"),
        (("--policy", "nonsense"), "nonsense"),
    ],
)
def test_options_that_a_fleet_does_not_take(options, wording):
    refused(headrace_here(*FLEET, *options), wording)


def test_a_trace_would_be_written_by_several(tmp_path):
    refused(headrace_here(*FLEET, "--trace", tmp_path / "t.pftrace"), "--trace is not for a fleet")


def test_a_fleets_options_have_no_place_in_a_file_that_replicas_read_too(tmp_path):
    (tmp_path / "settings.toml").write_text('ray = "auto"\n')
    refused(headrace_here("serve", "--config", tmp_path / "settings.toml"), "there is no setting 'ray'")


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(headrace_here(*FLEET, "--grpc", address), f"--grpc {address}: Address already in use")


def test_without_ray_the_extra_is_named():
    command = "import sys; sys.modules['ray'] = None; from headrace.host.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", command, *FLEET], capture_output=True, text=True, timeout=120)
    refused(done, "--ray needs Ray: pip install 'headrace[ray]'")


def test_without_haproxy_its_package_is_named(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    refused(
        headrace_here(*FLEET), "--ray needs HAProxy in front of the replicas; install it with `apt-get install haproxy`"
    )


def test_a_runtime_folder_of_somebody_else(tmp_path, monkeypatch):
    (tmp_path / f"headrace-{os.geteuid()}").mkdir()
    (tmp_path / f"headrace-{os.geteuid()}").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    refused(headrace_here(*FLEET, "--update"), "another user may write there")
