"""Measured kernels of whole GPUs, and networks that run on them. The extra `measured` has the tables."""

import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.batching.errors import UsageError
from headrace.batching.graphs.model_graph import LENGTH, Kernel, MatMul, ModelGraph, Node, NodeKind
from headrace.batching.graphs.traced import Traced
from headrace.sim.hardware.gpu import tables
from headrace.sim.hardware.gpu.measured import MeasuredTimes, laid_out, measured_times, node_shares
from headrace.sim.hardware.gpu.tables import CONTEXT, ENCODER, FOLDERS, GENERATION, attention_table, product_table
from headrace.sim.zoo import model_graph
from headrace.sim.zoo.traced import traced

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def one(*kernels: Kernel) -> Traced:
    return Traced("one", None, {1.0: 0}, {1.0: ModelGraph("one", (Node("node", kernels=kernels),))})


def product(m: int, k: int, n: int) -> Kernel:
    return Kernel("addmm", m * k, m * n, k * n, (MatMul(m, k, n),))


# The tables


@pytest.mark.parametrize("gpu", FOLDERS)
def test_a_measured_size_has_its_measured_latency(gpu):
    rows, table = tables.product_rows(gpu), product_table(gpu)
    assert table.seconds(rows.m, rows.n, rows.k) == pytest.approx(rows.seconds)


def test_known_rows_of_the_tables_are_read_with_their_units():
    """NVIDIA's file has 0.5394844 ms for 4096 x 4096 x 4096 on an A100: 255 TFLOPS."""
    seconds = product_table("a100-80gb").seconds(np.array([4096.0]), np.array([4096.0]), np.array([4096.0]))[0]
    assert 2 * 4096**3 / seconds == pytest.approx(255e12, rel=0.01)


@pytest.mark.parametrize("gpu", FOLDERS)
def test_a_size_between_two_lies_on_the_line_and_more_rows_than_measured_take_in_proportion(gpu):
    table = product_table(gpu)
    n, k, last = 768.0, 3072.0, float(table.m[-1])
    low, high = table.m[-3:-1]
    m = np.array([low, (low + high) / 2, high, last, 3 * last])
    before, between, after, end, beyond = table.seconds(m, np.full(5, n), np.full(5, k))
    assert between == pytest.approx((before + after) / 2)
    assert beyond == pytest.approx(3 * end)
    assert not table.covers(np.array([16.0]), np.array([768.0]))[0]


def test_attention_of_many_small_requests_takes_as_long_as_that_of_one_with_their_heads():
    rows, table = tables.attention_rows("h100", GENERATION), attention_table("h100", GENERATION, 64)
    chosen = (rows.head == 64) & (rows.heads == rows.kv_heads)
    heads, keys, measured = (rows.batch * rows.heads)[chosen], rows.keys[chosen], rows.seconds[chosen]
    found = np.array([table.seconds(np.array([h]), k)[0] for h, k in zip(heads, keys, strict=True)])
    assert np.median(np.abs(found / measured - 1)) < 0.02


def test_a100_has_no_attention_that_sees_all_keys_and_none_with_64_elements():
    assert attention_table("a100-80gb", ENCODER, 64) is None
    assert attention_table("a100-80gb", CONTEXT, 64) is None
    assert attention_table("a100-80gb", CONTEXT, 128) is not None


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(UsageError, match=r"aiconfigurator-core; install it with: pip install 'headrace\[measured\]'"):
        tables.table_file("h100", "gemm", "gemm")


def test_another_version_of_the_package_is_refused(monkeypatch):
    class Other:
        version = "0.11.0"

    monkeypatch.setattr(metadata, "distribution", lambda name: Other)
    with pytest.raises(UsageError, match=r"need aiconfigurator-core 0\.12\.0, and 0\.11\.0 is installed"):
        tables.table_file("h100", "gemm", "gemm")


# Networks


def test_a_product_takes_the_tables_time_and_a_launch_cost_delays_it():
    network, batch = one(product(128, 768, 3072)), 4
    expected = product_table("h100").seconds(np.array([512.0]), np.array([3072.0]), np.array([768.0]))[0]
    assert measured_times(network, "h100").whole(batch, 1.0, 1) == pytest.approx(expected)
    assert measured_times(network, "h100", 26e-6).whole(batch, 1.0, 1) == pytest.approx(expected + 26e-6)


def test_many_launches_determine_the_time_of_a_small_batch():
    network = traced("bert_base")
    kernels = sum(len(node.kernels) for node in network.graphs[128.0].nodes)
    captured, slow = (measured_times(network, "h100", s).whole(1, 128.0, 1) for s in (0.0, 26e-6))
    assert slow == pytest.approx(kernels * 26e-6, rel=0.02)
    assert captured < 0.3 * slow


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        (product(128, 768, 3072), "tables_s"),
        (product(128, 768, 16), "modelled_s"),  # smaller than any in the table
        (Kernel("convolution", 3 * 224**2, 64 * 112**2, 9408, (MatMul(112**2, 147, 64),)), "modelled_s"),
        (Kernel("bmm", 12 * 128 * 128, 12 * 128**2, 0, (MatMul(128, 64, 128, 12, weights=False),)), "modelled_s"),
        (Kernel("lstm", 512, 512, 1 << 20, (MatMul(1, 512, 2048), MatMul(1, 512, 2048, 1, False))), "modelled_s"),
        (Kernel("gelu", 1 << 20, 1 << 20), "bytes_s"),
        (Kernel("_scaled_dot_product_x", 3 * 98304, 98304, 0, (MatMul(128, 64, 128, 12, False),)), "tables_s"),
        (Kernel("_scaled_dot_product_x", 3 * 98304, 98304, 0, (MatMul(64, 64, 128, 12, False),)), "modelled_s"),
    ],
)
def test_a_kernel_is_measured_where_a_table_has_it_and_else_marked(kernel, part):
    (share,) = node_shares(one(kernel), "h100", 1, 1.0)
    parts = {name: getattr(share, name) for name in ("tables_s", "bytes_s", "modelled_s")}
    assert parts.pop(part) > 0
    assert set(parts.values()) == {0.0}


