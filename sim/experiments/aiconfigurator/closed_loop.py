"""A closed loop: so many users send a request, wait for all its tokens, and send the next at once.

The server's steps follow each server's documented rule. A step of TensorRT-LLM has one token of each decoding request
and as many whole prompts as its budget takes. SGLang prefers prompts: their steps have no decoding requests, and long
prompts come in chunks. vLLM fills the budget that decoding requests leave with chunks of prompts. A request begins when
the KV cache has room for all its tokens, in the order of arrival.

Where no prompt waits, steps between two ends of requests differ by their context alone, and on a line but for the
corners of the tables. They count as one jump, with Simpson's rule.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu.tables import SGLANG, TENSORRT_LLM, VLLM

# The prompts' chunks, the decoding requests, and the sum of their contexts, to seconds.
Seconds = Callable[[Sequence[tuple[int, int]], int, int], float]
MIXED: Final = (TENSORRT_LLM, VLLM)  # prompts and decoding requests in one step
CHUNKED: Final = (SGLANG, VLLM)  # prompts in chunks


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of a closed loop.

    Attributes:
        users: The requests in flight.
        prompt, output: The largest numbers of tokens.
        shortest: The smallest, as a share of the largest. Numbers are uniform between both.
        rounds: The requests of each user.
        seed: The seed of the numbers.
        cached: Whether all but the last token of each prompt is in the KV cache when it arrives.
        spread: Whether the users begin at different times. The first output of each is cut anywhere, and does not
            count.
    """

    users: int
    prompt: int
    output: int
    shortest: float = 1.0
    rounds: int = 10
    seed: int = 0
    cached: bool = False
    spread: bool = False

    def lengths(self) -> Iterator[tuple[int, int]]:
        """Return the tokens of prompt and output of each request. An output has 2 tokens or more."""
        draw = random.Random(self.seed)
        for number in range(self.users * self.rounds):
            prompt, output = (draw.randint(int(self.shortest * size), size) for size in (self.prompt, self.output))
            if self.spread and number < self.users:
                output = draw.randint(1, output)
            yield prompt, max(2, output)


@dataclass(frozen=True, slots=True)
class Times:
    """Mean seconds of all requests: to the first token, and for each further one."""

    ttft_s: float
    tpot_s: float


class ClosedLoop:
    """A closed loop on a server.

    Args:
        seconds: Returns the seconds of a step, as `StepLatency.seconds` does.
        backend: The server, whose rule forms the steps.
        load: The requests.
        budget: The tokens that a step takes at most. A prompt of more tokens is a step's only one where the server
            does not cut prompts.
        kv_tokens: The tokens that the KV cache holds.

    Raises UsageError if a request does not fit the KV cache."""

    def __init__(self, seconds: Seconds, backend: str, load: Load, budget: int, kv_tokens: int) -> None:
        if load.prompt + load.output > kv_tokens:
            raise UsageError(
                f"a request has {load.prompt + load.output} tokens, and the KV cache holds {kv_tokens}; "
                "choose more GPUs, or a smaller precision"
            )
        self._seconds = seconds
        self._mixed, self._chunked = backend in MIXED, backend in CHUNKED
        self._budget = budget
        self._free = kv_tokens
        self._load = load
        self._source = load.lengths()
        self._now = 0.0
        self._step = 0  # the steps in which requests decoded
        self._waiting: deque[tuple[float, int, int]] = deque()  # arrival, prompt, output
        self._begun: deque[list[float]] = deque()  # arrival, prompt, output, tokens in the cache
        # By the step of the last token: when that is, a number, when the first token came, prompt and output.
        self._decoding: list[tuple[int, int, float, int, int]] = []
        self._context = 0
        self._began = 0  # the requests that have their first token
        self._skipped = load.users if load.spread else 0  # that many do not count
        self._ttft: list[float] = []
        self._tpot: list[float] = []

    def run(self) -> Times:
        """Run all requests and return their mean times."""
        for _ in range(self._load.users):
            self._arrive()
        while self._waiting or self._begun or self._decoding:
            chunks = self._fill()
            if chunks:
                self._prefill(chunks)
            else:
                self._decode()
        return Times(sum(self._ttft) / len(self._ttft), sum(self._tpot) / len(self._tpot))

    def _arrive(self) -> None:
        for prompt, output in self._source:
            self._waiting.append((self._now, prompt, output))
            return

    def _fill(self) -> list[tuple[int, int]]:
        """Return the chunks of the next step: tokens of prompts, and those in the cache before them."""
        left = self._budget - (len(self._decoding) if self._mixed else 0)
        chunks: list[tuple[int, int]] = []
        for request in self._begun:  # what an earlier step cut
            if left <= 0:
                return chunks
            chunks.append((int(min(left, request[1] - request[3])), int(request[3])))
            left -= chunks[-1][0]
        while self._waiting and left > 0:
            arrival, prompt, output = self._waiting[0]
            if prompt + output > self._free or (not self._chunked and prompt > left and chunks):
                break
            self._waiting.popleft()
            self._free -= prompt + output
            before = prompt - 1 if self._load.cached else 0
            self._begun.append([arrival, prompt, output, before])
            new = min(left, prompt - before) if self._chunked else prompt - before
            chunks.append((new, before))
            left -= new
        return chunks

    def _prefill(self, chunks: list[tuple[int, int]]) -> None:
        """Run a step with prompts; requests whose prompt ends have their first token."""
        decoding = len(self._decoding) if self._mixed else 0
        self._now += self._seconds(chunks, decoding, self._context if decoding else 0)
        if decoding:
            self._step += 1
            self._context += decoding
        for request, (new, _) in zip(tuple(self._begun), chunks, strict=False):
            request[3] += new
            if request[3] < request[1]:
                continue
            self._begun.popleft()
            arrival, prompt, output = request[0], int(request[1]), int(request[2])
            self._began += 1
            if self._began > self._skipped:
                self._ttft.append(self._now - arrival)
            heapq.heappush(self._decoding, (self._step + output - 1, self._began, self._now, prompt, output))
            self._context += prompt + 1
        self._end()

    def _decode(self) -> None:
        """Run the steps until the next request ends. Nothing else can happen: no prompt fits before that."""
        count = len(self._decoding)
        steps = self._decoding[0][0] - self._step
        seconds = self._seconds
        first = seconds((), count, self._context)
        if steps > 1:
            last = seconds((), count, self._context + (steps - 1) * count)
            middle = seconds((), count, self._context + (steps - 1) * count // 2)
            first = steps * (first + 4 * middle + last) / 6
        self._now += first
        self._step += steps
        self._context += steps * count
        self._end()

    def _end(self) -> None:
        while self._decoding and self._decoding[0][0] <= self._step:
            _, number, first, prompt, output = heapq.heappop(self._decoding)
            if number > self._skipped:
                self._tpot.append((self._now - first) / (output - 1))
            self._context -= prompt + output
            self._free += prompt + output
            self._arrive()
