"""Drive a step policy in virtual time, on one replica of a model that decodes.

At each time at which a step ends, the engine takes these steps in order:

1. It completes the step. Requests whose output ended leave.
2. It submits all requests that have come.
3. It asks for the next step, and starts it.

With a limit of requests in flight, a request that comes while as many are waits, and is submitted when one ends
(workload/closed_loop.py).

If no request is in flight, it waits for the next one. A step that has both takes the time of its encoder, and then that
of the model. The policy may allow that a step of decoding is repeated (`Step.repeats`). The engine then runs
repetitions until one of them ends at or after the next arrival, or until an output ends. So a run is the same, to the
last bit, as if the engine asked before every repetition.

Memory is bounded by the requests in flight: they are read one after another, and forgotten when they end.

This file is compiled (setup.py).
"""

import math
from collections.abc import Iterator
from typing import Final

from headrace.batching.accounting import Ledger
from headrace.batching.errors import UsageError
from headrace.batching.steps.checked_policy import CheckedStepPolicy, Progress
from headrace.batching.steps.policy import EncoderLatencyModel, StepContext, StepLatencyModel, StepPolicy
from headrace.batching.steps.request import Step, StepRequest
from headrace.sim.engine import Durations
from headrace.sim.interrupt import look_for_signals
from headrace.sim.workload.closed_loop import Arrivals

STEPS_BETWEEN_LOOKS = 1 << 12  # at most some tens of milliseconds
# Rounding of sums of durations must not make a target late that is met exactly.
ROUNDING_S = 1e-9


class StepRecord:
    """A step that ran from `started` to `ended` (s), with its repetitions."""

    def __init__(self, step: Step, started: float, ended: float) -> None:
        self.step: Final[Step] = step
        self.started: Final[float] = started
        self.ended: Final[float] = ended


class DecodingTally:
    """The figures of a run: nothing here grows with the number of requests, except `records`.

    Attributes:
        ledger: The count of requests by how they ended.
        latencies: Times (s) from arrival to the last token.
        first_tokens: Times (s) from arrival to the first token.
        per_token: Mean times (s) per output token after the first, of each request that has more than one.
        in_time: The requests that met both targets.
        queue_s: The sum (s) of the times from when a request is ready to the first step with it.
        busy_s: The time (s) in which a step ran.
        steps: The number of steps, each repetition counted.
        step_requests: The sum over steps of the requests in it.
        preemptions: How often a request lost its blocks.
        prompt_tokens: The tokens of the prompts of all requests that began.
        found_tokens: Those of them that were found in the KV cache, and not computed.
        found_again: The tokens that requests found when they went on after a preemption.
        evicted_blocks: The blocks that were evicted from the prefix cache.
        first, last: The times (s) of the first arrival and of the last end.
        records: The steps, if they are recorded.
    """

    def __init__(self, record: bool) -> None:
        self.ledger: Final[Ledger] = Ledger()
        self.latencies: Final[Durations] = Durations()
        self.first_tokens: Final[Durations] = Durations()
        self.per_token: Final[Durations] = Durations()
        self.in_time: int = 0
        self.queue_s: float = 0.0
        self.busy_s: float = 0.0
        self.steps: int = 0
        self.step_requests: int = 0
        self.preemptions: int = 0
        self.prompt_tokens: int = 0
        self.found_tokens: int = 0
        self.found_again: int = 0
        self.evicted_blocks: int = 0
        self.first: float = math.inf
        self.last: float = 0.0
        self.record: Final[bool] = record
        self.records: list[StepRecord] = []

    def begins(self, progress: Progress, now: float) -> None:
        """Note that a request stands in a step that starts."""
        if progress.started < 0.0:
            progress.started = now
            self.prompt_tokens += progress.request.prompt_tokens
            self.queue_s += now - progress.request.ready

    def finds(self, progress: Progress, tokens: int) -> None:
        """Note that a request found tokens in the KV cache. It must be told before `begins`."""
        if progress.started < 0.0:
            self.found_tokens += tokens
        else:
            self.found_again += tokens

    def yields(self, progress: Progress, now: float) -> None:
        """Note that a prefill of the request ended, which yields the first token if there is none."""
        if progress.first_token < 0.0:
            progress.first_token = now
            self.first_tokens.add(now - progress.request.arrival)

    def ends(self, progress: Progress, now: float) -> None:
        """Note that the output of a request ended."""
        request = progress.request
        self.latencies.add(now - request.arrival)
        in_time = progress.first_token <= request.first_token_by + ROUNDING_S
        if request.output_len > 1:
            per_token = (now - progress.first_token) / (request.output_len - 1)
            self.per_token.add(per_token)
            in_time = in_time and per_token <= request.tpot_s + ROUNDING_S
        self.in_time += 1 if in_time else 0
        self.last = now


