"""The tables of the audio CUs equal the definition, within the rounding of their number formats."""

import math

import numpy as np
import pytest
import scipy  # its parts are large, and load when they are used
from sounds import int16, speechlike

from headrace.batching import UsageError
from headrace.host.dpu.reference import resampling
from headrace.host.dpu.reference.resampling import PASS_RIPPLE_DB, STOP_DB, TAP_ONE
from headrace.host.dpu.specs import RATES, AudioSpec
from headrace.host.dpu.units.audio_tables import LANES, TAP_WORDS, passes, taps_table

SPEC = AudioSpec()
OTHERS = [rate for rate in RATES if rate != 16000]


def ratio(rate):
    return math.lcm(rate, 16000) // rate, math.lcm(rate, 16000) // 16000


def in_order(rate):
    """Return the quantised taps with zeros at both ends, as numbers, and the place of the middle one."""
    table = taps_table(SPEC, rate)
    return table.T.reshape(-1) / TAP_ONE, table.size // 2


@pytest.mark.parametrize("rate", OTHERS)
def test_quantised_taps_pass_and_stop_as_the_definition_says(rate):
    taps, _ = in_order(rate)
    up, low, high = ratio(rate)[0], min(rate, 16000), math.lcm(rate, 16000)
    passed = np.abs(scipy.signal.freqz(taps, worN=np.linspace(0, 0.45 * low, 700), fs=high)[1]) / up
    assert np.abs(20 * np.log10(passed)).max() < PASS_RIPPLE_DB
    points = 1 << (16 * len(taps)).bit_length()
    stopped = np.abs(np.fft.rfft(taps, points))[math.ceil(low / high * points / 2) :] / up
    assert -20 * np.log10(stopped.max()) > STOP_DB


@pytest.mark.parametrize("rate", OTHERS)
def test_quantised_taps_are_the_definitions_to_half_a_unit_and_cannot_overflow(rate):
    taps, middle = in_order(rate)
    exact = resampling.taps(rate, SPEC.rate)
    half = len(exact) // 2
    assert np.abs(taps[middle - half : middle + half + 1] - exact).max() <= 0.5 / TAP_ONE
    assert not taps[: middle - half].any() and not taps[middle + half + 1 :].any()
    up = ratio(rate)[0]
    assert max(np.abs(taps[phase::up]).sum() for phase in range(up)) < 2.56  # of the output's 4


@pytest.mark.parametrize("rate", OTHERS)
def test_words_and_lanes_give_the_sum_of_the_definition(rate):
    """The sum at the place that `taps_table` defines equals that of scipy's polyphase filter."""
    table = taps_table(SPEC, rate)
    up, down = ratio(rate)
    step = down * passes(rate)
    assert table.shape == (step, LANES) and table.dtype == np.int32 and step <= TAP_WORDS and table.nbytes % 16 == 0
    samples = int16(speechlike(0.02, rate)) / 32768
    taps, middle = in_order(rate)
    expected = scipy.signal.resample_poly(samples, up, down, window=np.append(taps, 0) / up)  # of odd length
    inputs = np.arange(len(samples))
    for m in (0, 1, 7, len(expected) // 2, len(expected) - 1):
        place = step * LANES // 2 + m * down - inputs * up
        inside = (place >= 0) & (place < step * LANES)
        coefficients = table[place[inside] % step, place[inside] // step] / TAP_ONE
        assert samples[inside] @ coefficients == pytest.approx(expected[m], abs=1e-9)
    assert middle == step * LANES // 2


def test_nothing_to_resample_has_no_table():
    assert taps_table(SPEC, 16000).shape == (0, LANES)


@pytest.mark.parametrize(
    ("spec", "rate"), [(AudioSpec(rate=8000), 16000), (SPEC, 96000), (SPEC, 44056), (AudioSpec(rates=(4000,)), 4000)]
)
def test_what_does_not_fit_is_refused(spec, rate):
    with pytest.raises(UsageError, match="resample"):
        taps_table(spec, rate)
