"""Test the runs of the prefix cache: timelines by hand, and a count of every block."""

from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from headrace.batching.steps.prefix_cache import PrefixCache


def found(cache, contents, tokens):
    return cache.match(cache.chain(contents), tokens).blocks


def holds(cache, contents, tokens):
    """Let a request find its first blocks and compute the others. Return its chain."""
    chain = cache.chain(contents)
    cache.take(chain, cache.match(chain, tokens))
    cache.register(chain, tokens)
    return chain


def test_the_example_of_the_head():
    cache = PrefixCache(4)
    first = holds(cache, ((7, 9), (8, 14)), 14)
    assert cache.release(first) == 0
    assert cache.idle == 3
    second = cache.chain(((7, 9), (9, 13)))
    match = cache.match(second, 14)
    assert (match.blocks, match.idle) == (2, 2)
    cache.take(second, match)
    assert cache.idle == 1
    cache.keep(0)  # the block of 8 alone was idle
    assert cache.evicted == 1
    assert found(cache, ((7, 9), (8, 14)), 14) == 2


def test_the_last_token_is_computed_and_its_block_exists_twice_then():
    cache = PrefixCache(4)
    first = holds(cache, ((1, 8),), 8)
    assert found(cache, ((1, 8),), 8) == 1
    assert found(cache, ((1, 8),), 9) == 2
    second = holds(cache, ((1, 8),), 8)
    assert cache.overlap == 1
    assert cache.release(first) == 1
    assert cache.idle == 1
    assert cache.release(second) == 0
    assert cache.idle == 3


def test_tokens_of_a_request_itself_are_found_by_itself_alone():
    cache = PrefixCache(4)
    chain = holds(cache, ((1, 8),), 16)
    assert found(cache, ((1, 8),), 16) == 2
    assert found(cache, (), 16) == 0
    cache.release(chain)
    assert cache.match(chain, 17).blocks == 4


def test_the_end_of_a_request_is_evicted_first_and_what_was_used_last_goes_last():
    cache = PrefixCache(4)
    for segment in (1, 2):
        cache.release(holds(cache, ((segment, 12),), 12))
    cache.release(holds(cache, ((1, 4), (3, 8)), 8))  # uses the first block of 1 again
    left = []
    for number in range(7, -1, -1):
        cache.keep(number)
        left.append([found(cache, ((segment, 12),), 13) for segment in (1, 2)])
    # In the queue: blocks 2 and 1 of 1, blocks 2, 1 and 0 of 2, then that of 3 and block 0 of 1.
    assert left == [[3, 3], [2, 3], [1, 3], [1, 2], [1, 1], [1, 0], [1, 0], [0, 0]]
    assert cache.evicted == 7


def test_a_prompt_that_goes_on_finds_what_the_last_one_and_its_output_left():
    cache = PrefixCache(4)
    first = cache.chain(((5, 100),))
    cache.register(first, 6)  # the prompt
    cache.register(first, 19)  # with its output
    cache.release(first)
    assert found(cache, ((5, 200),), 30) == 4


SEGMENTS = {0: (None, 10), 1: (0, 25), 2: (0, 18), 3: (None, 30), 4: (1, 40)}  # the one before, and the end


def path(segment):
    before, end = SEGMENTS[segment]
    return (*(() if before is None else path(before)), (segment, end))


@st.composite
def contents(draw):
    """Return contents that end anywhere in one of the segments, so that equal numbers mean equal tokens."""
    whole = path(draw(st.sampled_from(sorted(SEGMENTS))))
    start = whole[-2][1] if len(whole) > 1 else 0
    return (*whole[:-1], (whole[-1][0], draw(st.integers(start + 1, whole[-1][1]))))


