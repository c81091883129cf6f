import pytest

from headrace.sim.experiments.batchmaker.claims import ideal_rps
from headrace.sim.experiments.batchmaker.runs import EXPERIMENT, Job, run_job
from headrace.sim.hardware.v100 import tree_cell_s


@pytest.mark.slow
def test_every_number_of_the_paper_has_one_beside_it(reproduced):
    _, claims = reproduced(EXPERIMENT)
    assert len(claims) > 12 and all(claim.measured is not None for claim in claims)


def test_the_ideal_rate_is_that_of_the_paper():
    assert ideal_rps(24) == pytest.approx(27_136, rel=0.005)


def test_below_its_peak_cellular_serves_what_arrives_with_the_latency_of_its_cells():
    rows = run_job(Job("lstm", "lstm", "fixed 24", 1, 2000, 0, 3000, (("cellular", 512), ("graph", 0))))
    cellular, padded = rows
    assert cellular.throughput_rps == pytest.approx(2000, rel=0.1)
    assert 24 * 0.234 < cellular.p50_ms < 24 * 0.25 * 1.3  # a step of few rows takes 185 us and 49 us of scheduling
    assert cellular.wait_p99_ms < 5 * 0.25 + 0.01  # it waits for at most 5 tasks
    assert padded.wait_p99_ms > 3 * cellular.wait_p99_ms


def test_bucketed_graphs_serve_nearly_16000_requests_a_second_with_a_p90_beyond_half_a_second():
    """Section 7.2 has these numbers. Batches fill as graphs fall behind, for seconds."""
    (row,) = run_job(Job("width", "lstm", "wmt15", 1, 16_000, 0, 240_000, (("bucketed-graph", 10),)))
    assert 14_000 < row.throughput_rps < 16_200 and row.p90_ms > 500


def test_an_encoder_batch_of_512_gains_3_to_6_percent_over_one_of_256():
    """Section 7.4 has 3.5 to 6 %."""
    large, small = run_job(
        Job("seq2seq", "seq2seq", "wmt15", 2, 12_000, 0, 30_000, (("cellular", 512), ("cellular", 256)))
    )
    assert 1.035 < large.throughput_rps / small.throughput_rps < 1.06


def test_trees_are_served_at_the_rate_that_their_cells_were_derived_from():
    rows = [
        run_job(Job("tree 14", network, "complete 16", 1, 9000, 0, 8000, (("cellular", 64),)))[0]
        for network in ("tree", "tree of LSTM steps")
    ]
    ideal = 64 / (31 * tree_cell_s(64))
    assert rows[0].throughput_rps == pytest.approx(0.7 * ideal, rel=0.05)
    assert rows[1].throughput_rps > 1.5 * rows[0].throughput_rps
