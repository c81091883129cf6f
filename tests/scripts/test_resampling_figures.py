"""The figures of docs/results/resampling.md are those of the compute units' taps, and its pictures can be read."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy  # its parts are large, and load when they are used
from pictures import faults

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import resampling_figures as script  # noqa: E402

FIGURES = json.loads(script.OUT.read_text())


def test_impulses_give_back_the_taps_of_a_resampler():
    """Taps that are not symmetric, to see their order too."""
    window = np.random.default_rng(1).standard_normal(41)

    def resample(samples, source, target):
        up, down = script._ratio(source)
        return scipy.signal.resample_poly(samples, up, down, window=window)

    for source in (24000, 11025):
        up, _ = script._ratio(source)
        found, middle = script.taps_of(resample, source)
        assert np.allclose(found[middle - 20 : middle + 21], window * up)
        assert np.count_nonzero(found) == 41


@pytest.mark.quick(2)
@pytest.mark.parametrize("source", ["8000", "48000", "11025", "22050", "24000", "32000", "44100"])
def test_the_response_is_that_of_the_taps_of_the_units(source):
    kept = FIGURES["response"][source][script.UNITS]
    for name, value in script.edges(script.unit_taps(int(source)), int(source)).items():
        assert kept[name] == pytest.approx(value, rel=1e-3), name
    assert kept["ripple_db"] < 0.03 and kept["stop_db"] < -90


@pytest.mark.parametrize("name", ["response", "sweeps", "speech"])
def test_texts_of_the_pictures_can_be_read(name):
    assert faults(getattr(script, name).__wrapped__(FIGURES)) == []
