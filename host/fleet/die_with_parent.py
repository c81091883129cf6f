"""Child processes that end with the process that started them, however it ends."""

import os
import sys
from collections.abc import Sequence

# This is a separate program, because a preexec_fn is unsafe in a process with threads. The signal survives the execvp.
_CODE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):  # the parent ended before the call above
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def die_with_parent(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` and is killed when the thread that starts it ends.

    That thread ends at the latest with its process."""
    return [sys.executable, "-I", "-S", "-c", _CODE, str(os.getpid()), *command]
