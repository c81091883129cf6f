"""`smdp` under bursty arrivals: the filter of the phase against matrix exponentials, and the policy simulated."""

import math

import numpy as np
import pytest
import scipy  # its parts are large, and load when they are used
from hypothesis import given
from hypothesis import strategies as st
from smdp_simulation import NET, Service, confidence, mmpp2_path

from headrace.batching import NodeTimes, PhaseTables, SmdpBatching, UsageError
from headrace.batching.policies.smdp_phases import PhaseFilter
from headrace.batching.smdp import BatchService, Mmpp2, Weights, build, solve
from headrace.batching.smdp.tables import phase_tables, rate_tables
from headrace.sim.engine import Arrivals
from headrace.sim.simulation import simulate

GOOGLENET = BatchService.linear((0.3051e-3, 1.052e-3), (19.90e-3, 19.60e-3), 32)  # s, J
rates = st.floats(0.01, 50)


@given(
    fast=rates,
    slow=st.floats(0, 50),
    dwell=st.tuples(rates, rates),
    gaps=st.lists(st.floats(0, 3), max_size=12),
    later=st.floats(0, 5),
)
def test_the_likelier_phase_is_that_of_the_exact_filter(fast, slow, dwell, gaps, later):
    tables = PhaseTables([[0, 1], [0, 1]], 1, 1, (fast, slow), dwell)
    followed = PhaseFilter(tables)
    leave = 1 / np.array(dwell)
    generator = np.array([[-leave[0], leave[0]], [leave[1], -leave[1]]]) - np.diag([fast, slow])
    belief = np.array(dwell) / sum(dwell)
    now = 0.0
    for gap in gaps:
        now += gap
        followed.arrived(now)
        belief = belief @ scipy.linalg.expm(generator * gap) * (fast, slow)
        belief /= belief.sum()
    for at in (now, now + later):
        exact = belief @ scipy.linalg.expm(generator * (at - now))
        exact /= exact.sum()
        if abs(exact[1] - 0.5) > 1e-6:
            assert followed.phase(at) == int(exact[1] > 0.5)
    if now < followed.switch < math.inf:
        exact = belief @ scipy.linalg.expm(generator * (followed.switch - now))
        assert exact[0] == pytest.approx(exact[1], rel=1e-5)
        before = followed.phase(now)
        assert followed.phase(np.nextafter(followed.switch, 0)) == before != followed.phase(followed.switch)


def cost(tables, bursts, seed, requests=30_000, w2=3.0):
    times, _ = mmpp2_path(bursts.rates, bursts.dwell, requests, seed)
    arrivals = Arrivals(["net"] * requests, times.tolist(), [math.inf] * requests, [1.0] * requests, [1] * requests)
    known = {"net": NodeTimes(NET, Service(GOOGLENET.latency))}
    policy = SmdpBatching([NET], {"net": tables}, 32)
    done = simulate(policy, arrivals, known, 1, record=True)
    energy = sum(GOOGLENET.energy[ran.task.batch_size - 1] for ran in done.outcome.ran)
    return 1e3 * done.latencies().mean() + w2 * energy / times[-1]


def test_a_filtered_phase_costs_little_more_than_a_known_one():
    """Fast bursts that no estimate of the rate can follow; the bound is the optimum for who sees the phase."""
    bursts = Mmpp2([2400.0, 100.0], [0.3, 0.5])
    weights = Weights(1e3, 3.0)
    bound = solve(build(GOOGLENET, bursts, weights)).g
    tables = phase_tables(GOOGLENET, bursts, weights, 1)
    mean, half = confidence([cost(tables, bursts, seed) for seed in range(12)])
    assert mean < 1.02 * bound + half
    assert mean > bound - 2 * half
    by_rate, _ = confidence([cost(rate_tables(GOOGLENET, weights, 1), bursts, seed) for seed in range(12)])
    assert mean < by_rate + half


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": [[0, 1]]}, "two tables"),
        ({"rates": (0.0, 0.0)}, "not both 0"),
        ({"rates": (1.0, math.nan)}, "finite"),
        ({"dwell": (1.0, 0.0)}, "above 0"),
        ({"actions": [[0, 2], [0, 1]]}, "at most the waiting requests"),
        ({"best_batch": 3}, "largest batch"),
    ],
)
def test_bad_tables_are_refused(change, message):
    given = {"actions": [[0, 1], [0, 1]], "best_batch": 1, "max_batch": 2, "rates": (1.0, 2.0), "dwell": (1.0, 1.0)}
    with pytest.raises(UsageError, match=message):
        PhaseTables(**{**given, **change})
