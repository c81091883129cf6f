import numpy as np
import pytest
import scalesim_cycles
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import LENGTH, MatMul, ModelGraph, Node, UsageError
from headrace.sim.hardware.npu import Npu, NpuLatency, npu_times, output_stationary_cycles, weight_stationary_cycles
from headrace.sim.zoo import MODELS, model_graph

# (rows, columns, m, k, n): cycles in output- and in weight-stationary dataflow by SCALE-Sim 3.0.0 (scalesim_cycles.py).
SCALE_SIM = {
    (8, 8, 5, 7, 9): (41, 53),
    (8, 8, 8, 8, 8): (21, 29),
    (8, 8, 1, 64, 100): (1013, 2391),
    (8, 8, 49, 30, 20): (923, 851),
    (8, 8, 100, 17, 33): (2014, 1829),
    (16, 32, 5, 7, 9): (52, 66),
    (16, 32, 8, 8, 8): (53, 69),
    (16, 32, 1, 64, 100): (439, 1007),
    (16, 32, 49, 30, 20): (303, 221),
    (16, 32, 100, 17, 33): (881, 647),
    (128, 128, 1, 256, 256): (1019, 1531),
    (128, 128, 196, 300, 140): (2215, 3467),
}


@pytest.mark.parametrize("layer", SCALE_SIM)
def test_compute_cycles_are_scale_sims(layer):
    rows, columns, m, k, n = layer
    assert output_stationary_cycles(m, k, n, rows, columns) == SCALE_SIM[layer][0]
    assert weight_stationary_cycles(m, k, n, rows, columns) == SCALE_SIM[layer][1]


@pytest.mark.parametrize("layer", [(8, 8, 1, 64, 100), (16, 32, 49, 30, 20)])
def test_recorded_cycles_are_what_scale_sim_says_now(layer, tmp_path):
    """Optional: pip install scalesim==3.0.0 'numpy<2.4'."""
    pytest.importorskip("scalesim")
    if tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 4):
        pytest.skip("SCALE-Sim 3.0.0 does not run with numpy 2.4")
    rows, columns, m, k, n = layer
    ran = tuple(scalesim_cycles.cycles(m, k, n, rows, columns, dataflow, tmp_path) for dataflow in ("os", "ws"))
    assert ran == SCALE_SIM[layer]


@pytest.mark.parametrize(("name", "paper_ms"), [("resnet50", 1.1), ("gnmt", 7.2), ("transformer", 2.4)])
def test_single_input_latency_is_table_2s(name, paper_ms):
    """The paper does not say for which sentences. 19 steps in and out is our choice: the mean output of
    `lengths.TRANSLATION`, which is fitted to what the paper tells of its corpus (the mean input is 17). It matters: the
    transformer is 8 % above the paper's at 19 and 13 % above it, so out of bounds, at 20."""
    assert npu_times(model_graph(name)).whole(1, 19, 19) * 1e3 == pytest.approx(paper_ms, rel=0.1)


def test_the_overlap_is_what_makes_recurrent_networks_as_fast_as_the_papers():
    plain = npu_times(model_graph("gnmt"), Npu(overlap_rows=0)).whole(1, 19, 19)
    assert plain > 10 * 7.2e-3
    # With it, GNMT runs at the speed at which its weights come from memory.
    graph = model_graph("gnmt")
    weights = sum(op.groups * op.k * op.n for node in graph.nodes for op in node.operators if op.weights)
    assert npu_times(graph).whole(1, 19, 19) == pytest.approx(19 * weights / 360e9, rel=0.02)


def test_folds_share_fill_and_drain_while_their_rows_are_in_flight():
    # 4 folds of 50 rows on a 128 x 128 array: two at a time with 128 rows in flight, so two passes.
    assert weight_stationary_cycles(50, 256, 256, 128, 128, 128) == 4 * 50 + 2 * 382 - 1
    assert weight_stationary_cycles(50, 256, 256, 128, 128, 0) == 4 * (50 + 382) - 1
    assert weight_stationary_cycles(129, 256, 256, 128, 128, 128) == weight_stationary_cycles(129, 256, 256, 128, 128)


def cycles(operator, batch=1, length=1.0):
    return NpuLatency(ModelGraph("net", (Node("n", operators=(operator,)),))).latency(0, batch, length) * 700e6


def test_weights_are_read_once_for_the_sub_batch_and_small_tensors_never():
    dense = MatMul(1, 4096, 4096)
    read = 100 + 4096 * 4096 / 360e9 * 700e6
    assert cycles(dense) == cycles(dense, 8) == pytest.approx(read)
    attention = MatMul(1, 64, 64, groups=8, weights=False)
    # Two heads stand side by side on the array, four folds in one pass, and all of it lies in the activation memory.
    assert cycles(attention) == pytest.approx(4 + 382 - 1)


def test_activations_that_do_not_fit_their_memory_are_moved():
    wide = MatMul(9 << 20, 1, 1)  # 9 MiB in, 9 MiB out: moving takes longer than computing on 128 columns at once
    assert cycles(wide) == pytest.approx(max(100 + (18 * 2**20 + 1) / 360e9 * 700e6, (9 << 20) + 381))
    fits = MatMul(4 << 20, 1, 1)
    assert cycles(fits) == pytest.approx((4 << 20) + 381)


def test_depthwise_convolutions_stand_on_the_diagonal():
    """3 x 3 kernels of 32 channels: 14 fit 128 rows, so 3 folds of 12544 rows."""
    assert cycles(MatMul(112 * 112, 9, 1, groups=32)) == pytest.approx(3 * (12544 + 382) - 1)


def test_lengths_count_where_a_dimension_is_the_length():
    by_length = MatMul(LENGTH, 512, 512)
    assert cycles(by_length, length=2000) > 5 * cycles(by_length, length=20)
    assert cycles(MatMul(20, 512, 512), length=2000) == cycles(MatMul(20, 512, 512))


@given(
    name=st.sampled_from(MODELS),
    batch=st.integers(1, 63),
    length=st.integers(1, 80),
    dataflow=st.sampled_from(["ws", "os"]),
)
def test_a_larger_batch_takes_longer_and_never_longer_than_its_parts(name, batch, length, dataflow):
    times = npu_times(model_graph(name), Npu(dataflow=dataflow))
    one, here, more = (times.whole(size, length, length) for size in (1, batch, batch + 1))
    assert here <= more * (1 + 1e-9)
    assert more <= (here + one) * (1 + 1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"rows": 0},
        {"frequency_hz": 0.0},
        {"bandwidth_bytes_per_s": float("nan")},
        {"dataflow": "is"},
        {"overlap_rows": -1},
    ],
)
def test_an_impossible_npu_is_refused(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        Npu(**settings)
