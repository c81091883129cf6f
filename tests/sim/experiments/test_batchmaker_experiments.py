import pytest

from headrace.sim.experiments.batchmaker.claims import figure_8, ideal_rps
from headrace.sim.experiments.batchmaker.conditions import BACKLOG, WIDTHS
from headrace.sim.experiments.batchmaker.rows import Row, Runs
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


def test_only_figure_13_and_what_rests_on_it_has_several_workers():
    workers = {
        figure: {job.workers for job in EXPERIMENT.jobs(figure, EXPERIMENT.quick)} for figure in EXPERIMENT.figures
    }
    assert {figure for figure, counts in workers.items() if counts - {1}} == {"13", "abstract"}
    assert workers["13"] == {2, 4} and workers["abstract"] == {1, 2, 4} and workers["3"] == set()


def width_row(experiment, rate_rps, width, throughput_rps, p90_ms):
    times = (1.0, 1.0, p90_ms, 1.0, 1.0, 1.0)
    return Row(
        experiment, "lstm", "wmt15", 1, rate_rps, 0, "bucketed-graph", width, throughput_rps, *times, 1.0, 0.0, 0.0
    )


def test_figure_8_compares_each_width_with_buckets_of_ten(tmp_path):
    """At a low rate the p90 of wide buckets is compared, and at the highest rate the peak."""
    rows = [width_row("width", rate, w, rate / 2, 10.0 + w) for w in WIDTHS for rate in (150.0, 28000.0)]
    rows += [width_row(BACKLOG, 1e6, w, 100.0 * w, 1.0) for w in WIDTHS]
    late_40, late_1, peak_40, peak_1 = figure_8(Runs(rows), tmp_path)
    assert (late_40.paper, late_40.measured, late_1.measured) == (1, 50 / 20, 11 / 20)
    assert "28000/s offered" in peak_40.claim and (peak_40.measured, peak_1.measured) == (1, 1)
    assert "150/s" in late_40.claim and peak_1.cause == ""
