"""Commands with few descriptors, and with closed ones."""

import os
import resource
import subprocess
import sys
from functools import partial

import pytest
from command import headrace

from headrace.host.live.machine.process_tuning import LEAST_DESCRIPTORS, allow_descriptors


def test_a_server_that_may_open_too_few_files_says_what_to_change(tmp_path):
    few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (24, 24))
    code = "from headrace.host.cli.main import main; main()"
    line = [sys.executable, "-c", code, "serve", "--model", "resnet18", "--http", "127.0.0.1:0"]
    done = subprocess.run(line, capture_output=True, text=True, preexec_fn=few, timeout=120)
    assert done.returncode == 2 and "`ulimit -n`" in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("hard", "wanted", "found"), [(1000, 800, 800), (1000, 5000, 1000), (1000, 100, 300)])
def test_the_limit_of_descriptors_is_raised_as_far_as_it_may_be_and_never_lowered(monkeypatch, hard, wanted, found):
    limits = [(300, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    allow_descriptors(wanted)
    assert limits[-1] == (found, hard)
    assert hard >= LEAST_DESCRIPTORS


def test_closed_descriptors_are_nobodys(tmp_path):
    """What a command opens does not get the number of a stream that it prints on."""
    code = (
        "import os\n"
        "from headrace.host.cli import main\n"
        "main._open_standard_descriptors()\n"
        "links = [os.readlink(f'/proc/self/fd/{number}') for number in range(3)]\n"
        "open('found', 'w').write(' '.join(links))\n"
    )
    closed = 'exec "$0" -c "$1" <&- >&- 2>&-'
    subprocess.run(["sh", "-c", closed, sys.executable, code], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "found").read_text() == "/dev/null /dev/null /dev/null"


def test_a_command_runs_with_all_streams_closed(tmp_path):
    code = "from headrace.host.cli.main import main; main()"
    line = 'exec "$0" -c "$1" simulate --model resnet50 --policy lazy --requests 50 --trace t.json <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", line, sys.executable, code], cwd=tmp_path, timeout=120)
    assert done.returncode == 0 and (tmp_path / "t.json").stat().st_size > 1000


def test_an_open_stream_stays_what_it_is(tmp_path):
    done = headrace("--version")
    assert done.returncode == 0 and done.stdout.startswith("headrace ") and os.path.exists(sys.executable)
