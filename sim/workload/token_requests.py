"""Requests of a trace of tokens, one after another, as a run of any length serves them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.batching.settings import setting, settings
from headrace.batching.steps.request import StepRequest
from headrace.sim.workload.contents import Contents, Segments
from headrace.sim.workload.token_traces import MAX_TOKENS, TokenTrace

BLOCK = 1 << 12  # requests that are made together


@settings()
class Conversations:
    """Prompts that begin alike: with a system prompt of all requests, and with the conversation so far.

    A request goes on with the conversation that has waited longest for its next turn, if it has waited for
    `turn_gap_s`. If none has, the request begins a new one. The prompt of a turn has the system prompt, all prompts and
    outputs of the conversation, and the tokens of its own. So the rate of requests stays as it is, and prompts grow. A
    conversation ends after `turns` turns, or if its next prompt would have more than `longest_prompt` tokens."""

    system_tokens: int = setting(
        default=0, help="Tokens of a system prompt, with which all prompts begin.", ge=0, le=MAX_TOKENS
    )
    turns: int = setting(default=1, help="Requests of a conversation, whose prompts grow with it.", ge=1, le=10_000)
    turn_gap_s: float = setting(
        default=30.0, help="Least time from one request of a conversation to the next (s).", ge=0, le=1e6
    )
    longest_prompt: int = setting(
        default=32768, help="Largest prompt of a later turn of a conversation.", ge=1, le=MAX_TOKENS, advanced=True
    )

    @property
    def shares(self) -> bool:
        """Return whether requests have anything in common."""
        return self.system_tokens > 0 or self.turns > 1

    def with_history(self, trace: TokenTrace) -> TokenTrace:
        """Return a trace in which the prompts of another one are the new tokens of each turn.

        Raises UsageError if that trace tells contents already."""
        if trace.contents is not None:
            raise UsageError("the trace tells what its prompts have in common; leave out system_tokens and turns")
        system = self.system_tokens
        prompts, starts, segments, ends = [], [0], [], []
        number = 0  # of the last conversation; the system prompt has the number 0
        open_: list[tuple[float, int, int, int]] = []  # from when on it goes on, its number, its tokens, and its turns
        first = 0  # of those that wait
        arrivals = trace.arrival_s.tolist()
        new, outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
        for at, own, output in zip(arrivals, new, outputs, strict=True):
            tokens, conversation, turn = system, 0, 0
            while first < len(open_) and open_[first][0] <= at and not conversation:
                _, which, past, turns = open_[first]
                first += 1
                if past + own <= self.longest_prompt:
                    tokens, conversation, turn = past, which, turns
            if not conversation:
                number += 1
                conversation = number
            prompt = tokens + own
            if turn + 1 < self.turns:
                open_.append((at + self.turn_gap_s, conversation, prompt + output, turn + 1))
            if first > 4096:
                del open_[:first]
                first = 0
            prompts.append(prompt)
            if system:
                segments.append(0)
                ends.append(system)
            segments.append(conversation)
            ends.append(prompt + output)
            starts.append(len(segments))
        contents = Contents(np.array(starts), np.array(segments, np.int64), np.array(ends, np.int64))
        return replace(trace, prompt_tokens=np.array(prompts, np.int64), contents=contents)


@dataclass(frozen=True, slots=True)
class ImagesPerRequest:
    """How many images a request has, and how many tokens each.

    Args:
        tokens: The tokens of one image.
        shares: The probability of each number of images, such as {0: 0.7, 1: 0.2, 4: 0.1}; empty for the numbers of the
            trace.
        in_prompt: Whether the prompts of the trace contain the tokens of the images. If not, they are added.

    Raises:
        UsageError: A number is out of its range, or the shares do not sum to 1.
    """

    tokens: int
    shares: Mapping[int, float] = field(default_factory=dict)
    in_prompt: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= MAX_TOKENS:
            raise UsageError(f"images of {self.tokens} tokens: give 1 to {MAX_TOKENS}")
        whole = all(number >= 0 and share >= 0 for number, share in self.shares.items())
        if self.shares and not (whole and math.isclose(sum(self.shares.values()), 1.0, abs_tol=1e-6)):
            raise UsageError(f"shares of images {dict(self.shares)}: give numbers of 0 or more, whose shares sum to 1")

    def _counts(self, trace: TokenTrace, block: slice, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the number of images of each request of a block. Raises UsageError if nothing tells it."""
        if self.shares:
            share = np.array(list(self.shares.values()), dtype=np.float64)
            drawn = rng.choice(list(self.shares), len(trace.arrival_s[block]), p=share / share.sum())
            return drawn.astype(np.int64)
        if trace.images is None:
            raise UsageError("the trace has no images; give it a column NumImages, or give shares of images")
        return trace.images[block]


