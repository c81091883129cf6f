"""Share blocks of the KV cache with equal contents, and keep them when their requests have ended (prefix caching).

Source: vLLM V1, `vllm/v1/core/block_pool.py`, `kv_cache_manager.py` and `FullAttentionManager` of
`single_type_kv_cache_manager.py`, with one group of layers of full attention.

Rules
-----
1. Only whole blocks are shared. A block has the contents of all tokens from the first one of its request to its own
   last one. So a request finds the blocks of its prompt one after another, up to the first that is not in the cache.
   The last token is always computed: its block is computed whole, and exists twice then.
2. A block counts the requests that hold it. It takes room once.
3. A request that ends or is preempted gives its blocks back, the last one first. A whole block that nobody holds then
   is idle: it is free, but requests still find it. Its place is at the end of the queue of idle blocks.
4. A new block takes room that holds nothing, if there is any. If not, the first block of the queue is evicted.

What a request contains
-----------------------
A request names segments (`StepRequest.contents`): `((7, 100), (9, 500))` are 100 tokens that 7 stands for, and 400 that
9 stands for. A number stands for all tokens up to the segment's end, those before the segment included. All other
tokens are the request's own: it finds them again after a preemption, and no other request does.

    block_size 4, R1 ((7, 9), (8, 14)) and R2 ((7, 9), (9, 13)), prompts of 14 tokens

    tokens   0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13
    R1          7         7          8                 R1 ends. Idle, first to last: block 2 of 8, blocks 1 and 0 of 7.
    R2          7         7          9                 R2 finds 8 tokens and computes 6.

Cost
----
Blocks that follow each other and have equal holders are one `Run`, so the cost grows with the segments of requests, and
not with their blocks. A run is split where a request holds only its first part, and its end is evicted before its
beginning. At most as many runs are kept as there are blocks.

This file is compiled (setup.py).
"""

from typing import Final

ENDLESS: Final = 1 << 60  # blocks


class Run:
    """The blocks from `start` to `end` of a segment, which `holders` requests hold.

    `tail` is the part that was split off its end, which the holders at that time hold, too. An idle run stands in the
    queue between `older` and `newer`."""

    def __init__(self, segment: int, start: int, end: int, holders: int) -> None:
        self.segment: Final[int] = segment
        self.start: Final[int] = start
        self.end: int = end
        self.holders: int = holders
        self.tail: Run | None = None
        self.older: Run | None = None
        self.newer: Run | None = None


