"""Test how clients ask a fleet for an update."""

import os
import socket
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.batching import HeadraceError, UsageError
from headrace.host.fleet.control import Control, Update, ask
from headrace.host.network.address import Address

HTTP = Address("127.0.0.1", 8000)
UPDATE = Update(("--model=resnet50",), "/srv", {"--token-file": None})


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch):
    """Provide a folder with a short name, because the name of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder, f"headrace-{os.geteuid()}")


def answering(control, *messages):
    """Answer the first request in a thread, and return the list that its update is added to."""
    found = []

    def run():
        while (request := control.next_request()) is None:
            pass
        found.append(request.update)
        for told in messages[:-1]:
            request.tell(told)
        request.end(messages[-1])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return found


def test_an_update_is_told_of_until_its_end():
    told = []
    with Control(HTTP) as control:
        found = answering(control, "one", "two", None)
        ask(HTTP, UPDATE, told.append)
        assert found == [UPDATE] and told == ["one", "two"]
        answering(control, "it does not start")
        with pytest.raises(HeadraceError, match="it does not start"):
            ask(HTTP, Update(None, "/srv", {}), told.append)


def test_a_fleet_that_ends_meanwhile_is_an_error():
    with Control(HTTP) as control:

        def run():
            while (request := control.next_request()) is None:
                pass
            request._connection.close()

        threading.Thread(target=run, daemon=True).start()
        with pytest.raises(HeadraceError, match="ended before"):
            ask(HTTP, UPDATE, print)


def test_where_no_fleet_is_it_is_told(runtime_folder):
    with Control(HTTP), pytest.raises(UsageError, match=r"no fleet serves HTTP on 127.0.0.1:8001 here"):
        ask(Address("127.0.0.1", 8001), UPDATE, print)
    with pytest.raises(UsageError, match="no fleet serves"):
        ask(HTTP, UPDATE, print)
    assert list(runtime_folder.iterdir()) == []


def test_nobody_else_may_ask(runtime_folder):
    with Control(HTTP):
        (file,) = runtime_folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600 and runtime_folder.stat().st_mode & 0o777 == 0o700
    runtime_folder.chmod(0o777)
    with pytest.raises(UsageError, match="another user may write there"):
        Control(HTTP)


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        "[]",
        '{"arguments": null, "folder": "/srv"}',
        '{"arguments": [1], "folder": "/srv", "front": {}}',
        '{"arguments": null, "folder": 1, "front": {}}',
        '{"arguments": null, "folder": "/srv", "front": 5}',
        '{"arguments": null, "folder": "/srv", "front": ["--token-file"]}',
        '{"arguments": null, "folder": "/srv", "front": {"--drain-s": 5}}',
    ],
)
def test_what_is_no_message_is_not_taken(message):
    with Control(HTTP) as control, socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(control._path))
        asking.sendall(message.encode() + b"\n")
        assert control.next_request() is None
        assert asking.recv(10) == b""


def test_a_fleet_that_ends_leaves_the_socket_of_the_next_one():
    with ExitStack() as later:
        with Control(HTTP):
            new = later.enter_context(Control(HTTP))
        answering(new, None)
        ask(HTTP, UPDATE, print)


def test_a_folder_whose_name_is_too_long_for_a_socket(tmp_path, monkeypatch):
    (tmp_path / ("x" * 120)).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 120)))
    with pytest.raises(UsageError, match="set XDG_RUNTIME_DIR to a folder with a short name"), Control(HTTP):
        pass
