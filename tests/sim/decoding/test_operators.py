"""The measured operators of decoders: values of the tables, lines between and beyond them, and what is refused."""

import numpy as np
import pytest

from headrace.batching.errors import UsageError
from headrace.sim.decoding.architecture import named
from headrace.sim.decoding.operators import FORMATS, MEMORY, Curve, NoMeasurement, Operators, Surface, total
from headrace.sim.hardware.gpu.tables import BACKENDS, DECODER_FOLDERS


@pytest.fixture(scope="module")
def h100():
    return Operators("h100", "trtllm")


def at(curve, *sizes):
    return 1e6 * curve.at(np.array(sizes, dtype=float))  # microseconds


# Rows of NVIDIA's files, read with another program.


def test_a_product_of_the_table_has_its_measured_latency(h100):
    assert at(h100.products("bf16", 4096, 4096), 1, 512, 4096) == pytest.approx([16.6, 25.2, 174.3], abs=0.05)
    assert at(h100.products("fp8_block", 4096, 4096), 1, 4096) == pytest.approx([11.7, 146.2], abs=0.05)


def test_static_scales_take_off_the_time_to_find_them(h100):
    found, given = (at(h100.products(name, 4096, 4096), 9, 32, 1280) for name in ("fp8", "fp8_static"))
    assert found - given == pytest.approx([7.5, 8.0, 10.7], abs=0.05)


@pytest.mark.quick(4)
@pytest.mark.parametrize("gpu", DECODER_FOLDERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_product_takes_less_than_to_read_its_weights_at_the_full_bandwidth(gpu, backend):
    operators = Operators(gpu, backend)
    for name in ("bf16",) if gpu == "a100-80gb" else ("bf16", "fp8_static"):
        read_s = (2 if name == "bf16" else 1) * 8192 * 8192 / MEMORY[gpu].bandwidth
        assert operators.products(name, 8192, 8192).seconds.min() >= 0.95 * read_s


def test_a_wide_product_counts_as_parts_of_equal_width(h100):
    whole, half = (h100.products("bf16", n, 4096) for n in (128256, 64128))
    assert whole.seconds == pytest.approx(2 * half.seconds)


def test_sums_are_measured_by_elements(h100):
    assert at(h100.all_reduce(8), 128, 65536) == pytest.approx([3.23, 6.204], abs=0.005)
    assert at(Operators("h100", "sglang").all_reduce(8), 65536) == pytest.approx([6.403], abs=0.005)  # in a graph


def test_attention_of_the_table_has_its_measured_latency(h100):
    generation = h100.generation(32, 8, 128, "bf16")
    assert generation.lengths[:3] == (2, 4, 8)  # the keys with that of the query
    place = generation.lengths.index(1024)
    assert 1e6 * np.array(generation.row(64)[place]) == pytest.approx(108, abs=0.6)
    context = h100.context(32, 8, 128, "bf16")
    assert 1e6 * np.array(context.row(4)[context.lengths.index(2048)]) == pytest.approx(421, abs=0.6)


def test_experts_that_as_many_gpus_share_otherwise_stand_in(h100):
    model = named("gpt-oss-120b")
    # The table has these experts whole on a GPU, in 1 to 128 groups.
    own, other = (Operators("h200", "trtllm").experts("mxfp4", 2880, model.experts, *ways) for ways in ((1, 4), (4, 1)))
    assert (own.seconds == other.seconds).all()
    with pytest.raises(NoMeasurement, match="128 experts of 2880 x 2880 in fp8"):
        h100.experts("fp8", 2880, model.experts, 1, 1)


# Curves and surfaces


def test_a_curve_is_linear_inside_and_in_proportion_beyond():
    curve = Curve(np.array([2.0, 4.0]), np.array([1.0, 3.0]))
    assert curve.at(np.array([1.0, 2.0, 3.0, 4.0, 8.0])) == pytest.approx([1, 1, 2, 3, 6])
    other = Curve(np.array([3.0]), np.array([10.0]))
    assert total(((2.0, curve), (1.0, other))).at(np.array([2.0, 3.0, 4.0])) == pytest.approx([12, 14, 6 + 40 / 3])


def test_a_surface_is_linear_in_requests_and_in_proportion_beyond():
    surface = Surface((1.0, 3.0), (10.0, 20.0), np.array([[1.0, 2.0], [3.0, 6.0]]))
    assert surface.row(1) == [1, 2]
    assert surface.row(2) == [2, 4]
    assert surface.row(6) == [6, 12]


def test_what_was_too_large_to_measure_takes_in_proportion_to_the_requests(h100):
    surface = h100.generation(32, 8, 128, "bf16")
    place = surface.lengths.index(16384)
    assert surface.row(64)[place] == pytest.approx(surface.row(32)[place] * 2)


@pytest.mark.quick(2)
@pytest.mark.parametrize("gpu", DECODER_FOLDERS)
def test_each_gpu_has_attention_and_sums_for_four_gpus(gpu):
    for backend in BACKENDS:
        operators = Operators(gpu, backend)
        assert operators.generation(8, 2, 128, "bf16").seconds.min() > 0
        assert operators.context(8, 2, 128, "bf16").seconds.min() > 0
        assert operators.all_reduce(4).seconds.min() > 0


# Refusals


@pytest.mark.parametrize(
    ("gpu", "backend", "version", "message"),
    [
        ("h300", "trtllm", None, "no measured operators of the GPU 'h300'; choose from a100-80gb, h100"),
        ("h100", "tgi", None, "no measured operators of 'tgi'; choose from trtllm, sglang, vllm"),
        ("h100", "trtllm", "0.1", "no kernels of trtllm 0.1 on h100; leave the version out"),
    ],
)
def test_unknown_gpus_servers_and_versions_are_refused(gpu, backend, version, message):
    with pytest.raises(UsageError, match=message):
        Operators(gpu, backend, version)


def test_a_version_that_the_package_has_may_be_chosen():
    old, new = (Operators("h100", "sglang", version) for version in ("0.5.6.post2", None))
    assert not np.array_equal(old.products("bf16", 4096, 4096).seconds, new.products("bf16", 4096, 4096).seconds)


def test_what_was_not_measured_is_refused(h100):
    with pytest.raises(NoMeasurement, match=f"no products in mxfp4; choose from {', '.join(FORMATS)}"):
        h100.products("mxfp4", 4096, 4096)
    with pytest.raises(NoMeasurement, match="a product of 16 x 4096 is outside the tables"):
        h100.products("bf16", 4096, 16)
    with pytest.raises(UsageError, match="no products of trtllm in nvfp4 on h100"):
        h100.products("nvfp4", 4096, 4096)
    with pytest.raises(NoMeasurement, match="sums over 3 GPUs were not measured"):
        h100.all_reduce(3)
    with pytest.raises(NoMeasurement, match="generation attention of 7 and 7 heads of 128"):
        h100.generation(7, 7, 128, "bf16")
    with pytest.raises(NoMeasurement, match="no KV cache in 'fp4'"):
        h100.context(8, 8, 128, "fp4")
