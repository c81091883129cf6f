"""The children of a process are found, and a process that has ended has none."""

import subprocess

from headrace.host.live.machine import children as module
from headrace.host.live.machine.children import children


def test_a_process_has_its_children_until_they_end():
    before = children()
    with subprocess.Popen(["sleep", "60"]) as process:
        assert set(children()) - set(before) == {process.pid}
        process.kill()
    assert process.pid not in children()


def test_a_process_that_has_ended_has_no_children():
    with subprocess.Popen(["true"]) as process:
        pass
    assert children(process.pid) == []


def test_the_child_of_a_thread_that_ends_meanwhile_is_found_at_another_thread(monkeypatch):
    """The second thread ends after the first one was read, and its child 7 is then the first one's."""
    found = {"first": "5", "second": "7"}

    class Task:
        def __init__(self, name):
            self._name = name

        def __truediv__(self, _):
            return self

        def read_text(self):
            if self._name == "second":
                found["first"] = "5 7"
                raise FileNotFoundError
            return found["first"]

    class Tasks:
        def iterdir(self):
            return [Task(name) for name in found]

    monkeypatch.setattr(module, "Path", lambda _: Tasks())
    assert children(1) == [5, 7]
