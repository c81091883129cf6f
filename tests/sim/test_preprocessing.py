"""Test the stage before the policy, against a simulation that goes from instant to instant, and against queueing
theory.
"""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.preprocessing import Preprocessor, Stations, Step


def proportional(seconds):
    return lambda sizes: seconds * sizes


def constant(seconds):
    return lambda sizes: np.full(len(sizes), seconds)


def passed(preprocessor, arrival, sizes, block=None):
    """Return numbers in order of leaving, when each is ready, and the greatest number that waited between blocks."""
    stations = Stations(preprocessor)
    arrival, sizes = np.asarray(arrival, float), np.asarray(sizes, float)
    step = block or max(1, len(arrival))
    out, most = [], 0
    for start in range(0, len(arrival), step):
        out.append(stations.take(arrival[start : start + step], sizes[start : start + step]))
        most = max(most, stations.waiting)
    out.append(stations.end())
    assert stations.waiting == 0
    return np.concatenate([n for n, _ in out]), np.concatenate([t for _, t in out]), stations, most


def instant_by_instant(steps, arrival, sizes):
    """Return sorted pairs of (ready, number).

    At each instant the stations are visited in order. Each gives its free servers to the requests that have come, first
    come (then lower number) first served."""
    waiting = [[] for _ in steps] + [[]]
    coming = [[] for _ in steps] + [[]]
    coming[0] = [(at, number) for number, at in enumerate(arrival)]
    free = [[0.0] * step.servers for step in steps]
    while any(coming[:-1]) or any(waiting[:-1]):
        times = [at for station in coming[:-1] for at, _ in station]
        times += [min(servers) for servers, line in zip(free, waiting, strict=False) if line]
        now = min(t for t in times if t >= 0)
        for number, step in enumerate(steps):
            line = waiting[number]
            line += [entry for entry in coming[number] if entry[0] <= now]
            coming[number] = [entry for entry in coming[number] if entry[0] > now]
            while line and min(free[number]) <= now:
                first = min(line)
                line.remove(first)
                server = free[number].index(min(free[number]))
                end = max(now, first[0]) + float(step.service_s(np.array([sizes[first[1]]]))[0])
                free[number][server] = end
                coming[number + 1].append((end, first[1]))
    return sorted(coming[-1])


# Few times, so that many share an instant: each request is its arrival and what each step of the chain takes for it.
few = st.integers(0, 3)
request = st.tuples(st.integers(0, 9), st.lists(few, min_size=4, max_size=4))


@settings(max_examples=500, deadline=None)
@given(
    drawn=st.lists(request, max_size=20).map(sorted),
    servers=st.lists(st.integers(1, 3), max_size=4),
    block=st.integers(1, 9),
)
# The second passes the first, and ends at the instant at which the first comes and goes. The first is served first.
@example(drawn=[(0, [2, 0, 1, 0]), (0, [1, 1, 1, 0])], servers=[2, 1, 1], block=2)
# The same with both at work side by side.
@example(drawn=[(0, [2, 1, 1, 0]), (0, [1, 2, 1, 0])], servers=[2, 2, 1], block=2)
def test_requests_pass_as_in_a_simulation_from_instant_to_instant(drawn, servers, block):
    taken = np.array([seconds for _, seconds in drawn], float).reshape(len(drawn), 4)
    steps = tuple(
        Step(str(number), count, lambda sizes, number=number: taken[sizes.astype(int), number])
        for number, count in enumerate(servers)
    )
    arrival, sizes = [float(at) for at, _ in drawn], [float(number) for number in range(len(drawn))]
    expected = instant_by_instant(steps, arrival, sizes)
    for size in (None, block):
        numbers, ready, stations, _ = passed(Preprocessor("p", steps), arrival, sizes, size)
        assert list(zip(ready.tolist(), numbers.tolist(), strict=True)) == expected
        for one in steps if drawn else ():
            assert stations.busy_s[one.name] <= one.servers * (ready.max() - arrival[0])


def poisson(rate, count, seed=0):
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


CHAIN = Preprocessor(
    "chain",
    (
        Step("a", 32, proportional(0.03)),
        Step("b", 1, constant(0.0007)),
        Step("c", 4, proportional(0.003)),
        Step("d", 4, constant(0.003)),
    ),
)


@pytest.mark.quick(1)
@pytest.mark.parametrize("rate", [900.0, 3000.0])
def test_blocks_come_out_as_one_run_to_the_bit_and_little_waits_between_them(rate):
    arrival = poisson(rate, 20_000)
    sizes = np.random.default_rng(1).exponential(1.0, 20_000)
    whole = passed(CHAIN, arrival, sizes)
    assert len(np.flatnonzero(np.diff(whole[0]) < 0)) > 1000  # they do overtake
    for block in (1, 100, 4096):
        numbers, ready, stations, most = passed(CHAIN, arrival, sizes, block)
        assert np.array_equal(numbers, whole[0])
        assert np.array_equal(ready, whole[1])
        assert stations.busy_s == pytest.approx(whole[2].busy_s)
        # Of each station the servers, and at the first who came last.
        assert most <= 32 + 1 + 4 + 4 + 1


