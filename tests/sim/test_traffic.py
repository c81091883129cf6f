import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.sim.traffic import poisson


def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process():
    gaps = np.diff(poisson(50.0, 200_000, seed=1))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.01)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.01)
    assert gaps.min() >= 0


def test_a_run_is_a_function_of_its_seed():
    assert (poisson(10, 100, seed=3) == poisson(10, 100, seed=3)).all()
    assert (poisson(10, 100, seed=3) != poisson(10, 100, seed=4)).any()


@pytest.mark.parametrize(("rate", "count"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0)])
def test_impossible_traffic_is_refused(rate, count):
    with pytest.raises(UsageError):
        poisson(rate, count, seed=0)
