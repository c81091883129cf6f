"""The state that all step policies share: who waits, who runs, what each has computed, and which blocks it holds.

A policy derives from StepBatching and decides in `next_step` alone. Five rules hold for all of them:

1. All requests that decode do so in the same steps, or none of them does.
2. At most one running request has not finished its prefill when a step begins: the one that was admitted last.
3. Preemption (vLLM V1, first come first served). If a request needs a block and none is free, the request that was
   admitted last is preempted, and the need is looked at again. It loses its blocks and goes to the front of the waiting
   requests. Its encoded items are kept. In a step with a preemption no request is admitted.
4. Admission. A waiting request is admitted only if blocks for all tokens of its prefill are free, and not for its first
   chunk alone. Each running request has promised blocks: those of its prompt, and of a share of its largest output
   (`StepLimits.reserved_output`). The promises of all running requests never exceed the cache. So with a share of 1 no
   request is ever preempted.
5. Prefix caching (prefix_cache.py). A request that is admitted holds the blocks that it finds, and prefills the rest.
   Rule 4 counts a block once that several requests hold. The running requests take the blocks of a step first. Others
   find the blocks of a chunk from its own step on, and those of an output when it has ended or was preempted.

A request is submitted only if the cache can hold it alone, up to its largest output. So the request that was admitted
first always advances, and every request ends.

A request that decodes is touched when it joins and when it leaves, and not in the steps between. Its tokens in the
cache follow from the number of steps (kv_cache.py).

This file is compiled (setup.py).
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from headrace.batching.errors import BadInput, UsageError
from headrace.batching.steps.kv_cache import KvCache
from headrace.batching.steps.policy import StepContext
from headrace.batching.steps.prefix_cache import Chain, Match, PrefixCache
from headrace.batching.steps.request import Part, Step, StepRequest
from headrace.batching.steps.settings import StepLimits


class Entry:
    """A request in a policy.

    `total` is the number of tokens that its prefill computes: the prompt, and the output that it has generated.
    `computed` counts those in the cache. While it decodes, `base` counts instead (see `KvCache`).
    `promised` are its blocks by rule 4 of the head, while it runs.
    `ticket` and `passed_over` are for the queue where it waits. `chain` has its contents, with prefix caching.
    """

    def __init__(self, request: StepRequest, chain: Chain | None = None) -> None:
        self.request: Final[StepRequest] = request
        self.chain: Final[Chain | None] = chain
        self.total: int = request.prompt_tokens
        self.computed: int = 0
        self.base: int = 0
        self.promised: int = 0
        self.encoded: int = 0  # items
        self.waits: bool = True
        self.ticket: int = 0
        self.passed_over: bool = False

    def generated(self, steps: int) -> int:
        """Return the output tokens of a request that decodes, after so many steps of `KvCache.steps`."""
        return self.base + steps - self.request.prompt_tokens + 1


class WaitingQueue(ABC):
    """The requests that wait for admission, in the order of a policy."""

    @abstractmethod
    def put(self, entry: Entry) -> None:
        """Add a request that came."""

    @abstractmethod
    def put_back(self, entry: Entry) -> None:
        """Add a request that was preempted."""

    @abstractmethod
    def first(self, now: float) -> Entry | None:
        """Return the request that is admitted next; None if no request waits."""

    @abstractmethod
    def remove(self, entry: Entry) -> None:
        """Remove a request that waits, which may be the one that `first` returned."""


class FirstComeFirstServed(WaitingQueue):
    """The order of vLLM: as requests came, with preempted ones in front."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()

    def put(self, entry: Entry) -> None:
        self._entries.append(entry)

    def put_back(self, entry: Entry) -> None:
        self._entries.appendleft(entry)

    def first(self, now: float) -> Entry | None:
        return self._entries[0] if len(self._entries) > 0 else None

    def remove(self, entry: Entry) -> None:
        if self._entries[0] is entry:
            self._entries.popleft()
        else:
            self._entries.remove(entry)