def token_requests(
    trace: TokenTrace,
    *,
    requests: int | None = None,
    speed: float = 1.0,
    ttft_s: float = math.inf,
    tpot_s: float = math.inf,
    max_output_tokens: int | None = None,
    images: ImagesPerRequest | None = None,
    seed: int = 0,
) -> Iterator[StepRequest]:
    """Return the requests of a trace, in order. They are made as they are read.

    Args:
        trace: The trace.
        requests: The number of requests; None for those of the trace. A longer run repeats the trace, each time one
            mean distance after its last request.
        speed: How much faster the requests follow one another.
        ttft_s: The target (s) for the first token.
        tpot_s: The target (s) for each token after it.
        max_output_tokens: The most output tokens that every caller allows; None for each request's own output.
        images: The images of the requests; None for none.
        seed: The seed of what is drawn.

    Raises:
        UsageError: An argument is out of its range, an output is longer than `max_output_tokens`, or a prompt is
            shorter than its images.
    """
    count = trace.requests if requests is None else requests
    if count < 1:
        raise UsageError(f"{count} requests: give at least 1")
    if not (math.isfinite(speed) and speed > 0):
        raise UsageError(f"a speed of {speed}: give a number above 0")
    if not (ttft_s > 0 and tpot_s > 0):
        raise UsageError(f"targets of {ttft_s} s and {tpot_s} s: give times above 0")
    longest = int(trace.output_tokens.max())
    if max_output_tokens is not None and longest > max_output_tokens:
        raise UsageError(
            f"an output has {longest} tokens, and at most {max_output_tokens} are allowed; allow {longest}"
        )
    if images is not None:
        contents = trace.contents
        if not images.in_prompt and contents is not None:
            prompts = np.repeat(trace.prompt_tokens, np.diff(contents.starts))
            if (contents.ends > prompts).any():
                raise UsageError("images come after the text of a prompt, and not into conversations; leave out either")
        images._counts(trace, slice(0, 1), np.random.default_rng(0))  # so that an error comes now
    period_s = float(trace.arrival_s[-1]) + (1.0 / trace.rate_rps if count > trace.requests else 0.0)
    return _made(trace, count, period_s, speed, ttft_s, tpot_s, max_output_tokens, images, seed)


def _made(
    trace: TokenTrace,
    count: int,
    period_s: float,
    speed: float,
    ttft_s: float,
    tpot_s: float,
    max_output_tokens: int | None,
    images: ImagesPerRequest | None,
    seed: int,
) -> Iterator[StepRequest]:
    number = 0
    rng = np.random.default_rng((seed, 4))
    while number < count:
        origin_s = number // trace.requests * period_s
        start = number % trace.requests
        block = slice(start, min(start + BLOCK, trace.requests, start + count - number))
        arrival = ((origin_s + trace.arrival_s[block]) / speed).tolist()
        prompts, outputs = trace.prompt_tokens[block].tolist(), trace.output_tokens[block].tolist()
        segments: list[Segments] = [()] * len(arrival)
        if trace.contents is not None:
            # A repetition has new contents: the same ones again would be found as a whole.
            shift = number // trace.requests * trace.contents.numbers
            segments = trace.contents.of(block.start, block.stop, shift)
        pictures = [0] * len(arrival) if images is None else images._counts(trace, block, rng).tolist()
        rows = zip(arrival, prompts, outputs, pictures, segments, strict=True)
        for at, prompt, output, number_of_images, contents in rows:
            items: tuple[int, ...] = ()
            if images is not None and number_of_images > 0:
                items = (images.tokens,) * number_of_images
                if not images.in_prompt:
                    prompt += images.tokens * number_of_images
            yield StepRequest(
                number,
                at,
                prompt,
                output,
                max_output_tokens,
                items,
                at + ttft_s,
                tpot_s,
                contents=contents,
            )
            number += 1
