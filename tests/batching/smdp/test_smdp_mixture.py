import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smdp_simulation import NET, Service, TablePolicy, confidence, serve

from headrace.batching import MixedTables, NodeTimes, UsageError
from headrace.batching.policies.smdp import SmdpBatching
from headrace.batching.policies.smdp_mixture import ByMixture
from headrace.batching.request import TABLE
from headrace.batching.smdp import BatchService, Weights, build, least_power_mixture, solve
from headrace.batching.smdp.slo import Infeasible, Target, least_power
from headrace.batching.smdp.tables import mixed_tables
from headrace.sim.engine import Arrivals, run

GOOGLENET = BatchService.linear((0.3051, 1.052), (19.90, 19.60), 32)  # ms, mJ
SMALL = BatchService.linear((0.4, 1.0), (10.0, 30.0), 6)


def chain(model, s_max):
    """Return the states, the allowed actions and P(next state) of the truncated process, S_o as the last state."""
    rows = []
    for state in range(s_max + 2):
        waiting = min(state, s_max)
        first = 1 if state > s_max else 0
        for action in range(first, min(waiting, model.service.max_batch) + 1):
            after = np.zeros(s_max + 2)
            for arrivals, probability in enumerate(model.counts[action, 0, 0]):
                after[min(waiting - action + arrivals, s_max + 1)] += probability
            rows.append((state, action, after))
    return rows


def least_power_of_all(model, latency, s_max):
    """Return the least power within a mean latency by the linear program of a constrained semi-Markov decision process.

    Its unknowns are the rates at which each action is taken in each state. All but a ten-millionth of the requests must
    be served, because it could otherwise save power by those that are lost in S_o."""
    from scipy.optimize import linprog

    rows = chain(model, s_max)
    waiting = np.array([min(state, s_max) for state, _, _ in rows])
    action = np.array([a for _, a, _ in rows])
    flow = np.stack([after for _, _, after in rows], axis=1)
    flow[[state for state, _, _ in rows], range(len(rows))] -= 1.0
    sojourn = model.sojourn[action, 0]
    requests = model.requests_base[action, 0] + model.requests_slope[action, 0] * waiting
    found = linprog(
        model.energy[action, 0],
        A_ub=[requests / model.rate, -action],
        b_ub=[latency, -model.rate * (1 - 1e-7)],
        A_eq=np.vstack([flow, sojourn]),
        b_eq=np.append(np.zeros(s_max + 2), 1.0),
        method="highs",
    )
    assert found.success, found.message
    return found.fun


@pytest.mark.parametrize(("rho", "factor"), list(itertools.product((0.3, 0.6, 0.85), (1.03, 1.3, 1.8))))
def test_the_mixture_has_the_least_power_that_a_linear_program_finds(rho, factor):
    model = build(SMALL, SMALL.arrival_rate(rho), Weights(1.0, 0.0))
    bound = factor * solve(model).latency
    mixture = least_power_mixture(SMALL, model.rate, bound)
    assert mixture.latency == pytest.approx(bound) or mixture.share == 0.0
    assert mixture.latency <= bound * (1 + 1e-12)
    assert mixture.power == pytest.approx(least_power_of_all(model, bound, 80), rel=1e-5)


def test_the_papers_system_gains_two_percent_over_a_single_policy_at_half_load():
    rate = GOOGLENET.arrival_rate(0.5)
    bound = 4.27
    mixture, single = least_power_mixture(GOOGLENET, rate, bound), least_power(GOOGLENET, rate, Target(bound))
    assert mixture.latency == pytest.approx(bound) and single.latency < 0.92 * bound
    assert single.power / mixture.power == pytest.approx(1.0235, abs=0.001)
    assert mixture.power == pytest.approx(least_power_of_all(mixture.fast.model, bound, 90), rel=1e-5)


services = st.builds(
    lambda slope, base, energy, idle, largest: BatchService.linear((slope, base), (energy, idle), largest),
    st.floats(0.1, 1.0),
    st.floats(0.1, 5.0),
    st.floats(0.5, 30.0),
    st.floats(1.0, 60.0),
    st.integers(1, 12),
)


@settings(max_examples=60)
@given(services, st.floats(0.05, 0.93), st.floats(1.0, 4.0))
def test_a_mixture_meets_its_bound_and_no_policy_within_it_needs_less(service, rho, factor):
    rate = service.arrival_rate(rho)
    fastest = solve(build(service, rate, Weights(1.0, 0.0)))
    bound = factor * fastest.latency
    mixture = least_power_mixture(service, rate, bound)
    assert mixture.fast.latency <= mixture.latency <= bound * (1 + 1e-9)
    assert 0.0 <= mixture.share <= 1.0 and 0.0 <= mixture.chance <= 1.0
    for weight in fastest.latency / fastest.power * np.geomspace(1e-3, 1e3, 13):
        other = solve(build(service, rate, Weights(1.0, float(weight))))
        assert other.latency > bound or other.power >= mixture.power * (1 - 1e-5)


