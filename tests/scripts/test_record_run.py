"""scripts/record_run.py keeps what a command printed, and nothing of one that failed."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "record_run.py"


def record(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)


def test_a_run_is_kept_with_its_output_its_times_and_the_machine(tmp_path):
    kept = tmp_path / "runs" / "sum.json"
    done = record(kept, "python", "-c", "print(sum(range(10**6)))")
    assert done.returncode == 0, done.stderr
    run = json.loads(kept.read_text())
    assert run["output"] == ["499999500000"]
    assert run["command"] == "python -c 'print(sum(range(10**6)))'"
    assert run["machine"]["cores"] >= 1 and run["cpu_s"] > 0


def test_output_can_be_left_out(tmp_path):
    kept = tmp_path / "run.json"
    assert record("--no-output", kept, "python", "-c", "print(1)").returncode == 0
    assert "output" not in json.loads(kept.read_text())


def test_a_command_that_fails_leaves_the_file_as_it_was(tmp_path):
    kept = tmp_path / "run.json"
    kept.write_text("{}")
    assert record(kept, "python", "-c", "raise SystemExit(3)").returncode == 3
    assert kept.read_text() == "{}"
