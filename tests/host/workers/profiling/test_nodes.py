"""Node latencies measured on real workers, and the changes that a batch makes in a network's results."""

from pathlib import Path

import pytest
import torch
from command import headrace_here

from headrace.batching import Profile
from headrace.host.workers.inspection.batch_differences import batch_difference
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.split.network import node_model, one_thread

NETS = Path(__file__).parents[1]  # where the workers find split_nets


def difference(name, batches=(2, 8)):
    source = f"split_nets:{name}"
    model, _ = node_model(source, max(batches))
    with one_thread():
        return batch_difference(load_model(source), model.nodes, batches), model.nodes


def test_a_profile_with_nodes_serves_lazy_in_the_simulator(tmp_path, monkeypatch):
    monkeypatch.chdir(NETS)
    path = tmp_path / "residual.profile.json"
    profiled = headrace_here(
        "profile", "--model", "split_nets:residual", "--nodes", "--workers", "1", "--max-batch", "2", "-o", path
    )
    assert profiled.returncode == 0, profiled.stderr
    assert "latency of each node" in profiled.stdout and "A request's results" in profiled.stdout

    profile = Profile.from_json(path.read_text())
    _, graph = node_model("split_nets:residual", 2)
    assert profile.nodes.names == tuple(node.name for node in graph.nodes)
    assert profile.nodes.batches == tuple(point.batch for point in profile.points)
    # A batch is its nodes and the message there and back; on a busy machine a median may be a little off.
    times = profile.times()
    for point in profile.points:
        assert 0 < times.whole(point.batch, 1.0, 1) < 1.5 * point.latency_s

    rate = 0.5 * profile.knee().throughput_rps
    simulated = headrace_here(
        "simulate",
        "--accelerator",
        "profile",
        "--profile",
        path,
        "--model",
        "split_nets:residual",
        "--policy",
        "lazy",
        "--rate-rps",
        f"{rate:.1f}",
        "--requests",
        "300",
        "--json",
    )
    assert simulated.returncode == 0, simulated.stderr
    assert '"finished": 300' in simulated.stdout


def test_a_batch_changes_no_bit_where_nothing_is_summed():
    assert difference("products")[0] == {"largest": 0.0, "first_node": None}


def test_what_a_batch_changes_is_what_outputs_differ_by():
    batches = (2, 8)
    found, nodes = difference("wide", batches)
    loaded = load_model("split_nets:wide")
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    with torch.no_grad(), one_thread():
        for batch in batches:
            given = torch.randn(batch, *loaded.input_shape, generator=generator)
            (together,) = loaded.forward([given])
            for row in range(batch):
                (alone,) = loaded.forward([given[row : row + 1]])
                largest = max(largest, float((alone - together[row]).abs().max() / alone.abs().max()))
    assert found["largest"] == pytest.approx(largest)
    assert 0 < largest < 1e-5
    assert found["first_node"] in nodes