class EveryBlock:
    """The same rules with one object for each block."""

    def __init__(self, size):
        self.size, self.queue, self.holders, self.copies, self.evicted, self.number = size, [], {}, {}, 0, 0

    def key(self, request, block):
        last = (block + 1) * self.size - 1
        segment = next((segment for segment, end in request["contents"] if last < end), ("own", request["id"]))
        return segment, block

    def match(self, request, tokens):
        blocks = []
        while (len(blocks) + 1) * self.size < tokens:
            copies = self.copies.get(self.key(request, len(blocks)))
            if not copies:
                return blocks
            blocks.append(copies[0])
        return blocks

    def take(self, request, tokens):
        request["blocks"] = self.match(request, tokens)
        for block in request["blocks"]:
            self.holders[block] += 1
            if block in self.queue:
                self.queue.remove(block)

    def register(self, request, tokens):
        while len(request["blocks"]) < tokens // self.size:
            key = self.key(request, len(request["blocks"]))
            self.number += 1
            block = (key, self.number)
            self.holders[block] = 1
            self.copies.setdefault(key, []).append(block)
            request["blocks"].append(block)

    def release(self, request):
        held = 0
        for block in reversed(request["blocks"]):
            self.holders[block] -= 1
            held += self.holders[block] > 0
            if not self.holders[block]:
                self.queue.append(block)
        request["blocks"] = []
        return held

    def keep(self, blocks):
        while len(self.queue) > blocks:
            block = self.queue.pop(0)
            self.copies[block[0]].remove(block)
            del self.holders[block]
            self.evicted += 1


@given(data=st.data(), size=st.sampled_from([1, 3, 4, 8]))
@examples(150, 1500)
def test_runs_equal_single_blocks(data, size):
    """Requests begin, go on, end and begin again in any order, and idle blocks are evicted between them."""
    cache, model, requests = PrefixCache(size), EveryBlock(size), []
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["begin", "go on", "end", "again", "keep"])):
            case "begin":
                given = data.draw(contents())
                requests.append(
                    {"id": len(requests), "contents": given, "blocks": [], "tokens": 0, "chain": cache.chain(given)}
                )
                begins(data, cache, model, requests[-1])
            case "again":
                if ended := [request for request in requests if not request["tokens"]]:
                    begins(data, cache, model, data.draw(st.sampled_from(ended)))
            case "go on":
                if running := [request for request in requests if request["tokens"]]:
                    request = data.draw(st.sampled_from(running))
                    request["tokens"] += data.draw(st.integers(1, 20))
                    cache.register(request["chain"], request["tokens"])
                    model.register(request, request["tokens"])
            case "end":
                if running := [request for request in requests if request["tokens"]]:
                    request = data.draw(st.sampled_from(running))
                    request["tokens"] = 0
                    assert cache.release(request["chain"]) == model.release(request)
            case "keep":
                left = data.draw(st.integers(0, 12))
                cache.keep(left)
                model.keep(left)
        assert cache.idle == len(model.queue) == sum(not holders for holders in model.holders.values())
        assert cache.evicted == model.evicted
        assert cache.overlap == sum(holders - 1 for holders in model.holders.values() if holders)
        assert all(holders >= 0 for holders in model.holders.values())
        runs = [run for each in cache._runs.values() for run in each]
        assert sum(run.end - run.start for run in runs) == len(model.holders)
        assert all(run.end > run.start and run.holders >= 0 for run in runs)


def begins(data, cache, model, request):
    tokens = data.draw(st.integers(1, 45))
    match, expected = cache.match(request["chain"], tokens), model.match(request, tokens)
    assert match.blocks == len(expected)
    assert match.idle == sum(not model.holders[block] for block in expected)
    request["tokens"] = max(1, match.blocks * cache._block_size)
    cache.take(request["chain"], match)
    model.take(request, tokens)


def test_nothing_stays_when_all_was_evicted():
    cache = PrefixCache(4)
    for number in range(100):
        cache.release(holds(cache, ((number % 7, 20), (100 + number, 40)), 50))
        cache.keep(30)
        assert sum(map(len, cache._runs.values())) <= 30
    cache.keep(0)
    assert not cache._runs
    assert cache._queue.newer is cache._queue.older is cache._queue
