"""The shares of tasks that gather, which split the paper's overheads in sim/hardware/v100.py."""

import pytest

from headrace.sim.experiments.batchmaker.runs import Job, run_job
from headrace.sim.hardware.v100 import (
    EQUAL_LENGTHS_SHARE,
    FLAT_BATCH,
    FULL_BATCH,
    FULL_OVERHEAD_S,
    GATHER_ROW_S,
    LOW_LOAD_SHARE,
    SCHEDULING_S,
)


def share(lengths, rate_rps, requests, seeds):
    runs = [
        run_job(Job("lstm", "lstm", lengths, 1, rate_rps, seed, requests, (("cellular", FULL_BATCH),)))[0]
        for seed in range(seeds)
    ]
    return sum(run.gathered for run in runs) / seeds


def test_the_share_at_low_load_is_the_one_that_was_counted():
    assert share("wmt15", 5000, 20_000, 2) == pytest.approx(LOW_LOAD_SHARE, abs=0.02)


def test_the_share_at_equal_lengths_is_the_one_that_was_counted():
    assert share("fixed 24", 28_000, 60_000, 3) == pytest.approx(EQUAL_LENGTHS_SHARE, abs=0.02)


def test_both_totals_of_the_paper_come_out_of_scheduling_and_gathering():
    low = 185e-6 + SCHEDULING_S + LOW_LOAD_SHARE * FLAT_BATCH * GATHER_ROW_S
    full = SCHEDULING_S + EQUAL_LENGTHS_SHARE * FULL_BATCH * GATHER_ROW_S
    assert low == pytest.approx(250e-6) and full == pytest.approx(FULL_OVERHEAD_S)


def test_varying_lengths_cost_some_of_the_peak():
    """The paper has 20,000/s (Section 7.2), and 87 % of 27,136/s where all lengths are equal (Section 7.3)."""
    varied, equal = (
        run_job(Job("lstm", "lstm", lengths, 1, 28_000, 0, 60_000, (("cellular", FULL_BATCH),)))[0].throughput_rps
        for lengths in ("wmt15", "fixed 24")
    )
    assert 20_000 < varied < 22_000 < equal
