"""The step policy `lazy` is LazyBatching on transformers: newcomers preempt the running batch and catch up with it.

Source: Choi, Kim, Rhu, "LazyBatching: An SLA-aware Batching System for Cloud Machine Learning Inference", HPCA 2021,
Section IV. The name of the deadline-aware rule there is slack.

LazyBatching runs sub-batches from a stack. Newcomers enter on top, run to the node where the batch below stands, and
are merged with it. In a model that decodes, all nodes before that point are the prefill. So a step has one of two
kinds:

- Catching up: it has chunks of newcomers only. The running batch is preempted and keeps its blocks.
- Decoding: it has one token of each request of the merged batch, and no chunk.

Rules
-----
1. If no request runs, waiting requests enter in the order in which they came, up to the limits, until the first step of
   decoding. No slack is checked.
2. If requests run, the first waiting request enters at a step's end if its entry leaves every running request and
   itself enough slack (below), and if the limits allow it. Then the next one is looked at.
3. The sub-batch of newcomers catches up in steps of at most `max_num_batched_tokens` tokens. More newcomers may enter
   while it does.
4. When no newcomer is left to prefill, the batch is whole and decodes.

Slack
-----
Let the batch have n requests, newcomers included, let request i have R_i output tokens left, and let s be the predicted
duration of a step in which n requests decode, at their present lengths. Let C be the sum of the predicted durations of
the newcomers' prefill, each alone. Then all newcomers may enter if, for each of the n requests,

    now + C + R_i s <= deadline_i

- The sum over single durations is the paper's conservative estimate (Eq. 2) for the part that newcomers add. The paper
  also adds the decoding of all requests as if they ran one after another. For outputs of hundreds of tokens this sum
  would refuse every newcomer, so decoding counts once, as a batch.
- The deadline of a request is the time at which its last token is due (request.py): its time to first token, and its
  time per output token for all others. Output lengths are unknown. R_i counts up to `dec_timesteps`, or up to the
  request's largest output if that is less, and at least one token (Algorithm 1).
- A running request that is late already refuses every newcomer. The batch then runs empty, and rule 1 follows. So every
  waiting request enters in the end.

Preemption for blocks is that of batch.py.

This file is compiled (setup.py).
"""

import math

from headrace.batching.settings import settings
from headrace.batching.steps.batch import Entry, FirstComeFirstServed, StepBatching
from headrace.batching.steps.policy import StepContext, StepPolicy
from headrace.batching.steps.request import Step
from headrace.batching.steps.settings import AssumedOutput, StepLimits

MAX_OUTPUT = 1 << 40  # tokens; no request has as many


class LazyStepBatching(StepBatching):
    """A `StepPolicy` whose newcomers preempt the running batch while slack allows it.

    Its last argument is the number of output tokens that are assumed for every request."""

    def __init__(self, context: StepContext, limits: StepLimits, dec_timesteps: int) -> None:
        super().__init__(context, FirstComeFirstServed(), limits)
        self._dec_timesteps: int = dec_timesteps
        self._refused: bool = False  # by slack, in the formed step
        self._begins: bool = True  # no request of the batch has decoded in it

    def next_step(self, now: float) -> Step | None:
        if self.idle():
            return None
        self.begin_step()
        self._refused = False
        if len(self.decoding) == 0 and self.partial is None:
            self._begins = True
        budget = self.max_num_batched_tokens
        self.advance_partial(budget, 0)
        self._admit_newcomers(budget, now)
        if self.has_parts():
            return self.formed(False)
        self._begins = False
        self.make_room()
        return self.formed(True, once=self._refused)

    def _admit_newcomers(self, budget: int, now: float) -> None:
        catching_up = 0.0  # the sum C
        for entry in self.whole:
            catching_up += self._prefill_seconds(entry)
        while self.partial is None and not self.has_preempted() and self.running() < self.max_num_seqs:
            first = self.waiting.first(now)
            if first is None:
                return
            if not self._begins:
                catching_up += self._prefill_seconds(first)
                if now + catching_up > self._latest_end(first):
                    self._refused = True
                    return
            if not self.admit(first, self.budget_left(budget), 0):
                return

    def _prefill_seconds(self, entry: Entry) -> float:
        """Return the predicted duration (s) of the rest of the request's prefill alone, with that of its items."""
        computed = self.computed(entry)
        seconds = self.context.latency.seconds([(entry.total - computed, computed)], 0, 0)
        encoder = self.context.encoder
        left = entry.request.items[entry.encoded :]
        return seconds if encoder is None or len(left) == 0 else seconds + encoder.seconds(left)

    def _latest_end(self, newcomer: Entry) -> float:
        """Return the latest time (s) at which the batch with the newcomer may begin to decode.

        No request then misses its deadline."""
        steps = self.cache.steps
        newcomers = [*self.whole, newcomer]
        context = 0
        for entry in self.decoding.values():
            context += entry.base + steps + 1
        for entry in newcomers:
            context += entry.total + 1
        decode_s = self.context.latency.seconds([], len(self.decoding) + len(newcomers), context)
        latest = math.inf
        for entry in self.decoding.values():
            latest = min(latest, self._latest_start(entry, entry.generated(steps), decode_s))
        for entry in newcomers:
            latest = min(latest, self._latest_start(entry, entry.total - entry.request.prompt_tokens + 1, decode_s))
        return latest

    def _latest_start(self, entry: Entry, generated: int, decode_s: float) -> float:
        assumed = min(entry.request.max_output_tokens, self._dec_timesteps)
        return entry.request.deadline - max(assumed - generated, 1) * decode_s


@settings()
class LazySteps(StepLimits, AssumedOutput):
    """Let newcomers preempt the running batch and catch up with it, while every request keeps its slack."""

    def build(self, context: StepContext) -> StepPolicy:
        """Return the policy for one replica."""
        assumed = MAX_OUTPUT if self.dec_timesteps is None else self.dec_timesteps
        return LazyStepBatching(context, self, assumed)
