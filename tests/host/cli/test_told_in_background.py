"""A terminal or a pipe that takes nothing holds up nobody: what is told to it waits, up to a bound."""

import fcntl
import os
import subprocess
import sys

from headrace.host.cli.console import MAX_WAITING

TELLER = """
import sys
from headrace.host.cli import console
from headrace.host.cli.console import tell, told_in_background
console.LAST_WORDS_S = 60.0  # a busy machine may need more than two seconds to read
with told_in_background():
    for number in range(int(sys.argv[1])):
        tell(f"line {number}" + "." * 50)
    print("told", flush=True)
    sys.stdin.readline()
"""


def told(lines):
    """Return what comes through a pipe that nobody reads before all lines are told."""
    command = [sys.executable, "-c", TELLER, str(lines)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        assert process.stdout.readline() == b"told\n"
        os.write(process.stdin.fileno(), b"\n")
        found = process.stderr.read().decode().splitlines()
        assert process.wait(30) == 0
    return found


def test_all_lines_come_in_order_to_who_reads_them_late():
    assert [line.rstrip(".") for line in told(MAX_WAITING)] == [f"line {number}" for number in range(MAX_WAITING)]


def test_no_more_than_a_bound_wait_and_the_others_are_left_out():
    found = told(10 * MAX_WAITING)
    assert MAX_WAITING <= len(found) < 2 * MAX_WAITING and found[0].startswith("line 0.")
