#!/usr/bin/env python3
"""Run a command, and keep its output with its times, its date and the machine as a JSON file for docs/results.

    .venv/bin/python scripts/record_run.py [--no-output] docs/results/runs/NAME.json headrace reproduce smdp

The command is kept as it was given. `headrace` and `python` are those of the Python that runs this script. The exit
status is the command's. A command that fails leaves the file as it was."""

import argparse
import datetime
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headrace.host.workers.profiling.batches import machine

ROOT = Path(__file__).resolve().parents[1]


def record(command: list[str], keep_output: bool = True) -> tuple[int, dict[str, Any]]:
    """Run a command in the repository's root and return its exit status with what is kept of the run."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    kept: dict[str, Any] = {
        "command": shlex.join(command),
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "load_average": round(os.getloadavg()[1], 1),  # over five minutes, at the end
        "wall_s": round(wall_s, 1),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
    }
    if keep_output:
        kept["output"] = done.stdout.splitlines()
    return done.returncode, kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the JSON file")
    parser.add_argument("--no-output", action="store_true", help="keep the times, and not what the command prints")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if not given.command:
        parser.error("give a command after the file")
    status, kept = record(given.command, not given.no_output)
    if status == 0:
        given.path.parent.mkdir(parents=True, exist_ok=True)
        given.path.write_text(json.dumps(kept, indent=2) + "\n")
        print(f"wrote {given.path}: {kept['wall_s']} s, {kept['cpu_s']} s of processor time", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
