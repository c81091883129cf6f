"""Test what is kept of a sweep: a second start runs only the rest, and takes nothing that may have changed."""

import math
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.planner.trials import Measured, Trial, measure
from headrace.sim.scenario import Scenario
from headrace.sim.sweeps import grid, journal
from headrace.sim.sweeps.journal import Journal
from headrace.sim.sweeps.sweep import worker_pool

PATIENCE_S = 30.0  # a loaded machine


@dataclass(frozen=True)
class Inner:
    path: str | None = None


@dataclass(frozen=True)
class Job:
    number: float
    inner: Inner = Inner()


@dataclass(frozen=True)
class Found:
    value: float
    by_name: dict[str, float]


def found(job):
    return Found(job.number / 3, {"third": job.number / 3})


def trials(count):
    return [
        Trial(Scenario.of(accelerator="a100-40gb", policy="preba", rate_rps=500.0, requests=300, seed=seed), 0.99, 1)
        for seed in range(count)
    ]


def swept(jobs, path):
    """Return the results and the calls of the progress display: the number of jobs that are done, then a step for each
    other one."""
    told = []
    with worker_pool(2) as workers, Journal(path, Measured) as kept:
        results = workers.sweep(measure, jobs, lambda: told.append("step"), kept, told.append)
    return results, told


def records(path):
    return pq.read_table(path)["record"].to_pylist()


def test_a_second_start_runs_only_the_rest_with_equal_results(tmp_path):
    path = tmp_path / "trials.parquet"
    first, told = swept(trials(2), path)
    assert told == [0, "step", "step"]
    kept = records(path)
    assert swept(trials(5), path) == ([measure(trial) for trial in trials(5)], [2, "step", "step", "step"])
    assert records(path)[:2] == kept and len(records(path)) == 5
    assert swept(trials(2), path) == (first, [2])
    assert [each.name for each in tmp_path.iterdir()] == ["trials.parquet"]


