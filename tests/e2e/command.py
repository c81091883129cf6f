"""`headrace` as a process of its own."""

import subprocess
import sys
from pathlib import Path


def headrace(*arguments: str | Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from headrace.host.cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)
