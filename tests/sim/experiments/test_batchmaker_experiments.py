import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.batching import Request, UsageError
from headrace.sim.experiments import batchmaker
from headrace.sim.experiments.batchmaker.runs import Job, ideal_rps, run_job
from headrace.sim.hardware.v100 import (
    CELL_NETWORKS,
    WMT15,
    Clipped,
    Sentences,
    complete_tree,
    decoder_step_s,
    lstm_step_s,
    random_tree,
    read_trees,
    tree_lstm,
)
from headrace.sim.scenario import Scenario, run_scenario


def test_every_number_of_the_paper_has_one_beside_it(reproduced):
    _, claims = reproduced(batchmaker)
    assert len(claims) > 12 and all(claim.measured is not None for claim in claims)


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


@pytest.mark.parametrize("network", CELL_NETWORKS)
@pytest.mark.parametrize("policy", ["cellular", "dynamic-graph", "bucketed-graph", "graph"])
def test_scenarios_on_cells(network, policy):
    scenario = Scenario(
        network, "v100", policy=policy, rate_rps=500, requests=600, max_batch=64, npus=2, window_ms=0, sla_ms=1e4
    )
    if network == "treelstm" and policy in ("bucketed-graph", "graph"):
        with pytest.raises(UsageError, match="no padded graph"):
            run_scenario(scenario)
        return
    done, warnings = run_scenario(scenario)
    assert done.result["finished"] == 600 and not warnings
    assert done.result["batch_size_mean"] <= 64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "resnet50", "accelerator": "v100"}, "--model resnet50 is not for --accelerator v100"),
        ({"model": "lstm"}, "--model lstm is not for --accelerator npu"),
        ({"policy": "cellular"}, "give --accelerator v100"),
        ({"model": "lstm", "accelerator": "v100", "trees": "x"}, "--trees is for --model treelstm"),
        ({"model": "treelstm", "accelerator": "v100", "policy": "cellular", "trees": "/nowhere"}, "/nowhere"),
        ({"model": "lstm", "accelerator": "v100", "policy": "bucketed-graph", "bucket_width": 0}, "--bucket-width 0"),
        ({"model": "lstm", "accelerator": "v100", "policy": "dynamic-graph", "merge_us": -1.0}, "--merge-us -1"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(settings, message):
    with pytest.raises(UsageError, match=message):
        run_scenario(Scenario(**settings))


def test_trees_of_ones_own(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text("(3 (2 It) (4 (2 's) (3 good)))\n\n(1 (2 (0 a)) (2 b))\n(2 word)\n")
    trees = read_trees(path)
    assert [tree.cells for tree in trees] == [5, 3, 1]
    inner = max(trees[0].subgraphs, key=lambda subgraph: len(subgraph.cells))
    assert inner.cells == [3, 4] and inner.needs == [0, 1, 2]
    done, _ = run_scenario(Scenario("treelstm", "v100", policy="cellular", requests=300, rate_rps=500, trees=str(path)))
    assert done.result["finished"] == 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no trees"),
        ("(1 (2 a) (2 b)", "line 1: a bracket is not closed"),
        ("(1 a)\n(1 (2 a) (2 b) (2 c))", "line 2: a node has 3 children"),
        ("(1 (2 a) (2 b)) (1 c)", "behind the tree"),
        ("word", "outside all brackets"),
        (")", "was not opened"),
        ("()", "a label and one word"),
        ("(1 a b)", "a label and one word"),
    ],
)
def test_bad_trees_are_named_with_their_line(text, message, tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_trees(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="()a 1\n", max_size=40))
def test_any_text_is_trees_or_refused(text, tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text(text)
    try:
        trees = read_trees(path)
    except UsageError:
        return
    for tree in trees:
        leaves = sum(len(subgraph.cells) for subgraph in tree.subgraphs if subgraph.type == 0)
        assert tree.cells == 2 * leaves - 1
