"""The preprocessing stage by names: times of libraries and of the DPU, and what is refused."""

import pytest

import headrace
from headrace.batching.errors import UsageError
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.front_end import FrontEnd

TENSOR_S = 100270488 / (2 * 24.8e9) + 10e-6  # of an image of 2048x2048, to an H100


def ready(stage, *tokens):
    (done,) = FrontEnd(stage).preprocessed([StepRequest(0, 0.0, 9999, 2, items=tokens)])
    return done.ready


@pytest.mark.parametrize("library, seconds, contention", [("torchvision", 0.16, 1.05), ("pillow", 0.253, 1.07)])
def test_a_core_takes_the_measured_time_of_its_library_and_pcie_follows(library, seconds, contention):
    """sim/system/processor_costs.csv has 160 and 253 ms for an image of 2048x2048, and hardware/cpu.py the factors by
    which cores slow each other down."""
    stage = headrace.preprocess_stage(f"cpu:8:{library}", processor="qwen2-vl", image_sizes="2048x2048")
    assert ready(stage, 5329) == pytest.approx(seconds * contention + TENSOR_S, rel=1e-6)


def test_images_have_the_size_with_as_many_tokens():
    stage = headrace.preprocess_stage("cpu:1:ours", processor="qwen2-vl", image_sizes="640x427,2048x2048")
    small, large = ready(stage, 345), ready(stage, 5329)
    assert small < large / 10
    assert ready(stage, 345, 5329) == pytest.approx(small + large, rel=0.01)  # one core, and PCIe beside it
    with pytest.raises(
        UsageError, match="request 0 has images of 7 tokens, and image_sizes 640x427,2048x2048 have 345"
    ):
        ready(stage, 7)


def test_a_dpu_takes_its_clocks_and_pcie_both_ways():
    """The cycle model has 7,223,864 clocks at 300 MHz, and the start of a run takes 75 us. The file has 2.46 MB."""
    stage = headrace.preprocess_stage("dpu:1", processor="qwen2-vl", image_sizes="2048x2048")
    moved = 2460658 / 11e9 + 100270488 / 12e9 + 2 * 10e-6 + TENSOR_S
    assert ready(stage, 5329) == pytest.approx(7223864 / 300e6 + 75e-6 + moved, rel=1e-6)


def test_sounds_have_their_seconds():
    """A core takes 8.23 ms for 30 s with transformers, by the table."""
    stage = headrace.preprocess_stage("cpu:1:transformers", processor="qwen2-audio", audio_s=30.0)
    assert ready(stage, 750) == pytest.approx(8.23e-3, rel=0.03)


@pytest.mark.parametrize(
    "words, message",
    [
        ({"processor": "qwen2-vl"}, "processor qwen2-vl takes images; give image_sizes"),
        ({"processor": "qwen2-audio", "image_sizes": "5x5"}, "processor qwen2-audio takes sounds; give audio_s"),
        ({"processor": "clip-vit-base-patch32", "image_sizes": "500x375"}, "the tokens of an image of processor clip"),
        ({"processor": "qwen2-vl", "image_sizes": "5y5"}, "'5y5' is no size of an image"),
        ({"processor": "qwen2-vl", "image_sizes": "500x375", "preprocess": "cpu:4:opencv"}, "no costs 'opencv'"),
        ({"processor": "qwen2-vl", "image_sizes": "500x375", "gpu": "b200"}, "b200"),
    ],
)
def test_wrong_names_are_refused(words, message):
    with pytest.raises(UsageError, match=message):
        headrace.preprocess_stage(**{"preprocess": "cpu:4", **words})
