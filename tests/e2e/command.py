"""`headrace` as a process, or, where hundreds of calls are made, in this one."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from forked import Forked

from headrace.host.cli import main

COMMAND = [sys.executable, "-c", "from headrace.host.cli.main import main; main()"]


def headrace(*arguments: str | Path, timeout: float = 240, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a fork, which starts more quickly than COMMAND."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Forked(arguments, cwd=cwd, text=True, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(["headrace", *arguments], process.returncode, out, err)


def headrace_anew(*arguments: str | Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run a new process, for a test of what is read while modules are imported."""
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


def headrace_here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    command: Sequence[str] = ["headrace", *map(str, arguments)]
    status = None
    with mock.patch.object(sys, "argv", command), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main.main()
        except SystemExit as end:
            status = end.code
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(command, status, *texts)
