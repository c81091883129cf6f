"""Histories: what happens to a policy, as a list of events that can be cut and simplified.

An event that does not apply where it stands, such as the end of a task where none runs, is left out when the history
is played. So every part of a history is a history too, which is what the shrinker needs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

COME, UNKNOWN, WITHDRAW, ASK, END, LOSE = "come", "unknown", "withdraw", "ask", "end", "lose"
MAX_WORKERS = 3
MAX_EVENTS = 60
MAX_LENGTH = 4  # of an input, and of an output
LARGE = 200  # requests that come at once, at most
GAPS_S = (0.0, 0.0, 0.1, 1.0)
DEADLINES_S = (3.0, 9.0, 40.0, math.inf)


@dataclass(frozen=True, slots=True)
class Event:
    """One event. A field that its kind does not use, or whose value does not matter, has its default.

    Args:
        kind: COME: requests are submitted. UNKNOWN: a request of a model that nobody has. WITHDRAW: the caller of a
            request has gone. ASK: a worker is offered a task. END: the first task of a worker ends. LOSE: a worker is
            lost with its tasks.
        after_s: Time since the event before (s).
        worker: Number of the worker.
        request: Number of the request, or of the first that comes.
        count: How many requests come.
        model, deadline_s, input_len, output_len: Of the requests. The deadline counts from their arrival.
        share: Where a task ends that may end at any node: 1 is where it would end by itself, 0 the first node.
        given_up: How many requests of a lost task are not run again."""

    kind: str
    after_s: float = 0.0
    worker: int = 0
    request: int = 0
    count: int = 1
    model: str = "a"
    deadline_s: float = math.inf
    input_len: int = 1
    output_len: int = 1
    share: float = 1.0
    given_up: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """What happens to a policy for so many workers."""

    workers: int
    events: tuple[Event, ...]


def random_history(random: Random, largest: Mapping[str, int], max_events: int = MAX_EVENTS) -> History:
    """Return a history for models whose largest batches are `largest`. It follows from the state of `random` alone."""
    workers = random.randint(1, MAX_WORKERS)
    weights = {COME: 4, ASK: 7, END: 6, WITHDRAW: 2, LOSE: random.choice((0, 1)), UNKNOWN: 0.2}
    events: list[Event] = []
    requests = 0
    for _ in range(random.randint(2, max(2, max_events))):
        (kind,) = random.choices(list(weights), list(weights.values()))
        after_s = random.choice(GAPS_S)
        worker = random.randrange(workers)
        if kind == COME:
            model = random.choice(sorted(largest))
            full = min(largest[model], LARGE)
            count = random.choice((1, 1, 1, 1, 2, 3, full if random.random() < 0.3 else 1))
            lengths = random.randint(1, MAX_LENGTH), random.randint(1, MAX_LENGTH)
            deadline_s = random.choice(DEADLINES_S)
            events.append(Event(COME, after_s, 0, requests, count, model, deadline_s, *lengths))
            requests += count
        elif kind == WITHDRAW:
            if requests > 0:
                events.append(Event(WITHDRAW, after_s, request=random.randrange(requests)))
        elif kind == END:
            share = random.choice((1.0, 1.0, 0.0, round(random.random(), 2)))
            events.append(Event(END, after_s, worker, share=share))
        elif kind == LOSE:
            events.append(Event(LOSE, after_s, worker, given_up=random.choice((0, 0, 1, 2))))
        else:
            events.append(Event(kind, after_s, worker if kind == ASK else 0))
    return History(workers, tuple(events))
