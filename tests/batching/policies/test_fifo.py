"""The waiting line: what enters leaves in order, from wherever it stands, and is then forgotten."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching import ModelGraph, Node, Request
from headrace.batching.policies.shared.fifo import Fifo

GRAPH = ModelGraph("net", (Node("node"),))

acts = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 40)),
    st.tuples(st.just("take"), st.integers(1, 30)),
    st.tuples(st.just("remove"), st.integers(0, 10_000)),
    st.tuples(st.just("remove many"), st.integers(0, 10_000)),
    st.tuples(st.just("put back"), st.integers(0, 5)),
)


@settings(max_examples=200)
@given(acts=st.lists(acts, max_size=60))
def test_it_does_what_a_plain_list_does(acts):
    line, plain, taken, now = Fifo(GRAPH), [], [], 0.0
    made = []
    for act, number in acts:
        now += 1.0
        if act == "append":
            for _ in range(number):
                made.append(Request(len(made), "net", now - 0.5))
                line.append(made[-1], now)
                plain.append((now, made[-1]))
        elif act == "take":
            batch = line.take(number)
            assert list(batch) == [request for _, request in plain[:number]]
            taken += batch
            del plain[:number]
        elif act == "put back":
            again = taken[:number]
            del taken[:number]
            line.put_back(again)
            plain = sorted([*((request.arrival, request) for request in again), *plain], key=lambda entry: entry[0])
        elif made:
            for offset in range(1 if act == "remove" else 60):
                request = made[(number + offset) % len(made)]
                waits = [entry for entry in plain if entry[1] is request]
                assert line.remove(request) == bool(waits)
                plain = [entry for entry in plain if entry[1] is not request]
        assert line.size() == len(plain)
        assert line.peek(5) == [request for _, request in plain[:5]]
        if plain:
            assert (line.oldest(), line.first()) == plain[0]
        else:
            assert line.oldest() == float("inf")


@pytest.mark.parametrize("leaves", ["first", "last", "between"])
def test_it_holds_no_more_places_than_a_few_times_what_waits(leaves):
    """Two wait, and of the thousands that pass nothing is kept."""
    line = Fifo(GRAPH)
    first, last = Request(-1, "net", 0.0), Request(-2, "net", 0.0)
    line.append(first, 0.0)
    line.append(last, 0.0)
    for number in range(20_000):
        request = Request(number, "net", 0.0)
        line.append(request, 0.0)
        if leaves == "between":
            assert line.remove(request)
        else:
            assert line.remove(first if leaves == "first" else last)
            first, last = (last, request) if leaves == "first" else (first, request)
    assert line.size() == 2 and line.first() is first
    assert len(line.requests) == len(line.since) <= 4096


def test_a_request_that_was_removed_is_let_go_of_at_once():
    line = Fifo(GRAPH)
    requests = [Request(number, "net", 0.0) for number in range(3)]
    for request in requests:
        line.append(request, 0.0)
    held = sys.getrefcount(requests[1])
    assert line.remove(requests[1]) and not line.remove(requests[1])
    left = sys.getrefcount(requests[1])
    assert left == held - 1
    assert line.take(3) == (requests[0], requests[2])
