"""The latency distribution and the least power within a target, against the M/D/1 queue and simulation."""

import math

import numpy as np
import pytest
from smdp_simulation import by_table, confidence, serve

from headrace.batching import UsageError
from headrace.batching.smdp import BatchService, Mmpp2, Weights, build, evaluate, solve, static
from headrace.batching.smdp.slo import Infeasible, Target, least_power
from headrace.batching.smdp.tail import LatencyTail
from headrace.sim.workload.traffic import poisson

GOOGLENET = BatchService.linear((0.3051, 1.052), (19.90, 19.60), 32)


def googlenet(rho, w2=1.0, servers=1):
    return build(GOOGLENET, servers * GOOGLENET.arrival_rate(rho), Weights(1.0, w2), servers)


def md1_exceeds(rate, t):
    """P(waiting + service > t) of an M/D/1 queue with service 1 (Erlang 1909)."""
    wait = t - 1
    if wait < 0:
        return 1.0
    terms = [(-rate * (wait - i)) ** i / math.factorial(i) * math.exp(rate * (wait - i)) for i in range(int(wait) + 1)]
    return 1 - (1 - rate) * math.fsum(terms)


@pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
def test_single_requests_have_the_distribution_of_an_m_d_1_queue(rho):
    model = build(BatchService.linear((1.0, 0.0), (0.0, 0.0), 1), rho, Weights())
    tail = LatencyTail(solve(model), 8.0)
    for t in (0.5, 1.5, 2.5, 3.7, 5.2, 7.9):
        assert tail.probability(t) == pytest.approx(md1_exceeds(rho, t), abs=1e-3)


@pytest.mark.parametrize(
    ("rho", "w2", "horizon"), [(0.1, 0, 8), (0.3, 10, 60), (0.6, 3, 40), (0.9, 1, 90), (0.9, 100, 90)]
)
def test_the_area_under_the_tail_is_the_mean(rho, w2, horizon):
    solution = solve(googlenet(rho, w2))
    tail = LatencyTail(solution, horizon)
    assert tail.exceeds[-1] < 1e-4
    assert np.trapezoid(tail.exceeds, tail.times) == pytest.approx(solution.latency, rel=1e-3)
    assert (np.diff(tail.exceeds) <= 1e-9).all()


@pytest.mark.parametrize("policy", ["smdp", "static"])
@pytest.mark.parametrize(("rho", "limits"), [(0.3, (5, 9, 20)), (0.8, (5, 9, 14))])
@pytest.mark.slow
def test_the_tail_agrees_with_simulation(policy, rho, limits):
    model = googlenet(rho, 5.0)
    solution = solve(model) if policy == "smdp" else evaluate(model, static(12))
    tail = LatencyTail(solution, 60.0)
    runs = [
        serve(by_table(solution.policy[:-1, 0]), GOOGLENET, poisson(model.rate, 40_000, seed))[0] for seed in range(10)
    ]
    for limit in limits:
        mean, half = confidence([(latencies > limit).mean() for latencies in runs])
        assert abs(tail.probability(limit) - mean) < half + 2e-3
    for share in (0.5, 0.95):
        mean, half = confidence([np.quantile(latencies, share) for latencies in runs])
        assert abs(tail.quantile(share) - mean) < half + 0.1


def test_a_quantile_beyond_the_horizon_is_none():
    assert LatencyTail(solve(googlenet(0.9)), 5.0).quantile(0.99) is None


@pytest.mark.parametrize(("rho", "limit"), [(0.3, 6.0), (0.7, 10.0), (0.9, 12.0)])
def test_least_power_within_a_mean(rho, limit):
    rate = GOOGLENET.arrival_rate(rho)
    found = least_power(GOOGLENET, rate, Target(limit))
    assert found.latency <= limit
    for w2 in np.geomspace(1e-3, 1e3, 60):
        other = solve(build(GOOGLENET, rate, Weights(1.0, float(w2))))
        assert other.latency > limit or other.power >= found.power - 1e-6


@pytest.mark.slow
def test_least_power_within_a_quantile_holds_in_simulation():
    rate = GOOGLENET.arrival_rate(0.7)
    found = least_power(GOOGLENET, rate, Target(12.0, 0.95))
    fastest = solve(build(GOOGLENET, rate, Weights(1.0, 0.0)))
    assert found.power < 0.95 * fastest.power
    table = found.policy[:-1, 0]
    runs = [serve(by_table(table), GOOGLENET, poisson(rate, 40_000, seed)) for seed in range(10)]
    mean, half = confidence([(latencies > 12.0).mean() for latencies, _ in runs])
    assert mean - half <= 0.05
    assert mean > 0.03  # it uses what the target leaves
    power, half = confidence([power for _, power in runs])
    assert abs(power - found.power) < max(half, 1e-3 * power)


def test_what_cannot_be_met_is_said_and_by_how_much():
    rate = GOOGLENET.arrival_rate(0.9)
    with pytest.raises(Infeasible, match=r"mean latency of 5 .* the least is 9.69271, 4.69 too much"):
        least_power(GOOGLENET, rate, Target(5.0))
    with pytest.raises(Infeasible, match=r"0.05 of the requests later than 12 .* quantile 0.95 is 16.5"):
        least_power(GOOGLENET, rate, Target(12.0, 0.95))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Target(0.0), "target of 0"),
        (lambda: Target(math.inf), "target of inf"),
        (lambda: Target(5.0, 1.0), "quantile of 1"),
        (lambda: LatencyTail(solve(googlenet(0.5)), 0.0), "above 0"),
        (lambda: least_power(BatchService.linear((1, 1), (0, 0), 4), 0.5, Target(9.0)), "no energies"),
        (lambda: LatencyTail(solve(build(GOOGLENET, Mmpp2([1, 2], [5, 5]), Weights())), 9.0), "bursty"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(UsageError, match=message):
        call()
