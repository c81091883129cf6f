"""scripts/docs_blocks.py as a process, which the tests start, and as a module."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from forked import HERE, Forked

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "docs_blocks.py"

_spec = importlib.util.spec_from_file_location("docs_blocks", SCRIPT)
docs_blocks = sys.modules["docs_blocks"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(docs_blocks)


class ForkedScript(Forked):
    """The script in a process that was forked, as are the commands that its pages have in bash blocks."""

    MODULE, FOLDERS = "page_process", (HERE, str(Path(__file__).parent))


def run(*arguments: object, limit_s: float = 240, forked: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the script. It gets SIGTERM after `limit_s`, so that it ends what it started."""
    words = list(map(str, arguments))
    command = words if forked else [sys.executable, str(SCRIPT), *words]
    start = ForkedScript if forked else subprocess.Popen
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=limit_s)
    except BaseException:
        process.terminate()
        process.communicate(timeout=90)
        raise
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, err)