@pytest.mark.parametrize(("rho", "factor"), [(0.1, 1.4), (0.5, 1.3), (0.9, 1.15)])
def test_the_chance_at_the_state_makes_the_share_of_time(rho, factor):
    """Follow one policy from the state to its next visit, by dense linear algebra, and mix the two cycles."""
    rate = GOOGLENET.arrival_rate(rho)
    bound = factor * solve(build(GOOGLENET, rate, Weights(1.0, 0.0))).latency
    mixture = least_power_mixture(GOOGLENET, rate, bound)
    model, state = mixture.fast.model, mixture.state
    cycles = []
    for solution in (mixture.fast, mixture.frugal):
        s_max = solution.s_max
        rows = {(s, a): after for s, a, after in chain(model, s_max)}
        actions = solution.policy[:, 0]
        step = np.stack([rows[s, a] for s, a in enumerate(actions)])
        waiting = np.minimum(np.arange(s_max + 2), s_max)
        requests = model.requests_base[actions, 0] + model.requests_slope[actions, 0] * waiting
        inside = step.copy()
        inside[:, state] = 0.0  # a cycle ends at the next visit
        gained = np.stack([model.sojourn[actions, 0], requests, model.energy[actions, 0]], axis=1)
        cycles.append(np.linalg.solve(np.eye(s_max + 2) - inside, gained)[state])
    time, requests, energy = (1 - mixture.chance) * cycles[0] + mixture.chance * cycles[1]
    assert requests / time / rate == pytest.approx(bound, rel=1e-5)
    assert energy / time == pytest.approx(mixture.power, rel=1e-5)


class Mixed(TablePolicy):
    def __init__(self, rule):
        super().__init__(rule.batch)
        self.rule = rule

    def submit(self, request, now):
        self.rule.arrived(now)
        super().submit(request, now)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("rho", "factor"), [(0.1, 1.4), (0.5, 1.3), (0.7, 1.3)])
def test_a_mixture_holds_in_simulation(rho, factor):
    rate = GOOGLENET.arrival_rate(rho)
    bound = factor * solve(build(GOOGLENET, rate, Weights(1.0, 0.0))).latency
    mixture = least_power_mixture(GOOGLENET, rate, bound)
    runs = []
    for seed in range(6):
        times = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, 30_000))
        runs.append(serve(Mixed(ByMixture(mixed_tables(mixture), seed)), GOOGLENET, times))
    mean, half = confidence([latencies.mean() for latencies, _ in runs])
    assert abs(mean - bound) < half + 2e-3 * bound
    power, half = confidence([power for _, power in runs])
    assert abs(power - mixture.power) < half + 1e-3 * power


def test_the_policy_serves_by_the_tables_of_a_mixture():
    """It serves as the rule alone does, and two runs are equal."""
    rate = GOOGLENET.arrival_rate(0.5)
    tables = mixed_tables(least_power_mixture(GOOGLENET, rate, 4.27))
    at = np.cumsum(np.random.default_rng(0).exponential(1 / rate, 4000)).tolist()
    count = len(at)
    arrivals = Arrivals(["net"] * count, at, [math.inf] * count, [1.0] * count, [1] * count)
    times = {"net": NodeTimes(NET, Service(GOOGLENET.latency))}
    policies = [SmdpBatching([NET], {"net": tables}, 32, max_wait_s=1e6) for _ in range(2)]
    first, second = (run(policy, arrivals, times, 1, True) for policy in policies)
    assert first.finished == second.finished
    both = {one.task.batch_size for one in first.ran[:-1]}  # the last one waited for more in vain
    assert min(both) == 4 and max(both) > 4  # the fast policy serves 4, the frugal one waits for 5
    assert all(one.task.reason == TABLE for one in first.ran[:-1])


def rule(chance, seed=0):
    return ByMixture(MixedTables([[0, 1, 2], [0, 0, 2]], 2, 2, 1, chance), seed)


def test_the_coin_is_thrown_once_for_each_visit_to_its_state():
    """The example at the head of the module: table 0 serves one request, table 1 waits for two."""
    answers = []
    fair = rule(0.5)
    for _ in range(200):
        fair.arrived(0.0)
        first = fair.batch(1, 0.0)
        assert [fair.batch(1, 0.0) for _ in range(3)] == [first] * 3  # asking again changes nothing
        answers.append(first)
        fair.arrived(0.0)
        assert fair.batch(2, 0.0) == 2
    assert 70 < sum(answers) < 130
    assert [batches(rule(chance)) for chance in (0.0, 1.0)] == [[1] * 20, [0] * 20]


def batches(one):
    answers = []
    for _ in range(20):
        one.arrived(0.0)
        answers.append(one.batch(1, 0.0))
    return answers


def test_equal_seeds_make_equal_choices():
    assert batches(rule(0.5, 3)) == batches(rule(0.5, 3)) != batches(rule(0.5, 4))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: least_power_mixture(GOOGLENET, 1.0, 0.0), UsageError, "mean latency of 0"),
        (lambda: least_power_mixture(GOOGLENET, 2.7, 3.0), Infeasible, "the least is"),
        (lambda: least_power_mixture(BatchService.linear((1, 1), (0, 0), 4), 0.5, 9.0), UsageError, "no energies"),
        (lambda: MixedTables([[0, 1]], 1, 1, 1, 0.5), UsageError, "two tables"),
        (lambda: MixedTables([[0, 1], [0, 1]], 1, 1, 0, 0.5), UsageError, "state of 1 or more"),
        (lambda: MixedTables([[0, 1], [0, 1]], 1, 1, 1, 1.5), UsageError, "chance"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
