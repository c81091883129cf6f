"""Processes that do not outlive who started them, however that one ends."""

import os
import sys
from collections.abc import Sequence

# A program of its own and not a preexec_fn, which is unsafe beside threads. What it becomes keeps the signal.
_CODE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):  # it ended before that
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def bound(command: Sequence[str]) -> list[str]:
    """The command, made one that is killed when the thread that starts it ends, as it does with its process."""
    return [sys.executable, "-I", "-S", "-c", _CODE, str(os.getpid()), *command]
