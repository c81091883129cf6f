"""Histories of a step policy: what happens to a replica of a model that decodes, as events that can be cut.

An event that does not apply where it stands is left out, so every part of a history is a history too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any, Final

from headrace.batching.conformance.shrink import shorter

COME, WITHDRAW, STEP = "come", "withdraw", "step"
MAX_EVENTS: Final = 40
_SIZES: Final = (1, 2, 4, 16)  # of blocks, in tokens
_TARGETS: Final = ((math.inf, math.inf), (0.5, 0.05), (2.0, math.inf), (8.0, 1.0))


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One event. A field that its kind does not use has its default.

    Args:
        kind: COME: requests are submitted. WITHDRAW: the caller of a request has gone. STEP: steps run.
        request: Number of the request, or of the first that comes.
        count: How many requests come, or how many repetitions of steps run.
        prompt, output, further: The tokens of a prompt and of its output, and what more its caller allows.
        items: The tokens of its images or sounds, in addition to those of the prompt.
        first_token_s, tpot_s: Its targets (s), the first from its arrival.
    """

    kind: str
    request: int = 0
    count: int = 1
    prompt: int = 1
    output: int = 1
    further: int = 0
    items: tuple[int, ...] = ()
    first_token_s: float = math.inf
    tpot_s: float = math.inf


@dataclass(frozen=True, slots=True)
class StepHistory:
    """The events that happen to a policy with a KV cache of so many blocks."""

    blocks: int
    block_size: int
    events: tuple[StepEvent, ...]


def random_step_history(random: Random, max_events: int = MAX_EVENTS) -> StepHistory:
    """Return a history, which follows from the state of `random` alone. Some requests are too large for the cache."""
    size = random.choice(_SIZES)
    longest = random.choice((10, 60, 300))
    blocks = -(-longest // size) + random.choice((0, 0, 3, 40))
    events: list[StepEvent] = []
    requests = 0
    for _ in range(random.randint(2, max(2, max_events))):
        (kind,) = random.choices((COME, STEP, WITHDRAW), (4, 7, 1))
        if kind == COME:
            prompt = random.randint(1, max(1, longest * 3 // 4))
            output = random.randint(1, max(1, longest - prompt))
            items = tuple(random.randint(1, 12) for _ in range(random.choice((0, 0, 0, 1, 3))))
            further = random.choice((0, 0, random.randint(0, 5)))
            count = random.choice((1, 1, 1, 2, 5))
            targets = random.choice(_TARGETS)
            events.append(StepEvent(COME, requests, count, prompt, output, further, items, *targets))
            requests += count
        elif kind == STEP:
            events.append(StepEvent(STEP, count=random.choice((1, 1, 2, 5, 20))))
        elif requests > 0:
            events.append(StepEvent(WITHDRAW, random.randrange(requests)))
    return StepHistory(blocks, size, tuple(events))


_SIMPLEST: Final = StepEvent(COME)
_NAMES: Final = tuple(each.name for each in fields(StepEvent) if each.name != "kind")


def simpler_step_histories(history: StepHistory) -> Iterator[StepHistory]:
    """Yield histories that are simpler than this one, those that promise most first."""
    yield from shorter(history)
    if history.block_size > 1:
        yield replace(history, block_size=1, blocks=history.blocks * history.block_size)
    events = history.events
    for place, event in enumerate(events):
        for simpler in _simpler(event):
            yield replace(history, events=(*events[:place], simpler, *events[place + 1 :]))


def _simpler(event: StepEvent) -> Iterator[StepEvent]:
    for name in _NAMES:
        value, simplest = getattr(event, name), getattr(_SIMPLEST, name)
        if value == simplest:
            continue
        yield replace(event, **{name: simplest})
        if isinstance(value, int):
            for smaller in (value // 2, value - 1):
                if smaller > simplest:
                    change: dict[str, Any] = {name: smaller}
                    yield replace(event, **change)
