"""Test the DPU as a server: the time of a request in each step. tests/host/dpu/test_dpu_model.py compares its clocks
with hw_emu.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.hardware.dpu.audio import mel_cu_cycles, norm_cycles
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, Audio, Images, KnownImage, KnownImages, usual
from headrace.sim.hardware.pcie import A100_LINK, FPGA_LINK, Link, gpu_link, peer_to_peer, to_device
from headrace.sim.system.dpu_server import dpu_preprocessor

IMAGES = KnownImages((KnownImage(187_500, 50_000, 100_000), KnownImage(60_000, 20_000, 33_000)))


def seconds(preprocessor, *sizes):
    """By step, of each size."""
    return {step.name: step.service_s(np.array(sizes, float)).tolist() for step in preprocessor.steps}


def test_a_link_gives_what_xrt_measures_of_short_and_of_long_transfers():
    """Xilinx/XRT issue 6787: 2.3 to 3.2 GB/s at 40,960 bytes, 11 to 12 GB/s in large buffers."""
    for step, large in (("to", 11e9), ("from", 12e9)):
        rate = FPGA_LINK.to_device if step == "to" else FPGA_LINK.from_device
        assert rate == large
        assert 2.3e9 < 40_960 / (FPGA_LINK.latency_s + 40_960 / rate) < 3.2e9
    (long,) = to_device("a", FPGA_LINK, lambda sizes: sizes).service_s(np.array([256e6]))
    assert 256e6 / long == pytest.approx(11e9, rel=0.01)


def test_hoppers_link_is_twice_as_fast_as_an_a100s():
    assert gpu_link("a100-80gb") == A100_LINK
    assert gpu_link("h200").to_device == gpu_link("h100").to_device == 2 * A100_LINK.to_device


def test_peer_to_peer_is_one_transfer_as_fast_as_the_slower_link():
    assert peer_to_peer(Link(1e-5, 1e9, 2e9), Link(2e-5, 3e9, 4e9)) == Link(2e-5, 2e9, 2e9)


def test_an_image_passes_pcie_its_unit_and_pcie_twice():
    steps = seconds(dpu_preprocessor(IMAGES, 4), 0, 1)
    assert list(steps) == ["host to dpu", "image cu", "dpu to host", "host to gpu"]
    assert steps["host to dpu"] == pytest.approx([10e-6 + 50_000 / 11e9, 10e-6 + 20_000 / 11e9])
    assert steps["image cu"] == pytest.approx([75e-6 + 100_000 / 300e6, 75e-6 + 33_000 / 300e6])
    assert steps["dpu to host"] == pytest.approx([10e-6 + 602_112 / 12e9] * 2)
    assert steps["host to gpu"] == pytest.approx([10e-6 + 602_112 / 24.8e9] * 2)


def test_a_sound_has_a_unit_for_mel_and_one_for_normalize_with_a_start_each():
    preprocessor = dpu_preprocessor(
        Audio(), 4, 2, clock_hz=200e6, start="queue", to_gpu="p2p", gpu_link=gpu_link("h100")
    )
    assert preprocessor.name == "dpu:4,2:queue:p2p"
    assert [step.servers for step in preprocessor.steps] == [1, 4, 2, 1]
    steps = seconds(preprocessor, 2.5)
    assert steps["host to dpu"] == pytest.approx([10e-6 + (44 + 80_000) / 11e9])
    assert steps["mel cu"] == pytest.approx([5e-6 + mel_cu_cycles(40_000) / 200e6])
    assert steps["norm cu"] == pytest.approx([5e-6 + norm_cycles(251, 80) / 200e6])
    assert steps["dpu to gpu"] == pytest.approx([10e-6 + 80 * 1008 / 12e9])


def test_as_many_units_for_normalize_as_for_mel_if_nothing_is_said():
    preprocessor = dpu_preprocessor(Audio(), 3)
    assert preprocessor.name == "dpu:3" and [step.servers for step in preprocessor.steps] == [1, 3, 3, 1, 1]


def test_a_typical_photo_has_the_bytes_of_imagenets_and_the_clocks_of_its_symbols():
    inputs = Images()
    typical = np.array([TYPICAL_PIXELS], float)
    assert inputs.file_bytes(typical) == pytest.approx([110_000])
    assert inputs.clocks["image cu"](typical) == pytest.approx([1.15 * 110_000 + 3000])


@given(st.lists(st.integers(1, 560_000), min_size=1, max_size=20))
def test_clocks_of_sounds_are_those_of_the_cycle_models(samples):
    sizes, inputs = np.array(samples) / 16000, Audio()
    assert inputs.clocks["mel cu"](sizes).tolist() == [mel_cu_cycles(each) for each in samples]
    assert inputs.clocks["norm cu"](sizes).tolist() == [norm_cycles(each // 160 + 1, 80) for each in samples]


@given(st.lists(st.floats(0.02, 35.0), min_size=1, max_size=20))
def test_longer_sounds_never_take_less(lengths):
    sizes = np.sort(np.array(lengths))
    inputs = Audio()
    for values in (inputs.file_bytes(sizes), inputs.tensor_bytes(sizes)):
        assert (np.diff(values) >= 0).all()
    for step in dpu_preprocessor(Audio(), 1).steps:
        if step.name != "norm cu":  # whose last tile may be a short one
            assert (np.diff(step.service_s(sizes)) >= 0).all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((Images(), 4, 2), "one number of CUs"),
        ((Images(), 0), "give 1 to 64"),
        ((Audio(), 4, 65), "give 1 to 64"),
    ],
)
def test_impossible_dpus_are_refused(arguments, says):
    with pytest.raises(UsageError, match=says):
        dpu_preprocessor(*arguments)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"clock_hz": 1.0}, "a clock of 1 Hz"),
        ({"start": "later"}, "choose from kernel, queue"),
        ({"to_gpu": "mail"}, "choose host or p2p"),
    ],
)
def test_impossible_settings_are_refused(settings, says):
    with pytest.raises(UsageError, match=says):
        dpu_preprocessor(Audio(), 1, **settings)


def test_sizes_that_mean_nothing_are_refused():
    for inputs, sizes, says in (
        (IMAGES, [2.0], "numbers of images, 0 to 1"),
        (IMAGES, [0.5], "numbers of images"),
        (Images(), [0.0], "pixels, each above 0"),
        (Audio(), [float("nan")], "seconds of audio, each above 0"),
    ):
        with pytest.raises(UsageError, match=says):
            inputs.file_bytes(np.array(sizes))
    with pytest.raises(UsageError, match="no preprocessing of 'video'"):
        usual("video")
    with pytest.raises(UsageError, match="each must be at least 1"):
        KnownImage(0, 1, 1)
