"""The children of a process are found, and a process that has ended has none."""

import subprocess

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
