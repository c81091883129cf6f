"""Test preprocessing on the host's cores: costs, their file, the paper's costs, and the cores that are left."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

from headrace.batching import UsageError
from headrace.sim.hardware.cpu import (
    LIBRARY_COSTS,
    MEASURED,
    AudioCost,
    CpuCosts,
    ImageCost,
    cpu_preprocessor,
    utilization,
)
from headrace.sim.hardware.inputs import Audio, Images, KnownImage, KnownImages, usual
from headrace.sim.hardware.preba_cpu import (
    PAPER_IMPLIED,
    clip_core_s,
    clips_per_s,
    derivation,
    image_core_s,
    images_per_s,
)
from headrace.sim.preprocessing import Stations

COSTS = CpuCosts("made up", ImageCost(1e-4, 2e-9, 1e-8, 1.5), AudioCost(1e-3, 1e-2, 2.0), "a test")
COST = st.floats(0, 1e5, allow_subnormal=False)


def seconds(preprocessor, *sizes):
    """Return the seconds of each size, by step."""
    return {step.name: step.service_s(np.array(sizes, float)).tolist() for step in preprocessor.steps}


def test_a_photo_costs_by_pixels_and_bytes_and_a_sound_by_seconds():
    images = KnownImages((KnownImage(1000, 500, 9), KnownImage(2000, 100, 9)))
    by_image = seconds(cpu_preprocessor(images, 4, COSTS), 1, 0)["cpu"]
    assert by_image == pytest.approx([1.5 * (1e-4 + 4e-6 + 1e-6), 1.5 * (1e-4 + 2e-6 + 5e-6)])
    assert seconds(cpu_preprocessor(Audio(), 4, COSTS), 2.5)["cpu"] == pytest.approx([2 * (1e-3 + 2.5e-2)])


def test_cores_at_other_work_do_not_preprocess():
    steps = cpu_preprocessor(Audio(), 32, COSTS, taken=7).steps
    assert [step.servers for step in steps] == [25, 1]
    with pytest.raises(UsageError, match="leave at least 1"):
        cpu_preprocessor(Audio(), 7, COSTS, taken=7)


def test_one_core_is_busy_to_the_full_and_gives_one_request_a_service_time():
    """All requests come at once."""
    one = Stations(cpu_preprocessor(Audio(), 1, COSTS))
    numbers, ready = one.take(np.zeros(1000), np.full(1000, 2.5))
    more, last = one.end()
    numbers, ready = np.concatenate((numbers, more)), np.concatenate((ready, last))
    assert len(numbers) == 1000
    assert ready.max() == pytest.approx(1000 * 52e-3, rel=1e-3)


def test_the_ceiling_of_fig_9_needs_cores_that_are_kept_and_not_always_used():
    assert utilization(32, 32, 0) == 1.0
    assert utilization(32, 25, 7 * 0.54) == pytest.approx(0.90, abs=0.001)
    with pytest.raises(UsageError, match="the CPU has only"):
        utilization(32, 30, 3)


def test_the_rates_that_pcie_implies():
    assert images_per_s() == pytest.approx(8600, rel=0.01)
    assert clips_per_s() == pytest.approx(3000, rel=0.01)


def test_the_cores_of_citrinet_imply_some_130_ms_a_clip():
    assert clip_core_s() == pytest.approx(0.130, rel=0.02)
    clip = seconds(cpu_preprocessor(Audio(), 32, PAPER_IMPLIED), 2.5)["cpu"]
    assert clip == pytest.approx([clip_core_s()])


def test_32_cores_of_the_papers_lose_what_the_paper_says():
    assert 25 / image_core_s() == pytest.approx((1 - 0.756) * images_per_s())
    assert 32 / image_core_s(taken=0) == pytest.approx((1 - 0.756) * images_per_s())


def test_the_derivation_says_what_the_paper_prints_and_what_follows():
    rows = derivation()
    assert [row.value for row in rows if row.printed] == pytest.approx([6.13, 0.9, 393, 75.6])
    assert [row.unit for row in rows if not row.printed] == ["images/s", "clips/s", "ms", "ms"]
    assert all(row.how for row in rows)


def test_both_baselines_are_labelled_and_far_apart():
    typical = np.array([187_500.0])
    measured, paper = (costs.seconds(Images(), typical)[0] for costs in (MEASURED, PAPER_IMPLIED))
    assert (MEASURED.label, PAPER_IMPLIED.label) == ("measured", "paper-implied")
    assert paper > 5 * measured


@given(COST, COST, COST, COST, COST, st.floats(1, 1000), st.text().filter(str.strip))
def test_costs_are_read_back_as_they_were_written(image_s, pixel_s, byte_s, clip_s, second_s, contention, text):
    try:
        costs = CpuCosts(
            text, ImageCost(image_s, pixel_s, byte_s, contention), AudioCost(clip_s, second_s), text + "source"
        )
    except UsageError as error:
        assert "no time at all" in str(error)
        return
    assert CpuCosts.from_json(costs.to_json(machine={"cores": 2})) == costs


def test_cores_that_are_slower_take_longer_for_every_part():
    slower = MEASURED.scaled(3)
    for kind, sizes in (("image", [1e5, 1e6]), ("audio", [1.0, 30.0])):
        inputs = usual(kind)
        assert slower.seconds(inputs, np.array(sizes)) == pytest.approx(3 * MEASURED.seconds(inputs, np.array(sizes)))
    assert slower.label == MEASURED.label and MEASURED.scaled(1) == MEASURED


def test_kaiser_best_costs_many_times_what_soxr_does():
    clips = {costs.label: costs.seconds(Audio(), np.array([2.5]))[0] for costs in LIBRARY_COSTS}
    assert clips["librosa-kaiser_best"] > 5 * clips["librosa"] > 5 * clips["ours"] / 2


WRITTEN = json.loads(MEASURED.to_json())
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@examples(150, 300)
@given(st.sampled_from([*WRITTEN, "image.pixel_s", "image.contention", "audio.second_s", "image.more"]), JSON)
@example("image.pixel_s", 10**400)  # more than a float holds
def test_a_file_with_something_else_in_it_is_read_or_refused_in_one_line(place, value):
    body = json.loads(MEASURED.to_json())
    *inside, name = place.split(".")
    (body[inside[0]] if inside else body)[name] = value
    try:
        read = CpuCosts.from_json(json.dumps(body))
    except UsageError as error:
        assert "headrace profile --cpu-preprocessing" in str(error)
        return
    assert read.seconds(Images(), np.array([1e5]))[0] > 0 or place.startswith("image")


@given(st.text() | st.binary().map(lambda data: data.decode("latin1")))
def test_any_text_is_refused(text):
    with pytest.raises(UsageError, match="cpu-preprocessing"):
        CpuCosts.from_json(text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 1}, "measure it again"),
        ({"format": "other"}, "format is 'other'"),
        ({"image": {"image_s": -1}}, "image.image_s is -1"),
        ({"image": {"image_s": True}}, "True is no number"),
        ({"audio": {"clip_s": 0, "second_s": 0}}, "takes no time at all"),
        ({"audio": {"clip_s": 1, "second_s": 0, "contention": 0.5}}, "contention is 0.5"),
        ({"label": " "}, "need a label"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(change, says):
    with pytest.raises(UsageError, match=says):
        CpuCosts.from_json(json.dumps(WRITTEN | change))


def test_a_label_is_part_of_the_name():
    assert cpu_preprocessor(Images(), 32, replace(COSTS, label="mine")).name == "cpu:32:mine"


@pytest.mark.parametrize("cores", [0, -1, 5000])
def test_impossible_numbers_of_cores_are_refused(cores):
    with pytest.raises(UsageError, match="give 1 to"):
        cpu_preprocessor(Images(), cores, COSTS)
