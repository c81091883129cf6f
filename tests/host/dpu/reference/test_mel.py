"""Mel filter banks are equal to librosa's bit for bit, because the hardware's tables depend on every bit."""

import librosa
import numpy as np
import pytest

from headrace.host.dpu.reference.audio import filterbank
from headrace.host.dpu.reference.mel import mel_filters
from headrace.host.dpu.specs import RATES, AudioSpec


def assert_librosas(rate, n_fft, n_mels, min_hz=0.0, max_hz=None):
    found = mel_filters(rate, n_fft, n_mels, min_hz, max_hz)
    expected = librosa.filters.mel(sr=rate, n_fft=n_fft, n_mels=n_mels, fmin=min_hz, fmax=max_hz)
    assert found.shape == (n_mels, n_fft // 2 + 1) == expected.shape
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    return found


@pytest.mark.filterwarnings("ignore:Empty filters detected")  # librosa's advice, of narrow filters between two bins
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("n_fft", (256, 400, 512, 1024, 4096))
@pytest.mark.parametrize("n_mels", (1, 40, 64, 80, 128))
def test_filters_are_librosas_to_the_bit(rate, n_fft, n_mels):
    assert assert_librosas(rate, n_fft, n_mels).any()


@pytest.mark.filterwarnings("ignore:Empty filters detected")
@pytest.mark.parametrize(
    "min_hz, max_hz", [(0, 8000), (0, 999), (20, 7600), (125, 3800), (1000, 8000), (1000.5, 5000), (0, 7999.9)]
)
@pytest.mark.parametrize("rate, n_fft, n_mels", [(16000, 512, 80), (16000, 400, 128), (22050, 2048, 128)])
def test_filters_between_other_ends_are_librosas_to_the_bit(rate, n_fft, n_mels, min_hz, max_hz):
    assert_librosas(rate, n_fft, n_mels, min_hz, max_hz)


@pytest.mark.parametrize("rate", (4000, 11025, 16000, 48000, 44100))
def test_a_filter_has_the_area_one(rate):
    filters = mel_filters(rate, 4096, 32)
    np.testing.assert_allclose(filters.sum(axis=1) * rate / 4096, 1, rtol=0.01)


def test_a_spec_has_these_filters_and_nobody_can_change_them():
    filters = filterbank(AudioSpec(n_mels=64))
    np.testing.assert_array_equal(filters, mel_filters(16000, 512, 64))
    with pytest.raises(ValueError, match="read-only"):
        filters[0, 0] = 1
