from dataclasses import replace

import numpy as np
import pytest
import scalesim_cycles
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.batching import LENGTH, MatMul, ModelGraph, Node, UsageError
from headrace.batching.graphs.model_graph import HALF_LENGTH
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
    """This is optional: pip install scalesim==3.0.0 'numpy<2.4'."""
    pytest.importorskip("scalesim")
    if tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 4):
        pytest.skip("SCALE-Sim 3.0.0 does not run with numpy 2.4")
    rows, columns, m, k, n = layer
    ran = tuple(scalesim_cycles.cycles(m, k, n, rows, columns, dataflow, tmp_path) for dataflow in ("os", "ws"))
    assert ran == SCALE_SIM[layer]


WS = Npu(dataflow="ws", vector_lanes=0)  # an array whose weights stay in it, and nothing else


@pytest.mark.parametrize(
    ("name", "paper_ms", "measured", "ws"),
    [("resnet50", 1.1, 0.82, 0.44), ("gnmt", 7.2, 0.93, 0.95), ("transformer", 2.4, 1.06, 1.17)],
)
def test_single_input_latency_beside_table_2s(name, paper_ms, measured, ws):
    """The paper does not say for which sentences. 19 steps in and out is our choice: the mean output of
    `lengths.TRANSLATION`, which is fitted to what the paper tells of its corpus (the mean input is 17)."""
    for npu, ratio in ((Npu(), measured), (WS, ws)):
        latency_ms = npu_times(model_graph(name), npu).whole(1, 19, 19) * 1e3
        assert latency_ms / paper_ms == pytest.approx(ratio, abs=0.01)


def test_recurrent_networks_run_at_the_speed_of_memory_as_the_papers_do():
    graph = model_graph("gnmt")
    weights = sum(op.groups * op.k * op.n for node in graph.nodes for op in node.operators if op.weights)
    for npu in (Npu(), WS):
        assert npu_times(graph, npu).whole(1, 19, 19) == pytest.approx(19 * weights / 360e9, rel=0.03)
    assert npu_times(graph, replace(WS, double_buffered_weights=False)).whole(1, 19, 19) > 10 * 7.2e-3
    assert npu_times(graph, Npu(vector_lanes=0)).whole(1, 19, 19) > 3 * 7.2e-3


def test_a_longest_sentence_alone_meets_the_target_that_fig_15_shows_nobody_late_at():
    for npu in (Npu(), WS):
        assert npu_times(model_graph("gnmt"), npu).whole(1, 80, 80) < 40e-3
        assert npu_times(model_graph("transformer"), npu).whole(1, 80, 80) < 60e-3
    # Which it would not if tiles were loaded a row a cycle.
    a_row_a_cycle = npu_times(model_graph("gnmt"), replace(WS, bandwidth_bytes_per_s=128 * 700e6))
    assert a_row_a_cycle.whole(1, 19, 19) == pytest.approx(27e-3, rel=0.02)
    assert a_row_a_cycle.whole(1, 80, 80) == pytest.approx(113e-3, rel=0.02)


def test_a_tile_loads_while_the_one_before_streams():
    # 4 folds on a 128 x 128 array: 50 rows hide a load of 32 cycles and not one of 60; the last fold loads nothing.
    assert weight_stationary_cycles(50, 256, 256, 128, 128, load_cycles=32) == 4 * 50 + 382 - 1
    assert weight_stationary_cycles(50, 256, 256, 128, 128, load_cycles=60) == 3 * 60 + 50 + 382 - 1
    assert weight_stationary_cycles(50, 256, 256, 128, 128) == 4 * (50 + 382) - 1


@given(m=st.integers(1, 300), k=st.integers(1, 128), n=st.integers(1, 128), load=st.floats(1, 128))
def test_one_fold_alone_takes_what_scale_sim_says(m, k, n, load):
    alone = weight_stationary_cycles(m, k, n, 128, 128, load_cycles=load)
    assert alone == weight_stationary_cycles(m, k, n, 128, 128)


def test_a_tile_is_loaded_at_the_memorys_rate_but_a_row_a_cycle_at_least():
    assert Npu().load_cycles == pytest.approx(128 * 128 / (360e9 / 700e6))
    assert Npu(bandwidth_bytes_per_s=1e9).load_cycles == 128


def cycles(operator, batch=1, length=1.0, npu=WS):
    graph = ModelGraph("net", (Node("n", operators=(operator,)),))
    return NpuLatency(graph, npu).latency(0, batch, length) * 700e6


def test_weights_are_read_once_for_the_sub_batch_and_small_tensors_never():
    dense = MatMul(1, 4096, 4096)
    read = 100 + 4096 * 4096 / 360e9 * 700e6
    fill_and_drain = 382 - Npu().load_cycles  # the first tile's load is part of the fill
    assert cycles(dense) == pytest.approx(read - 100 + fill_and_drain)
    assert cycles(dense, 31) == pytest.approx(cycles(dense) + 30)
    assert cycles(dense, 64) > 1.9 * cycles(dense)
    attention = MatMul(1, 64, 64, groups=8, weights=False)
    # Two heads stand side by side on the array, and all of it lies in the activation memory, from which four tiles are
    # loaded, the first before anything streams.
    assert cycles(attention) == pytest.approx(3 * Npu().load_cycles + 1 + 382 - 1)
    assert cycles(attention, 5) == pytest.approx(19 * Npu().load_cycles + 1 + 382 - 1)  # each request has its own