def test_the_parts_of_all_nodes_are_the_networks_time():
    for name, gpu in (("vit_b_16", "h100"), ("conformer", "a100-80gb")):
        network = traced(name)
        length = max(network.graphs)
        parts = [(each.tables_s, each.bytes_s, each.modelled_s) for each in node_shares(network, gpu, 8, length)]
        assert np.sum(parts) == pytest.approx(measured_times(network, gpu).whole(8, length, 1))


def test_bert_in_bf16_takes_what_an_h100_took_in_fp16():
    """The H100 ran the network as one CUDA graph, with PyTorch's own kernels. The tables are of vLLM's."""
    rows = json.loads((RESULTS / "measured" / "h100.json").read_text())["parts"]["profiles"]["rows"]
    measured_ms = {
        row["details"]["batch"]: row["measured"]
        for row in rows
        if row["case"].startswith("bert_base, fp16") and row["quantity"] == "as one CUDA graph"
    }
    assert len(measured_ms) == 8
    ours_ms = 1e3 * MeasuredTimes(traced("bert_base"), "h100").batch_s(list(measured_ms), 128.0)
    ratios = np.array(list(measured_ms.values())) / ours_ms
    print(ratios)
    assert abs(np.median(ratios) - 1) < 0.1
    assert (np.abs(ratios - 1) < 0.2).all()


def test_a_graph_of_ones_own_with_decoder_nodes_runs_and_its_length_counts():
    attend = MatMul(1, 64, LENGTH, groups=8, weights=False)
    graph = ModelGraph(
        "own",
        (
            Node("read", operators=(MatMul(LENGTH, 512, 512),)),
            Node("write", NodeKind.DECODER, (attend, MatMul(1, 512, 512))),
        ),
    )
    times = measured_times(laid_out(graph), "h200")
    assert times.whole(1, 512.0, 4) > times.whole(1, 16.0, 4) > times.whole(1, 16.0, 1)


# The front door


def test_a_simulation_tells_which_share_of_its_networks_time_is_measured():
    on = headrace.MeasuredGpu("h100-measured")
    done = headrace.simulate(model="vit_b_16", on=on, rate_rps=100.0, requests=50)
    share = done.more["measured_share"]["vit_b_16"]
    assert sum(share.values()) == pytest.approx(1)
    assert share["tables"] > 0.5 > share["modelled"]
    nodes = headrace.measured_nodes("vit_b_16", on)
    assert sum(node.tables_s for node in nodes) > 0.5 * sum(node.bytes_s + node.modelled_s for node in nodes)


def test_launches_make_requests_slower_and_two_gpus_make_them_wait_less():
    def mean_ms(**settings):
        on = headrace.MeasuredGpu("a100-measured", **settings)
        return headrace.simulate(model="gpt2", on=on, policy="serial", rate_rps=400.0, requests=300).latency_ms["mean"]

    assert mean_ms(launch_us=26.0) > mean_ms() > mean_ms(npus=2)


def test_a_measured_gpu_has_no_slices_and_no_other_precision():
    for setting in ({"partition": "7g.80gb:1"}, {"precision": "fp32"}):
        done = headrace.simulate(model="vit_b_16", accelerator="h100-measured", requests=5, **setting)
        assert any("has no effect" in warning for warning in done.warnings)


def test_a_network_that_is_not_there_names_its_like():
    with pytest.raises(headrace.UnknownModel, match="did you mean"):
        headrace.simulate(model="vit_b_61", on=headrace.MeasuredGpu("h100-measured"))


@pytest.mark.parametrize("model", ("gnmt", "transformer", "las"))
def test_every_node_of_a_graph_of_products_takes_time(model):
    graph = model_graph(model)
    times = measured_times(laid_out(graph), "h100")
    one, many = (np.diff(times.sums(batch, 20.0)) for batch in (1, 64))
    assert (one > 0).all()
    assert (many > 0.95 * one).all()  # measurements of 1 and of 64 rows may differ by a few percent either way


@pytest.mark.parametrize("model", ("gnmt", "transformer"))
def test_kernels_do_the_work_of_the_graph_at_every_length(model):
    graph = model_graph(model)
    for length, sized in laid_out(graph).graphs.items():
        macs = sum(p.macs() for node in sized.nodes for kernel in node.kernels for p in kernel.products)
        assert macs == sum(op.macs(length) for node in graph.nodes for op in node.operators)
        assert [node.kind for node in sized.nodes] == [node.kind for node in graph.nodes]
