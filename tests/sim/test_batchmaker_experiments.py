import csv
import json

import numpy as np
import pytest
from progress_counter import Counter

from headrace.batching import Request, UsageError
from headrace.sim.cells import (
    WMT15,
    Clipped,
    Sentences,
    complete_tree,
    decoder_step_s,
    lstm_step_s,
    random_tree,
    tree_lstm,
)
from headrace.sim.experiments.batchmaker import FIGURES, QUICK, Job, ideal_rps, reproduce, run_job


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder, progress = tmp_path_factory.mktemp("reproduce"), Counter()
    claims = reproduce(FIGURES, folder, QUICK, progress)
    assert progress.stages[0][1] == progress.steps > 0
    return folder, claims


def test_every_figure_has_a_plot_and_its_numbers(quick):
    folder, claims = quick
    for figure in FIGURES:
        assert (folder / f"figure{figure}.png").read_bytes()[:4] == b"\x89PNG"
        with (folder / f"figure{figure}.csv").open() as file:
            assert len(list(csv.DictReader(file))) > 3
    table = json.loads((folder / "table.json").read_text())
    assert [entry["claim"] for entry in table] == [claim.claim for claim in claims] and len(claims) > 12
    assert all(claim.measured is not None for claim in claims)


def test_an_unknown_figure_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--figure 4: choose from 3, 7"):
        reproduce(["4"], tmp_path, QUICK, Counter())


def test_cells_have_the_latencies_of_the_paper():
    assert [round(1e6 * lstm_step_s(batch)) for batch in (1, 64, 512, 1024)] == [185, 185, 784, 1568]
    assert ideal_rps(24) == pytest.approx(27_136, rel=0.005)
    assert decoder_step_s(256) == pytest.approx(3 * lstm_step_s(256))
    assert decoder_step_s(512) == pytest.approx(2 * decoder_step_s(256))
    rates = [batch / decoder_step_s(batch) for batch in (64, 128, 256, 512, 1024)]
    assert max(rates) == pytest.approx(rates[2]) and rates[1] < rates[2]


def test_lengths_have_the_facts_of_the_paper():
    inputs, _ = WMT15.sample(200_000, np.random.default_rng(0))
    assert inputs.mean() == pytest.approx(24, rel=0.02) and inputs.max() <= 330
    assert (inputs < 100).mean() == pytest.approx(0.99, abs=0.002)
    clipped, _ = Clipped(50).sample(200_000, np.random.default_rng(0))
    assert clipped.max() == 50 and (clipped == np.minimum(inputs, 50)).all()
    leaves, _ = Sentences().sample(100_000, np.random.default_rng(0))
    assert 18.5 < leaves.mean() < 20 and leaves.min() >= 2 and leaves.max() <= 56
    with pytest.raises(UsageError, match="clipped to 0"):
        Clipped(0)


def test_trees_have_a_leaf_for_each_word_and_two_children_an_inner_node():
    for tree in (complete_tree(16), random_tree(16, 3)):
        assert tree.cells == 31
        inner = max(tree.subgraphs, key=lambda subgraph: len(subgraph.cells))
        assert len(inner.cells) == 15 and len(inner.needs) == 16
    unfold = tree_lstm().unfold
    assert unfold(Request(1, "tree", 0.0, input_len=9)).cells == 17
    shapes = {tuple(map(tuple, random_tree(12, seed).subgraphs[-1].feeds)) for seed in range(20)}
    assert len(shapes) > 10


def test_below_its_peak_cellular_serves_what_arrives_with_the_latency_of_its_cells():
    rows = run_job(Job("lstm", "lstm", "fixed 24", 1, 2000, 0, 3000, (("cellular", 512), ("graph", 0))))
    cellular, padded = rows
    assert cellular.throughput_rps == pytest.approx(2000, rel=0.1)
    assert 24 * 0.25 < cellular.p50_ms < 24 * 0.25 * 1.3
    assert cellular.wait_p99_ms < 5 * 0.25 + 0.01  # it waits for at most 5 tasks
    assert padded.wait_p99_ms > 3 * cellular.wait_p99_ms
