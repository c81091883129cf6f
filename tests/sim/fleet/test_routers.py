"""Test routers against theorems, and against routers that look at every server."""

import numpy as np
import pytest
from exponential import mean_s
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.fleet.routers import ROUTERS, make_router


def test_behind_a_random_router_each_server_is_an_m_m_1_queue():
    found = np.mean([mean_s(20, "random", 0.7, 100_000, seed) for seed in range(4)])
    assert found == pytest.approx(1 / (1 - 0.7), rel=0.02)


def test_power_of_two_meets_mitzenmachers_fixed_point():
    load = 0.8  # the mean time in the system is the sum of load ** (2 ** i - 2), i from 1 (Mitzenmacher 2001)
    expected = sum(load ** (2**i - 2) for i in range(1, 10))
    found = np.mean([mean_s(300, "power-of-two", load, 120_000, seed) for seed in range(2)])
    assert found == pytest.approx(expected, rel=0.02)


def erlang_c(servers, load):
    """Return the mean time in an M/M/c queue with a mean service time of 1."""
    offered = servers * load
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    waits = blocked / (1 - load * (1 - blocked))
    return 1 + waits / (servers * (1 - load))


def test_the_shortest_queue_lies_between_one_queue_for_all_and_two_choices():
    least, two, random = (
        mean_s(10, router, 0.9, 120_000) for router in ("least-outstanding", "power-of-two", "random")
    )
    assert erlang_c(10, 0.9) < least < two < random


def test_join_idle_goes_to_an_idle_server_while_there_is_one():
    # Lu et al. 2011: with many servers hardly anybody waits, as with the shortest queue and unlike with two choices.
    idle, least, two = (
        mean_s(200, router, 0.8, 100_000) for router in ("join-idle", "least-outstanding", "power-of-two")
    )
    assert idle == pytest.approx(1.0, rel=0.02)
    assert idle == pytest.approx(least, rel=0.01)
    assert two > 1.3


STEP = st.tuples(st.sampled_from(("add", "remove", "send", "answer")), st.integers(0, 5))


@given(st.sampled_from(ROUTERS), st.lists(STEP, max_size=200))
def test_a_router_picks_who_is_up_and_by_its_rule(name, steps):
    router = make_router(name, 6, 1)
    up, has = set(), [0] * 6
    for what, server in steps:
        if what == "add" and server not in up:
            router.add(server)
            up.add(server)
        elif what == "remove" and server in up:
            router.remove(server)
            up.discard(server)
        elif what == "answer" and has[server]:
            router.changes(server, -1)
            has[server] -= 1
        elif what == "send" and up:
            least = min(has[each] for each in up)
            picked = router.pick()
            assert picked in up
            if name == "least-outstanding" or (name == "join-idle" and least == 0):
                assert has[picked] == least
            if name == "power-of-two" and len(up) > 1:
                assert has[picked] <= sorted(has[each] for each in up)[-2]  # never the one with the most of all
            router.changes(picked, 1)
            has[picked] += 1
        assert router.outstanding == has
        assert sorted(router.up) == sorted(up)


@pytest.mark.parametrize("name", ROUTERS)
def test_each_server_gets_its_share_of_those_that_are_all_answered_at_once(name):
    router = make_router(name, 5, 3)
    for server in range(5):
        router.add(server)
    counts = [0] * 5
    for _ in range(10_000):
        picked = router.pick()
        router.changes(picked, 1)
        router.changes(picked, -1)
        counts[picked] += 1
    assert min(counts) > (1999 if name in ("round-robin", "join-idle") else 1800)


def test_an_unknown_router():
    with pytest.raises(UsageError, match="--router 'best': choose from random"):
        make_router("best", 1, 0)
