"""Requests of models that decode, and the steps that such a model runs.

Rule: these are values, as in batching/request.py. The drivers' checks keep their notes in `Request.held_by`, and
nothing else changes after construction.

Terms
-----
- Prefill computes the tokens of the prompt. It fills the KV cache, and its end yields the first output token.
- Decoding computes one token of each request in a step, and yields the next one.
- A chunk is a run of consecutive tokens of one request that a step prefills.
- An encoder item is an image or a piece of audio. An encoder turns it into tokens of the prompt.
- A request that was preempted by recomputation has no tokens in the cache. It prefills its prompt and the tokens that
  it has generated, and then goes on.

This file is compiled (setup.py).
"""

import math
from typing import Final

from headrace.batching.errors import UsageError
from headrace.batching.request import Request


class StepRequest(Request):
    """One request to a model that decodes.

    Args:
        id: A number that no other request in flight has.
        arrival: The time of arrival (s).
        prompt_tokens: The tokens of the prompt, those of encoder items included.
        output_tokens: The true number of output tokens. A driver ends the request by it, and a policy must not read it.
        max_output_tokens: The largest number of output tokens that the caller allows; None allows `output_tokens`.
        items: The tokens of each encoder item, in order.
        first_token_by: The time (s) by which the first token is due; inf if there is no target.
        tpot_s: The target (s) for each output token after the first, on average; inf if there is no target.
        model: The model's name.
        ready: The time (s) at which the request comes to the policy, at its arrival or later; None for its arrival.
        contents: Segments of the prompt and the output, each with the number that stands for its tokens and the token
            at which it ends (prefix_cache.py). Requests with equal segments have equal tokens there. Tokens beyond the
            last segment are the request's own.

    `deadline` is the time (s) at which the last of `max_output_tokens` tokens is due.

    Raises:
        UsageError: A number is out of its range.
    """

    def __init__(
        self,
        id: int,
        arrival: float,
        prompt_tokens: int,
        output_tokens: int,
        max_output_tokens: int | None = None,
        items: tuple[int, ...] = (),
        first_token_by: float = math.inf,
        tpot_s: float = math.inf,
        model: str = "model",
        ready: float | None = None,
        contents: tuple[tuple[int, int], ...] = (),
    ) -> None:
        largest = output_tokens if max_output_tokens is None else max_output_tokens
        if prompt_tokens < 1 or not 1 <= output_tokens <= largest:
            raise UsageError(
                f"request {id} has {prompt_tokens} prompt tokens and {output_tokens} of at most {largest} output "
                "tokens: give at least 1 of each"
            )
        item_tokens = 0
        for tokens in items:
            item_tokens += tokens
            if tokens < 1 or item_tokens > prompt_tokens:
                raise UsageError(
                    f"request {id} has an encoder item of {tokens} tokens, in a prompt of {prompt_tokens}: give items "
                    "of 1 token or more that the prompt can hold"
                )
        if not tpot_s > 0.0:  # also refuses NaN
            raise UsageError(f"request {id} has a target of {tpot_s} s for each output token: give a time above 0")
        if ready is not None and not arrival <= ready < math.inf:
            raise UsageError(
                f"request {id} arrives at {arrival} s and is ready at {ready} s: give a time after arrival"
            )
        before = 0
        for segment, end in contents:
            if segment < 0 or end <= before:
                raise UsageError(
                    f"request {id} has a segment {segment} up to token {end} after one up to {before}: give numbers of "
                    "0 or more, and ends that rise"
                )
            before = end
        deadline = first_token_by if largest == 1 else first_token_by + tpot_s * (largest - 1)
        super().__init__(id, model, arrival, deadline, float(prompt_tokens), output_tokens)
        self.prompt_tokens: Final[int] = prompt_tokens
        self.max_output_tokens: Final[int] = largest
        self.items: Final[tuple[int, ...]] = items
        self.first_token_by: Final[float] = first_token_by
        self.tpot_s: Final[float] = tpot_s
        self.ready: Final[float] = arrival if ready is None else ready
        self.contents: Final[tuple[tuple[int, int], ...]] = contents

    def sent_at(self, at: float) -> "StepRequest":
        """Return the same request as it comes at `at` (s). The first token is due as long after it as before."""
        return StepRequest(
            self.id,
            at,
            self.prompt_tokens,
            self.output_len,
            self.max_output_tokens,
            self.items,
            self.first_token_by + (at - self.arrival),
            self.tpot_s,
            self.model,
            None,
            self.contents,
        )


Part = tuple[StepRequest, int]  # a request, and how many of its tokens or items


class Step:
    """The work of one iteration of a model.

    Args:
        prefill: Requests, each with the number of tokens of its chunk.
        decoding: Requests that decode one token each.
        encoder: Requests, each with the number of its next encoder items that are encoded before the prefill.
        preempted: Requests that lost all their blocks of the KV cache before the step.
        repeats: How many times in a row the step may run. A driver may end it after any repetition.
        finished: In a step that ended: the requests whose output ended with it.
        found: Requests that are admitted, each with the first tokens of its prompt that the KV cache has already
            (prefix_cache.py). They are not computed.

    A driver gives a step back to `StepPolicy.complete` with the number of times that it ran as `repeats`.
    """

    def __init__(
        self,
        prefill: tuple[Part, ...] = (),
        decoding: tuple[StepRequest, ...] = (),
        encoder: tuple[Part, ...] = (),
        preempted: tuple[StepRequest, ...] = (),
        repeats: int = 1,
        finished: tuple[StepRequest, ...] = (),
        found: tuple[Part, ...] = (),
    ) -> None:
        self.prefill: Final[tuple[Part, ...]] = prefill
        self.decoding: Final[tuple[StepRequest, ...]] = decoding
        self.encoder: Final[tuple[Part, ...]] = encoder
        self.preempted: Final[tuple[StepRequest, ...]] = preempted
        self.repeats: Final[int] = repeats
        self.finished: Final[tuple[StepRequest, ...]] = finished
        self.found: Final[tuple[Part, ...]] = found

    def ended(self, repeats: int, finished: tuple[StepRequest, ...]) -> "Step":
        """Return the same step as it ended after so many repetitions."""
        return Step(self.prefill, self.decoding, self.encoder, self.preempted, repeats, finished, self.found)

    def __repr__(self) -> str:
        prefill = ", ".join(f"{request.id}+{tokens}" for request, tokens in self.prefill)
        decoding = ", ".join(str(request.id) for request in self.decoding)
        return f"Step(prefill=[{prefill}], decoding=[{decoding}], repeats={self.repeats})"