def test_what_was_done_when_it_was_killed_is_kept(tmp_path):
    program = f"""
from pathlib import Path
from headrace.sim.sweeps.journal import Journal
from headrace.sim.sweeps.sweep import worker_pool
from headrace.sim.planner.trials import Measured, Trial, measure
from headrace.sim.scenario import Scenario
jobs = [Trial(Scenario.of(accelerator="a100-40gb", policy="preba", rate_rps=500.0, requests=300, seed=seed), 0.99, 1)
        for seed in range(2000)]
with worker_pool(2) as workers:
    workers.sweep(measure, jobs, lambda: None, Journal(Path({str(tmp_path / "t")!r}), Measured))
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and len(Journal(tmp_path / "t", Measured)) < 5:
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
    kept = Journal(tmp_path / "t", Measured)
    assert len(kept) >= 5
    one = next(trial for trial in trials(100) if kept.known(trial) is not None)
    assert kept.known(one) == measure(one)


@pytest.mark.parametrize("closed", [False, True])
@given(number=st.floats(allow_nan=False), value=st.floats(allow_nan=False))
def test_results_are_the_same_to_the_bit(tmp_path_factory, closed, number, value):
    path = tmp_path_factory.mktemp("journal") / "trials.parquet"
    kept = Journal(path, Found)
    kept.keep(Job(number), Found(value, {"x": value}))
    if closed:
        kept.close()
        assert not path.with_suffix(".jsonl").exists()
    assert Journal(path, Found).known(Job(number)) == Found(value, {"x": value})


def test_other_settings_are_another_job(tmp_path):
    kept = Journal(tmp_path / "t", Found)
    kept.keep(Job(1.0), found(Job(1.0)))
    assert kept.known(Job(math.nextafter(1.0, 2))) is None
    assert kept.known(Job(1.0, Inner("x"))) is None


def test_jobs_may_hold_tuples_of_settings(tmp_path):
    kept = Journal(tmp_path / "t", Found)
    job = Job((Inner("x"), Inner("y")))
    kept.keep(job, Found(1.0, {}))
    assert kept.known(job) == Found(1.0, {})
    assert kept.known(Job((Inner("x"), Inner("z")))) is None


def test_a_file_that_has_changed_is_another_job(tmp_path):
    (tmp_path / "costs.json").write_text("{}")
    (tmp_path / "sounds").mkdir()
    kept = Journal(tmp_path / "t", Found)
    for name in ("costs.json", "sounds"):
        job = Job(1.0, Inner(str(tmp_path / name)))
        kept.keep(job, found(job))
        assert kept.known(job) is not None
    time.sleep(0.01)
    (tmp_path / "costs.json").write_text("[]")
    (tmp_path / "sounds" / "a.wav").write_bytes(b"RIFF")
    for name in ("costs.json", "sounds"):
        assert kept.known(Job(1.0, Inner(str(tmp_path / name)))) is None


@pytest.mark.parametrize("of", ["gnmt/t.parquet", "gnmt/today/t.parquet"])
def test_a_folder_of_results_that_is_named_as_a_model_is_no_file_of_a_setting(of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gnmt/today").mkdir(parents=True)
    job = Job(1, Inner("gnmt"))
    with Journal(Path(of), Found) as kept:
        kept.keep(job, found(job))
    Path(of).with_name("plot.png").write_bytes(b"")
    assert Journal(Path(of), Found).known(job) == found(job)


def test_an_empty_text_names_no_folder(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    job = Job(1, Inner(""))
    with Journal(tmp_path / "t.parquet", Found) as kept:
        kept.keep(job, found(job))
    (here / "another").write_text("")
    assert Journal(tmp_path / "t.parquet", Found).known(job) == found(job)


def test_what_other_code_found_is_not_taken(tmp_path, monkeypatch):
    Journal(tmp_path / "t", Found).keep(Job(1), found(Job(1)))
    monkeypatch.setattr(journal, "code_version", lambda: "another")
    assert len(Journal(tmp_path / "t", Found)) == 0


@given(st.integers(0, 400), st.binary(max_size=40))
def test_a_damaged_file_loses_no_more_than_what_is_damaged(tmp_path_factory, cut, junk):
    of = tmp_path_factory.mktemp("journal") / "t.parquet"
    path = of.with_suffix(".jsonl")
    for number in (1, 2):
        Journal(of, Found).keep(Job(number), found(Job(number)))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[: first + min(cut, len(whole) - first - 2)] + junk.replace(b"\n", b""))
    again = Journal(of, Found)
    assert again.known(Job(1)) == found(Job(1))
    again.keep(Job(3), found(Job(3)))
    assert Journal(of, Found).known(Job(3)) == found(Job(3))
    again.close()
    last = Journal(of, Found)
    assert [last.known(Job(number)) for number in (1, 3)] == [found(Job(1)), found(Job(3))]


def test_a_row_tells_all_settings_of_its_job_and_what_was_found(tmp_path):
    with Journal(tmp_path / "t.parquet", Found) as kept:
        kept.keep(Job(1.5, Inner("a")), found(Job(1.5)))
        kept.keep(Job(2.5), found(Job(2.5)))
    (row, _) = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert {name: value for name, value in row.items() if name not in ("key", "record")} == {
        "version": journal.code_version(),
        "number": 1.5,
        "inner.path": "a",
        "result.value": 0.5,
        "result.by_name.third": 0.5,
    }


def test_what_a_run_of_a_grid_found_stands_under_its_own_names(tmp_path):
    with Journal(tmp_path / "t.parquet", grid.Found) as kept:
        kept.keep(Job(1), grid.Found({"utilization": 0.5, "latency_ms": {"mean": 1.5}}, ["slow"]))
        kept.keep(Job(2), grid.Found({}, [], "unstable"))
    table = pq.read_table(tmp_path / "t.parquet")
    assert table["result.utilization"].to_pylist() == [0.5, None]
    assert table["result.latency_ms.mean"].to_pylist() == [1.5, None]
    assert table["result.failed"].to_pylist() == [None, "unstable"]
    assert not [name for name in table.column_names if name.startswith("result.result")]
    again = Journal(tmp_path / "t.parquet", grid.Found)
    assert again.known(Job(1)) == grid.Found({"utilization": 0.5, "latency_ms": {"mean": 1.5}}, ["slow"])


def test_a_crash_between_the_new_file_and_the_end_of_the_old_one_loses_and_doubles_nothing(tmp_path, monkeypatch):
    kept = Journal(tmp_path / "t.parquet", Found)
    kept.keep(Job(1), found(Job(1)))
    monkeypatch.setattr(Path, "unlink", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        kept.close()
    monkeypatch.undo()
    with Journal(tmp_path / "t.parquet", Found) as again:
        again.keep(Job(2), found(Job(2)))
    assert len(records(tmp_path / "t.parquet")) == 2


def test_values_of_several_kinds_are_told_as_text(tmp_path):
    with Journal(tmp_path / "t.parquet", Found) as kept:
        kept.keep(Job(1), Found(1.0, {"x": 1.0}))
        kept.keep(Job(2), Found(1.0, {"x": "a"}))
    assert pq.read_table(tmp_path / "t.parquet")["result.by_name.x"].to_pylist() == ["1.0", '"a"']


def test_what_cannot_be_read_or_written_says_so(tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        Journal(tmp_path / "folder.parquet", Found)
    kept = Journal(tmp_path / "missing" / "t", Found)
    with pytest.raises(UsageError, match="No such file"):
        kept.keep(replace(Job(1)), found(Job(1)))


def test_the_file_of_somebody_else_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    for content in (path.read_bytes(), b"PAR1 no more", b""):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="no file of results that Headrace wrote"):
            Journal(path, Found)
        assert path.read_bytes() == content


def test_the_same_runs_make_the_same_file_in_whatever_order_they_end(tmp_path):
    jobs = [Job(number) for number in range(9)]
    for name, order in (("one", jobs), ("other", jobs[::-1])):
        with Journal(tmp_path / name, Found) as kept:
            for job in order:
                kept.keep(job, found(job))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def flipped(data, bit):
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_bit_that_flips_in_the_file_changes_no_result(count, tmp_path):
    path = tmp_path / "runs.parquet"
    jobs = [Job(number) for number in range(40)]
    with Journal(path, Found) as kept:
        for job in jobs:
            kept.keep(job, found(job))
    data, draw = path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(count):
        path.write_bytes(flipped(data, draw.randrange(8 * len(data))))
        try:
            read = Journal(path, Found)
        except UsageError as error:
            refused += 1
            assert "no file of results that Headrace wrote, or a damaged one" in str(error)
        else:
            assert [read.known(job) for job in jobs] == [found(job) for job in jobs]
    assert refused > count / 4


def test_records_under_the_digest_of_others_are_refused(tmp_path):
    """Pages have checksums, and the file's directory has none. The digest of all records covers it."""
    tables = []
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        with Journal(path, Found) as kept:
            kept.keep(Job(number), found(Job(number)))
        tables.append(pq.read_table(path))
    ours, others = tables
    for metadata, refused in ((ours.schema.metadata, False), (others.schema.metadata, True)):
        pq.write_table(ours.replace_schema_metadata(metadata), path, write_page_checksum=True)
        if refused:
            with pytest.raises(UsageError, match="or a damaged one"):
                Journal(path, Found)
        else:
            assert Journal(path, Found).known(Job(0)) == found(Job(0))


def test_every_page_of_the_file_has_a_checksum(tmp_path):
    path = tmp_path / "runs.parquet"
    with Journal(path, Found) as kept:
        for number in range(40):
            kept.keep(Job(number), found(Job(number)))
    data, group = path.read_bytes(), pq.ParquetFile(path).metadata.row_group(0)
    for place in range(group.num_columns):
        column = group.column(place)
        start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        path.write_bytes(flipped(data, 8 * (start + column.total_compressed_size - 1)))
        with pytest.raises(OSError, match="CRC"):
            pq.read_table(path, page_checksum_verification=True)