def test_without_steps_requests_are_ready_on_arrival():
    arrival = np.array([0.0, 1.0, 1.0, 3.0])
    numbers, ready, stations, _ = passed(Preprocessor("ideal", ()), arrival, np.ones(4), 2)
    assert numbers.tolist() == [0, 1, 2, 3]
    assert np.array_equal(ready, arrival)
    assert stations.busy_s == {}


@pytest.mark.parametrize("block", [None, 1, 100])
@pytest.mark.parametrize("steps", [(), CHAIN.steps])
def test_a_delay_is_as_if_all_had_come_later(steps, block):
    arrival = poisson(900.0, 3000)
    sizes = np.random.default_rng(1).exponential(1.0, 3000)
    numbers, ready, stations, _ = passed(Preprocessor("p", steps, 0.25), arrival, sizes, block)
    late_numbers, late_ready, late_stations, _ = passed(Preprocessor("p", steps), arrival + 0.25, sizes)
    assert np.array_equal(numbers, late_numbers) and np.array_equal(ready, late_ready)
    assert stations.busy_s == pytest.approx(late_stations.busy_s)


def test_short_requests_overtake_long_ones():
    step = Step("cpu", 2, proportional(1.0))
    numbers, ready, _, _ = passed(Preprocessor("cpu:2", (step,)), [0.0, 0.1, 0.2], [10.0, 1.0, 2.0])
    assert numbers.tolist() == [1, 2, 0]
    assert ready == pytest.approx([1.1, 3.1, 10.0])


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_mean_wait_of_an_m_d_1_station_is_pollaczek_and_khinchines(load):
    arrival = poisson(load, 1_000_000)
    _, ready, stations, _ = passed(Preprocessor("p", (Step("s", 1, constant(1.0)),)), arrival, np.ones(1_000_000))
    assert (ready - arrival).mean() - 1 == pytest.approx(load / (2 * (1 - load)), rel=0.03)
    assert stations.busy_s["s"] / ready[-1] == pytest.approx(load, rel=0.01)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (4, 0.8), (32, 0.9)])
def test_mean_wait_of_an_m_m_c_station_is_erlangs(servers, load):
    count, offered = 1_000_000, servers * load
    sizes = np.random.default_rng(7).exponential(1.0, count)
    numbers, ready, _, _ = passed(
        Preprocessor("p", (Step("s", servers, proportional(1.0)),)), poisson(offered, count), sizes
    )
    wait = (ready - poisson(offered, count)[numbers] - sizes[numbers]).mean()
    last = offered**servers / math.factorial(servers) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)  # Erlang C
    assert wait == pytest.approx(waits / (servers - offered), rel=0.04)


def test_a_chain_saturates_at_its_slowest_step():
    arrival, sizes = poisson(3000.0, 50_000), np.ones(50_000)
    for slow, capacity in ((0.004, 1000.0), (0.001, 1 / 0.0007)):
        steps = (Step("a", 32, constant(0.01)), Step("b", 1, constant(0.0007)), Step("c", 4, constant(slow)))
        _, ready, stations, _ = passed(Preprocessor("p", steps), arrival, sizes)
        assert len(ready) / (ready[-1] - arrival[0]) == pytest.approx(capacity, rel=0.005)
        name, servers = ("c", 4) if slow == 0.004 else ("b", 1)
        assert stations.busy_s[name] / (servers * ready[-1]) == pytest.approx(1.0, rel=0.005)


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match="0 servers for preprocessing step 'decode': give at least 1"):
        Step("decode", 0, constant(1.0))
    with pytest.raises(UsageError, match="'dpu' has two steps of one name among a, b, a"):
        Preprocessor("dpu", tuple(Step(name, 1, constant(1.0)) for name in "aba"))
    for bad in (constant(-1.0), constant(math.inf), constant(math.nan), lambda sizes: np.ones(len(sizes) + 1)):
        with pytest.raises(UsageError, match="step 'mel' must take a time of 0 s or more for each request"):
            passed(Preprocessor("p", (Step("mel", 1, bad),)), [0.0, 1.0], [1.0, 1.0])
    for delay_s in (-1.0, math.inf, math.nan):
        with pytest.raises(UsageError, match=r"preprocessor 'p' has a delay of .* s; give 0 or more"):
            Preprocessor("p", (), delay_s)
    with pytest.raises(UsageError, match="2 requests to preprocess have 1 sizes; give one for each"):
        Stations(CHAIN).take(np.zeros(2), np.ones(1))
