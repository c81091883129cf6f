"""Test the growth of the KV cache against requests that are counted one by one."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.batching.steps.kv_cache import KvCache


@given(
    size=st.integers(1, 20),
    spare=st.integers(0, 60),
    tokens=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    before=st.integers(0, 40),
)
def test_steps_that_fit_are_as_many_as_the_blocks_allow(size, spare, tokens, before):
    def blocks(steps):
        return sum(-(-(each + steps) // size) for each in tokens)

    cache = KvCache(blocks(before) + spare, size)
    cache.free -= blocks(0)
    for each in tokens:
        cache.joins(each - cache.steps)
    if cache.growth(before) <= cache.free:
        cache.decode(before)
    assert cache.free == spare
    fit = 0
    while blocks(before + fit + 1) - blocks(before) <= spare:
        fit += 1
    assert cache.steps_that_fit() == fit
    assert cache.next_growth() == blocks(before + 1) - blocks(before)
    assert cache.growth(fit) == blocks(before + fit) - blocks(before)
    cache.decode(fit)
    for each in tokens:
        cache.leaves(each)
    assert cache.free == cache.blocks


def test_the_example_of_the_head():
    cache = KvCache(9, 4)
    cache.joins(6)
    cache.joins(8)
    assert [cache.growth(steps + 1) - cache.growth(steps) for steps in range(5)] == [1, 0, 1, 0, 1]


def test_blocks_of_a_chunk_count_from_where_the_request_stands():
    cache = KvCache(9, 4)
    assert [cache.needed(tokens) for tokens in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [cache.more(past, 3) for past in (0, 1, 2, 4)] == [1, 0, 1, 1]