def run_steps(
    policy: StepPolicy,
    requests: Iterator[StepRequest],
    context: StepContext,
    record: bool = False,
    users: int | None = None,
) -> DecodingTally:
    """Serve all requests to the end.

    Args:
        policy: The policy that is driven. It must be new.
        requests: The requests, in the order in which they are ready. They are read as they come.
        context: The replica. Its latencies give the duration of steps.
        record: List every step as it ran.
        users: The largest number of requests in flight; None for no limit.

    Raises:
        UsageError: The requests are not in order, or have items and the model has no encoder, or a duration is not a
            number of 0 or more, or `users` is below 1.
        PolicyError: The policy breaks a rule.
    """
    tally = DecodingTally(record)
    checked = CheckedStepPolicy(policy, context.kv_blocks, context.block_size, tally.ledger, context.prefix_caching)
    replica = _Replica(checked, context, tally)
    arrivals = Arrivals(requests, users)
    now = 0.0
    turns = 0
    while True:
        turns += 1
        if turns % STEPS_BETWEEN_LOOKS == 0:
            look_for_signals()
        coming = arrivals.take(now, tally.ledger.in_flight)
        while coming is not None:
            replica.submit(coming, now)
            coming = arrivals.take(now, tally.ledger.in_flight)
        comes = arrivals.next_at(tally.ledger.in_flight)
        if tally.ledger.in_flight == 0:
            if comes == math.inf:
                tally.evicted_blocks = int(getattr(policy, "evicted_blocks", 0))
                return tally
            now = max(now, comes)
            continue
        now = replica.run_step(now, comes)


class _Replica:
    def __init__(self, checked: CheckedStepPolicy, context: StepContext, tally: DecodingTally) -> None:
        self._checked: CheckedStepPolicy = checked
        self._latency: StepLatencyModel = context.latency
        self._encoder: EncoderLatencyModel | None = context.encoder
        self._tally: DecodingTally = tally

    def submit(self, request: StepRequest, now: float) -> None:
        if len(request.items) > 0 and self._encoder is None:
            raise UsageError(
                f"request {request.id} has images or audio, and the model has no encoder; give its latency"
            )
        self._tally.first = min(self._tally.first, request.arrival)
        self._checked.submit(request, now)

    def run_step(self, now: float, comes: float) -> float:
        """Run the next step, and its repetitions up to the next arrival at `comes` (s). Return the time of its end."""
        checked, tally = self._checked, self._tally
        step = checked.next_step(now)
        assert step is not None
        started, repeats = now, 0
        if len(checked.items) > 0 and self._encoder is not None:
            now += _checked_seconds(self._encoder.seconds(checked.items))
        decoding, tokens = len(step.decoding), checked.decode_context
        if decoding > 0 or len(checked.chunks) > 0:
            while True:
                now += _checked_seconds(self._latency.seconds(checked.chunks, decoding, tokens))
                repeats += 1
                tokens += decoding
                if repeats >= checked.max_repeats or now >= comes:
                    break
        for request, found in step.found:
            tally.finds(checked.progress(request), found)
        for request, _ in step.encoder:
            tally.begins(checked.progress(request), started)
        for request, _ in step.prefill:
            tally.begins(checked.progress(request), started)
        ended = checked.complete(step, max(repeats, 1), now)
        tally.busy_s += now - started
        tally.steps += ended.repeats
        tally.step_requests += ended.repeats * (decoding + len(step.prefill))
        tally.preemptions += len(step.preempted)
        for request, _ in step.prefill:
            progress = request.held_by
            assert isinstance(progress, Progress)
            if progress.generated > 0:
                tally.yields(progress, now)
        for request in ended.finished:
            progress = request.held_by
            assert isinstance(progress, Progress)
            tally.ends(progress, now)
            request.held_by = None  # ends the circle of references
        if tally.record:
            tally.records.append(StepRecord(ended, started, now))
        return now


def _checked_seconds(seconds: float) -> float:
    if not 0.0 <= seconds < math.inf:
        raise UsageError(f"a step takes {seconds} s by its latency model; give a time of 0 or more")
    return seconds
