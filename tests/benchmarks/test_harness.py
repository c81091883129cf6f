"""The benchmarks' harness takes turns, computes statistics and writes JSON; every benchmark can be imported."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import harness
from headrace.batching import HeadraceError, UsageError

ROOT = Path(__file__).parents[2]


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


def test_cases_take_turns_and_warm_up_rounds_do_not_count():
    ran = []
    cases = {name: lambda number, name=name: ran.append((name, number)) or len(ran) for name in "ab"}
    assert harness.measure(cases, rounds=2, warm_up=1) == {"a": [3, 5], "b": [4, 6]}
    assert ran == [("a", 0), ("b", 0), ("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_coroutines_take_turns_too():
    async def case(number):
        return number

    assert asyncio.run(harness.measure_async({"a": case, "b": case}, rounds=2)) == {"a": [0, 1], "b": [0, 1]}


def test_a_closed_loop_keeps_its_callers_busy():
    most = running = 0
    seen = []

    async def call(number):
        nonlocal most, running
        running += 1
        most = max(most, running)
        seen.append(number)
        await asyncio.sleep(0.001)
        running -= 1

    rate = asyncio.run(harness.closed_loop(call, 3, 0.05))
    assert most == 3 and rate > 0
    assert sorted(seen)[:3] == [0, 1, 2] and len(set(seen)) == len(seen)


def test_a_call_is_repeated_for_at_least_a_time():
    calls = []
    assert harness.seconds(lambda: calls.append(1)) >= 0 and len(calls) == 1
    assert harness.seconds(lambda: calls.append(1), at_least_s=0.01) < 0.01 and len(calls) > 2


def test_medians_and_spreads():
    rounds = [{"ms": {"p50": value}} for value in (3.0, None, 5.0)]
    assert harness.median(rounds, "ms", "p50") == 3.0
    assert harness.spread([3.0, 1.0, 2.0], ".1f") == "2.0 (1.0 to 3.0)"
    assert harness.summary({"a": [1.0, 3.0]}) == {"a": {"median": 2.0, "rounds": [1.0, 3.0]}}


def test_a_table_is_aligned():
    lines = harness.table("name | x", ["a | 10", "long name | 2"]).splitlines()
    assert lines[:3] == ["| name      | x   |", "| --------- | --- |", "| a         | 10  |"]


def outcome(monkeypatch, run, *words: str, **defaults: float):
    """Return the exit status of a benchmark."""
    monkeypatch.setattr(sys, "argv", ["benchmarks/example.py", *words])
    with pytest.raises(SystemExit) as ended:
        harness.main(harness.arguments("An example.", only=("a", "b"), **defaults), run)
    return int(ended.value.code or 0)


def test_json_goes_to_stdout_or_to_a_file(monkeypatch, capsys, tmp_path):
    def run(options):
        return harness.Report({"found": options.rounds}, "the table")

    assert outcome(monkeypatch, run, "--rounds", "2", "--json", rounds=3) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["found"] == 2 and found["machine"]["cores"] >= 1 and found["options"]["only"] is None
    assert outcome(monkeypatch, run, "--json", str(tmp_path / "x.json"), rounds=3) == 0
    assert capsys.readouterr().out.endswith("the table\n")
    assert json.loads((tmp_path / "x.json").read_text())["found"] == 3


def test_exit_statuses(monkeypatch, capsys):
    def fails(error):
        def run(options):
            raise error

        return run

    async def failed(options):
        return harness.Report({}, "", failed=True)

    assert outcome(monkeypatch, failed) == 1
    assert outcome(monkeypatch, fails(HeadraceError("it broke"))) == 1
    assert capsys.readouterr().err == "example: it broke\n"
    assert outcome(monkeypatch, fails(UsageError("no such file"))) == 2
    assert outcome(monkeypatch, failed, "--only", "c") == 2


def test_every_benchmark_is_listed_and_stands_in_the_readme():
    listed = [line.split()[0] for line in python("-m", "benchmarks").stdout.splitlines()]
    named = re.findall(r"^\| `(\w+)", (ROOT / "benchmarks" / "README.md").read_text(), re.MULTILINE)
    assert sorted(set(named) - {"command"}) == listed
    # A benchmark that nobody has run for a while must not stop at an import that is gone.
    done = python("-c", "".join(f"import benchmarks.{name}\n" for name in listed))
    assert done.returncode == 0, done.stderr


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "words",
    [
        "watchers --calls 2 --rounds 1",
        "policies --backlogs 50 --rounds 1 --requests 20",
        "simulator --requests 20 --rounds 1",
        "fleet --only memory --requests 20",
        "mixed_slices sim/experiments/parvagpu/profiles.csv --requests 20",
    ],
    ids=lambda words: words.split()[0],
)
def test_a_benchmark_runs_in_its_smallest_form(words):
    done = python("-m", *f"benchmarks.{words} --json".split())
    assert done.returncode == 0, done.stderr
    assert {"machine", "options"} < json.loads(done.stdout).keys()
