import pytest

from headrace.sim.experiments.batchmaker import runs as batchmaker
from headrace.sim.experiments.batchmaker.runs import Job, ideal_rps, run_job


def test_every_number_of_the_paper_has_one_beside_it(reproduced):
    _, claims = reproduced(batchmaker)
    assert len(claims) > 12 and all(claim.measured is not None for claim in claims)


def test_the_ideal_rate_is_that_of_the_paper():
    assert ideal_rps(24) == pytest.approx(27_136, rel=0.005)


def test_below_its_peak_cellular_serves_what_arrives_with_the_latency_of_its_cells():
    rows = run_job(Job("lstm", "lstm", "fixed 24", 1, 2000, 0, 3000, (("cellular", 512), ("graph", 0))))
    cellular, padded = rows
    assert cellular.throughput_rps == pytest.approx(2000, rel=0.1)
    assert 24 * 0.25 < cellular.p50_ms < 24 * 0.25 * 1.3
    assert cellular.wait_p99_ms < 5 * 0.25 + 0.01  # it waits for at most 5 tasks
    assert padded.wait_p99_ms > 3 * cellular.wait_p99_ms
