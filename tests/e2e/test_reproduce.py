"""Ctrl-C during `headrace reproduce`."""

import signal
import subprocess
import sys
import time

import pytest

# The command, which says on stdout when its main function has been entered.
COMMAND = """
from headrace.host.cli import main
app = main.app
main.app = lambda **options: (print("begins", flush=True), app(**options))[1]
main.main()
"""


def start(folder):
    """The full evaluation, which takes minutes. Where the parent ignores interrupts it would inherit that."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "reproduce", "lazybatching", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.parametrize("after_s", [0.0, 0.2, 1.0])
@pytest.mark.slow
def test_an_interrupt_ends_it_while_it_runs(tmp_path, after_s):
    process = start(tmp_path)
    assert process.stdout.readline() == "begins\n"
    assert "simulated runs" in process.stderr.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)  # 2 s on an idle machine
    assert process.returncode == 130 and errors.endswith("headrace: interrupted\n") and "Traceback" not in errors


@pytest.mark.quick(2)
@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.1, 0.3])
def test_an_interrupt_ends_it_while_it_starts(tmp_path, after_s):
    process = start(tmp_path)
    assert process.stdout.readline() == "begins\n"
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and errors.endswith("headrace: interrupted\n") and "Traceback" not in errors
