"""scripts/npu_readings.py compares readings of the NPU with the paper's numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_readings_stand_side_by_side_and_the_default_gives_what_reproduce_gives(tmp_path):
    script = [sys.executable, ROOT / "scripts" / "npu_readings.py"]
    file = tmp_path / "all.json"
    done = subprocess.run(
        [*script, "--quick", "--only", "ws", "--only", "os + vector", "--json", file],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    headrace = [sys.executable, "-c", "from headrace.host.cli.main import main; main()"]
    reproduced = subprocess.run(
        [*headrace, "reproduce", "lazybatching", "--quick", "--json", "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    simulated = [row for row in json.loads(reproduced.stdout) if row["figure"] != "17"]  # that one is measured anew
    assert [row["measured"] for row in found["os + vector"]] == [row["measured"] for row in simulated]
    near = {name: sum(row["near"] for row in rows) for name, rows in found.items()}
    assert near["os + vector"] > near["ws"] > 0
    lines = done.stdout.splitlines()
    assert len(lines) == 3 + len(found["ws"]) and f"| {near['ws']} | {near['os + vector']} |" in lines[2]