class StepBatching(ABC):
    """The base of all step policies.

    Args:
        context: The replica.
        waiting: The order of the waiting requests.
        limits: The limits of a step, and the share of an output that is promised.
        chunked: Whether a prompt may be prefilled in several steps.

    Raises:
        UsageError: A step cannot hold one token of each request.
    """

    def __init__(
        self,
        context: StepContext,
        waiting: WaitingQueue,
        limits: StepLimits,
        chunked: bool = True,
    ) -> None:
        self.max_num_batched_tokens: Final[int] = limits.max_num_batched_tokens
        self.max_num_seqs: Final[int] = limits.max_num_seqs
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise UsageError(
                f"--max-num-batched-tokens {self.max_num_batched_tokens} is below --max-num-seqs {self.max_num_seqs}; "
                "give one token for each request, or more"
            )
        self.max_encoder_tokens: Final[int] = limits.encoder_limit
        self._reserved_output: Final[float] = limits.reserved_output
        self.context: Final[StepContext] = context
        self.cache: Final[KvCache] = KvCache(context.kv_blocks, context.block_size)
        self.prefixes: Final[PrefixCache | None] = PrefixCache(context.block_size) if context.prefix_caching else None
        self.waiting: Final[WaitingQueue] = waiting
        self.decoding: dict[int, Entry] = {}  # by id, in the order of admission
        self.partial: Entry | None = None  # the running request that has not finished its prefill
        self._promised: int = 0  # blocks, by all running requests
        self._chunked: bool = chunked
        self._entries: dict[int, Entry] = {}
        self._decoding_requests: tuple[StepRequest, ...] | None = None  # None after a change
        # The parts of the step that is formed.
        self._prefill: list[Part] = []
        self._encoder: list[Part] = []
        self._preempted: list[StepRequest] = []
        self._found: list[Part] = []
        self.whole: list[Entry] = []  # the requests that end their prefill with it
        self._tokens: int = 0  # of its chunks
        self._encoder_tokens: int = 0

    @abstractmethod
    def next_step(self, now: float) -> Step | None:
        """See StepPolicy."""

    def submit(self, request: StepRequest, now: float) -> None:
        """See StepPolicy."""
        tokens = request.prompt_tokens + request.max_output_tokens - 1  # the last output token is never computed
        if self.cache.needed(tokens) > self.cache.blocks:
            raise BadInput(
                f"request {request.id} may have {tokens} tokens in the KV cache, which holds "
                f"{self.cache.blocks * self.cache.block_size}; send a shorter one, or give more blocks"
            )
        at_once = request.prompt_tokens if self._reserved_output == 1.0 else tokens
        if not self._chunked and at_once > self.max_num_batched_tokens:
            raise BadInput(
                f"request {request.id} may prefill {at_once} tokens at once, and a step has at most "
                f"{self.max_num_batched_tokens}; send a shorter one, or give --max-num-batched-tokens a larger number"
            )
        entry = Entry(request, None if self.prefixes is None else self.prefixes.chain(request.contents))
        self._entries[request.id] = entry
        self.waiting.put(entry)

    def complete(self, step: Step, now: float) -> None:
        """See StepPolicy."""
        for request, items in step.encoder:
            self._entries[request.id].encoded += items
        cache = self.cache
        if len(step.decoding) > 0:
            cache.decode(step.repeats)
            self._keep_idle(0)
        for request, tokens in step.prefill:
            entry = self._entries[request.id]
            entry.computed += tokens
            if entry.computed == entry.total:
                if entry is self.partial:
                    self.partial = None
                self._joins(entry)
        for request in step.finished:
            self._ends(self._entries[request.id])

    def withdraw(self, request: StepRequest, now: float) -> bool:
        """See StepPolicy."""
        entry = self._entries.get(request.id)
        if entry is None or entry.request is not request:
            return False
        if entry.waits:
            self.waiting.remove(entry)
            del self._entries[request.id]
        else:
            self._ends(entry)
        return True

    # ---- for the policies ----

    def running(self) -> int:
        """Return the number of requests that were admitted and have not ended, those of the formed step included."""
        return len(self.decoding) + len(self.whole) + (0 if self.partial is None else 1)

    def idle(self) -> bool:
        """Return whether the policy has no requests."""
        return len(self._entries) == 0

    @property
    def evicted_blocks(self) -> int:
        """Return how many blocks of the prefix cache were evicted so far."""
        return 0 if self.prefixes is None else self.prefixes.evicted

    def computed(self, entry: Entry) -> int:
        """Return the tokens of a request that are in the cache: those that it would find, if it waits."""
        if entry.waits and self.prefixes is not None:
            return self._match(entry).blocks * self.cache.block_size
        return entry.computed

    def begin_step(self) -> None:
        """Begin to form a step."""
        self._prefill = []
        self._encoder = []
        self._preempted = []
        self._found = []
        self.whole = []
        self._tokens = 0
        self._encoder_tokens = 0

    def make_room(self) -> None:
        """Preempt requests until the next step of decoding has its blocks."""
        cache = self.cache
        while cache.next_growth() > cache.free:
            if self.partial is not None:
                self._preempt(self.partial)
            else:
                self._preempt(self.decoding[next(reversed(self.decoding))])
        self._keep_idle(cache.next_growth())

    def advance_partial(self, budget: int, reserved: int) -> None:
        """Add the next chunk of the running request that has not finished its prefill, if there is one.

        If its items are not all encoded, the next ones are added, and the chunk follows once all are. The request is
        preempted if the blocks for the chunk are not free.

        Args:
            budget: The largest number of tokens of the chunk.
            reserved: The blocks that the decoding of the same step takes.
        """
        entry = self.partial
        if entry is None or budget < 1:
            return
        items = self._items_that_fit(entry)
        if entry.encoded + items == len(entry.request.items):
            tokens = min(entry.total - entry.computed, budget)
            more = self.cache.more(entry.computed, tokens)
            if more > self.cache.free - reserved:
                self._preempt(entry)
                return
            self.cache.free -= more
            self._keep_idle(reserved)
            self._takes(entry, tokens)
        self._encodes(entry, items)

    def admit(self, entry: Entry, budget: int, reserved: int) -> bool:
        """Admit a waiting request, with its first chunk or its next items. Return whether it is admitted.

        Args:
            entry: The request.
            budget: The largest number of tokens of the chunk.
            reserved: The blocks that the decoding of the same step takes.
        """
        cache = self.cache
        match = None if self.prefixes is None else self._match(entry)
        found, idle, held = (0, 0, 0) if match is None else (match.blocks, match.idle, match.blocks - match.idle)
        past = found * cache.block_size
        tokens = min(entry.total - past, budget)
        if tokens < 1 or self.running() >= self.max_num_seqs or (not self._chunked and past + tokens < entry.total):
            return False
        items, left = self._items_that_fit(entry), len(entry.request.items) - entry.encoded
        if items == 0 and left > 0:
            return False
        promised = self._promise_of(entry)
        if (
            cache.needed(entry.total) - held > cache.free - reserved
            or self._promises() + promised - held > cache.blocks
        ):
            return False
        self.waiting.remove(entry)
        entry.waits = False
        entry.promised = promised
        self._promised += promised
        self.partial = entry
        if found > 0:
            self._finds(entry, match, past)
            cache.free -= idle
        if items == left:
            cache.free -= cache.more(past, tokens)
            self._keep_idle(reserved)
            self._takes(entry, tokens)
        self._encodes(entry, items)
        return True

    def fill(self, budget: int, reserved: int, now: float) -> None:
        """Add the next chunk of the running request that has not finished its prefill, and then admit waiting requests
        in their order until one of them cannot be admitted.

        Args:
            budget: The largest number of tokens of all chunks together.
            reserved: The blocks that the decoding of the same step takes.
            now: The time (s).
        """
        self.advance_partial(budget, reserved)
        while self.partial is None and not self.has_preempted():
            first = self.waiting.first(now)
            if first is None or not self.admit(first, self.budget_left(budget), reserved):
                return

    def budget_left(self, budget: int) -> int:
        """Return what the chunks of the formed step leave of `budget` tokens."""
        return budget - self._tokens

    def mixed_step(self, now: float) -> Step:
        """Return a step that decodes, and gives the rest of the token budget to prefill."""
        self.begin_step()
        self.make_room()
        self.fill(self.max_num_batched_tokens - len(self.decoding), self.cache.next_growth(), now)
        return self.formed(True)

    def formed(self, decodes: bool, once: bool = False) -> Step:
        """Return the formed step.

        A step that decodes and does nothing else may be repeated until the free blocks are used.

        Args:
            decodes: Whether all requests that decode do so in the step.
            once: Whether the answer may change before, so that the step must not be repeated.
        """
        decoding: tuple[StepRequest, ...] = ()
        if decodes and len(self.decoding) > 0:
            if self._decoding_requests is None:
                self._decoding_requests = tuple([entry.request for entry in self.decoding.values()])
            decoding = self._decoding_requests
        repeats = 1
        if not once and len(decoding) > 0 and not self.has_parts() and not self.has_preempted():
            repeats = self.cache.steps_that_fit()
        parts = tuple(self._prefill), decoding, tuple(self._encoder), tuple(self._preempted)
        return Step(*parts, repeats, (), tuple(self._found))

    def has_preempted(self) -> bool:
        """Return whether a request was preempted for the formed step."""
        return len(self._preempted) > 0

    def has_parts(self) -> bool:
        """Return whether the formed step has a chunk or an encoder item."""
        return len(self._prefill) > 0 or len(self._encoder) > 0

    # ---- within ----

    def _match(self, entry: Entry) -> Match:
        """Return what a waiting request finds in the cache."""
        assert self.prefixes is not None and entry.chain is not None
        return self.prefixes.match(entry.chain, entry.total)

    def _finds(self, entry: Entry, match: Match | None, tokens: int) -> None:
        """Let a request that is admitted hold the blocks of so many tokens that it found."""
        assert self.prefixes is not None and entry.chain is not None and match is not None
        self.prefixes.take(entry.chain, match)
        entry.computed = tokens
        self._found.append((entry.request, tokens))

    def _keep_idle(self, reserved: int) -> None:
        """Evict the idle blocks that are not free any more, or that decoding takes."""
        if self.prefixes is not None and self.prefixes.idle > self.cache.free - reserved:
            self.prefixes.keep(self.cache.free - reserved)

    def _promises(self) -> int:
        """Return the blocks that all running requests promise. A block that several hold counts once."""
        return self._promised if self.prefixes is None else self._promised - self.prefixes.overlap

    def _promise_of(self, entry: Entry) -> int:
        """Return the blocks that a request promises at its admission: those of its prefill at least."""
        request = entry.request
        output = math.ceil(self._reserved_output * (request.max_output_tokens - 1))
        return self.cache.needed(max(entry.total, request.prompt_tokens + output))

    def _items_that_fit(self, entry: Entry) -> int:
        """Return how many of the request's next items the formed step has room for."""
        items = entry.request.items
        place, tokens = entry.encoded, self._encoder_tokens
        while place < len(items) and (tokens == 0 or tokens + items[place] <= self.max_encoder_tokens):
            tokens += items[place]
            place += 1
        return place - entry.encoded

    def _encodes(self, entry: Entry, items: int) -> None:
        """Add the request's next items to the formed step."""
        if items > 0:
            self._encoder_tokens += sum(entry.request.items[entry.encoded : entry.encoded + items])
            self._encoder.append((entry.request, items))

    def _takes(self, entry: Entry, tokens: int) -> None:
        """Add a chunk, whose blocks are taken already, to the formed step."""
        self._prefill.append((entry.request, tokens))
        self._tokens += tokens
        if entry.chain is not None and self.prefixes is not None:
            self.prefixes.register(entry.chain, entry.computed + tokens)
        if entry.computed + tokens == entry.total:
            self.whole.append(entry)
            self.partial = None
        else:
            self.partial = entry

    def _joins(self, entry: Entry) -> None:
        entry.base = entry.computed - self.cache.steps
        self.cache.joins(entry.base)
        self.decoding[entry.request.id] = entry
        self._decoding_requests = None

    def _preempt(self, entry: Entry) -> None:
        self._release(entry)
        entry.computed = 0
        entry.waits = True
        self.waiting.put_back(entry)
        self._preempted.append(entry.request)

    def _ends(self, entry: Entry) -> None:
        self._release(entry)
        del self._entries[entry.request.id]

    def _release(self, entry: Entry) -> None:
        """Take a running request out of the batch, and free its blocks. Its output so far counts in `total`."""
        self._promised -= entry.promised
        if entry is self.partial:
            self.partial = None
            tokens = entry.computed
            self.cache.free += self.cache.needed(tokens)
        else:
            tokens = entry.base + self.cache.steps
            entry.total = entry.request.prompt_tokens + entry.generated(self.cache.steps)
            self.cache.leaves(entry.base)
            del self.decoding[entry.request.id]
            self._decoding_requests = None
        if entry.chain is not None and self.prefixes is not None:
            self.prefixes.register(entry.chain, tokens)
            self.cache.free -= self.prefixes.release(entry.chain)
