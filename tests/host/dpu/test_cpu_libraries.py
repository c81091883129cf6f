"""Every library makes the tensors that the project's CPU path makes, up to its own filters."""

import importlib
from importlib.util import find_spec

import numpy as np
import pytest
from sounds import int16, speechlike, wav

from headrace.batching import UsageError
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu import cpu_libraries
from headrace.host.dpu.cpu_libraries import LIBRARIES, library, our_audio, our_image
from headrace.sim.hardware.cpu import LIBRARY_COSTS

PHOTOS = [photo.jpeg for photo in demo_images()[:4]]
LEVEL = 1 / 255 / 0.225  # of one of 256 levels, after normalization


def test_the_simulator_knows_every_library_by_its_name():
    assert [costs.label for costs in LIBRARY_COSTS] == list(LIBRARIES)


@pytest.mark.parametrize(
    ("name", "levels"),
    # OpenCV's bilinear filter has coefficients of 11 bits. Pillow's also averages where an image becomes smaller.
    [("opencv", 0.2), ("pillow", 6), ("torchvision", 6)],
)
def test_images_are_those_of_the_cpu_path(name, levels):
    for photo in PHOTOS:
        tensor, expected = library(name).image(photo), our_image(photo)
        assert tensor.shape == (3, 224, 224) and tensor.dtype == np.float32
        assert np.abs(tensor - expected).mean() < levels * LEVEL
        assert np.corrcoef(tensor.ravel(), expected.ravel())[0, 1] > 0.99


def test_torchvision_resizes_a_pillow_image_as_pillow_does():
    for photo in PHOTOS:
        assert np.abs(library("torchvision").image(photo) - library("pillow").image(photo)).mean() < LEVEL / 2


@pytest.mark.parametrize("name", ["librosa", "librosa-kaiser_best"])
@pytest.mark.parametrize("rate", [16000, 22050])
def test_features_are_those_of_the_cpu_path(name, rate):
    recording = wav(int16(speechlike(2.5, rate)), rate)
    features, expected = library(name).audio(recording), our_audio(recording)
    assert features.shape == expected.shape and features.dtype == np.float32
    bands = slice(0, 70)  # the resamplers' filters differ above 7.2 kHz
    assert np.abs(features[bands] - expected[bands]).mean() < (1e-3 if rate == 16000 else 0.05)


def test_a_library_is_paired_with_one_for_the_other_kind_of_input():
    assert LIBRARIES["librosa"].image is LIBRARIES["opencv"].image
    assert LIBRARIES["opencv"].audio is LIBRARIES["ours"].audio


def test_an_unknown_library_and_a_missing_package_are_refused(monkeypatch):
    with pytest.raises(UsageError, match="no preprocessing by 'ffmpeg'; choose from ours, opencv, pillow"):
        library("ffmpeg")
    monkeypatch.setattr(cpu_libraries, "find_spec", lambda name: None if name == "resampy" else find_spec(name))
    with pytest.raises(UsageError, match=r"librosa-kaiser_best needs resampy: pip install 'headrace\[libraries\]'"):
        library("librosa-kaiser_best")
    assert library("librosa").packages == ("librosa",)


def test_a_torchvision_that_does_not_load_says_what_to_install(monkeypatch):
    load = importlib.import_module

    def broken(name):
        if name.startswith("torchvision"):
            raise RuntimeError("operator torchvision::nms does not exist")
        return load(name)

    cpu_libraries._torchvision.cache_clear()
    monkeypatch.setattr(cpu_libraries.importlib, "import_module", broken)
    with pytest.raises(UsageError, match=r"nms does not exist.*pip install 'headrace\[libraries\]'"):
        library("torchvision").image(PHOTOS[0])
