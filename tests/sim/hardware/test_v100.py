from itertools import pairwise

import pytest

from headrace.sim.hardware import xeon_e5
from headrace.sim.hardware.v100 import (
    DECODER_WORK,
    FLAT_S,
    Overhead,
    TreeReading,
    V100Cells,
    V100TreeCells,
    decoder_step_s,
    lstm_step_s,
    mean_overhead_s,
    tree_cell_s,
)


def test_an_lstm_step_has_the_latencies_of_the_paper():
    assert [round(1e6 * lstm_step_s(batch)) for batch in (1, 64, 512, 1024)] == [185, 185, 784, 1568]


def test_a_batch_of_512_has_a_fifth_more_throughput_than_one_of_256():
    """Section 7.4 has this number."""
    assert 512 / lstm_step_s(512) == pytest.approx(1.2 * 256 / lstm_step_s(256))
    assert [round(1e6 * lstm_step_s(batch)) for batch in (160, 256, 384)] == [328, 470, 627]


def test_throughput_never_falls_as_the_batch_grows():
    rates = [batch / lstm_step_s(batch) for batch in range(1, 1500)]
    assert all(after >= before * (1 - 1e-12) for before, after in pairwise(rates))


def test_a_scheduled_step_of_64_takes_250_us_and_batches_of_512_reach_87_percent_of_the_ideal():
    """Section 7.3 has these numbers."""
    cells, static = V100Cells(overhead=Overhead.MEAN), V100Cells(overhead=Overhead.NONE)
    assert cells.latency(0, 64, 1.0) == pytest.approx(250e-6)
    assert static.latency(0, 512, 1.0) / cells.latency(0, 512, 1.0) == pytest.approx(0.87)
    assert [round(1e6 * mean_overhead_s(batch)) for batch in (1, 64, 288, 512)] == [58, 65, 91, 117]


def test_decoding_is_three_quarters_of_the_work_and_best_at_a_batch_of_256():
    """Section 7.4."""
    decoder, encoder = (V100Cells((1,), Overhead.NONE).latency(node, 256, 1.0) for node in (1, 0))
    assert decoder / (decoder + encoder) == pytest.approx(0.75) and DECODER_WORK == 3
    rates = [batch / decoder_step_s(batch) for batch in (64, 128, 256, 512, 1024)]
    assert max(rates) == pytest.approx(rates[2]) and rates[1] < rates[2] == pytest.approx(rates[3])


def test_a_tree_cell_gives_the_two_peaks_that_it_was_derived_from():
    """Section 7.5, at full batches: 3,100 trees/s of 37.2 cells, and 70 % of the ideal on trees of 31."""
    task = V100TreeCells().latency(0, 64, 1.0)
    assert 64 / (37.2 * task) == pytest.approx(3100)
    assert tree_cell_s(64) / task == pytest.approx(0.7)
    assert [round(1e6 * tree_cell_s(batch)) for batch in (1, 64)] == [388, 388]
    assert V100TreeCells().latency(1, 1, 1.0) - tree_cell_s(1) == pytest.approx(2.6e-6, rel=0.01)


def test_a_tree_cell_can_be_read_as_cheaper_with_few_rows():
    cheaper = TreeReading(least_s=FLAT_S)
    assert [round(1e6 * tree_cell_s(batch, cheaper)) for batch in (0, 32, 64, 512)] == [185, 287, 388, 1646]
    one, full = (V100TreeCells(reading=TreeReading(fixed_overhead=True)).latency(0, batch, 1.0) for batch in (1, 64))
    assert one == full == pytest.approx(V100TreeCells().latency(0, 64, 1.0))


def test_a_cpu_is_bound_by_its_memory_at_one_row_and_by_its_cores_at_many():
    """33.6 MB at 76.8 GB/s, and 1024 rows of 8.4 million multiply-adds at 563 GHz."""
    assert [round(1e3 * xeon_e5.lstm_step_s(batch), 2) for batch in (1, 28, 1024)] == [0.44, 0.44, 15.25]
