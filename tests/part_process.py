"""The probe and the parts of a check as forks of a process that has imported torch."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import forked


class ForkedPart(forked.Forked):
    """A process that runs what `python -c TEXT` or `python -m headrace.host.validation.part JSON` would run."""

    MODULE = "part_process"


def run(command: Sequence[str], *, timeout: float, **_: Any) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` does with its output captured as text."""
    with ForkedPart(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def main(arguments: Sequence[str]) -> None:
    """Run the command in a process that was forked."""
    _, option, name, *words = forked.begin(arguments)
    if option == "-c":
        exec(compile(name, "probe", "exec"), {"__name__": "__main__"})
    else:
        from headrace.host.validation import part

        assert (option, name) == ("-m", part.__name__)
        part.main(words)
    sys.stdout.flush()