def test_activations_that_do_not_fit_their_memory_are_moved():
    wide = MatMul(9 << 20, 1, 1)  # 9 MiB in, 9 MiB out: moving takes longer than computing on 128 columns at once
    assert cycles(wide) == pytest.approx(max(100 + (18 * 2**20 + 1) / 360e9 * 700e6, (9 << 20) + 381))
    fits = MatMul(4 << 20, 1, 1)
    assert cycles(fits) == pytest.approx((4 << 20) + 381)


def test_depthwise_convolutions_stand_on_the_diagonal():
    """3 x 3 kernels of 32 channels: 14 fit 128 rows, so 3 folds of 12544 rows."""
    assert cycles(MatMul(112 * 112, 9, 1, groups=32)) == pytest.approx(3 * 12544 + 382 - 1)


def test_lengths_count_where_a_dimension_is_the_length():
    by_length = MatMul(LENGTH, 512, 512)
    assert cycles(by_length, length=2000) > 5 * cycles(by_length, length=20)
    assert cycles(MatMul(HALF_LENGTH, 512, 512), length=2000) == cycles(by_length, length=1000)
    assert cycles(MatMul(20, 512, 512), length=2000) == cycles(MatMul(20, 512, 512))


products = st.builds(
    MatMul,
    m=st.integers(1, 4096),
    k=st.integers(1, 5000),
    n=st.integers(1, 5000),
    groups=st.integers(1, 40),
    weights=st.booleans(),
)
batches = st.integers(1, 63)


def assert_batches_well(latency, batch, other):
    """Check that a larger batch takes longer, never longer than its parts, and never more time for each request."""
    assert latency(batch) <= latency(batch + 1) * (1 + 1e-9)
    assert latency(batch + other) <= (latency(batch) + latency(other)) * (1 + 1e-9)
    assert latency(batch + 1) / (batch + 1) <= latency(batch) / batch * (1 + 1e-9)


@given(operator=products, batch=batches, other=batches)
def test_an_operator_gains_from_a_batch_and_is_never_slower_than_its_parts(operator, batch, other):
    assert_batches_well(lambda size: cycles(operator, size), batch, other)


@given(name=st.sampled_from(MODELS), batch=batches, other=batches, length=st.integers(1, 80))
def test_a_network_gains_from_a_batch_and_is_never_slower_than_its_parts(name, batch, other, length):
    times = npu_times(model_graph(name), WS)
    assert_batches_well(lambda size: times.whole(size, length, length), batch, other)


@given(name=st.sampled_from(MODELS), batch=batches, other=batches, length=st.integers(1, 80))
@example(name="conformer", batch=1, other=7, length=17)
def test_no_dataflow_makes_a_batch_slower_than_its_parts(name, batch, other, length):
    """The exception is one cycle: SCALE-Sim counts from 0 and leaves it out of every product, large or small."""
    graph = model_graph(name)
    products = sum(op.groups for node in graph.nodes for op in node.operators)
    for npu in (Npu(), Npu(vector_lanes=0), replace(WS, double_buffered_weights=False)):
        whole, one, two = (npu_times(graph, npu).whole(size, length, length) for size in (batch + other, batch, other))
        assert max(one, two) <= whole * (1 + 1e-9)
        assert whole <= (one + two) * (1 + 1e-9) + length * products / npu.frequency_hz


npus = st.sampled_from([Npu(), WS])


@given(operator=products, batch=batches, m=st.integers(1, 100), k=st.integers(1, 100), n=st.integers(1, 100), npu=npus)
def test_a_larger_product_takes_no_less_time(operator, batch, m, k, n, npu):
    larger = replace(operator, m=operator.m + m, k=operator.k + k, n=operator.n + n)
    assert cycles(operator, batch, npu=npu) <= cycles(larger, batch, npu=npu) * (1 + 1e-9)


@given(operator=products, batch=batches, npu=npus)
def test_nothing_is_faster_than_the_array_or_the_memory(operator, batch, npu):
    taken = cycles(operator, batch, npu=npu)
    assert taken >= batch * operator.groups * operator.m * operator.k * operator.n / 128**2
    if operator.weights:
        assert taken >= 100 + operator.groups * operator.k * operator.n / 360e9 * 700e6


@given(m=st.integers(1, 500), k=st.integers(1, 2000), n=st.integers(1, 2000), number=st.integers(1, 9))
def test_double_buffering_only_saves_time(m, k, n, number):
    saves = weight_stationary_cycles(m, k, n, 128, 128, products=number, load_cycles=Npu().load_cycles)
    assert saves <= weight_stationary_cycles(m, k, n, 128, 128, products=number)


@given(
    m=st.integers(1, 300),
    k=st.integers(1, 2000),
    n=st.integers(1, 2000),
    number=st.integers(1, 9),
    dataflow=st.sampled_from(["os", "ws"]),
    lanes=st.sampled_from([256, 512]),
)
def test_a_product_runs_on_the_array_or_on_the_vector_unit_wherever_it_is_faster(m, k, n, number, dataflow, lanes):
    array = Npu(dataflow=dataflow, vector_lanes=0).compute_cycles(m, k, n, number)
    both = Npu(dataflow=dataflow, vector_lanes=lanes).compute_cycles(m, k, n, number)
    assert both == min(array, number * m * k * n / lanes)


@pytest.mark.parametrize(
    "settings",
    [
        {"rows": 0},
        {"frequency_hz": 0.0},
        {"bandwidth_bytes_per_s": float("nan")},
        {"dataflow": "is"},
        {"access_latency_cycles": -1},
        {"vector_lanes": -1},
    ],
)
def test_an_impossible_npu_is_refused(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        Npu(**settings)
