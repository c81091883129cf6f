"""Parts run in processes of their own: a part that fails, crashes or hangs costs only its own rows."""

import json
import os
import sys
import time

import pytest
from processes import lives

from headrace.batching import UsageError
from headrace.host.validation import run
from headrace.host.validation.plan import Row, failed

ROW = Row("x", "latency", "ms", None, 1.0)


def part_that(monkeypatch, body):
    """Let `run` start this program in place of a part. `row` is a line of JSON in it."""
    lines = run._lines
    program = f"import json, os, sys, time\nrow = {json.dumps(ROW.to_dict())!r}\n{body}"
    monkeypatch.setattr(run, "_lines", lambda command, *others: lines([sys.executable, "-c", program], *others))


def start(limit_s=20.0):
    return run._run("profiles", {"kind": "cpu"}, True, limit_s, None)


def test_a_part_that_ends_well_has_its_rows_and_no_error(monkeypatch):
    part_that(monkeypatch, "print(row); print(row)")
    found = start()
    assert found["rows"] == [ROW.to_dict()] * 2 and found["error"] == ""


def test_a_part_that_reports_an_error_keeps_the_rows_before_it(monkeypatch):
    part_that(monkeypatch, "print(row); print(json.dumps({'error': 'ValueError: no'}))")
    found = start()
    assert found["rows"] == [ROW.to_dict()] and found["error"] == "ValueError: no"


def test_a_case_that_fails_makes_its_part_fail_and_the_others_go_on(monkeypatch):
    lost = failed("y", "latency", "ms", ValueError("no such operator"))
    part_that(monkeypatch, f"print({json.dumps(lost.to_dict())!r}); print(row)")
    found = start()
    assert found["rows"] == [lost.to_dict(), ROW.to_dict()]
    assert found["error"] == "1 of its cases failed, the first by ValueError: no such operator"


def test_a_part_that_crashes_says_its_last_words(monkeypatch):
    part_that(monkeypatch, "print(row, flush=True); print('CUDA error', file=sys.stderr, flush=True); os.abort()")
    found = start()
    assert found["rows"] == [ROW.to_dict()] and "status -6" in found["error"] and "CUDA error" in found["error"]


def test_a_part_that_hangs_is_stopped_with_all_that_it_started(monkeypatch, tmp_path):
    file = tmp_path / "pid"
    child = "import subprocess; sleeper = subprocess.Popen(['sleep', '60'])"
    part_that(
        monkeypatch,
        f"{child}; open({str(file)!r}, 'w').write(str(sleeper.pid)); print(row, flush=True); time.sleep(60)",
    )
    began = time.monotonic()
    found = start(limit_s=2.0)
    assert found["error"] == "it was stopped after 2 s" and time.monotonic() - began < 10
    assert found["rows"] == [ROW.to_dict()]
    sleeper = int(file.read_text())
    end = time.monotonic() + 5
    while lives(sleeper) and time.monotonic() < end:
        time.sleep(0.01)
    assert not lives(sleeper)


def test_no_part_begins_without_time():
    assert start(limit_s=0.0) == {"rows": [], "seconds": 0.0, "error": "no time was left for it"}


@pytest.mark.parametrize(
    ("options", "words"),
    [({"parts": ["speed"]}, "there is no part 'speed'"), ({"device": "tpu"}, "choose cuda or cpu")],
)
def test_what_cannot_be_checked_is_refused(options, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        run.check(tmp_path, **options)
    assert os.listdir(tmp_path) == []
