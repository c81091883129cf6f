"""The SMDP solvers against the paper's Table I, each other, dense linear algebra, and simulation."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from smdp_simulation import by_table, confidence, serve

from headrace.batching import UsageError
from headrace.batching.smdp import (
    BatchService,
    Weights,
    build,
    evaluate,
    policy_iteration,
    relative_value_iteration,
    solve,
    static,
    work_conserving,
)
from headrace.sim.workload.traffic import poisson

# GoogLeNet on a Tesla P4 (ms, mJ), with which the paper's results are computed.
GOOGLENET = BatchService.linear((0.3051, 1.052), (19.90, 19.60), 32)


def googlenet(rho, w2=1.0, **settings):
    return build(GOOGLENET, GOOGLENET.arrival_rate(rho), Weights(1.0, w2), **settings)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("overflow_cost", "s_max", "iterations", "delta", "tolerance"),
    [
        (10000, 89, 1847, 9.36e-4, 5e-6),
        (1000, 78, 1635, 9.78e-4, 5e-6),
        (100, 70, 1483, 8.36e-4, 5e-6),
        (10, 161, 10000, 6e-12, 1e-12),
        (0, 192, 10000, 0.0, 1e-12),
    ],
)
def test_table_1(overflow_cost, s_max, iterations, delta, tolerance):
    """The least s_max with Delta < 1e-3, and what relative value iteration gives there."""
    model = googlenet(0.9)
    found = relative_value_iteration(model, s_max, overflow_cost)
    assert abs(found.iterations - iterations) <= 3
    assert found.delta == pytest.approx(delta, abs=tolerance)
    assert found.g == pytest.approx(66.135, abs=0.01)
    assert relative_value_iteration(model, s_max - 1, overflow_cost).delta >= 1e-3


def test_in_table_1_a_state_less_and_it_is_best_to_wait_for_ever():
    below = relative_value_iteration(googlenet(0.9), 160, 10.0)
    assert below.waits_for_ever and below.delta == below.g
    assert not relative_value_iteration(googlenet(0.9), 161, 10.0).waits_for_ever


@pytest.mark.quick(12)
@pytest.mark.parametrize("max_batch", [1, 4, 32])
@pytest.mark.parametrize("w2", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_both_solvers_agree(max_batch, w2, rho):
    service = BatchService.linear((0.3051, 1.052), (19.90, 19.60), max_batch)
    model = build(service, service.arrival_rate(rho), Weights(1.0, w2))
    overflow_cost = 3000.0  # far above any average cost, so that no solver lingers in S_o
    exact = policy_iteration(model, 100, overflow_cost)
    iterated = relative_value_iteration(model, 100, overflow_cost, epsilon=1e-9, max_iterations=200_000)
    assert iterated.iterations < 200_000
    assert iterated.g == pytest.approx(exact.g, abs=1e-6)
    assert iterated.latency == pytest.approx(exact.latency, rel=1e-4)


def explicit(model, s_max, overflow_cost):
    """Transition matrices, costs and sojourns by state and action, from the definition."""
    from scipy.stats import poisson as poisson_pmf

    service, rate, weights = model.service, model.rate, model.weights
    states, actions = s_max + 2, service.max_batch + 1
    move = np.zeros((actions, states, states))
    cost = np.full((states, actions), np.inf)
    sojourn = np.ones((states, actions))
    for state in range(states):
        waiting = min(state, s_max)
        move[0, state, min(state + 1, s_max + 1)] = 1.0
        sojourn[state, 0], cost[state, 0] = 1 / rate, weights.latency / rate * waiting / rate
        for action in range(1, min(waiting, service.max_batch) + 1):
            tau = service.latency[action - 1]
            k = np.arange(s_max - waiting + action + 1)
            move[action, state, waiting - action : s_max + 1] = poisson_pmf.pmf(k, rate * tau)
            move[action, state, s_max + 1] = poisson_pmf.sf(k[-1], rate * tau)
            sojourn[state, action] = tau
            cost[state, action] = weights.power * service.energy[action - 1]
            cost[state, action] += weights.latency / rate * (waiting * tau + rate * tau**2 / 2)
    cost[-1] += overflow_cost * sojourn[-1]
    return move, cost, sojourn


@settings(max_examples=40)
@given(data=st.data(), rho=st.floats(0.05, 0.95), w2=st.floats(0, 20), max_batch=st.integers(1, 8))
def test_any_policy_is_evaluated_as_by_dense_linear_algebra(data, rho, w2, max_batch):
    service = BatchService.linear((0.3, 1.0), (20.0, 20.0), max_batch)
    model = build(service, service.arrival_rate(rho), Weights(1.0, w2))
    s_max = data.draw(st.integers(max_batch, 25))
    # Long queues are served somehow: else all is in S_o, and the rest of no consequence, nor well-conditioned.
    policy = [data.draw(st.integers(state > 2 * max_batch, min(state, max_batch))) for state in range(s_max + 1)]
    policy.append(max_batch)
    found = evaluate(model, np.array(policy), overflow_cost=50.0)
    move, cost, sojourn = explicit(model, s_max, 50.0)
    states = np.arange(s_max + 2)
    system = move[policy, states].T - np.eye(s_max + 2)
    system[-1] = 1.0
    assume(np.linalg.cond(system) < 1e8)
    probability = np.linalg.solve(system, np.eye(s_max + 2)[-1])
    expected = probability @ cost[states, policy] / (probability @ sojourn[states, policy])
    assert found.g == pytest.approx(expected, rel=1e-7)
    assert found.probability[:, 0] == pytest.approx(probability, abs=1e-9)


@pytest.mark.parametrize("rho", [0.5, 0.9, 0.90234375, 0.97])
def test_a_policy_is_evaluated_to_the_last_of_an_md1_queue(rho):
    service = BatchService.linear((1.0, 0.0), (0.0, 0.0), 1)
    model = build(service, service.arrival_rate(rho), Weights(1.0, 0.0))
    pollaczek_khinchine = 1.0 + rho / (2 * (1 - rho))  # M/D/1, service of 1
    assert evaluate(model, work_conserving(1)).g == pytest.approx(pollaczek_khinchine, rel=1e-8)


@settings(max_examples=60)
@given(
    rho=st.floats(0.05, 0.97),
    w2=st.floats(0, 100),
    alpha=st.floats(0.05, 2),
    tau0=st.floats(0, 5),
    beta=st.floats(0, 30),
    zeta0=st.floats(0, 60),
    max_batch=st.integers(1, 24),
)
def test_the_optimum_is_never_dearer_than_a_baseline(rho, w2, alpha, tau0, beta, zeta0, max_batch):
    service = BatchService.linear((alpha, tau0), (beta, zeta0), max_batch)
    model = build(service, service.arrival_rate(rho), Weights(1.0, w2))
    best = solve(model)
    baselines = [evaluate(model, work_conserving(max_batch)).g]
    for batch in {1, max_batch // 2 + 1, max_batch}:
        if model.rate < 0.98 * service.rates[batch - 1]:
            baselines.append(evaluate(model, static(batch)).g)
    assert best.g <= min(baselines) * (1 + 1e-6)
    assert best.delta <= 1e-6 * best.g


@settings(max_examples=20)
@given(data=st.data(), rho=st.floats(0.1, 0.9), w2=st.floats(0, 50))
def test_the_optimum_is_never_dearer_than_a_random_policy(data, rho, w2):
    model = googlenet(rho, w2)
    best = policy_iteration(model, 64, 10_000.0)
    policy = [data.draw(st.integers(0, min(state, 32))) for state in range(65)]
    other = evaluate(model, np.array([*policy, 32]), overflow_cost=10_000.0)
    assert best.g <= other.g * (1 + 1e-9)


@pytest.mark.parametrize(("rho", "w2"), [(0.3, 10.0), (0.7, 1.0), (0.9, 1.0)])
@pytest.mark.slow
def test_cost_latency_and_power_agree_with_simulation(rho, w2):
    model = googlenet(rho, w2)
    solution = solve(model)
    latencies, powers = [], []
    for seed in range(12):
        latency, power = serve(by_table(solution.policy[:-1, 0]), GOOGLENET, poisson(model.rate, 40_000, seed))
        latencies.append(latency.mean())
        powers.append(power)
    for values, expected in ((latencies, solution.latency), (powers, solution.power)):
        mean, half = confidence(values)
        assert abs(mean - expected) < max(half, 1e-3 * expected)
        assert half < 0.05 * expected
    assert solution.g == pytest.approx(solution.latency + w2 * solution.power, rel=1e-6)


@pytest.mark.quick(1)
@pytest.mark.parametrize("policy", [static(8), static(20), work_conserving(32)])
def test_baselines_are_analysed_as_they_simulate(policy):
    model = googlenet(0.6)
    known = evaluate(model, policy)
    table = policy(np.arange(200))
    runs = [serve(by_table(table), GOOGLENET, poisson(model.rate, 40_000, seed)) for seed in range(12)]
    for values, expected in (([r[0].mean() for r in runs], known.latency), ([r[1] for r in runs], known.power)):
        mean, half = confidence(values)
        assert abs(mean - expected) < max(half, 1e-3 * expected)


@pytest.mark.parametrize("rho", [0.3, 0.7, 0.9])
def test_single_requests_are_an_m_d_1_queue(rho):
    service = BatchService.linear((2.0, 0.0), (0.0, 0.0), 1)
    model = build(service, service.arrival_rate(rho), Weights())
    assert solve(model).latency == pytest.approx(2.0 + 2.0 * rho / (2 * (1 - rho)), rel=1e-5)


def test_more_weight_on_power_never_costs_power_nor_gains_latency():
    found = [solve(googlenet(0.5, w2)) for w2 in (0, 0.3, 1, 3, 10, 100)]
    assert all(a.power >= b.power - 1e-9 and a.latency <= b.latency + 1e-9 for a, b in pairwise(found))


def test_a_large_weight_on_power_is_no_reason_never_to_serve():
    """With a small abstract cost it would be best to stay in S_o, where arrivals are lost."""
    for rho in (0.05, 0.3, 0.9):
        found = solve(googlenet(rho, 1e5))
        assert found.probability[-1, 0] < 1e-6
        assert found.power >= GOOGLENET.energy[-1] / 32 * found.model.rate * (1 - 1e-6)


def test_at_low_load_it_does_not_pay_to_lose_a_request_in_a_short_stay_in_the_overflow_state():
    service = BatchService.linear((0.0546875, 0.0), (0.0, 35.0), 1)
    model = build(service, service.arrival_rate(0.25), Weights(1.0, 2.0))
    assert solve(model).g == pytest.approx(evaluate(model, work_conserving(1)).g, rel=1e-6)


def test_the_structure_is_reported_and_not_assumed():
    assert policy_iteration(googlenet(0.9), 70, 100.0).control_limit == 7
    assert solve(googlenet(0.3, 1000.0)).control_limit == 32
    split = solve(googlenet(0.1, 0.0))  # at low load, and only for latency, some batches are better split
    short = [s for s in range(1, 32) if split.policy[s, 0] < s and split.probability[s, 0] > 1e-9]
    assert split.control_limit is None and short and (split.policy[1:20, 0] > 0).all()


@pytest.mark.parametrize("rho", [1.0, 1.3])
def test_an_unstable_system_is_refused_by_name(rho):
    with pytest.raises(UsageError, match=r"unstable.*rho = 1"):
        googlenet(rho)
    with pytest.raises(UsageError, match="unstable"):
        evaluate(googlenet(0.9), static(4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Weights(0.0, 1.0), "weight of latency is 0"),
        (lambda: Weights(1.0, -1.0), "0 or more"),
        (lambda: Weights(1.0, math.nan), "0 or more"),
        (lambda: BatchService.linear((0.0, 0.0), (1.0, 1.0), 4), "latency of every batch"),
        (lambda: BatchService.linear((1.0, 1.0), (-1.0, 0.0), 4), "energy of every batch"),
        (lambda: BatchService.linear((1.0, 1.0), (1.0, 1.0), 0), "max_batch is 0"),
        (lambda: build(GOOGLENET, 0.0, Weights()), "arrival rate is 0"),
        (lambda: build(GOOGLENET, math.inf, Weights()), "arrival rate is inf"),
        (lambda: build(GOOGLENET, 1.0, Weights(), servers=0), "0 servers"),
        (lambda: policy_iteration(googlenet(0.5), 0, 1.0), "s_max is 0"),
        (lambda: policy_iteration(googlenet(0.5), 10, -1.0), "overflow cost"),
        (lambda: relative_value_iteration(googlenet(0.5), 10, 1.0, epsilon=0.0), "epsilon"),
        (lambda: evaluate(googlenet(0.5), np.array([0, 2, 2])), "at most the waiting requests"),
        (lambda: evaluate(googlenet(0.5), np.array([0, 0, 0])), "must serve in the last state"),
        (lambda: solve(googlenet(1 - 1e-6)), "close to 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(UsageError, match=message):
        call()
