"""The slice model's prediction of a whole GPU."""

import pytest

from headrace.host.validation.plan import FULL, LIMITS_S, NETWORKS, SMALL, WHOLE_S
from headrace.host.validation.prediction import model_of, predicted_s
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.gpu.slice import whole
from headrace.sim.zoo.traced import TRACED, traced


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("", "h100"),
    ],
)
def test_a_product_name_finds_the_model_of_that_gpu_or_none(product, name):
    found = model_of(product)
    assert (found and found.name) == name


def test_a_whole_gpu_has_all_multiprocessors_and_all_of_its_memory():
    # NVIDIA's data sheets: A100 40 GB has 108 multiprocessors and 1,555 GB/s; H100 SXM has 132 and 3,350 GB/s.
    a100, h100 = (whole(gpu_named(name)) for name in ("a100-40gb", "h100"))
    assert (a100.sms, a100.bandwidth_bytes_s, a100.l2_bytes) == (108, 1555e9, 40 * 2**20)
    assert (h100.sms, h100.bandwidth_bytes_s, h100.l2_bytes) == (132, 3350e9, 50 * 2**20)


def test_a_prediction_grows_with_the_batch_and_not_with_the_precision_and_ends_with_the_memory():
    gpu = gpu_named("h100")
    by_batch = [predicted_s(gpu, "resnet50", "fp32", batch) for batch in FULL.batches]
    assert by_batch == sorted(by_batch) and by_batch[0] < by_batch[-1]
    fp32, tf32, fp16 = (predicted_s(gpu, "bert_base", name, 128) for name in FULL.precisions)
    assert fp32 > tf32 > fp16
    assert predicted_s(gpu, "vgg16", "fp32", 1 << 20) is None


def test_every_network_has_a_trace_at_its_length_and_the_limits_leave_time():
    assert len(FULL.networks) == 8
    for name, (_, length) in NETWORKS.items():
        assert name in TRACED and length in traced(name).graphs
    assert {*SMALL.networks, *SMALL.split, *FULL.split, SMALL.served, FULL.served} <= set(NETWORKS)
    assert sum(LIMITS_S.values()) < WHOLE_S
