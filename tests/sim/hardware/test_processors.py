"""Image processors in the simulator: the cycle model by itself, what becomes of settings, and times of a core.

tests/hls/test_processor_cycles.py compares the cycle model with the RTL."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from headrace.batching import UsageError
from headrace.host.dpu.hugging_face.names import processor
from headrace.host.dpu.processor_work import image_work, scaler_passes
from headrace.host.dpu.processors import Size
from headrace.sim.hardware.dpu.processor import DecodeEstimate, Patches, Planes, Workspace, processor_cycles
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, KnownImage, KnownImages
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario, scenario_of
from headrace.sim.system.processors import core_seconds, inputs_of, measured_processors
from headrace.sim.workload.images import parse_sizes

NAMES = ("clip-vit-base-patch32", "siglip2-base-patch16-naflex", "qwen2-vl", "pixtral-12b")
SERVER = {
    "model": "clip_vit_b_32",
    "accelerator": "a100-40gb",
    "partition": "1g.5gb:7",
    "preprocess": "dpu:8:queue",
    "policy": "graph",
    "rate_rps": 20.0,
    "requests": 400,
}


def clocks(name: str, width: int, height: int, decode: float | None = None, **change) -> int:
    passes = scaler_passes(processor(name), Size(width, height))
    estimate = DecodeEstimate(width, height, width * height / 2 if decode is None else decode)
    return processor_cycles(estimate, [replace(each, **change) for each in passes])


@pytest.mark.parametrize("name", NAMES)
@examples(20, 100)
@given(st.integers(60, 900), st.integers(60, 900), st.integers(1, 300), st.integers(1, 300))
def test_larger_images_take_no_fewer_clocks(name, width, height, more_width, more_height):
    """Sizes of tensors go in steps of a patch, and their aspect changes with them, which a tenth allows for."""
    one, other = clocks(name, width, height), clocks(name, width + more_width, height + more_height)
    assert other > 0.9 * one


@pytest.mark.parametrize("name", NAMES)
def test_the_slowest_station_gives_the_clocks(name):
    decode = 4e6
    limited = clocks(name, 600, 400, decode)
    assert decode < limited < 1.1 * decode
    assert clocks(name, 600, 400) < limited / 4
    assert clocks(name, 600, 400, wide=False) > clocks(name, 600, 400)


def test_planes_take_a_clock_for_two_pixels_and_patches_of_14_pixels_one_for_14_bytes():
    """A row of 14 pixels has two words of eight. Four reads of four values give its 14 values."""
    width = height = 1008
    words = 3 * width * height * 4 / 16
    assert clocks("qwen2-vl", width, height, layout=Planes(4)) == pytest.approx(width * height / 2, rel=0.03)
    in_patches = clocks("qwen2-vl", width, height, layout=Patches(14, 4))
    assert in_patches == pytest.approx(words * 16 / 14, rel=0.05)
    doubled = clocks("qwen2-vl", width, height, layout=Patches(14, 4, frames=2))
    assert doubled == pytest.approx(2 * in_patches, rel=0.05)
    assert Patches(16, 4).row_reads() == 4 and Patches(16, 1).row_reads() == 2
    assert Patches(14, 4, channels_last=True).row_reads() == 11  # 24 and 18 values


def test_several_passes_follow_each_other():
    (first,) = scaler_passes(processor("clip-vit-base-patch32"), Size(800, 600))
    estimate = DecodeEstimate(800, 600, 240_000)
    to_workspace, again = replace(first, layout=Workspace()), replace(first, source=(800, 600))
    both = processor_cycles(estimate, [to_workspace, again])
    alone = processor_cycles(estimate, [to_workspace]), processor_cycles(DecodeEstimate(800, 600, 1.0), [again])
    assert both == pytest.approx(sum(alone), rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_the_tensor_is_that_of_the_processor(name):
    work = image_work(processor(name), 500, 375)
    expected = {
        "clip-vit-base-patch32": 3 * 224 * 224 * 4,
        "siglip2-base-patch16-naflex": 256 * 768 * 4,
        "qwen2-vl": 36 * 26 * 1176 * 4,
        "pixtral-12b": 3 * 512 * 384 * 4,
    }[name]
    assert expected <= work.tensor_bytes < expected + 4096  # with the small ones beside it


def test_a_larger_image_of_qwen_has_more_patches_and_takes_longer_on_every_way():
    sizes = parse_sizes("500x375,1000x750,2000x1500")
    images = inputs_of("qwen2-vl", "image", sizes, "dpu:4").images
    assert [image.pixels for image in images] == [187_500, 750_000, 3_000_000]
    for name in ("file_bytes", "tensor_bytes", "clocks"):
        values = [getattr(image, name) for image in images]
        assert values[0] * 3 < values[1] and values[1] * 3 < values[2]


def test_service_times_and_shares_of_a_run_follow_the_sizes():
    few, many = (
        run_scenario(Scenario.of(**SERVER, processor="qwen2-vl", image_sizes=f"200x200,2000x1500:{weight}"))[0].result
        for weight in (0.1, 10)
    )
    assert many["preprocess_ms"]["mean"] > 3 * few["preprocess_ms"]["mean"]
    assert many["preprocess_utilization"]["dpu to host"] > 3 * few["preprocess_utilization"]["dpu to host"]
    small, large = inputs_of("qwen2-vl", "image", parse_sizes("200x200,2000x1500"), "dpu:8").images
    # Of ten shares in eleven the mean is near the large image's own time.
    assert many["preprocess_ms"]["p50"] > 1e3 * large.clocks / 300e6
    assert few["preprocess_ms"]["p50"] < 1e3 * large.clocks / 300e6 > 10e3 * small.clocks / 300e6


def test_a_seed_reproduces_a_run():
    given = {**SERVER, "processor": "pixtral-12b", "image_sizes": "300x200,900x600:2,1600x1200"}
    one, same, other = (
        run_scenario(Scenario.of(**given, seed=seed))[0].result["preprocess_ms"]["mean"] for seed in (1, 1, 2)
    )
    assert one == same != other


def test_sizes_count_without_a_processor_too():
    given = {**SERVER, "preprocess": "cpu:32"}
    one, same, larger = (
        run_scenario(Scenario.of(**given, **sizes))[0].result["preprocess_ms"]["mean"]
        for sizes in ({"image_pixels": 1_000_000}, {"image_sizes": "1000x1000"}, {"image_sizes": "1000x1000,2000x2000"})
    )
    assert one == same and larger > 1.5 * one


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"processor": "qwen9"}, "there is no processor 'qwen9'; did you mean"),
        (
            {"processor": "idefics3-8b", "image_sizes": "8000x6000"},
            "--processor idefics3-8b: the image CU does not take 8000x6000: .* 8002 entries",
        ),
        ({"processor": "qwen2-vl", "preprocess": "nvjpg"}, "nvjpg only decodes; give --preprocess dpu or cpu"),
        ({"processor": "gemma-3", "preprocess": "cpu:32"}, "time of a core is not measured for it, only for clip"),
        ({"processor": "qwen2-vl", "preprocess": "cpu:32:opencv"}, "no costs 'opencv'; choose from measured, pillow"),
        ({"processor": "qwen2-vl", "cpu_costs": "x", "preprocess": "cpu:32"}, "has no costs of processors"),
        ({"processor": "qwen2-vl", "image_pixels": 1000}, "--image-pixels does not tell; give --image-sizes"),
        (
            {"processor": "qwen2-vl", "model": "citrinet"},
            "--processor qwen2-vl is for images, and --model takes audio; name",
        ),
        ({"processor": "whisper-tiny"}, "whisper-tiny is for audio, and --model takes images; name"),
        ({"image_sizes": "1x1", "images": "x"}, "--images and --image-sizes both tell sizes"),
        ({"image_sizes": "1y1"}, "--image-sizes: '1y1' is no size"),
        ({"processor": "qwen2-vl", "image_sizes": "4000x10"}, "4000x10 is too long for this processor"),
    ],
)
def test_what_cannot_be_simulated_is_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        run_scenario(Scenario.of(**{**SERVER, **settings}))


def test_a_processor_that_nothing_uses_has_no_effect():
    given = {"accelerator": "a100-40gb", "processor": "qwen2-vl", "image_sizes": "5x5"}
    notes = scenario_of(given)[1]
    assert [note.split()[0] for note in notes] == ["--processor", "--image-sizes"]
    assert scenario_of({**SERVER, **given})[1] == []


@pytest.mark.parametrize("name", NAMES)
def test_times_of_a_core_lie_on_lines_through_the_measured_ones(name):
    assert name in measured_processors("image")
    times = core_seconds(name)
    assert {"ours", "measured", "torchvision", "pillow"} == set(times)
    for of in times.values():
        small, double, large, larger = of(np.array([1000.0, 2000, 2048**2, 2 * 2048**2]))
        assert double == pytest.approx(2 * small)
        assert 0 < small < large < larger
    assert core_seconds("of nobody") == {}


def test_cores_take_the_measured_times():
    images = inputs_of("qwen2-vl", "image", parse_sizes("500x375,2048x2048"), "cpu:32").images
    given = {**SERVER, "processor": "qwen2-vl", "preprocess": "cpu:32:torchvision", "rate_rps": 1.0, "requests": 20}
    found = run_scenario(Scenario.of(**given, image_sizes="2048x2048"))[0].result["preprocess_ms"]["p50"]
    assert found > 1e3 * images[1].core_s["torchvision"]
    assert images[0].core_s["torchvision"] < images[1].core_s["torchvision"] / 5


def test_costs_of_some_images_are_none_of_all():
    """The costs by pixels and bytes count if the time of one image is not known."""
    known = KnownImage(TYPICAL_PIXELS, 1000, 1, core_s={"ours": 1.0})
    assert KnownImages((known, replace(known, core_s=None))).labels == ()
    both = KnownImages((known, known))
    assert both.labels == ("ours",) and both.core_seconds(np.array([1.0, 0.0]), "ours").tolist() == [1.0, 1.0]
