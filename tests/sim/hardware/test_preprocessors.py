"""Test the names of preprocessors, and the GPU's own decoders among them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.hardware.cpu import LIBRARY_COSTS, MEASURED, AudioCost
from headrace.sim.hardware.gpu.mig import GPUS, gpu_named, partition
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, Images, Inputs, KnownImage, KnownImages, usual
from headrace.sim.hardware.nvjpg import kernels_s, nvjpg_preprocessor
from headrace.sim.preprocessing import Stations
from headrace.sim.system.preprocessors import COSTS, Host, parse, read_costs


def host(inputs: Inputs | str = "image", gpu="a100-40gb", instances="1g.5gb:7", **more) -> Host:
    found = gpu_named(gpu)
    return Host(usual(inputs) if isinstance(inputs, str) else inputs, found, partition(found, instances), **more)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("ideal", {}),
        ("cpu:32", {"cpu": 25, "host to gpu": 1}),
        ("cpu:32:paper-implied", {"cpu": 25, "host to gpu": 1}),
        ("cpu:32:librosa-kaiser_best", {"cpu": 25, "host to gpu": 1}),
        ("dpu:4", {"host to dpu": 1, "mel cu": 4, "norm cu": 4, "dpu to host": 1, "host to gpu": 1}),
        ("dpu:4,2:p2p", {"host to dpu": 1, "mel cu": 4, "norm cu": 2, "dpu to gpu": 1}),
    ],
)
def test_names_give_their_steps(text, steps):
    found = parse(text, host("audio", taken=7))
    assert {step.name: step.servers for step in found.steps} == steps
    assert found.name == ("cpu:32:measured" if text == "cpu:32" else text)


def test_costs_are_those_of_their_label():
    size = np.array([2.5])
    for costs in COSTS:
        found = parse(f"cpu:8:{costs.label}", host("audio"))
        alone_s = costs.audio.clip_s + 2.5 * costs.audio.second_s
        assert found.steps[0].service_s(size)[0] == pytest.approx(costs.audio.contention * alone_s)


def test_costs_of_a_file_are_the_default_and_replace_those_of_their_label(tmp_path):
    mine = replace(LIBRARY_COSTS[0], audio=AudioCost(1.0, 0.0))
    own = host("audio", costs=(mine, *COSTS))
    for text in ("cpu:8", f"cpu:8:{mine.label}"):
        assert parse(text, own).steps[0].service_s(np.array([2.5]))[0] == 1.0
    assert parse("cpu:8:librosa", own).steps[0].service_s(np.array([2.5]))[0] < 1.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu", "give one such as ideal, cpu:32"),
        ("", "give one such as"),
        ("cpu", "give a number of cores"),
        ("cpu:x", "'x' is no number of cores"),
        ("cpu:32:mine", "choose from measured, paper-implied, ours, opencv, pillow, torchvision, librosa"),
        ("cpu:7", "leave at least 1"),
        ("dpu", "give a number of CUs"),
        ("dpu:0", "'0' is no number of CUs"),
        ("dpu:1,2,3", "give one number or two"),
        ("dpu:4:fast", "queue and p2p"),
        ("dpu:4:p2p:p2p", "each at most once"),
        ("ideal:1", "takes no settings"),
        ("nvjpg:7", "takes no settings"),
        ("nvjpg", "no audio"),
    ],
)
def test_names_that_mean_nothing_say_what_to_give(text, says):
    with pytest.raises(UsageError, match=f"preprocessing '{text}': .*{says}"):
        parse(text, host("audio", taken=7))


@pytest.mark.parametrize(
    ("text", "kind", "size", "rps"),
    [
        # 25 cores at 11.90 ms a photo; six units at 75 us and 157,000 clocks of 300 MHz; CU A at 75 us and 41,583.
        ("cpu:32:paper-implied", "image", TYPICAL_PIXELS, 25 / 11.90e-3),
        ("dpu:6", "image", TYPICAL_PIXELS, 6 / (75e-6 + 129_500 / 300e6)),
        ("dpu:1", "audio", 2.5, 1 / (75e-6 + 41_583 / 300e6)),
    ],
)
def test_saturated_it_gives_what_its_slowest_step_can(text, kind, size, rps):
    stations = Stations(parse(text, host(kind, taken=7)))
    count = 20_000
    early, _ = stations.take(np.zeros(count), np.full(count, float(size)))
    late, last = stations.end()
    assert sorted(np.concatenate((early, late))) == list(range(count))
    assert count / last.max() == pytest.approx(rps, rel=0.01)
    steps = parse(text, host(kind, taken=7)).steps
    shares = [stations.busy_s[step.name] / step.servers / last.max() for step in steps]
    assert max(shares) <= 1 and max(shares) == pytest.approx(1, abs=0.01)


@given(st.text(alphabet="cpudnvjgideal:,0123456789-queuep2", max_size=20))
def test_any_name_is_taken_or_refused_in_one_line(text):
    try:
        found = parse(text, host())
    except UsageError as error:
        assert "\n" not in str(error)
        return
    assert all(step.servers >= 1 for step in found.steps)


def test_measured_costs_are_read_from_their_file(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(MEASURED.to_json())
    assert read_costs(path) == MEASURED
    path.write_bytes(b"\xff")
    for wrong in (path, tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match=str(wrong)):
            read_costs(wrong)


def test_an_a100_cut_into_seven_has_no_engine_for_any_of_them():
    with pytest.raises(UsageError, match=r"instances of 1g\.5gb of a100-40gb have no JPEG engine"):
        parse("nvjpg", host())
    with pytest.raises(UsageError, match=r"choose among 1g\.5gb\+me, 7g\.40gb only"):
        parse("nvjpg", host(instances="1g.5gb+me:1,1g.5gb:6"))


@pytest.mark.parametrize(
    ("gpu", "instances", "engines"),
    [("a100-40gb", "7g.40gb", 1), ("h100", "1g.10gb:7", 7), ("h200", "7g.141gb", 7), ("h100", "3g.40gb:2", 6)],
)
def test_engines_are_those_of_the_instances(gpu, instances, engines):
    found = parse("nvjpg", host("image", gpu, instances))
    assert [step.name for step in found.steps] == ["host to gpu", "nvjpg", "resize"]
    assert found.steps[1].servers == engines
    assert found.steps[1].service_s(np.array([TYPICAL_PIXELS, 2.0 * TYPICAL_PIXELS])) == pytest.approx([2e-4, 4e-4])
    assert found.steps[2].servers == len(partition(gpu_named(gpu), instances))


def test_resizing_is_as_fast_as_on_the_slowest_slice():
    size = np.array([TYPICAL_PIXELS], float)
    slow, mixed = (
        parse("nvjpg", host("image", "h100", instances)).steps[2].service_s(size)
        for instances in ("1g.10gb:7", "4g.40gb,1g.10gb")
    )
    assert slow == mixed > kernels_s(size, GPUS["h100"].bandwidth_of(GPUS["h100"].profiles["4g.40gb"]))


def test_images_that_are_at_hand_go_by_their_number_everywhere():
    images = KnownImages((KnownImage(100, 100, 10_000), KnownImage(400_000, 200_000, 300_000)))
    for text, gpu, instances in (
        ("cpu:8", "a100-40gb", "1g.5gb:7"),
        ("dpu:1", "a100-40gb", "1g.5gb:7"),
        ("nvjpg", "h100", "1g.10gb:7"),
    ):
        for step in parse(text, host(images, gpu, instances)).steps:
            small, large = step.service_s(np.array([0.0, 1.0]))
            if step.name in ("cpu", "host to dpu", "image cu", "nvjpg", "resize"):
                assert large > 1.2 * small, (text, step.name)


def test_resizing_takes_launches_and_bytes():
    (taken,) = kernels_s(np.array([TYPICAL_PIXELS], float), GPUS["h100"].bandwidth_bytes_s / 8)
    assert 30e-6 < taken < 40e-6


@pytest.mark.parametrize(
    ("settings", "says"), [({"engine_images_s": 0.0}, "0 images/s an engine"), ({"instances": ()}, "give one or more")]
)
def test_impossible_decoders_are_refused(settings, says):
    found = gpu_named("h100")
    with pytest.raises(UsageError, match=says):
        nvjpg_preprocessor(Images(), **{"gpu": found, "instances": partition(found, "1g.10gb:7")} | settings)
