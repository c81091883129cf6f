"""scripts/docs_blocks.py as a process, which the tests start, and as a module."""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "docs_blocks.py"

_spec = importlib.util.spec_from_file_location("docs_blocks", SCRIPT)
docs_blocks = sys.modules["docs_blocks"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(docs_blocks)


def run(*arguments: object, limit_s: float = 240) -> subprocess.CompletedProcess[str]:
    """Run the script. It gets SIGTERM after `limit_s`, so that it ends what it started."""
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=limit_s)
    except BaseException:
        process.terminate()
        process.communicate(timeout=90)
        raise
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, err)
