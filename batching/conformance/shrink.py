"""Make a history that breaks a rule shorter and simpler, as long as it breaks the same rule.

First events are deleted, in runs of half the history and less. Then fields of events take simpler values. Both are
repeated until nothing changes, or until the number of attempts is used up."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Protocol, TypeVar

from headrace.batching.conformance.histories import COME, WITHDRAW, Event, History
from headrace.batching.conformance.instruments import Broken
from headrace.batching.policy import RETURNS

ATTEMPTS = 2000
ATTEMPTS_A_HANG = 200  # that a history counts for in which a call does not return, because it takes that much longer
_SIMPLEST = Event(COME)
_FIELDS = tuple(each.name for each in fields(Event) if each.name not in ("kind", "request"))


class HasEvents(Protocol):
    """A history of any kind: a dataclass with a tuple of events. A part of the events is a history, too."""

    @property
    def events(self) -> tuple[Any, ...]:
        """Return the events in their order."""
        ...


H = TypeVar("H", bound=HasEvents)


def shrink(
    history: H, broken: Broken, check: Callable[[H], Broken | None], candidates: Callable[[H], Iterator[H]]
) -> tuple[H, Broken]:
    """Return the simplest history found that breaks the same rule, and how it breaks it.

    Args:
        history, broken: A history and how `check` found it to break a rule.
        check: Plays a history.
        candidates: Yields histories that are simpler than a history, those that promise most first."""
    history = _with(history, history.events[: broken.events])
    left = ATTEMPTS
    simpler = True
    while simpler:
        simpler = False
        for candidate in candidates(history):
            if left <= 0:
                return history, broken
            found = check(candidate)
            left -= 1 if found is None or found.rule.name != RETURNS.name else ATTEMPTS_A_HANG
            if found is not None and found.rule is broken.rule:
                history, broken = _with(candidate, candidate.events[: found.events]), found
                simpler = True
                break
    return history, broken


def shorter(history: H) -> Iterator[H]:
    """Yield the history without runs of its events, the longest runs first."""
    events = history.events
    size = len(events)
    run = max(1, size // 2)
    while size > 0:
        for begin in range(0, size, run):
            yield _with(history, events[:begin] + events[begin + run :])
        if run == 1:
            break
        run //= 2


def _with(history: H, events: tuple[Any, ...]) -> H:
    changed: H = replace(history, events=events)  # type: ignore[type-var]  # HasEvents says that it is a dataclass
    return changed


def simpler_histories(history: History) -> Iterator[History]:
    """Yield histories that are simpler than this one, those that promise most first."""
    events = history.events
    yield from shorter(history)
    for workers in range(1, history.workers):
        yield History(workers, tuple(replace(each, worker=min(each.worker, workers - 1)) for each in events))
    renumbered = _renumbered(events)
    if renumbered != events:
        yield replace(history, events=renumbered)
    for place, event in enumerate(events):
        for simpler in _simpler(event):
            yield replace(history, events=(*events[:place], simpler, *events[place + 1 :]))


def _simpler(event: Event) -> Iterator[Event]:
    for name in _FIELDS:
        value, simplest = getattr(event, name), getattr(_SIMPLEST, name)
        if value == simplest:
            continue
        yield replace(event, **{name: simplest})
        if name in ("count", "input_len", "output_len", "given_up"):
            if value // 2 > simplest:
                yield replace(event, **{name: value // 2})
            if value - 1 > simplest:
                yield replace(event, **{name: value - 1})


def _renumbered(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the events with their requests numbered from 0 on, without gaps."""
    numbers: dict[int, int] = {}
    for event in events:
        if event.kind == COME:
            for number in range(event.request, event.request + event.count):
                numbers.setdefault(number, len(numbers))
    return tuple(
        replace(event, request=numbers.get(event.request, event.request)) if event.kind in (COME, WITHDRAW) else event
        for event in events
    )