class Chain:
    """The contents of one request, and the runs that it holds.

    A request that holds a run holds the blocks up to the run's entry in `ends`, in that run and in its tails. `blocks`
    is the number of blocks in all its runs, which are the first ones of the request."""

    def __init__(self, contents: tuple[tuple[int, int], ...], own: int, block_size: int) -> None:
        self.segments: Final[list[int]] = [segment for segment, _ in contents] + [own]
        self.stops: Final[list[int]] = [end // block_size for _, end in contents] + [ENDLESS]
        self.runs: list[Run] = []
        self.ends: list[int] = []
        self.blocks: int = 0


class Match:
    """The runs that a request finds, each with the block at which it ends for the request.

    `idle` of all these `blocks` are held by no request."""

    def __init__(self) -> None:
        self.runs: Final[list[Run]] = []
        self.ends: Final[list[int]] = []
        self.blocks: int = 0
        self.idle: int = 0


class PrefixCache:
    """The whole blocks whose contents are known, those of running requests and the idle ones.

    Attributes:
        idle: The number of idle blocks.
        overlap: The blocks that requests hold together, less those that they hold as one: one for each holder of a
            block but the first.
        evicted: The number of blocks that were evicted so far.
    """

    def __init__(self, block_size: int) -> None:
        self.idle: int = 0
        self.overlap: int = 0
        self.evicted: int = 0
        self._block_size: Final[int] = block_size
        self._own: int = 0  # the last number of tokens that are a request's own; they fall from -1
        self._runs: Final[dict[int, list[Run]]] = {}  # by segment, in the order in which they came
        self._queue: Final[Run] = Run(0, 0, 0, 0)  # its `newer` is the first of the queue, and its `older` the last
        self._queue.older = self._queue.newer = self._queue

    def chain(self, contents: tuple[tuple[int, int], ...]) -> Chain:
        """Return the contents of a new request."""
        self._own -= 1
        return Chain(contents, self._own, self._block_size)

    def match(self, chain: Chain, tokens: int) -> Match:
        """Return what a request finds, if it is to have so many tokens and computes the last one of them."""
        found = Match()
        limit = (tokens - 1) // self._block_size
        block, place = 0, 0
        while block < limit:
            while chain.stops[place] <= block:
                place += 1
            run = self._run_at(chain.segments[place], block)
            if run is None:
                break
            end = min(run.end, chain.stops[place], limit)
            found.runs.append(run)
            found.ends.append(end)
            if run.holders == 0:
                found.idle += end - block
            block = end
        found.blocks = block
        return found

    def take(self, chain: Chain, match: Match) -> None:
        """Let a request hold what it found. It must be the last match, and the request must hold nothing."""
        block = 0
        for run, end in zip(match.runs, match.ends, strict=True):
            part = run if run.start == block else self._split(run, block)
            if end < part.end:
                self._split(part, end)
            if part.holders == 0:
                self._unlink(part)
                self.idle -= end - block
            else:
                self.overlap += end - block
            part.holders += 1
            chain.runs.append(part)
            chain.ends.append(end)
            block = end
        chain.blocks = match.blocks

    def register(self, chain: Chain, tokens: int) -> None:
        """Let other requests find the whole blocks of a request that has so many tokens in the cache."""
        blocks = tokens // self._block_size
        start, place = chain.blocks, 0
        while start < blocks:
            end = min(blocks, chain.stops[place])
            if start < end:
                self._append(chain, chain.segments[place], start, end)
                start = end
            place += 1
        chain.blocks = max(chain.blocks, blocks)

    def release(self, chain: Chain) -> int:
        """Take its blocks from a request. Return how many of them other requests hold."""
        held = 0
        for place in range(len(chain.runs) - 1, -1, -1):
            run, end = chain.runs[place], chain.ends[place]
            parts = [run]
            while parts[-1].end < end:
                tail = parts[-1].tail
                assert tail is not None
                parts.append(tail)
            for part in reversed(parts):
                blocks = part.end - part.start
                part.holders -= 1
                if part.holders == 0:
                    self._link_before(part, self._queue)
                    self.idle += blocks
                else:
                    self.overlap -= blocks
                    held += blocks
        chain.runs = []
        chain.ends = []
        chain.blocks = 0
        return held

    def keep(self, blocks: int) -> None:
        """Evict idle blocks until at most so many are left."""
        while self.idle > blocks:
            run = self._queue.newer
            assert run is not None
            number = min(self.idle - blocks, run.end - run.start)
            run.end -= number
            self.idle -= number
            self.evicted += number
            if run.end == run.start:
                self._unlink(run)
                runs = self._runs[run.segment]
                runs.remove(run)
                if len(runs) == 0:
                    del self._runs[run.segment]

    # ---- within ----

    def _run_at(self, segment: int, block: int) -> Run | None:
        """Return the first run with a block of a segment; None if there is none."""
        runs = self._runs.get(segment)
        if runs is not None:
            for run in runs:
                if run.start <= block < run.end:
                    return run
        return None

    def _append(self, chain: Chain, segment: int, start: int, end: int) -> None:
        """Add blocks that a request has computed to those that it holds."""
        runs = self._runs.get(segment)
        if runs is None:
            runs = self._runs[segment] = []
        elif len(chain.runs) > 0:
            last = chain.runs[-1]
            if last is runs[-1] and last.end == start and last.holders == 1:
                last.end = end
                last.tail = None  # no request holds a block beyond
                chain.ends[-1] = end
                return
        run = Run(segment, start, end, 1)
        runs.append(run)
        chain.runs.append(run)
        chain.ends.append(end)

    def _split(self, run: Run, at: int) -> Run:
        """Split a run in two, and return the second part."""
        tail = Run(run.segment, at, run.end, run.holders)
        tail.tail = run.tail
        run.end = at
        run.tail = tail
        runs = self._runs[run.segment]
        runs.insert(runs.index(run) + 1, tail)
        if run.holders == 0:
            self._link_before(tail, run)  # the end of a run is evicted first
        return tail

    def _link_before(self, run: Run, newer: Run) -> None:
        """Put a run into the queue, before another one or at its end."""
        older = newer.older
        assert older is not None
        run.older = older
        run.newer = newer
        older.newer = run
        newer.older = run

    def _unlink(self, run: Run) -> None:
        """Take a run out of the queue."""
        older, newer = run.older, run.newer
        assert older is not None and newer is not None
        older.newer = newer
        newer.older = older
        run.older = run.newer = None
