"""The step policy `token-deadline` keeps both targets: time to first token, and time per output token.

Sources: Sarathi-Serve (Agrawal et al., OSDI 2024) for chunks whose size follows from the target per token; earliest
deadline first (Liu and Layland, JACM 1973) for the order of first tokens; Nexus (Shen et al., SOSP 2019) for passing
over requests that are too late.

Rules
-----
1. Every step decodes one token of each request that decodes.
2. Chunk size. The next token of a request with g tokens is due at first_token_by + g tpot_s. A token that is late
   already is due tpot_s from now. Prefill gets the largest number of tokens for which the predicted step ends by the
   earliest of these times, in whole multiples of `chunk_tokens`, up to the budget of `max_num_batched_tokens` tokens.
   It gets at least one such multiple, so that prefill always advances.
3. Order. The request that has not finished its prefill goes on first. Waiting requests follow by `first_token_by`, the
   earliest first. A request without a target is due MAX_WAIT_S after its arrival.
4. Late requests. A request whose first token would be late even if its whole prompt was prefilled at once and alone,
   without tokens that the cache has, is passed over:
   its due time becomes `first_token_by` + MAX_WAIT_S. So it delays no request that can still be in time, and it does
   not starve: every request is first in the end.
5. A preempted request goes before all others. Otherwise its blocks would go to another request, which would be
   preempted in its turn.

Preemption for blocks is that of batch.py. If no request has a target for its tokens, rule 2 gives the whole budget, and
the policy differs from `continuous` by its order alone.

This file is compiled (setup.py).
"""

import heapq
import math

from headrace.batching.settings import setting, settings
from headrace.batching.steps.batch import Entry, StepBatching, WaitingQueue
from headrace.batching.steps.policy import EncoderLatencyModel, StepContext, StepLatencyModel, StepPolicy
from headrace.batching.steps.request import Step
from headrace.batching.steps.settings import StepLimits

MAX_WAIT_S = 60.0  # a request that came so much earlier than all others goes before them, whatever their targets
CHUNK_TOKENS = 128


class EarliestFirstToken(WaitingQueue):
    """Waiting requests by the time at which their first token is due.

    An entry of the heap with another ticket than its request is out of date. It is dropped when it comes to the
    top."""

    def __init__(self, latency: StepLatencyModel, encoder: EncoderLatencyModel | None) -> None:
        self._latency: StepLatencyModel = latency
        self._encoder: EncoderLatencyModel | None = encoder
        self._heap: list[tuple[float, int, Entry]] = []
        self._tickets: int = 0
        self._waiting: int = 0

    def put(self, entry: Entry) -> None:
        request = entry.request
        self._waiting += 1
        entry.passed_over = False
        self._push(entry, request.first_token_by if request.first_token_by < math.inf else request.arrival + MAX_WAIT_S)

    def put_back(self, entry: Entry) -> None:
        self._waiting += 1
        self._tickets += 1
        entry.passed_over = True  # whether it is late makes no difference
        entry.ticket = -self._tickets  # of several, the one that was admitted first comes first
        heapq.heappush(self._heap, (-math.inf, entry.ticket, entry))

    def first(self, now: float) -> Entry | None:
        while len(self._heap) > 0:
            entry = self._heap[0][2]
            if self._heap[0][1] != entry.ticket:
                heapq.heappop(self._heap)
                continue
            by = entry.request.first_token_by
            if entry.passed_over or now + self._prefill_seconds(entry) <= by:
                return entry
            heapq.heappop(self._heap)
            entry.passed_over = True
            self._push(entry, by + MAX_WAIT_S)
        return None

    def remove(self, entry: Entry) -> None:
        entry.ticket = 0
        self._waiting -= 1
        if len(self._heap) > 2 * self._waiting + 64:  # it keeps at most 64 more of those that left than wait
            self._heap = [each for each in self._heap if each[1] == each[2].ticket]
            heapq.heapify(self._heap)

    def _push(self, entry: Entry, due: float) -> None:
        self._tickets += 1
        entry.ticket = self._tickets
        heapq.heappush(self._heap, (due, entry.ticket, entry))

    def _prefill_seconds(self, entry: Entry) -> float:
        seconds = self._latency.seconds([(entry.total, 0)], 0, 0)
        left = entry.request.items[entry.encoded :]
        return seconds if self._encoder is None or len(left) == 0 else seconds + self._encoder.seconds(left)


class TokenDeadlineBatching(StepBatching):
    """A `StepPolicy` that keeps the targets of first tokens and of the tokens after them.

    Its last argument is the unit (tokens) in which prefill gets its share of a step."""

    def __init__(self, context: StepContext, limits: StepLimits, chunk_tokens: int) -> None:
        super().__init__(context, EarliestFirstToken(context.latency, context.encoder), limits)
        self._chunk_tokens: int = chunk_tokens

    def next_step(self, now: float) -> Step | None:
        if self.idle():
            return None
        self.begin_step()
        self.make_room()
        reserved = self.cache.next_growth()
        first = self.waiting.first(now)
        waits = first is not None
        entry = first if self.partial is None else self.partial
        if entry is not None:
            self.fill(self._prefill_budget(entry, now), reserved, now)
        return self.formed(True, once=waits)

    def _prefill_budget(self, entry: Entry, now: float) -> int:
        """Return the largest number of tokens that a step may prefill, by rule 2. `entry` is prefilled first."""
        largest = self.max_num_batched_tokens - len(self.decoding)
        earliest, context, steps = math.inf, 0, self.cache.steps
        for each in self.decoding.values():
            request = each.request
            if request.tpot_s < math.inf:
                due = request.first_token_by + each.generated(steps) * request.tpot_s
                earliest = min(earliest, due if due > now else now + request.tpot_s)
            context += each.base + steps + 1
        if earliest == math.inf:
            return largest
        computed = self.computed(entry)
        if self._fits(computed, largest, context, earliest - now):
            return largest
        low, high = 1, largest // self._chunk_tokens + 1  # in chunks; `low` is allowed, `high` is not
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(computed, middle * self._chunk_tokens, context, earliest - now):
                low = middle
            else:
                high = middle
        return min(low * self._chunk_tokens, largest)

    def _fits(self, computed: int, tokens: int, context: int, left_s: float) -> bool:
        """Return whether a step with so many tokens of prefill after `computed` ones is predicted to end in time."""
        return self.context.latency.seconds([(tokens, computed)], len(self.decoding), context) <= left_s


@settings()
class TokenDeadline(StepLimits):
    """Admit by the earliest due first token, and size chunks so that running requests keep their time per token."""

    chunk_tokens: int = setting(
        default=CHUNK_TOKENS, help="Unit of a step's prefill, and what it gets at least.", ge=1, le=1 << 16
    )

    def build(self, context: StepContext) -> StepPolicy:
        """Return the policy for one replica."""
        return TokenDeadlineBatching(context, self, self.chunk_tokens)
